//! An answer's body, read from its connection as somebody wants it.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::head::{Framing, parse_trailers};
use super::wire::Wire;
use crate::http1::{Chunks, Part};
use crate::upstream::pool::MAX_RESPONSE_HEAD;

/// A body.
pub struct Answer {
    wire: Rc<Wire>,
    reading: Reading,
    keep_alive: bool,
    broken: Option<io::Error>,
}

enum Reading {
    Length(u64),
    /// Chunks, and what has come of the trailer.
    Chunks(Chunks, Vec<u8>),
    /// To the end of the connection.
    Close,
    Ended,
}

/// What a look at the bytes that have come has found.
enum Found {
    Data(Bytes),
    Trailers(HeaderMap),
    /// Nothing yet.
    More,
}

impl Answer {
    /// The body behind a head that has been read.
    pub(super) fn new(wire: Rc<Wire>, framing: Framing, keep_alive: bool) -> Self {
        let reading = match framing {
            Framing::Length(0) => Reading::Ended,
            Framing::Length(length) => Reading::Length(length),
            Framing::Chunked => Reading::Chunks(Chunks::default(), Vec::new()),
            Framing::Close => Reading::Close,
        };
        let mut answer = Self { wire, reading: Reading::Ended, keep_alive, broken: None };
        answer.go_on(reading);
        answer
    }

    fn go_on(&mut self, reading: Reading) {
        self.reading = reading;
        if matches!(self.reading, Reading::Ended) {
            self.wire.answered(self.keep_alive);
        }
    }
}

impl Reading {
    fn take(&mut self, input: &mut BytesMut) -> io::Result<Found> {
        let (chunks, trailer) = match self {
            Self::Length(left) => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= len as u64;
                return Ok(Found::Data(input.split_to(len).freeze()));
            }
            Self::Close | Self::Ended => return Ok(Found::Data(input.split().freeze())),
            Self::Chunks(chunks, trailer) => (chunks, trailer),
        };
        while !input.is_empty() && !chunks.has_ended() {
            match chunks.next(input).map_err(|malformed| invalid(malformed.0))? {
                Part::Framing(len) => input.advance(len),
                Part::Data(len) => return Ok(Found::Data(input.split_to(len).freeze())),
                Part::Trailers(len) => {
                    trailer.extend_from_slice(&input.split_to(len));
                    if trailer.len() > MAX_RESPONSE_HEAD {
                        return Err(invalid("the trailer is too large"));
                    }
                }
            }
        }
        if chunks.has_ended() && trailer.len() > EMPTY_LINE {
            parse_trailers(trailer).map(Found::Trailers).map_err(invalid)
        } else {
            Ok(Found::More)
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunks(chunks, _) => chunks.has_ended(),
            Self::Close => false,
            Self::Ended => true,
        }
    }
}

/// Bytes of a trailer without fields.
const EMPTY_LINE: usize = 2;

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
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
        match self.reading {
            Reading::Length(left) => SizeHint::with_exact(left),
            Reading::Ended => SizeHint::with_exact(0),
            Reading::Chunks(..) | Reading::Close => SizeHint::default(),
        }
    }
}
