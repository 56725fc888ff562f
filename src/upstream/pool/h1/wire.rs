//! A connection to an endpoint as bytes: a request out, its answer in, one at a time.
//!
//! Whoever waits for an answer reads it from the socket, in its own task: there is no task for the connection, and no
//! channel to one.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use http::request::Parts;
use http::{Method, Response};
use http_body::Body;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::answer::Answer;
use super::head::{self, Head, Parsed};
use crate::http1::{Fault, Input, Length, Output, Sending, announced};
use crate::upstream::pool::account::{Permit, watch_peer};
use crate::upstream::pool::switched::Switched;
use crate::upstream::pool::transport::Transport;
use crate::upstream::pool::{BodyError, MAX_RESPONSE_HEAD, SendError};

/// Bytes that may come before the head of an answer is known: interim answers (RFC 9110, section 15.2) and that head.
const BEFORE_ANSWER: usize = 256 << 10;
/// A connection.
pub(super) struct Wire {
    stream: RefCell<Stream>,
    /// A request is on it.
    busy: Cell<bool>,
    /// Who reads an answer while its request is still being sent.
    reader: RefCell<Option<Waker>>,
    /// A request was not sent to its end before its answer came.
    uploading: Cell<bool>,
}

struct Stream {
    /// Gone when the connection goes on in another protocol.
    transport: Option<(Transport, Permit)>,
    input: Input,
    output: Output,
}

impl Stream {
    fn transport(&mut self) -> io::Result<&mut Transport> {
        self.transport.as_mut().map(|(transport, _)| transport).ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Reads more; `false` at the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Some((transport, _)) = &mut self.transport else {
            return Poll::Ready(Err(ErrorKind::NotConnected.into()));
        };
        self.input.poll_fill(cx, transport).map_ok(|read| read > 0)
    }
}

impl Wire {
    /// A connection that has just been made.
    pub(super) fn new(transport: Transport, permit: Permit) -> Rc<Self> {
        let stream = Stream {
            transport: Some((transport, permit)),
            input: Input::new(BytesMut::new()),
            output: Output::default(),
        };
        Rc::new(Self {
            stream: RefCell::new(stream),
            busy: Cell::new(false),
            reader: RefCell::default(),
            uploading: Cell::new(false),
        })
    }

