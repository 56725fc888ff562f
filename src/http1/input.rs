//! Bytes that come from a socket.

use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes read at a time at first.
const FIRST_READ: usize = 8 << 10;
/// The most bytes read at a time.
const MOST_READ: usize = 256 << 10;

/// What has been read and not yet taken.
#[derive(Debug)]
pub struct Input {
    bytes: BytesMut,
    /// How much is read at a time.
    read: usize,
}

impl Input {
    /// With what has been read already.
    pub fn new(bytes: BytesMut) -> Self {
        Self { bytes, read: FIRST_READ }
    }

    /// Reads more; how many bytes have come, none at the end of the stream.
    pub fn poll_fill<S: AsyncRead + Unpin>(&mut self, cx: &mut Context<'_>, stream: &mut S) -> Poll<io::Result<usize>> {
        self.bytes.reserve(self.read);
        let room = self.bytes.capacity() - self.bytes.len();
        let read = ready!(pin!(Pin::new(stream).read_buf(&mut self.bytes)).poll(cx))?;
        // As much at a time as comes.
        if read == room {
            self.read = (self.read * 2).min(MOST_READ);
        } else if read < self.read / 4 {
            self.read = (self.read / 2).max(FIRST_READ);
        }
        Poll::Ready(Ok(read))
    }

    /// Lets go of the memory beyond `most` bytes, if nothing is in it.
    pub fn rest(&mut self, most: usize) {
        if self.bytes.is_empty() && self.bytes.capacity() > most {
            *self = Self::new(BytesMut::new());
        }
    }

    /// Bytes that are read at a time from a stream of which little comes.
    pub const USUAL: usize = FIRST_READ;
}

impl Deref for Input {
    type Target = BytesMut;

    fn deref(&self) -> &BytesMut {
        &self.bytes
    }
}

impl DerefMut for Input {
    fn deref_mut(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }
}
