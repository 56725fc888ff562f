//! A stream that has become a tunnel: its DATA frames are the tunnel's bytes, both ways (RFC 8441, section 5).

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use ::h2::{RecvStream, SendStream};
use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Frames;
use crate::proxy::watchdog::Conn;

/// The client's side of such a tunnel. Dropped before both sides have ended, it resets the stream: the crate does that.
pub(super) struct Duplex {
    receive: RecvStream,
    send: SendStream<Bytes>,
    /// Received and not read yet.
    unread: Bytes,
    has_ended: bool,
    conn: Rc<Conn>,
    frames: Rc<Frames>,
}

impl Duplex {
    pub(super) fn new(receive: RecvStream, send: SendStream<Bytes>, conn: &Rc<Conn>, frames: &Rc<Frames>) -> Self {
        let (conn, frames) = (Rc::clone(conn), Rc::clone(frames));
        Self { receive, send, unread: Bytes::new(), has_ended: false, conn, frames }
    }
}

impl AsyncRead for Duplex {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.unread.is_empty() {
            match ready!(this.receive.poll_data(cx)) {
                Some(Ok(data)) => this.unread = data,
                Some(Err(error)) => return Poll::Ready(Err(failed(error))),
                // Trailers mean nothing here.
                None => return Poll::Ready(Ok(())),
            }
        }
        let taken = this.unread.len().min(buf.remaining());
        buf.put_slice(&this.unread[..taken]);
        this.unread.advance(taken);
        this.conn.read(taken);
        // The client may send as much again.
        this.receive.flow_control().release_capacity(taken).map_err(failed)?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Duplex {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.send.reserve_capacity(bytes.len());
        while this.send.capacity() == 0 {
            match ready!(this.send.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(failed(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let written = this.send.capacity().min(bytes.len());
        this.send.send_data(Bytes::copy_from_slice(&bytes[..written]), false).map_err(failed)?;
        this.conn.wrote(written);
        this.frames.note_sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection's task does it.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_ended {
            self.has_ended = true;
            self.send.send_data(Bytes::new(), true).map_err(failed)?;
        }
        Poll::Ready(Ok(()))
    }
}

fn failed(error: ::h2::Error) -> io::Error {
    if error.is_io() {
        error.into_io().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    } else {
        io::Error::other(error)
    }
}
