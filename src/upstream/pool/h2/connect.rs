//! From a socket to a connection that takes streams, and what keeps it going.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use ::h2::client;
use bytes::Bytes;
use http::uri::Scheme;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::account::{Permit, watch_peer};
use super::super::transport::Transport;
use super::super::{AcquireError, MAX_RESPONSE_HEAD, millis};
use super::{Connection, Connections, MAX_STREAMS};
use crate::ir::UpstreamLimits;

/// Bytes of an answer's body that are taken in before its client reads them.
const STREAM_WINDOW: u32 = 128 << 10;
/// The windows of all streams together: slow clients must not keep the others of their connection waiting.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 256;
const _: () = assert!(CONNECTION_WINDOW as usize == STREAM_WINDOW as usize * MAX_STREAMS);
/// Bytes of a request's body that wait for the peer's windows.
const SEND_BUFFER: usize = 64 << 10;
/// Stands for the peer's limit of streams until its SETTINGS have come, and is none that they can say.
const UNKNOWN: usize = usize::MAX - 1;

/// The kind of error of a peer that took the connection and said goodbye.
const LEFT: io::ErrorKind = io::ErrorKind::ConnectionAborted;
/// How often a peer may do so before it counts as one that cannot be connected to.
const MAX_LEFT: u32 = 2;

/// How connections are made and kept.
#[derive(Clone, Copy, Default)]
pub(super) struct Terms {
    /// How many there may be and how long they live.
    pub limits: UpstreamLimits,
    /// From the beginning to the peer's SETTINGS; zero is no limit.
    pub connect_timeout: Duration,
}

/// Makes a connection.
pub(super) async fn open(pool: &Rc<Connections>, permit: Permit, terms: Terms) -> Result<Rc<Connection>, AcquireError> {
    let written = Rc::new(Cell::new(0));
    let establish = async {
        let mut left = 0;
        loop {
            let stream = pool.account.transport(None).await?;
            watch_peer(stream.socket())?;
            match establish(Counted { stream, written: Rc::clone(&written) }).await {
                // It is there and wants to be left: who takes its place may listen already.
                Err(error) if error.kind() == LEFT && left < MAX_LEFT => left += 1,
                outcome => return outcome,
            }
        }
    };
    let (send, driver) = pool.account.connecting(terms.connect_timeout, establish).await?;
    let (now_ms, idle_for_ms) = (pool.now_ms.get(), millis(terms.limits.idle_timeout));
    let connection = Rc::new(Connection {
        send: RefCell::new(send),
        scheme: if pool.account.is_secure() { Scheme::HTTPS } else { Scheme::HTTP },
        pool: Rc::downgrade(pool),
        streams: Cell::new(0),
        is_open: Cell::new(false),
        was_used: Cell::new(false),
        opened_ms: now_ms,
        ends_ms: Cell::new(now_ms.saturating_add(millis(terms.limits.max_lifetime))),
        idle_for_ms: Cell::new(idle_for_ms),
        expires_ms: Cell::new(now_ms.saturating_add(idle_for_ms)),
        written,
    });
    tokio::task::spawn_local(drive(driver, Rc::downgrade(&connection), permit));
    Ok(connection)
}

type Driver = client::Connection<Counted, Bytes>;

/// Exchanges prefaces. A request waits for the peer's: who does not speak HTTP/2 is found out before anything of it was
/// sent, and no more streams are begun than the peer takes.
async fn establish(io: Counted) -> io::Result<(client::SendRequest<Bytes>, Driver)> {
    let mut builder = client::Builder::new();
    builder
        .enable_push(false)
        .initial_max_send_streams(UNKNOWN)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(MAX_RESPONSE_HEAD).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER)
        // Clients that leave cancel streams, of which frames may still be under way: no error of the peer's, and
        // counted by the crate over a connection's whole life.
        .max_concurrent_reset_streams(MAX_STREAMS)
        .max_local_error_reset_streams(None);
    let (mut send, mut driver) = builder.handshake(io).await.map_err(io::Error::other)?;
    poll_fn(|cx| match Pin::new(&mut driver).poll(cx) {
        Poll::Ready(Ok(())) => Poll::Ready(Err(LEFT.into())),
        Poll::Ready(Err(error)) => Poll::Ready(Err(io::Error::other(error))),
        Poll::Pending => match driver.max_concurrent_send_streams() {
            UNKNOWN => Poll::Pending,
            // More connections of the same kind would be of no more use.
            0 => Poll::Ready(Err(io::Error::other("the peer takes no streams"))),
            1.. => send.poll_ready(cx).map_err(|_| LEFT.into()),
        },
    })
    .await?;
    Ok((send, driver))
}

/// Keeps a connection going to its end. It leaves the pool as soon as the peer asks for that.
async fn drive(mut driver: Driver, connection: Weak<Connection>, permit: Permit) {
    let ended = poll_fn(|cx| {
        let polled = Pin::new(&mut driver).poll(cx);
        if let Some(connection) = connection.upgrade() {
            if polled.is_ready() || connection.refuses_streams(cx) {
                connection.close();
            } else {
                connection.may_have_room();
            }
        }
        polled
    })
    .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "upstream connection ended");
    }
    // The socket first: who gets the place next must find it free.
    drop(driver);
    drop(permit);
}

/// A socket that counts what is written to it.
pub(super) struct Counted {
    stream: Transport,
    written: Rc<Cell<u64>>,
}

impl Counted {
    fn note(&self, result: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = result {
            self.written.set(self.written.get() + *bytes as u64);
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note(&result);
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
