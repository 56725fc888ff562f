//! Bytes on their way to a socket.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite;

/// Bytes on their way out, in this order.
#[derive(Debug, Default)]
pub struct Output {
    /// A head, or what stands in front of data.
    pub head: Vec<u8>,
    written: usize,
    /// Of a body.
    pub data: Bytes,
    /// What stands behind it.
    pub tail: &'static [u8],
    flushed: bool,
}

impl Output {
    /// Whether there is data that is not written, or what stands behind it.
    pub fn has_data(&self) -> bool {
        !self.data.is_empty() || !self.tail.is_empty()
    }

    /// Whether all of it has been written.
    pub fn is_empty(&self) -> bool {
        self.written == self.head.len() && !self.has_data()
    }

    fn clear(&mut self) {
        self.head.clear();
        self.written = 0;
    }

    fn advance(&mut self, bytes: usize) {
        let of_head = bytes.min(self.head.len() - self.written);
        let of_data = (bytes - of_head).min(self.data.len());
        self.written += of_head;
        self.data.advance(of_data);
        if self.data.is_empty() {
            // Not to keep the buffer that it lay in.
            self.data = Bytes::new();
        }
        self.tail = &self.tail[bytes - of_head - of_data..];
    }

    /// Writes all of it; how many bytes were written is added to `sent`.
    pub fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut S,
        sent: &mut u64,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let head = &self.head[self.written..];
            let stream = Pin::new(&mut *stream);
            let written = if self.has_data() {
                let parts = [IoSlice::new(head), IoSlice::new(&self.data), IoSlice::new(self.tail)];
                ready!(stream.poll_write_vectored(cx, &parts[usize::from(head.is_empty())..]))?
            } else {
                ready!(stream.poll_write(cx, head))?
            };
            if written == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
            *sent += written as u64;
            self.advance(written);
            self.flushed = false;
        }
        if !self.flushed {
            ready!(Pin::new(stream).poll_flush(cx))?;
            self.clear();
            self.flushed = true;
        }
        Poll::Ready(Ok(()))
    }
}
