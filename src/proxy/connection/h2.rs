//! A client connection in HTTP/2 (RFC 9113).
//!
//! Built on the `h2` crate itself, as the connections to backends are: one task drives the connection, one more serves each
//! stream. What each may cost is bounded here where the crate does not do it.

mod duplex;
mod frames;
mod stream;

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::h2::server::{Builder, Connection, SendResponse};
use ::h2::{Error, Reason, RecvStream};
use bytes::Bytes;
use http::Request;

use self::frames::{FrameIo, Frames};
use super::Client;
use super::budget::Budget;
use crate::proxy::Worker;
use crate::proxy::access::Source;
use crate::proxy::io::{self, Stream};
use crate::proxy::watchdog::{Conn, Stage};
use crate::settings::Limits;
use crate::telemetry::metrics::Refusal;

/// How the ledger names it.
const PROTOCOL: &str = "h2";

/// Bytes of one answer that wait for the client's window or its socket. What is over waits at the backend.
const SEND_BUFFER: usize = 64 << 10;

/// How long a client that was asked to leave, and has no request open, may take to say that it has seen it.
const LEAVE: Duration = Duration::from_secs(3);

/// The crate's server, set up once per worker.
pub(in crate::proxy) fn server(limits: &Limits) -> Builder {
    let http2 = &limits.http2;
    let window = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX >> 1);
    let mut server = Builder::new();
    server
        .max_concurrent_streams(http2.max_concurrent_streams)
        .max_header_list_size(window(limits.max_header_bytes.get()))
        .initial_window_size(window(http2.stream_window.get()))
        .initial_connection_window_size(window(http2.connection_window.get()))
        // What clients sent before they knew of a reset is no further fault of theirs.
        .max_concurrent_reset_streams(http2.max_concurrent_streams as usize)
        .max_send_buffer_size(SEND_BUFFER)
        // Which protocols are let through is the rules' to say.
        .enable_connect_protocol();
    server
}

/// What the streams of a connection share.
struct Shared {
    worker: Rc<Worker>,
    client: Rc<Client>,
    frames: Rc<Frames>,
    /// Resets before an answer, of which each cost more to serve than to ask for.
    resets: Budget,
    /// Streams being served. One that was reset counts until its work has ended.
    open: Cell<u32>,
}

impl Shared {
    fn new(worker: &Rc<Worker>, client: &Rc<Client>) -> Self {
        let limits = &worker.shared.settings.limits.http2;
        let now_ms = client.conn().now_ms();
        Self {
            worker: Rc::clone(worker),
            client: Rc::clone(client),
            frames: Rc::new(Frames::new(Rc::clone(client.conn()), limits.max_control_frames)),
            resets: Budget::new(limits.max_resets, now_ms),
            open: Cell::new(0),
        }
    }

    /// Begins to serve a request, unless the work of those that were reset is not over.
    fn begin(self: &Rc<Self>, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        self.client.conn().count_request();
        if self.open.get() >= self.worker.shared.settings.limits.http2.max_concurrent_streams {
            respond.send_reset(Reason::REFUSED_STREAM);
            self.note_reset();
            return;
        }
        tokio::task::spawn_local(stream::serve(Open::new(self), request, respond));
    }

    /// A stream was reset before its answer.
    fn note_reset(&self) {
        self.resets.spend(self.client.conn().now_ms());
    }

    /// A stream got its whole answer.
    fn note_answer(&self) {
        self.resets.earn(1);
    }

    /// Why the connection has to end.
    fn ended(&self) -> Option<Reason> {
        self.frames.ended().or_else(|| self.resets.is_spent().then_some(Reason::ENHANCE_YOUR_CALM))
    }
}

/// A stream that is being served.
struct Open(Rc<Shared>);

impl Open {
    fn new(shared: &Rc<Shared>) -> Self {
        shared.open.set(shared.open.get() + 1);
        Self(Rc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let left = self.0.open.get() - 1;
        self.0.open.set(left);
        if left == 0 || self.0.resets.is_spent() {
            self.0.client.conn().wake();
        }
    }
}

/// Serves a connection to its end.
pub(super) async fn serve<S: Stream>(worker: Rc<Worker>, stream: S, client: Rc<Client>) {
    let conn = client.conn();
    conn.speaks(PROTOCOL);
    let shared = Rc::new(Shared::new(&worker, &client));
    let mut io = FrameIo::new(stream, Rc::clone(&shared.frames));
    let ended = match begin(&worker, &mut io, conn).await {
        Ok(connection) => Driver::new(connection, &shared).run().await,
        Err(ended) => ended,
    };
    if let Some(refusal) = ended.refusal() {
        worker.refused_early(refusal, None, Source::of(&client));
    }
    if let Ended::Failed(error) = &ended {
        tracing::debug!(%error, peer = %client.peer.ip, "client connection ended");
        if error.is_io() {
            return;
        }
    }
    // GOAWAY, and what came before it, must not be lost to a reset.
    io::linger(io.into_inner()).await;
}

/// Waits for the client's preface.
async fn begin<'a, S: Stream>(
    worker: &Worker,
    io: &'a mut FrameIo<S>,
    conn: &Conn,
) -> Result<Connection<&'a mut FrameIo<S>, Bytes>, Ended> {
    match conn.unless_expired(worker.http2.handshake(io)).await {
        Some(result) => result.map_err(Ended::Failed),
        None => Err(Ended::Late(conn.stage())),
    }
}

