//! Two connections joined after a 101, or a connection and a stream after a 200 to extended CONNECT: what comes on one goes to the other.
//!
//! Knows nothing of how the client's side was obtained, but that it notes its bytes in the connection's state. What has
//! been read is written at once from a buffer that the worker's tunnels share; only what a slow receiver does not take
//! is kept, and nothing more is read for it then. A tunnel where nothing moves has no buffer.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Worker;
use super::access::{Ended, Record};
use super::admission::Places;
use super::io::{Stream, linger};
use super::watchdog::Conn;
use crate::lifecycle::{Phase, RequestGuard};
use crate::telemetry::metrics::Refusal;
use crate::upstream::Load;
use crate::upstream::pool::Switched;

/// Bytes that a tunnel reads at a time, and keeps at most for each of its ends.
pub(super) const BUFFER: usize = 32 << 10;

/// What a request and its backend have agreed on.
pub(super) struct Agreed {
    /// The backend's side.
    pub backend: Switched,
    /// The protocol, as the client named it.
    pub protocol: Arc<str>,
    /// The tunnel's part in its endpoint's load, where that is counted.
    pub load: Option<Load>,
    /// How long it may be silent.
    pub silence: Silence,
    /// Whether the client has asked with extended CONNECT, which is answered with 200.
    pub is_extended: bool,
}

/// What of a request goes on to count while its tunnel lives: it holds the drain, and has its places in flight.
pub(super) type Kept = (Option<RequestGuard>, Places);

/// A tunnel that begins when the client's side is there. Dropped, it is cut.
pub(super) struct Tunnel {
    worker: Rc<Worker>,
    /// Until the tunnel begins.
    backend: Option<Switched>,
    silence: Silence,
    protocol: Arc<str>,
    carried: Carried,
    /// Why it ended early.
    ended: Option<Refusal>,
    log: Option<Logged>,
    _load: Option<Load>,
    _kept: Kept,
}

/// What a tunnel's line of the access log is made of when it has ended.
struct Logged {
    record: Rc<Record>,
    /// What the client was told before, if it had asked in HTTP.
    status: Option<u16>,
}

/// Bytes that a tunnel has carried.
#[derive(Debug, Default)]
struct Carried {
    /// From the client.
    up: Cell<u64>,
    /// To the client.
    down: Cell<u64>,
}

/// How long a tunnel may be silent; zero is no limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// While both sides may still say something.
    pub whole: Duration,
    /// Once one of them has said its last, if that is shorter.
    pub half: Duration,
}

/// How a tunnel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Both sides have ended.
    Done,
    /// The backend has said its last and takes nothing more.
    BackendLeft,
    /// No byte for too long.
    Idle,
    /// The client's side broke.
    ClientBroke,
    /// The backend's side broke.
    BackendBroke,
}

impl Tunnel {
    /// A tunnel of `worker`, counted from now on.
    pub(super) fn new(worker: &Rc<Worker>, agreed: Agreed, kept: Kept) -> Self {
        worker.metrics.tunnel_opened();
        let Agreed { backend, silence, load, protocol, is_extended: _ } = agreed;
        Self {
            worker: Rc::clone(worker),
            backend: Some(backend),
            silence,
            protocol,
            carried: Carried::default(),
            // Until it runs to an end of its own.
            ended: Some(Refusal::ClientGone),
            log: None,
            _load: load,
            _kept: kept,
        }
    }

    /// Logs it when it ends. `status` is what the client was told before, if it had asked in HTTP.
    pub(super) fn logged(mut self, record: Option<Rc<Record>>, status: Option<u16>) -> Self {
        self.log = record.map(|record| Logged { record, status });
        self
    }

    /// Carries bytes until both sides have ended, one breaks, or neither says anything. `early` is what the client sent
    /// ahead.
    pub(super) async fn run<C: Stream>(mut self, mut client: C, early: Bytes, conn: &Conn) {
        let Some(backend) = self.backend.take() else { return };
        let (scratch, carried) = (&self.worker.scratch, &self.carried);
        let end = join(&mut client, backend, early, conn, self.silence, (scratch, carried)).await;
        self.ended = match end {
            End::Done | End::BackendLeft => None,
            End::Idle => Some(Refusal::IdleTimeout),
            End::BackendBroke => Some(Refusal::UpstreamReset),
            End::ClientBroke => Some(Refusal::ClientGone),
        };
        if let Some(reason) = self.ended {
            self.worker.metrics.refused(reason);
        }
        self.log();
        if !matches!(end, End::Done | End::ClientBroke) {
            linger(client).await;
        }
    }

    fn log(&mut self) {
        let Some((desk, Logged { record, status })) = self.worker.access.as_ref().zip(self.log.take()) else { return };
        let ended = Ended {
            status,
            reason: self.ended,
            broke_off: self.ended.is_some(),
            upgrade: status.is_some().then_some(&*self.protocol),
            duration: Some(record.started().elapsed()),
            bytes_in: Some(self.carried.up.get()),
            bytes_out: self.carried.down.get(),
            ..Ended::default()
        };
        desk.finish(record, &ended);
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.worker.metrics.tunnel_closed();
        if self.ended == Some(Refusal::ClientGone) && self.worker.shared.lifecycle.phase() >= Phase::Aborting {
            self.ended = Some(Refusal::Aborted);
        }
        self.log();
    }
}

impl Silence {
    fn of_half(self) -> Duration {
        match (self.whole.is_zero(), self.half.is_zero()) {
            (true, _) => self.half,
            (_, true) => self.whole,
            _ => self.whole.min(self.half),
        }
    }
}

