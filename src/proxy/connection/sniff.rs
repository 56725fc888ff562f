//! HTTP/1.1 or HTTP/2: told by the first bytes of a connection, which are read once and handed on.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::ReadBuf;

use crate::proxy::io::Stream;
use crate::proxy::watchdog::{Conn, Stage};

/// What a client of HTTP/2 begins with (RFC 9113, section 3.4). No request of HTTP/1.1 does.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes read at first: the head of most requests, so that HTTP/1.1 needs no further read for it.
const FIRST_READ: usize = 4 << 10;

/// What a connection began with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum First {
    /// Bytes of HTTP/1.1.
    Http1(Bytes),
    /// HTTP/2's preface or more.
    Http2(Bytes),
    /// Part of the preface, and not the rest in time.
    Slow,
    /// Nothing.
    Nothing,
}

/// Reads until the protocol is known.
pub(super) async fn first<S: Stream>(stream: &mut S, conn: &Conn) -> First {
    let mut bytes = BytesMut::new();
    let done = poll_fn(|cx| match poll_first(stream, conn, &mut bytes, cx) {
        Poll::Pending if conn.poll_expired(cx) => Poll::Ready(None),
        polled => polled.map(Some),
    });
    match done.await {
        Some(Ok(())) if bytes.starts_with(PREFACE) => First::Http2(bytes.freeze()),
        Some(Ok(())) if !bytes.is_empty() => First::Http1(bytes.freeze()),
        None if conn.stage() == Stage::Head => First::Slow,
        Some(Ok(()) | Err(_)) | None => First::Nothing,
    }
}

/// The next bytes of a connection that was idle; `None` at its end.
pub(super) async fn next<S: Stream>(stream: &mut S, conn: &Conn) -> Option<Bytes> {
    let read = conn.unless_expired(poll_fn(|cx| poll_some(stream, conn, cx, Bytes::copy_from_slice)));
    read.await?.ok().filter(|bytes| !bytes.is_empty())
}

/// What `taken` makes of the next bytes; of none at the end.
pub(super) fn poll_some<S: Stream, T>(
    stream: &mut S,
    conn: &Conn,
    cx: &mut Context<'_>,
    taken: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>> {
    // On the stack for the time of a call: a connection that says nothing has no buffer.
    let mut space = [const { MaybeUninit::<u8>::uninit() }; FIRST_READ];
    let mut buf = ReadBuf::uninit(&mut space);
    ready!(Pin::new(stream).poll_read(cx, &mut buf))?;
    match buf.filled().len() {
        0 => {}
        read => conn.read(read),
    }
    Poll::Ready(Ok(taken(buf.filled())))
}

/// Ready when the bytes tell, or when no more come.
fn poll_first<S: Stream>(
    stream: &mut S,
    conn: &Conn,
    bytes: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    loop {
        let before = bytes.len();
        ready!(poll_some(stream, conn, cx, |more| bytes.extend_from_slice(more)))?;
        if bytes.len() == before {
            return Poll::Ready(Ok(()));
        }
        let is_open = bytes.len() < PREFACE.len() && PREFACE.starts_with(bytes);
        if !is_open {
            return Poll::Ready(Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::proxy::watchdog::{StageLimits, Watchdog};

    const LIMITS: StageLimits = StageLimits { header: Duration::from_secs(10), keep_alive: Duration::from_secs(75) };

    /// What comes of these writes, after the last of which the client says nothing more, or ends.
    async fn told(writes: &[&[u8]], ends: bool) -> First {
        let watchdog = Watchdog::new();
        let watched = watchdog.watch(LIMITS);
        let (mut client, mut stream) = tokio::io::duplex(1 << 16);
        let writing = async {
            for bytes in writes {
                client.write_all(bytes).await.unwrap();
                tokio::task::yield_now().await;
            }
            if ends {
                client.shutdown().await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = watchdog.run(|| crate::lifecycle::Phase::Serving) => unreachable!(),
            () = writing => unreachable!(),
            first = first(&mut stream, watched.conn()) => first,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_preface_and_nothing_else_is_http2() {
        let more = [PREFACE, b"\0\0\0\x04\0\0\0\0\0"].concat();
        assert_eq!(told(&[&more], false).await, First::Http2(more.clone().into()));
        let dripped: Vec<&[u8]> = PREFACE.chunks(1).collect();
        assert_eq!(told(&dripped, false).await, First::Http2(PREFACE.into()));
        for other in ["GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/1.1\r\n\r\n", "P", "PRI * HTTP/2.0\r\n\r\nXX", "\r\n"] {
            let expected = First::Http1(other.into());
            assert_eq!(told(&[other.as_bytes()], true).await, expected, "{other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_or_half_of_it_has_the_time_of_a_head() {
        assert_eq!(told(&[], false).await, First::Nothing);
        assert_eq!(told(&[], true).await, First::Nothing);
        assert_eq!(told(&[b"PRI * HT"], false).await, First::Slow);
    }
}
