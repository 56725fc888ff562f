//! A request's body as its client sends it.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http::header;
use http_body::{Body, Frame, SizeHint};

use super::connection::{h1, h3};
use crate::telemetry::metrics::Refusal;
use crate::upstream::pool::{BodyError, H2Body};

/// A body that comes from a client.
pub(super) enum Incoming {
    /// There is none.
    None,
    /// Over HTTP/1.1.
    H1(h1::Body),
    /// On a stream of HTTP/2.
    H2(Box<Stream<H2Body>>),
    /// On a stream of HTTP/3.
    H3(Box<Stream<h3::Body>>),
}

/// A body on a stream, and who has to be told when somebody begins to read it.
pub(super) struct Stream<B> {
    body: B,
    expectation: Option<Rc<Expectation>>,
}

/// What became of a client's `Expect: 100-continue`.
#[derive(Debug, Default)]
pub(super) struct Expectation {
    is_wanted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Expectation {
    /// Whether somebody has begun to read the body, once; else the task is woken then.
    pub(super) fn poll_wanted(&self, cx: &Context<'_>) -> bool {
        if self.is_wanted.take() {
            return true;
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        false
    }

    fn want(&self) {
        self.is_wanted.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

impl Incoming {
    /// The body of a request with this head, and what its client waits for before it sends it.
    pub(super) fn stream(stream: RecvStream, headers: &HeaderMap) -> (Self, Option<Rc<Expectation>>) {
        let expectation = expectation(headers);
        let body = H2Body::new(stream, headers);
        (Self::H2(Box::new(Stream { body, expectation: expectation.clone() })), expectation)
    }

    /// The same in HTTP/3.
    pub(super) fn quic(body: h3::Body, headers: &HeaderMap) -> (Self, Option<Rc<Expectation>>) {
        let expectation = expectation(headers);
        (Self::H3(Box::new(Stream { body, expectation: expectation.clone() })), expectation)
    }
}

fn expectation(headers: &HeaderMap) -> Option<Rc<Expectation>> {
    let expects = headers.get(header::EXPECT).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    expects.then(Rc::default)
}

impl<B> Stream<B> {
    /// Somebody begins to read.
    fn begin(&mut self) {
        if let Some(expectation) = self.expectation.take() {
            expectation.want();
        }
    }
}

/// Why a body ended early.
#[derive(Debug)]
pub(super) struct Broken {
    /// Whose fault it is: its framing is wrong, or the client left.
    pub reason: Refusal,
    /// What happened.
    pub error: BodyError,
}

impl From<h2::Error> for Broken {
    fn from(error: h2::Error) -> Self {
        // What the library found wrong with the body, such as another length than was announced.
        let is_malformed = error.is_library() && error.is_reset();
        let reason = if is_malformed { Refusal::BadRequest } else { Refusal::ClientGone };
        Self { reason, error: error.into() }
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::None => Poll::Ready(None),
            Self::H1(body) => Pin::new(body).poll_frame(cx),
            Self::H2(stream) => {
                stream.begin();
                Pin::new(&mut stream.body).poll_frame(cx).map_err(Into::into)
            }
            Self::H3(stream) => {
                stream.begin();
                Pin::new(&mut stream.body).poll_frame(cx)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::None => true,
            Self::H1(body) => body.is_end_stream(),
            Self::H2(stream) => stream.body.is_end_stream(),
            Self::H3(stream) => stream.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::None => SizeHint::with_exact(0),
            Self::H1(body) => body.size_hint(),
            Self::H2(stream) => stream.body.size_hint(),
            Self::H3(stream) => stream.body.size_hint(),
        }
    }
}