    /// Whether the last request has been sent and its answer has been read.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.busy.get() && !self.uploading.get()
    }

    /// Whether it can take a request: the last one has been sent, its answer has been read, and the endpoint has neither closed it nor
    /// sent what nobody asked for.
    pub(super) fn is_free(&self) -> bool {
        if !self.is_at_rest() {
            return false;
        }
        let stream = &mut *self.stream.borrow_mut();
        let Ok(transport) = stream.transport() else { return false };
        // Costs no call of the system unless something has come.
        let mut byte = [0];
        pin!(transport.read(&mut byte)).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// The answer has been read to its end.
    pub(super) fn answered(&self, keep_alive: bool) {
        self.busy.set(!keep_alive || !self.stream.borrow().input.is_empty());
    }

    /// Lets go of the memory that it does not need until there is another request.
    pub(super) fn rest(&self) {
        self.stream.borrow_mut().input.rest(Input::USUAL);
    }

    /// Takes the connection out of HTTP, with what has come behind the last answer.
    pub(super) fn switch(&self) -> Option<Switched> {
        let stream = &mut *self.stream.borrow_mut();
        let (transport, permit) = stream.transport.take()?;
        // What goes on may be silent for long: the kernel finds out when the endpoint is gone.
        if let Err(error) = watch_peer(transport.socket()) {
            tracing::debug!(%error, "a tunnel's endpoint cannot be watched");
        }
        Some(Switched::new(transport, stream.input.split().freeze(), permit))
    }

    /// What of the answer has been read, with `read` of it taken away; reads more when there is nothing. `None` at the end
    /// of the stream.
    pub(super) fn poll_take<T>(
        &self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut BytesMut) -> T,
    ) -> Poll<io::Result<Option<T>>> {
        let stream = &mut *self.stream.borrow_mut();
        if stream.input.is_empty() {
            if self.uploading.get() {
                *self.reader.borrow_mut() = Some(cx.waker().clone());
            }
            if !ready!(stream.poll_fill(cx))? {
                return Poll::Ready(Ok(None));
            }
        }
        Poll::Ready(Ok(Some(take(&mut stream.input))))
    }

    /// Writes what there is of `upload`, to its end.
    fn poll_upload<B>(&self, cx: &mut Context<'_>, upload: &mut Sending<B>, sent: &mut u64) -> Poll<Result<(), Fault>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<BodyError>,
    {
        let stream = &mut *self.stream.borrow_mut();
        let Some((transport, _)) = &mut stream.transport else {
            return Poll::Ready(Err(Fault::Io(ErrorKind::NotConnected.into())));
        };
        loop {
            // A head waits for what is at hand of its body, so that both are one packet.
            let next = upload.poll_next(cx, &mut stream.output).map_err(Fault::Body)?;
            ready!(stream.output.poll_write(cx, transport, sent)).map_err(Fault::Io)?;
            ready!(next);
            if upload.has_ended() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Sends the rest of a request while its answer is read.
    pub(super) async fn finish_upload<B>(self: Rc<Self>, mut upload: Sending<B>)
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<BodyError>,
    {
        match poll_fn(|cx| self.poll_upload(cx, &mut upload, &mut 0)).await {
            Ok(()) => self.uploading.set(false),
            // The endpoint needs no more of it to answer.
            Err(Fault::Io(_)) => {}
            // It waits for what never comes, and so would who reads the answer.
            Err(Fault::Body(_)) => {
                self.stream.borrow_mut().transport = None;
                if let Some(reader) = self.reader.borrow_mut().take() {
                    reader.wake();
                }
            }
        }
    }

    /// Reads the head of an answer to a request of `method`. `read` counts the bytes that came for it.
    fn poll_head(&self, cx: &mut Context<'_>, method: &Method, read: &mut usize) -> Poll<Result<Head, Broken>> {
        let stream = &mut *self.stream.borrow_mut();
        let mut is_partial = stream.input.is_empty();
        loop {
            while !is_partial {
                match head::parse(&stream.input, method).map_err(Broken::Invalid)? {
                    Parsed::Partial => is_partial = true,
                    Parsed::Interim(len) => {
                        stream.input.advance(len);
                        is_partial = stream.input.is_empty();
                    }
                    Parsed::Head(len, head) => {
                        stream.input.advance(len);
                        return Poll::Ready(Ok(head));
                    }
                }
            }
            let before = stream.input.len();
            if !ready!(stream.poll_fill(cx)).map_err(Broken::Io)? {
                return Poll::Ready(Err(Broken::Io(ErrorKind::UnexpectedEof.into())));
            }
            *read += stream.input.len() - before;
            if *read > BEFORE_ANSWER {
                return Poll::Ready(Err(Broken::Invalid("interim answers without end")));
            }
            // Else each byte of a head that drips in would cost a look at all of it.
            is_partial = !has_end(&stream.input, before);
        }
    }

    /// Sends a request, then waits for the head of its answer. Gives what is left of the request's body with it.
    pub(super) async fn send<B>(
        self: &Rc<Self>,
        head: &Parts,
        body: &mut Option<B>,
    ) -> Result<(Response<Answer>, Option<Sending<B>>), SendError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<BodyError>,
    {
        let Some(taken) = body.take() else {
            return Err(SendError::Broken("the request's body was sent before".into()));
        };
        self.busy.set(true);
        let length = Length::of(&taken);
        head::encode(head, length, &mut self.stream.borrow_mut().output.head);
        let announced = if length == Length::Chunked { announced(&head.headers) } else { Vec::new() };
        let mut upload = Sending::new(taken, length, announced);
        let (mut sent, mut read) = (0, 0);
        let mut failed = None;
        let mut is_sent = false;
        let outcome = poll_fn(|cx| {
            if !is_sent {
                match self.poll_upload(cx, &mut upload, &mut sent) {
                    Poll::Ready(Ok(())) => is_sent = true,
                    Poll::Ready(Err(Fault::Body(error))) => return Poll::Ready(Err(Broken::Body(error))),
                    // There may be an answer all the same, which says why no more was read.
                    Poll::Ready(Err(Fault::Io(error))) => (is_sent, failed) = (true, Some(error)),
                    Poll::Pending => {}
                }
            }
            self.poll_head(cx, &head.method, &mut read)
        })
        .await;
        match outcome {
            Ok(Head { response, length, keep_alive }) => {
                let keep_alive = keep_alive && failed.is_none();
                self.uploading.set(!is_sent);
                let answer = Answer::new(Rc::clone(self), length, keep_alive);
                Ok((response.map(|()| answer), (!is_sent).then_some(upload)))
            }
            Err(Broken::Invalid(why)) => Err(SendError::Invalid(why.into())),
            Err(Broken::Body(error)) => Err(SendError::Broken(error)),
            Err(Broken::Io(error)) => {
                let error = failed.unwrap_or(error).into();
                if sent == 0 && read == 0 {
                    *body = upload.untouched();
                }
                Err(if body.is_some() { SendError::Unsent(error) } else { SendError::Broken(error) })
            }
        }
    }
}

impl Drop for Wire {
    /// Tells the endpoint that TLS ends here and was not cut, as far as that goes at once.
    fn drop(&mut self) {
        if let Some((Transport::Tls(stream), _)) = &mut self.stream.get_mut().transport {
            let _ = pin!(stream.shutdown()).poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

/// Why there is no head.
enum Broken {
    Io(io::Error),
    Body(BodyError),
    Invalid(&'static str),
}

/// Whether an empty line may have come with the bytes from `from` on.
fn has_end(bytes: &[u8], from: usize) -> bool {
    let mut at = from.saturating_sub(3);
    while let Some(found) = memchr::memchr(b'\n', &bytes[at..]) {
        at += found + 1;
        if matches!(&bytes[at..], [b'\n', ..] | [b'\r', b'\n', ..]) {
            return true;
        }
    }
    // Too much of it is for the parser to say.
    bytes.len() >= MAX_RESPONSE_HEAD
}
