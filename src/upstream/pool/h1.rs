//! Connections that carry one request at a time: HTTP/1.1.

mod socket;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response};
use http_body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;

use self::socket::{Patience, Socket};
use super::account::{Account, Permit, Waiting, watch_peer};
use super::switched::{Switched, Switching};
use super::{AcquireError, BodyError, MAX_RESPONSE_HEAD, Received, SendError, millis, signed};
use crate::ir::UpstreamLimits;

/// Header fields that an answer may have.
const MAX_RESPONSE_HEADERS: usize = 128;

/// One worker's connections to one endpoint that are not in use.
pub(super) struct Connections<B> {
    account: Rc<Account>,
    idle: RefCell<Vec<Link<B>>>,
    waiters: RefCell<VecDeque<oneshot::Sender<Link<B>>>>,
    /// The endpoint has left: connections are closed instead of kept.
    retired: Cell<bool>,
}

/// A connection that is not in use, or is lent to one request.
pub struct Link<B> {
    send: http1::SendRequest<B>,
    opened_ms: u64,
    expires_ms: u64,
    /// Whether it carried a request before.
    pub(super) reused: bool,
    exit: Rc<Exit>,
    patience: Rc<Cell<Patience>>,
}

/// Where the task of a connection leaves the socket when the endpoint has agreed to another protocol and somebody waits.
type Exit = Cell<Option<oneshot::Sender<Switched>>>;

impl<B> Connections<B> {
    pub(super) fn new(account: Rc<Account>) -> Self {
        Self { account, idle: RefCell::default(), waiters: RefCell::default(), retired: Cell::new(false) }
    }

    pub(super) fn retire(&self) {
        self.retired.set(true);
        let idle = std::mem::take(&mut *self.idle.borrow_mut());
        self.account.idle_changed(-signed(idle.len()));
    }

    pub(super) fn drop_expired(&self, now_ms: u64) {
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        idle.retain(|link| link.expires_ms > now_ms && !link.send.is_closed());
        self.account.idle_changed(signed(idle.len()) - signed(before));
    }

    /// The most recently used connection that still works.
    pub(super) fn take(&self, now_ms: u64) -> Option<Link<B>> {
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        let mut found = None;
        for i in (0..before).rev() {
            let link = &idle[i];
            if link.send.is_closed() || link.expires_ms <= now_ms {
                idle.swap_remove(i);
            } else if link.send.is_ready() {
                found = Some(idle.remove(i));
                break;
            }
            // Else hyper is still busy with the end of its last answer: it stays for a later request.
        }
        self.account.idle_changed(signed(idle.len()) - signed(before));
        found
    }

    /// Gives a connection back after an answer, to whoever waits for one, else to the list.
    pub(super) fn give_back(&self, mut link: Link<B>, now_ms: u64, limits: &UpstreamLimits) {
        let lifetime_over = now_ms.saturating_sub(link.opened_ms) >= millis(limits.max_lifetime);
        if self.retired.get() || link.send.is_closed() || lifetime_over {
            return;
        }
        link.reused = true;
        link.expires_ms = now_ms.saturating_add(millis(limits.idle_timeout));
        while let Some(waiter) = self.waiters.borrow_mut().pop_front() {
            match waiter.send(link) {
                Ok(()) => return,
                Err(unwanted) => link = unwanted,
            }
        }
        // Another worker waits while this one has no use for it: closing it lets that worker open its own.
        if self.account.somebody_waits() {
            return;
        }
        self.idle.borrow_mut().push(link);
        self.account.idle_changed(1);
    }

    /// Has the next connection given back go to `waiter`, if nobody waited before.
    fn queue(&self, waiter: oneshot::Sender<Link<B>>) {
        let mut waiters = self.waiters.borrow_mut();
        waiters.retain(|waiter| !waiter.is_closed());
        waiters.push_back(waiter);
    }
}

impl<B> Connections<B>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<BodyError>,
{
    /// A new connection, or one that comes free while the endpoint has its most connections.
    pub(super) async fn connect(
        &self,
        limits: &UpstreamLimits,
        connect_timeout: Duration,
        now_ms: u64,
    ) -> Result<Link<B>, AcquireError> {
        if let Some(permit) = Permit::take(&self.account, limits.max_connections) {
            return self.open(permit, limits, connect_timeout, now_ms).await;
        }
        let Some(_waiting) = Waiting::take(&self.account.endpoint, limits.max_pending) else {
            return Err(AcquireError::Overloaded);
        };
        let wait = async {
            loop {
                // Also at first: one may have closed before it was known that somebody waits.
                if let Some(permit) = Permit::take(&self.account, limits.max_connections) {
                    return self.open(permit, limits, connect_timeout, now_ms).await;
                }
                let (sender, receiver) = oneshot::channel();
                self.queue(sender);
                tokio::select! {
                    biased;
                    link = receiver => if let Ok(link) = link { return Ok(link) },
                    () = self.account.endpoint.released.notified() => {}
                }
            }
        };
        match limits.acquire_timeout {
            Duration::ZERO => wait.await,
            timeout => tokio::time::timeout(timeout, wait).await.unwrap_or(Err(AcquireError::AcquireTimeout)),
        }
    }

