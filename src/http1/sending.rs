//! A message's body on its way to a socket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::{Body, Frame};

use super::{BodyError, Output, field, keep_trailers};

/// Why a body was not sent.
#[derive(Debug)]
pub enum Fault {
    /// The connection takes nothing more.
    Io(io::Error),
    /// The body itself broke.
    Body(BodyError),
}

/// Where a body ends, as the head before it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// There is none.
    None,
    /// Behind so many bytes.
    Known(u64),
    /// Where a chunk says.
    Chunked,
    /// Where the connection ends.
    Close,
}

/// A body, and how far it has come.
#[derive(Debug)]
pub struct Sending<B> {
    body: B,
    /// Something of it was asked for.
    begun: bool,
    state: State,
    /// The trailer fields that the head has announced. Others are not sent: a reader that takes them for the head's would
    /// be surprised.
    announced: Vec<HeaderName>,
}

#[derive(Debug)]
enum State {
    /// So many bytes are to come.
    Length(u64),
    Chunks,
    Close,
    Ended,
}

impl Length {
    /// How a body's end is told to one who can read chunks.
    pub fn of<B: Body>(body: &B) -> Self {
        match body.size_hint().exact() {
            _ if body.is_end_stream() => Self::None,
            Some(length) => Self::Known(length),
            None => Self::Chunked,
        }
    }
}

impl<B> Sending<B> {
    /// A body of which nothing was sent. Of its trailers those are, in chunks, that its head has `announced`.
    pub fn new(body: B, length: Length, announced: Vec<HeaderName>) -> Self {
        let state = match length {
            Length::None => State::Ended,
            Length::Known(length) => State::Length(length),
            Length::Chunked => State::Chunks,
            Length::Close => State::Close,
        };
        Self { body, begun: false, state, announced }
    }

    /// Whether nothing more of it is to come.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// The body, if nothing of it was taken.
    pub fn untouched(self) -> Option<B> {
        (!self.begun).then_some(self.body)
    }
}

impl<B> Sending<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    /// Puts the next piece into `output`, if there is nothing left of the former one.
    pub fn poll_next(&mut self, cx: &mut Context<'_>, output: &mut Output) -> Poll<Result<(), BodyError>> {
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
                chunk_size(data.len(), &mut output.head);
                output.tail = b"\r\n";
            }
            State::Close => {}
            State::Ended => return Err("the body goes on behind its end".into()),
        }
        output.data = data;
        Ok(())
    }

    fn end(&mut self, output: &mut Output) -> Result<(), BodyError> {
        match &self.state {
            State::Length(0) | State::Close | State::Ended => {}
            State::Length(_) => return Err("the body is shorter than announced".into()),
            State::Chunks if output.has_data() => output.tail = b"\r\n0\r\n\r\n",
            State::Chunks => output.head.extend_from_slice(b"0\r\n\r\n"),
        }
        self.state = State::Ended;
        Ok(())
    }
}

fn chunk_size(size: usize, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|digit| DIGITS[(size >> (4 * digit)) & 0xf]));
    out.extend_from_slice(b"\r\n");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_chunks_are_hexadecimal() {
        for size in [0, 1, 9, 15, 16, 255, 256, 4095, 0xabc_def0, usize::MAX] {
            let mut out = Vec::new();
            chunk_size(size, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{size:x}\r\n"));
        }
    }
}
