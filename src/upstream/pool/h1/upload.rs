//! A request's body on its way to an endpoint.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, header};
use http_body::{Body, Frame};

use super::head::{Length, field};
use super::wire::Output;
use crate::upstream::pool::{BodyError, keep_trailers};

/// Why a body was not sent.
pub(super) enum Fault {
    /// The connection takes nothing more.
    Io(io::Error),
    /// The body itself broke.
    Body(BodyError),
}

/// A body, and how far it has come.
pub(super) struct Upload<B> {
    body: B,
    /// Something of it was asked for.
    begun: bool,
    state: State,
    /// The trailer fields that the head has announced. Others are not sent: a reader that takes them for the head's would
    /// be surprised.
    announced: Vec<HeaderName>,
}

enum State {
    /// So many bytes are to come.
    Length(u64),
    Chunks,
    Ended,
}

impl Length {
    /// How long a body is.
    pub(super) fn of<B: Body>(body: &B) -> Self {
        match body.size_hint().exact() {
            _ if body.is_end_stream() => Self::None,
            Some(length) => Self::Known(length),
            None => Self::Chunked,
        }
    }
}

impl<B> Upload<B> {
    /// A body of which nothing was sent, behind a head with these fields.
    pub(super) fn new(body: B, length: Length, head: &HeaderMap) -> Self {
        let state = match length {
            Length::None => State::Ended,
            Length::Known(length) => State::Length(length),
            Length::Chunked => State::Chunks,
        };
        let announced = if length == Length::Chunked { announced(head) } else { Vec::new() };
        Self { body, begun: false, state, announced }
    }

    /// Whether nothing more of it is to come.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// The body, if nothing of it was taken.
    pub(super) fn untouched(self) -> Option<B> {
        (!self.begun).then_some(self.body)
    }
}

impl<B> Upload<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    /// Puts the next piece into `output`, if there is nothing left of the former one.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>, output: &mut Output) -> Poll<Result<(), BodyError>> {
        if self.has_ended() || output.has_data() {
            return Poll::Ready(Ok(()));
        }
        self.begun = true;
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose().map_err(Into::into)?;
        match frame.map(Frame::into_data) {
            Some(Ok(data)) => self.data(data, output)?,
            Some(Err(frame)) => {
                if let (Ok(mut trailers), State::Chunks) = (frame.into_trailers(), &self.state) {
                    keep_trailers(&mut trailers);
                    last_chunk(&trailers, &self.announced, &mut output.head);
                    self.state = State::Ended;
                }
            }
            None => self.end(output)?,
        }
        if !self.has_ended() && self.body.is_end_stream() {
            self.end(output)?;
        }
        Poll::Ready(Ok(()))
    }

    fn data(&mut self, data: Bytes, output: &mut Output) -> Result<(), BodyError> {
        if data.is_empty() {
            return Ok(());
        }
        match &mut self.state {
            State::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or("the body is longer than announced")?;
                if *left == 0 {
                    self.state = State::Ended;
                }
            }
            State::Chunks => {
                output.head.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                output.tail = b"\r\n";
            }
            State::Ended => return Err("the body goes on behind its end".into()),
        }
        output.data = data;
        Ok(())
    }

    fn end(&mut self, output: &mut Output) -> Result<(), BodyError> {
        match &self.state {
            State::Length(0) | State::Ended => {}
            State::Length(_) => return Err("the body is shorter than announced".into()),
            State::Chunks if output.has_data() => output.tail = b"\r\n0\r\n\r\n",
            State::Chunks => output.head.extend_from_slice(b"0\r\n\r\n"),
        }
        self.state = State::Ended;
        Ok(())
    }
}

fn announced(head: &HeaderMap) -> Vec<HeaderName> {
    let names = head.get_all(header::TRAILER).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

fn last_chunk(trailers: &HeaderMap, announced: &[HeaderName], out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        if announced.contains(name) {
            field(out, name.as_str(), value.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}
