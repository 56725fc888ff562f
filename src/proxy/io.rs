//! A client's socket, with every byte noted in the connection's state.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use super::watchdog::Conn;

/// Bytes read of what a client still sends after the last answer.
const LINGER_BYTES: usize = 256 << 10;
/// Time spent on it.
const LINGER: Duration = Duration::from_secs(2);

/// What a client speaks HTTP over: a socket, or TLS on one.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Stream for S {}

/// The stream of a client connection.
pub(super) struct ClientIo<S> {
    stream: S,
    conn: Rc<Conn>,
}

impl<S> ClientIo<S> {
    /// Wraps a stream.
    pub(super) fn new(stream: S, conn: Rc<Conn>) -> Self {
        Self { stream, conn }
    }

    fn note_written(&self, result: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes @ 1..)) = result {
            self.conn.wrote(*bytes);
        }
    }
}

/// Ends the stream towards the client and reads, within bounds, what it still sends: a socket closed with unread bytes
/// sends a reset, which can destroy the answer before the client has read it (RFC 9112, section 9.6).
pub(super) async fn linger<S: Stream>(mut stream: S) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let deadline = Instant::now() + LINGER;
    let mut left = LINGER_BYTES;
    let mut sink = [0; 4096];
    while left > 0 {
        match tokio::time::timeout_at(deadline, stream.read(&mut sink)).await {
            Ok(Ok(read @ 1..)) => left = left.saturating_sub(read),
            Ok(Ok(0) | Err(_)) | Err(_) => return,
        }
    }
}

/// A stream of which the first bytes have been read already.
pub(super) struct Replayed<S> {
    first: Bytes,
    stream: S,
}

impl<S> Replayed<S> {
    /// Gives `first` to who reads, then what comes on `stream`.
    pub(super) fn new(first: Bytes, stream: S) -> Self {
        Self { first, stream }
    }
}

impl<S: Stream> AsyncRead for Replayed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let length = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first.split_to(length));
        if self.first.is_empty() {
            self.first = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> AsyncRead for ClientIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        let read = buf.filled().len() - before;
        if read > 0 {
            self.conn.read(read);
        }
        result
    }
}

impl<S: Stream> AsyncWrite for ClientIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note_written(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note_written(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: Stream> AsyncWrite for Replayed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