    async fn open(
        &self,
        permit: Permit,
        limits: &UpstreamLimits,
        connect_timeout: Duration,
        now_ms: u64,
    ) -> Result<Link<B>, AcquireError> {
        let stream = self.account.connecting(connect_timeout, self.account.transport()).await?;
        let patience = Rc::<Cell<Patience>>::default();
        let socket = Socket { stream, patience: Rc::clone(&patience) };
        let mut builder = http1::Builder::new();
        builder.max_headers(MAX_RESPONSE_HEADERS).max_header_size(MAX_RESPONSE_HEAD);
        let handshake = builder.handshake(TokioIo::new(socket)).await;
        let (send, connection) = handshake.map_err(|e| AcquireError::Connect(io::Error::other(e)))?;
        let exit = Rc::new(Exit::default());
        tokio::task::spawn_local(drive(connection, permit, Rc::clone(&exit)));
        let expires_ms = now_ms.saturating_add(millis(limits.idle_timeout));
        Ok(Link { send, opened_ms: now_ms, expires_ms, reused: false, exit, patience })
    }
}

/// Runs a connection to its end as HTTP, and lets go of its socket then, or hands it on.
async fn drive<B>(mut connection: http1::Connection<TokioIo<Socket>, B>, permit: Permit, exit: Rc<Exit>)
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<BodyError>,
{
    // Not awaited, which would close the socket with the connection: hyper ends it at a 101, with nothing shut down.
    if let Err(error) = poll_fn(|cx| Pin::new(&mut connection).poll(cx)).await {
        tracing::debug!(%error, "upstream connection ended");
        return;
    }
    let Some(exit) = exit.take().filter(|exit| !exit.is_closed()) else { return };
    let parts = connection.into_parts();
    let Socket { stream, .. } = parts.io.into_inner();
    // What goes on may be silent for long: the kernel finds out when the endpoint is gone.
    if let Err(error) = watch_peer(stream.socket()) {
        tracing::debug!(%error, "a tunnel's endpoint cannot be watched");
    }
    // Nobody waits any more: closed.
    let _ = exit.send(Switched::new(stream, parts.read_buf, permit));
}

impl<B> Link<B> {
    /// Has the connection's task hand the socket over once the endpoint has agreed to another protocol.
    pub(super) fn expect_switch(&self) -> Switching {
        let (sender, receiver) = oneshot::channel();
        self.exit.set(Some(sender));
        receiver
    }
}

impl<B> Link<B>
where
    B: Body<Data = Bytes> + 'static,
{
    /// Sends a request; then waits for the head of its answer.
    pub(super) fn send(
        &mut self,
        mut request: Request<B>,
    ) -> impl Future<Output = Result<Response<Received>, SendError<B>>> {
        join_cookies(request.headers_mut());
        self.patience.set(Patience::NEW);
        let patience = Rc::clone(&self.patience);
        let answer = self.send.try_send_request(request);
        async move {
            let answer = answer.await;
            patience.set(Patience::Endless);
            match answer {
                Ok(response) => Ok(response.map(Received::H1)),
                Err(mut error) => Err(match error.take_message() {
                    Some(request) => SendError::Unsent(Box::new(request), error.into_error().into()),
                    None if error.error().is_parse() => SendError::Invalid(error.into_error().into()),
                    None => SendError::Broken(error.into_error().into()),
                }),
            }
        }
    }
}

/// Makes one line of `Cookie` of several, which HTTP/2 allows and servers of HTTP/1.1 need not know (RFC 9113, section
/// 8.2.3; RFC 6265, section 5.4).
fn join_cookies(headers: &mut HeaderMap) {
    // Most requests repeat no field at all.
    if headers.len() == headers.keys_len() {
        return;
    }
    let mut lines = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(second)) = (lines.next(), lines.next()) else { return };
    let mut joined = first.as_bytes().to_vec();
    for line in std::iter::once(second).chain(lines) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(line.as_bytes());
    }
    // Parts of values make a value.
    if let Ok(joined) = HeaderValue::from_maybe_shared(Bytes::from(joined)) {
        headers.insert(header::COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_joined_in_their_order_and_with_their_bytes() {
        for (lines, expected) in [
            (&["a=1"][..], &["a=1"][..]),
            (&["a=1", "b=2"], &["a=1; b=2"]),
            (&["a=1; b= 2", "c=\"x y\"", "d"], &["a=1; b= 2; c=\"x y\"; d"]),
            (&[], &[]),
        ] {
            let mut headers = HeaderMap::new();
            for name in ["x-twice", "x-twice"] {
                headers.append(name, HeaderValue::from_static("1"));
            }
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_static(line));
            }
            join_cookies(&mut headers);
            assert_eq!(headers.get_all(header::COOKIE).iter().collect::<Vec<_>>(), expected);
            assert_eq!(headers.get_all("x-twice").iter().count(), 2);
        }
    }
}