/// How a connection ended.
enum Ended {
    /// By agreement.
    Closed,
    /// By what came from the client.
    Cut(Reason),
    /// By the client's or its own fault, or by the network's.
    Failed(Error),
    /// The time of a stage was over.
    Late(Stage),
}

impl Ended {
    fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Cut(Reason::ENHANCE_YOUR_CALM) => Some(Refusal::Flood),
            Self::Cut(_) => Some(Refusal::BadRequest),
            Self::Failed(error) if error.is_library() => match error.reason() {
                Some(Reason::ENHANCE_YOUR_CALM) => Some(Refusal::Flood),
                _ => Some(Refusal::BadRequest),
            },
            Self::Late(Stage::Head) => Some(Refusal::HeaderTimeout),
            Self::Closed | Self::Failed(_) | Self::Late(_) => None,
        }
    }
}

/// What the connection does next.
enum Next {
    /// It has something to send.
    Go,
    /// Nothing before something happens.
    Wait,
    /// It ends here.
    End(Ended),
}

/// Drives a connection: hands its requests out, keeps its time, has it leave.
struct Driver<'a, S> {
    connection: Connection<&'a mut FrameIo<S>, Bytes>,
    shared: &'a Rc<Shared>,
    conn: &'a Conn,
    /// The client has been asked to leave.
    is_leaving: bool,
    /// It has been cut: nothing is read any more, a last GOAWAY is written.
    cut: Option<Reason>,
}

impl<'a, S: Stream> Driver<'a, S> {
    fn new(connection: Connection<&'a mut FrameIo<S>, Bytes>, shared: &'a Rc<Shared>) -> Self {
        let conn: &Conn = shared.client.conn();
        conn.wait_for_leave();
        Self { connection, shared, conn, is_leaving: false, cut: None }
    }

    async fn run(mut self) -> Ended {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            match (pin!(self.connection.accept()).poll(cx), self.cut) {
                (Poll::Ready(Some(Ok((request, respond)))), None) => {
                    self.shared.begin(request, respond);
                    continue;
                }
                (Poll::Ready(Some(Ok(_))), Some(_)) => continue,
                (Poll::Ready(_), Some(reason)) => return Poll::Ready(Ended::Cut(reason)),
                (Poll::Ready(Some(Err(error))), None) => return Poll::Ready(Ended::Failed(error)),
                (Poll::Ready(None), None) => return Poll::Ready(Ended::Closed),
                (Poll::Pending, _) => {}
            }
            match self.next(cx) {
                Next::Go => {}
                Next::Wait => return Poll::Pending,
                Next::End(ended) => return Poll::Ready(ended),
            }
        }
    }

    fn next(&mut self, cx: &Context<'_>) -> Next {
        if self.cut.is_none()
            && let Some(reason) = self.shared.ended()
        {
            self.cut = Some(reason);
            self.connection.abrupt_shutdown(reason);
            return Next::Go;
        }
        let is_over = || self.conn.is_worn() || self.shared.worker.shared.lifecycle.phase().asks_to_leave();
        if !self.is_leaving && is_over() {
            self.leave();
            return Next::Go;
        }
        self.enter_stage();
        if !self.conn.poll_expired(cx) {
            return Next::Wait;
        }
        match self.conn.stage() {
            Stage::Idle => {
                self.leave();
                Next::Go
            }
            Stage::Leaving => Next::End(self.cut.map_or(Ended::Closed, Ended::Cut)),
            stage => Next::End(Ended::Late(stage)),
        }
    }

    /// Asks the client to leave, in two steps, so that requests on their way are served (section 6.8).
    fn leave(&mut self) {
        self.is_leaving = true;
        self.connection.graceful_shutdown();
    }

    fn enter_stage(&self) {
        let limits = self.conn.limits();
        if self.cut.is_some() {
            self.conn.stay(Stage::Leaving, LEAVE);
        } else if self.shared.open.get() > 0 {
            // Each stream has limits of its own.
            self.conn.stay(Stage::Streams, Duration::ZERO);
        } else if self.is_leaving {
            self.conn.stay(Stage::Leaving, LEAVE);
        } else if self.shared.frames.is_in_head() {
            self.conn.stay(Stage::Head, limits.header);
        } else {
            self.conn.stay(Stage::Idle, limits.keep_alive);
        }
    }
}
