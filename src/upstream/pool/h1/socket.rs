//! A backend's socket that gives up when interim answers come without end.

use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::upstream::pool::transport::Transport;

/// Bytes that may come before the head of an answer is known: interim answers (RFC 9110, section 15.2), that head, and
/// what was read of the body with it.
const BEFORE_ANSWER: usize = 256 << 10;
/// How often the task is put behind the others before it is sure that no answer was among them.
const TURNS: u8 = 4;

/// How long an answer may keep one waiting, in bytes. hyper passes over interim answers as fast as they come, and would
/// have its worker do nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Patience {
    /// Nobody waits for an answer.
    #[default]
    Endless,
    /// So many bytes.
    Bytes(usize),
    /// No more; whoever waits has been given a turn, so many of which are left, to say that the answer has come.
    Turns(u8),
}

impl Patience {
    /// What a new request has.
    pub(super) const NEW: Self = Self::Bytes(BEFORE_ANSWER);

    fn read(self, bytes: usize) -> Self {
        match self {
            Self::Bytes(left) if left > bytes => Self::Bytes(left - bytes),
            Self::Bytes(_) => Self::Turns(TURNS),
            other => other,
        }
    }
}

/// The socket.
pub(super) struct Socket {
    /// What is read and written.
    pub(super) stream: Transport,
    /// Shared with whoever sends a request.
    pub(super) patience: Rc<Cell<Patience>>,
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.patience.get() {
            Patience::Endless | Patience::Bytes(_) => {}
            Patience::Turns(0) => {
                return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, "interim answers without end")));
            }
            Patience::Turns(left) => {
                self.patience.set(Patience::Turns(left - 1));
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.patience.set(self.patience.get().read(buf.filled().len() - before));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
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
