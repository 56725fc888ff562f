//! Stands between a client's stream and hyper: gives hyper nothing but what it and any other reader take for the same.
//!
//! A head is given whole, once it has been judged, and never more behind it than belongs to its message, so that it is
//! known where the next one begins. In place of a head that is refused hyper gets one that stands in for it, and the
//! service answers that with the reason: in its turn behind the requests before it, and as all other failures. What
//! hyper makes of each head is compared with what was judged.

use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use hyper::body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Client;
use super::io::{ClientIo, Stream};
use super::raw::{Body, Fault, Head, Limits, Scan};
use super::watchdog::Stage;
use crate::http1::Chunks;
use crate::telemetry::metrics::Refusal;

/// Stands in for a head that is refused.
const STAND_IN: &[u8] = b"UNREADABLE / HTTP/1.1\r\nhost: -\r\nconnection: close\r\n\r\n";
/// The same for one whose answer must have no body.
const STAND_IN_HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nhost: -\r\nconnection: close\r\n\r\n";

/// What a connection's service knows of what was judged.
#[derive(Default)]
pub(super) struct Screened {
    /// Of the head that hyper has got last, until its request comes.
    judged: Cell<Option<Judged>>,
    /// Bytes wait until it is known whether they are HTTP.
    holding: Cell<bool>,
    /// Nothing of a request has come since the last one's end.
    between: Cell<bool>,
    /// Why the request that is served is refused.
    fault: Cell<Option<Fault>>,
}

#[derive(Clone, Copy)]
enum Judged {
    Passed(Body),
    Refused(Fault),
}

impl Screened {
    /// Notes whether the request that hyper has made of a head is the one that was judged.
    pub(super) fn compare(&self, body: &hyper::body::Incoming) {
        let read = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
        let fault = match self.judged.take() {
            Some(Judged::Passed(Body::None)) if read == Some(0) => None,
            Some(Judged::Passed(Body::Length(length))) if read == Some(length) => None,
            Some(Judged::Passed(Body::Chunked)) if read.is_none() => None,
            Some(Judged::Refused(fault)) => Some(fault),
            Some(Judged::Passed(_)) | None => {
                Some(Fault { reason: Refusal::BadRequest, detail: "its framing was read in two ways" })
            }
        };
        self.fault.set(fault);
    }

    /// Whether the request only stands for one that is refused.
    pub(super) fn is_refused(&self) -> bool {
        self.fault.get().is_some()
    }

    /// Why the request is refused.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault.take()
    }

    /// Whether nothing of a request has come since the last one's end, when hyper last asked.
    pub(super) fn is_between(&self) -> bool {
        self.between.get()
    }

    /// Whether bytes were held back during an exchange that is over.
    pub(super) fn must_go_on(&self, stage: Stage) -> bool {
        stage == Stage::Idle && self.holding.replace(false)
    }
}

/// A client's stream as hyper gets it.
pub(super) struct Screen<S> {
    io: ClientIo<S>,
    client: Rc<Client>,
    limits: Limits,
    scan: Scan,
    state: State,
    /// Read, and not hyper's turn yet.
    held: BytesMut,
}

/// What comes next.
enum State {
    /// A head.
    Head,
    /// The rest of a head that has passed, so many bytes.
    Emit(usize, Head),
    /// The rest of a body, and whether something else than a request may follow it.
    Body(Rest, bool),
    /// The next request, unless the connection changes to another protocol.
    Hold,
    /// Nothing that could be read.
    Broken(Fault),
    /// Nothing: the last request was refused.
    Shut,
}

enum Rest {
    Length(u64),
    Chunked(Chunks),
}

impl Rest {
    /// How many of the bytes belong to the body.
    fn take(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        match self {
            Self::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                Ok(taken)
            }
            Self::Chunked(chunks) => Ok(chunks.advance(bytes)?),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.has_ended(),
        }
    }
}

impl State {
    fn after(head: Head) -> Self {
        match head.body {
            Body::None => Self::between(head.may_switch),
            Body::Length(length) => Self::Body(Rest::Length(length), head.may_switch),
            Body::Chunked => Self::Body(Rest::Chunked(Chunks::default()), head.may_switch),
        }
    }

    fn between(may_switch: bool) -> Self {
        if may_switch { Self::Hold } else { Self::Head }
    }
}

impl<S: Stream> Screen<S> {
    /// Screens what a client sends.
    pub(super) fn new(io: ClientIo<S>, client: Rc<Client>, limits: Limits) -> Self {
        Self { io, client, limits, scan: Scan::default(), state: State::Head, held: BytesMut::new() }
    }

    /// The stream, and what has been read of it and not given on.
    pub(super) fn into_parts(self) -> (ClientIo<S>, BytesMut) {
        (self.io, self.held)
    }

    /// Whether the client has sent, or is still to send, what nobody has read.
    pub(super) fn has_unread(&self) -> bool {
        !self.held.is_empty() || !matches!(self.state, State::Head | State::Hold)
    }

