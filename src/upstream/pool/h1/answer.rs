//! An answer's body, read from its connection as somebody wants it.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::wire::Wire;
use crate::http1::{Found, Length, Reading};
use crate::upstream::pool::MAX_RESPONSE_HEAD;

/// A body.
pub struct Answer {
    wire: Rc<Wire>,
    reading: Reading,
    keep_alive: bool,
    broken: Option<io::Error>,
}

impl Answer {
    /// The body behind a head that has been read.
    pub(super) fn new(wire: Rc<Wire>, length: Length, keep_alive: bool) -> Self {
        let mut answer = Self { wire, reading: Reading::Ended, keep_alive, broken: None };
        answer.go_on(Reading::new(length, MAX_RESPONSE_HEAD));
        answer
    }

    fn go_on(&mut self, reading: Reading) {
        self.reading = reading;
        if matches!(self.reading, Reading::Ended) {
            self.wire.answered(self.keep_alive);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        loop {
            if let Some(error) = this.broken.take() {
                this.reading = Reading::Ended;
                return Poll::Ready(Some(Err(error)));
            }
            if matches!(this.reading, Reading::Ended) {
                return Poll::Ready(None);
            }
            let found = match ready!(this.wire.poll_take(cx, |input| this.reading.take(input))) {
                Ok(Some(found)) => found,
                // Its end, where nothing else tells that.
                Ok(None) if matches!(this.reading, Reading::Close) => {
                    this.go_on(Reading::Ended);
                    return Poll::Ready(None);
                }
                Ok(None) => Err(ErrorKind::UnexpectedEof.into()),
                Err(error) => Err(error),
            };
            if found.is_ok() && this.reading.has_ended() {
                this.go_on(Reading::Ended);
            }
            match found {
                Ok(Found::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Found::Trailers(trailers)) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Ok(Found::More) => {}
                // What has come before is passed on first: with the error all that is not yet written is thrown away.
                Err(error) => {
                    this.broken = Some(error);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.reading, Reading::Ended)
    }

    fn size_hint(&self) -> SizeHint {
        self.reading.size_hint()
    }
}
