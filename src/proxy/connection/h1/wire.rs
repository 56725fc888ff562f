//! A client's connection as bytes: requests in, answers out, one at a time.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderValue, Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use tokio::io::AsyncWriteExt as _;

use super::answer::{self, Asked};
use super::body::{Body, Source};
use super::heads::{Begun, Heads};
use crate::http1::{self, Found, Input, Length, Output, Reading, Sending, spare};
use crate::ir;
use crate::proxy::body::ResponseBody;
use crate::proxy::connection::Client;
use crate::proxy::connection::sniff::poll_some;
use crate::proxy::incoming::{Broken, Incoming};
use crate::proxy::io::{Stream, linger};
use crate::proxy::raw::{self, Head};
use crate::proxy::watchdog::Stage;
use crate::telemetry::metrics::Refusal;

/// Bytes of a request's body that nobody wants and that are read all the same, so that the connection can go on.
const MOST_UNWANTED: u64 = 64 << 10;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A connection.
pub(super) struct Wire<S> {
    client: Rc<Client>,
    io: RefCell<Io<S>>,
    /// Somebody may still read the request's body.
    is_read: Cell<bool>,
    /// Who waits until that is over.
    waiter: RefCell<Option<Waker>>,
}

struct Io<S> {
    /// Gone when the connection has been taken out.
    stream: Option<S>,
    input: Input,
    heads: Heads,
    /// What is to come of the request's body.
    rest: Reading,
    /// The client waits to be told to send the body.
    expects: bool,
    /// It is being told.
    is_continuing: bool,
    /// What came is no body.
    is_broken: bool,
    output: Output,
}

/// Why no request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silent {
    /// The client has nothing to say for now.
    Idle,
    /// A head took too long.
    Slow,
    /// The connection is over.
    Over,
}

/// How an answer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The client has it, and may send another request.
    Sent,
    /// The client has it, and no other request is wanted.
    Last,
    /// The client does not have it, and nothing more can be said to it.
    Cut,
}

impl<S: Stream> Io<S> {
    fn poll_fill(&mut self, cx: &mut Context<'_>, client: &Client) -> Poll<io::Result<usize>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(ErrorKind::NotConnected.into())) };
        let read = ready!(self.input.poll_fill(cx, stream))?;
        if read > 0 {
            client.conn().read(read);
        }
        Poll::Ready(Ok(read))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, client: &Client) -> Poll<io::Result<()>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(ErrorKind::NotConnected.into())) };
        let mut sent = 0;
        let result = self.output.poll_write(cx, stream, &mut sent);
        if sent > 0 {
            client.conn().wrote(usize::try_from(sent).unwrap_or(usize::MAX));
        }
        result
    }

    /// Whether what is to come of the body can be read for nothing, if nobody wants it.
    fn is_passable(&self) -> bool {
        match self.rest {
            _ if self.is_broken => false,
            Reading::Ended => true,
            _ if self.expects => false,
            Reading::Length(left) => left <= MOST_UNWANTED,
            Reading::Chunks(..) => true,
            Reading::Close => false,
        }
    }
}

impl<S: Stream> Wire<S> {
    /// A connection of which `first` has been read.
    pub(super) fn new(stream: S, first: Bytes, client: Rc<Client>, limits: raw::Limits) -> Rc<Self> {
        let io = Io {
            stream: Some(stream),
            input: Input::new(BytesMut::from(first)),
            heads: Heads::new(limits),
            rest: Reading::Ended,
            expects: false,
            is_continuing: false,
            is_broken: false,
            output: Output::default(),
        };
        Rc::new(Self { client, io: RefCell::new(io), is_read: Cell::new(false), waiter: RefCell::default() })
    }

    /// Takes the connection out of HTTP, with what has come behind the last request.
    pub(super) fn take(&self) -> Option<(S, Bytes)> {
        let io = &mut *self.io.borrow_mut();
        Some((io.stream.take()?, io.input.split().freeze()))
    }

    /// Ends the connection. What the client still sends is read for a while if that is wanted, or is known to come.
    pub(super) async fn close(&self, linger_on: bool) {
        let linger_on = linger_on || {
            let io = self.io.borrow();
            io.is_broken || !io.input.is_empty() || !io.rest.has_ended()
        };
        let Some((mut stream, _)) = self.take() else { return };
        if linger_on {
            pin!(linger(stream)).await;
        } else {
            // All that could be done for the client is done.
            let _ = self.client.conn().unless_expired(stream.shutdown()).await;
        }
    }