/// Carries bytes both ways, through `scratch`, to the end, and counts them. The backend's side is gone then.
async fn join<C, B>(
    client: &mut C,
    mut backend: B,
    early: Bytes,
    conn: &Conn,
    silence: Silence,
    (scratch, carried): (&RefCell<Box<[u8]>>, &Carried),
) -> End
where
    C: Stream,
    B: Stream,
{
    let mut pair = Pair { up: Way::new(early, &carried.up), down: Way::new(Bytes::new(), &carried.down) };
    let mut is_half = false;
    poll_fn(|cx| {
        if let Poll::Ready(end) = pair.poll(cx, client, &mut backend, &mut scratch.borrow_mut()) {
            return Poll::Ready(end);
        }
        if !is_half && (pair.up.is_over() || pair.down.is_over()) {
            is_half = true;
            conn.may_be_silent(silence.of_half());
        }
        if conn.poll_expired(cx) { Poll::Ready(End::Idle) } else { Poll::Pending }
    })
    .await
}

/// Both ways of a tunnel.
struct Pair<'a> {
    /// From the client to the backend.
    up: Way<'a>,
    /// From the backend to the client.
    down: Way<'a>,
}

impl Pair<'_> {
    fn poll<C, B>(&mut self, cx: &mut Context<'_>, client: &mut C, backend: &mut B, scratch: &mut [u8]) -> Poll<End>
    where
        C: AsyncRead + AsyncWrite + Unpin,
        B: AsyncRead + AsyncWrite + Unpin,
    {
        match self.up.poll(cx, client, backend, scratch) {
            Some(Broken::Source) => return Poll::Ready(End::ClientBroke),
            // It takes nothing more. What it has sent before must still reach the client.
            Some(Broken::Sink) => self.up.state = State::Broken,
            None => {}
        }
        match self.down.poll(cx, backend, client, scratch) {
            Some(Broken::Sink) => return Poll::Ready(End::ClientBroke),
            Some(Broken::Source) => {
                self.up.state = State::Broken;
                self.down.state = State::Broken;
            }
            None => {}
        }
        match (self.up.state, self.down.state) {
            (State::Over, State::Over) => Poll::Ready(End::Done),
            (State::Broken, State::Over) => Poll::Ready(End::BackendLeft),
            (_, State::Broken) => Poll::Ready(End::BackendBroke),
            _ => Poll::Pending,
        }
    }
}

/// How far one way has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Bytes may come.
    Open,
    /// The source has ended; the sink is to be told.
    Ending,
    /// The sink has been told.
    Over,
    /// No more can be carried.
    Broken,
}

/// Which end of a way failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// The one that is read.
    Source,
    /// The one that is written.
    Sink,
}

/// One way of a tunnel.
struct Way<'a> {
    /// Read and not taken yet.
    kept: Bytes,
    /// Bytes read.
    carried: &'a Cell<u64>,
    /// Something was written since the last flush.
    unflushed: bool,
    state: State,
}

impl<'a> Way<'a> {
    fn new(early: Bytes, carried: &'a Cell<u64>) -> Self {
        carried.set(early.len() as u64);
        Self { kept: early, carried, unflushed: false, state: State::Open }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Over | State::Broken)
    }

    /// Carries what can be carried now, through `scratch`.
    fn poll<R, W>(&mut self, cx: &mut Context<'_>, source: &mut R, sink: &mut W, scratch: &mut [u8]) -> Option<Broken>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        match self.carry(cx, source, sink, scratch) {
            Poll::Ready(Err(broken)) => Some(broken),
            Poll::Ready(Ok(())) | Poll::Pending => None,
        }
    }

    fn carry<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut R,
        sink: &mut W,
        scratch: &mut [u8],
    ) -> Poll<Result<(), Broken>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        while !self.is_over() {
            while !self.kept.is_empty() {
                let written = ready!(write(sink, cx, &self.kept));
                self.kept.advance(written.map_err(|_| Broken::Sink)?);
                self.unflushed = true;
            }
            if self.state == State::Ending {
                ready!(Pin::new(&mut *sink).poll_shutdown(cx)).map_err(|_| Broken::Sink)?;
                self.state = State::Over;
                break;
            }
            let mut read = ReadBuf::new(scratch);
            match Pin::new(&mut *source).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if read.filled().is_empty() => self.state = State::Ending,
                Poll::Ready(Ok(())) => self.pass(cx, sink, read.filled())?,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Broken::Source)),
                Poll::Pending => {
                    if self.unflushed {
                        ready!(Pin::new(&mut *sink).poll_flush(cx)).map_err(|_| Broken::Sink)?;
                        self.unflushed = false;
                    }
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what has just been read, and keeps what is not taken.
    fn pass<W: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, sink: &mut W, read: &[u8]) -> Result<(), Broken> {
        self.carried.set(self.carried.get() + read.len() as u64);
        let written = match write(sink, cx, read) {
            Poll::Ready(written) => written.map_err(|_| Broken::Sink)?,
            Poll::Pending => 0,
        };
        self.unflushed |= written > 0;
        if written < read.len() {
            self.kept = Bytes::copy_from_slice(&read[written..]);
        }
        Ok(())
    }
}

fn write<W: AsyncWrite + Unpin>(sink: &mut W, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
    match ready!(Pin::new(sink).poll_write(cx, bytes)) {
        Ok(0) => Poll::Ready(Err(ErrorKind::WriteZero.into())),
        written => Poll::Ready(written),
    }
}

#[cfg(test)]
mod tests;