    /// Reads; what comes is `buf` from `before` on. `Ready(false)` at the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>, before: usize) -> Poll<io::Result<bool>> {
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        Poll::Ready(Ok(buf.filled().len() > before))
    }

    /// Keeps what is in `buf` from `from` on for later.
    fn hold(&mut self, buf: &mut ReadBuf<'_>, from: usize) {
        self.held.extend_from_slice(&buf.filled()[from..]);
        buf.set_filled(from);
    }

    /// Looks for a head; `None` when the state has changed instead.
    fn poll_head(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Option<io::Result<()>>> {
        if !self.scan.has_seen(&self.held) {
            match self.scan.advance(&self.held, &self.limits) {
                Ok(Some(head)) => {
                    self.passed(head);
                    self.state = State::Emit(head.len, head);
                    return Poll::Ready(None);
                }
                Ok(None) => {}
                Err(fault) => return Poll::Ready(Some(self.refuse(fault, buf))),
            }
        }
        let before = buf.filled().len();
        self.client.screened.between.set(self.held.is_empty());
        let more = ready!(self.poll_fill(cx, buf, before));
        self.client.screened.between.set(false);
        if !more? {
            return Poll::Ready(Some(Ok(())));
        }
        if !self.held.is_empty() {
            self.hold(buf, before);
            return Poll::Ready(None);
        }
        // The common case: all of the head has come at once, and lies where hyper wants it.
        match self.scan.advance(&buf.filled()[before..], &self.limits) {
            Ok(Some(head)) => {
                self.passed(head);
                self.state = State::after(head);
                self.give(buf, before + head.len);
                Poll::Ready(Some(Ok(())))
            }
            Ok(None) => {
                self.hold(buf, before);
                Poll::Ready(None)
            }
            Err(fault) => {
                self.hold(buf, before);
                Poll::Ready(Some(self.refuse(fault, buf)))
            }
        }
    }

    fn passed(&mut self, head: Head) {
        self.scan = Scan::default();
        self.client.screened.judged.set(Some(Judged::Passed(head.body)));
    }

    fn refuse(&mut self, fault: Fault, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        let stand_in = if self.held.starts_with(b"HEAD ") { STAND_IN_HEAD } else { STAND_IN };
        self.held = BytesMut::new();
        self.state = State::Shut;
        if buf.remaining() < stand_in.len() {
            return Err(io::Error::new(ErrorKind::InvalidData, fault.detail));
        }
        self.client.screened.judged.set(Some(Judged::Refused(fault)));
        buf.put_slice(stand_in);
        Ok(())
    }

    /// Lets hyper have what is in `buf` from `from` on as far as it belongs to the message.
    fn give(&mut self, buf: &mut ReadBuf<'_>, from: usize) {
        let bytes = &buf.filled()[from..];
        if bytes.is_empty() {
            return;
        }
        let taken = match &mut self.state {
            State::Body(rest, may_switch) => match rest.take(bytes) {
                Ok(taken) => {
                    if rest.has_ended() {
                        self.state = State::between(*may_switch);
                    }
                    taken
                }
                Err(fault) => {
                    self.state = State::Broken(fault);
                    0
                }
            },
            _ => 0,
        };
        if taken < bytes.len() {
            self.hold(buf, from + taken);
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.held.is_empty() {
            ready!(self.poll_fill(cx, buf, before))?;
            self.give(buf, before);
        } else {
            // What is too much of it comes back.
            self.unhold(buf, usize::MAX);
            let later = std::mem::take(&mut self.held);
            self.give(buf, before);
            if self.held.is_empty() {
                self.held = later;
            } else {
                self.held.extend_from_slice(&later);
            }
        }
        match self.state {
            State::Broken(fault) if buf.filled().len() == before => Poll::Ready(Err(broken(fault))),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Gives at most `most` of the bytes held; how many that are.
    fn unhold(&mut self, buf: &mut ReadBuf<'_>, most: usize) -> usize {
        let count = self.held.len().min(buf.remaining()).min(most);
        buf.put_slice(&self.held[..count]);
        self.held.advance(count);
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
        count
    }

    /// Looks for the end of the stream while it is not known what comes.
    fn poll_hold(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.held.is_empty() {
            let before = buf.filled().len();
            if !ready!(self.poll_fill(cx, buf, before))? {
                return Poll::Ready(Ok(()));
            }
            self.hold(buf, before);
        }
        self.client.screened.holding.set(true);
        Poll::Pending
    }
}

fn broken(fault: Fault) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, fault.detail)
}

impl<S: Stream> AsyncRead for Screen<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.client.screened.between.set(false);
        loop {
            match this.state {
                State::Head => {
                    if let Some(result) = ready!(this.poll_head(cx, buf)) {
                        return Poll::Ready(result);
                    }
                }
                State::Emit(left, head) => {
                    let given = this.unhold(buf, left);
                    this.state = if given == left { State::after(head) } else { State::Emit(left - given, head) };
                    return Poll::Ready(Ok(()));
                }
                State::Body(..) => return this.poll_body(cx, buf),
                State::Hold if this.client.conn().stage() == Stage::Idle => this.state = State::Head,
                State::Hold => return this.poll_hold(cx, buf),
                State::Broken(fault) => return Poll::Ready(Err(broken(fault))),
                State::Shut => return Poll::Pending,
            }
        }
    }
}

impl<S: Stream> AsyncWrite for Screen<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