    /// Waits for a request. It only stands in for one that could not be read if the client has a fault.
    pub(super) async fn next(self: &Rc<Self>) -> Result<(Request<Incoming>, Head), Silent> {
        let conn = self.client.conn();
        if !self.io.borrow().input.is_empty() {
            // It came with the former request: its time has begun.
            conn.touch();
        }
        poll_fn(|cx| match self.poll_begun(cx) {
            Poll::Ready(Ok(Some(begun))) => Poll::Ready(Ok(self.begin(begun))),
            Poll::Ready(Ok(None) | Err(_)) => Poll::Ready(Err(Silent::Over)),
            Poll::Pending if conn.is_to_park() => Poll::Ready(Err(Silent::Idle)),
            Poll::Pending if conn.poll_stuck(cx) => {
                Poll::Ready(Err(if conn.stage() == Stage::Head { Silent::Slow } else { Silent::Over }))
            }
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Looks for a head; `None` at the end of the stream.
    fn poll_begun(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Begun>>> {
        let io = &mut *self.io.borrow_mut();
        loop {
            let Io { stream: Some(stream), input, heads, .. } = io else { return Poll::Ready(Ok(None)) };
            if input.is_empty() {
                // The common case: all of a head comes at once, and needs no buffer.
                let polled = poll_some(stream, self.client.conn(), cx, |bytes| {
                    let begun = if bytes.is_empty() { None } else { heads.read(bytes) };
                    input.extend_from_slice(&bytes[begun.as_ref().map_or(0, |begun| begun.head.len)..]);
                    (begun, bytes.is_empty())
                });
                let (begun, is_over) = ready!(polled)?;
                if begun.is_some() || is_over {
                    return Poll::Ready(Ok(begun));
                }
                continue;
            }
            if !heads.has_seen(input)
                && let Some(begun) = heads.read(input)
            {
                input.advance(begun.head.len);
                return Poll::Ready(Ok(Some(begun)));
            }
            if ready!(io.poll_fill(cx, &self.client))? == 0 {
                return Poll::Ready(Ok(None));
            }
        }
    }

    fn begin(self: &Rc<Self>, Begun { request, head, fault }: Begun) -> (Request<Incoming>, Head) {
        let io = &mut *self.io.borrow_mut();
        io.is_broken = fault.is_some();
        self.client.fault.set(fault);
        if head.body == Length::None {
            io.input.rest(0);
            return (request.map(|()| Incoming::None), head);
        }
        io.rest = Reading::new(head.body, io.heads.most_bytes());
        io.expects = head.expects;
        self.is_read.set(true);
        let source = Rc::clone(self) as Rc<dyn Source>;
        (request.map(|()| Incoming::H1(Body::new(source))), head)
    }

    /// What the service makes of a request; `None` when its client leaves first.
    pub(super) fn poll_unless_gone<F: Future>(
        &self,
        cx: &mut Context<'_>,
        answering: Pin<&mut F>,
    ) -> Poll<Option<F::Output>> {
        match answering.poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if self.poll_gone(cx) || self.client.conn().poll_stuck(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Whether the client has left, as far as that can be seen: not through what it has sent ahead.
    fn poll_gone(&self, cx: &mut Context<'_>) -> bool {
        let io = &mut *self.io.borrow_mut();
        let Io { stream: Some(stream), input, .. } = io else { return true };
        if !matches!(io.rest, Reading::Ended) {
            // Who reads the body will see it.
            self.wait(cx);
            return false;
        }
        if !input.is_empty() {
            return false;
        }
        let conn = self.client.conn();
        match poll_some(stream, conn, cx, |bytes| {
            input.extend_from_slice(bytes);
            !bytes.is_empty()
        }) {
            Poll::Ready(Ok(is_there)) => !is_there,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }

    /// Has the task woken when the request's body has been read, or nobody reads it any more.
    fn wait(&self, cx: &Context<'_>) {
        let mut waiter = self.waiter.borrow_mut();
        match &mut *waiter {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    fn end_wait(&self) {
        if let Some(waiter) = self.waiter.borrow_mut().take() {
            waiter.wake();
        }
    }

    /// Sends an answer.
    pub(super) async fn answer(
        &self,
        response: Response<ResponseBody>,
        asked: Asked,
        date: Option<HeaderValue>,
    ) -> Outcome {
        let (response, mut body) = response.into_parts();
        let (mut sending, keep_alive) = {
            let io = &mut *self.io.borrow_mut();
            let may_follow = !io.expects && (self.is_read.get() || io.is_passable());
            // It is too late for that now.
            io.expects = false;
            let size = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
            let told = answer::encode(&response, size, asked, may_follow, date.as_ref(), &mut io.output.head);
            spare::give(response.headers);
            if told.length == Length::None {
                body.skip();
            }
            (Sending::new(body, told.length, told.trailers), told.keep_alive)
        };
        let conn = self.client.conn();
        let is_sent = poll_fn(|cx| match self.poll_sent(cx, &mut sending) {
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
            Poll::Pending if self.poll_gone(cx) => Poll::Ready(false),
            Poll::Pending => {
                if conn.stage() == Stage::Idle {
                    // The exchange is over and its last bytes are not written: the connection is not idle.
                    conn.may_be_silent(ir::Timeouts::default().idle);
                }
                if conn.poll_stuck(cx) { Poll::Ready(false) } else { Poll::Pending }
            }
        })
        .await;
        match (is_sent, keep_alive) {
            (false, _) => Outcome::Cut,
            (true, false) => Outcome::Last,
            (true, true) => self.make_way().await,
        }
    }

    /// Writes what there is of an answer, to its end.
    fn poll_sent(&self, cx: &mut Context<'_>, sending: &mut Sending<ResponseBody>) -> Poll<Result<(), http1::Fault>> {
        let io = &mut *self.io.borrow_mut();
        loop {
            // A head waits for what is at hand of its body, so that both are one packet.
            let next = sending.poll_next(cx, &mut io.output).map_err(http1::Fault::Body)?;
            ready!(io.poll_write(cx, &self.client)).map_err(http1::Fault::Io)?;
            ready!(next);
            if sending.has_ended() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Waits until the last request's body has been read, or reads it if nobody wants it.
    async fn make_way(&self) -> Outcome {
        let conn = self.client.conn();
        if conn.stage() == Stage::Idle && self.io.borrow().rest.has_ended() {
            return Outcome::Sent;
        }
        // What is left has the time of a head.
        conn.touch();
        let mut unwanted = 0;
        let is_free = poll_fn(|cx| match self.poll_way(cx, &mut unwanted) {
            Poll::Pending if conn.poll_stuck(cx) => Poll::Ready(false),
            polled => polled,
        })
        .await;
        if !is_free {
            return Outcome::Last;
        }
        // Whatever has come since then was no head.
        conn.end_exchange();
        Outcome::Sent
    }

    fn poll_way(&self, cx: &mut Context<'_>, unwanted: &mut u64) -> Poll<bool> {
        let io = &mut *self.io.borrow_mut();
        loop {
            if io.rest.has_ended() {
                return Poll::Ready(true);
            }
            if self.is_read.get() {
                self.wait(cx);
                return Poll::Pending;
            }
            if *unwanted > MOST_UNWANTED || !io.is_passable() {
                return Poll::Ready(false);
            }
            if io.input.is_empty() && !matches!(ready!(io.poll_fill(cx, &self.client)), Ok(1..)) {
                return Poll::Ready(false);
            }
            let before = io.input.len();
            if io.rest.take(&mut io.input).is_err() {
                return Poll::Ready(false);
            }
            *unwanted += (before - io.input.len()) as u64;
        }
    }
}

impl<S: Stream> Source for Wire<S> {
    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let io = &mut *self.io.borrow_mut();
        loop {
            if io.rest.has_ended() || io.is_broken {
                return Poll::Ready(None);
            }
            if io.input.is_empty() {
                if std::mem::take(&mut io.expects) {
                    io.output.head.extend_from_slice(CONTINUE);
                    io.is_continuing = true;
                }
                if io.is_continuing {
                    ready!(io.poll_write(cx, &self.client)).map_err(gone)?;
                    io.is_continuing = false;
                }
                if ready!(io.poll_fill(cx, &self.client)).map_err(gone)? == 0 {
                    return Poll::Ready(Some(Err(gone(ErrorKind::UnexpectedEof.into()))));
                }
            }
            // Who sends a body unasked does not wait to be asked.
            io.expects = false;
            let found = io.rest.take(&mut io.input);
            if io.rest.has_ended() {
                io.rest = Reading::Ended;
                self.end_wait();
            }
            match found {
                Ok(Found::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Found::Trailers(trailers)) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Ok(Found::More) => {}
                Err(error) => {
                    io.is_broken = true;
                    return Poll::Ready(Some(Err(Broken { reason: Refusal::BadRequest, error: error.into() })));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.io.borrow().rest.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        self.io.borrow().rest.size_hint()
    }

    fn leave(&self) {
        self.is_read.set(false);
        self.end_wait();
    }
}

fn gone(error: io::Error) -> Broken {
    Broken { reason: Refusal::ClientGone, error: error.into() }
}
