//! Connections that carry one request at a time: HTTP/1.1.

mod answer;
mod head;
mod wire;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http_body::Body;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

pub(super) use self::answer::Answer;
use self::wire::Wire;
use super::account::{Account, Permit, Waiting};
use super::switched::Switched;
use super::{AcquireError, BodyError, Received, SendError, millis, signed};
use crate::ir::UpstreamLimits;

/// One worker's connections to one endpoint that are not in use.
pub(super) struct Connections {
    account: Rc<Account>,
    idle: RefCell<Vec<Link>>,
    waiters: RefCell<VecDeque<oneshot::Sender<Link>>>,
    /// The endpoint has left: connections are closed instead of kept.
    retired: Cell<bool>,
}

/// A connection that is not in use, or is lent to one request.
pub struct Link {
    wire: Rc<Wire>,
    opened_ms: u64,
    expires_ms: u64,
    /// Whether it carried a request before.
    pub(super) reused: bool,
    /// What it began with, of the client that it is for.
    told: Option<Bytes>,
    upload: Option<Uploading>,
}

/// A request's body that is still being sent while its answer is read. Dropped, it ends where it is.
struct Uploading(AbortHandle);

impl Drop for Uploading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connections {
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
        // Those of clients that do not use them must not keep others out.
        let is_wanted = self.account.somebody_waits();
        let is_kept = |link: &Link| !(is_wanted && link.told.is_some());
        idle.retain(|link| link.expires_ms > now_ms && link.wire.is_free() && is_kept(link));
        self.account.idle_changed(signed(idle.len()) - signed(before));
    }

    /// The most recently used connection that still works, of those that began with `told`.
    pub(super) fn take(&self, now_ms: u64, told: Option<&Bytes>) -> Option<Link> {
        if let Some(told) = told {
            return self.take_told(now_ms, told);
        }
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        let mut found = None;
        while let Some(link) = idle.pop() {
            if link.expires_ms > now_ms && link.wire.is_free() {
                found = Some(link);
                break;
            }
        }
        self.account.idle_changed(signed(idle.len()) - signed(before));
        found
    }

    /// The same of an endpoint that is told of clients: of those that were told of this one.
    fn take_told(&self, now_ms: u64, told: &Bytes) -> Option<Link> {
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        idle.retain(|link| link.expires_ms > now_ms && link.wire.is_free());
        let last = idle.iter().rposition(|link| link.told.as_ref() == Some(told));
        let found = last.map(|at| idle.remove(at));
        self.account.idle_changed(signed(idle.len()) - signed(before));
        found
    }

    /// Closes the longest unused connection, so that there can be another.
    fn make_room(&self) {
        let mut idle = self.idle.borrow_mut();
        if !idle.is_empty() {
            let longest = idle.remove(0);
            self.account.idle_changed(-1);
            drop((idle, longest));
        }
    }

    /// Gives a connection back after an answer, to whoever waits for one, else to the list.
    pub(super) fn give_back(&self, mut link: Link, now_ms: u64, limits: &UpstreamLimits) {
        let lifetime_over = now_ms.saturating_sub(link.opened_ms) >= millis(limits.max_lifetime);
        link.upload = None;
        // Whether the endpoint has closed it meanwhile is looked at when it is taken; who waits takes it at once.
        let is_wanted = !self.waiters.borrow().is_empty();
        if self.retired.get() || lifetime_over || !link.wire.is_at_rest() || (is_wanted && !link.wire.is_free()) {
            return;
        }
        link.wire.rest();
        link.reused = true;
        link.expires_ms = now_ms.saturating_add(millis(limits.idle_timeout));
        // The last place is not kept by one client for itself: another one could be waiting for it at another worker.
        if link.told.is_some() && self.account.is_full(limits.max_connections) {
            return;
        }
        // Who waits for one that is for another client opens its own in the place of this one.
        if link.told.is_none() {
            while let Some(waiter) = self.waiters.borrow_mut().pop_front() {
                match waiter.send(link) {
                    Ok(()) => return,
                    Err(unwanted) => link = unwanted,
                }
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
    fn queue(&self, waiter: oneshot::Sender<Link>) {
        let mut waiters = self.waiters.borrow_mut();
        waiters.retain(|waiter| !waiter.is_closed());
        waiters.push_back(waiter);
    }

    /// A new connection that begins with `told`, or one that comes free while the endpoint has its most connections.
    pub(super) async fn connect(
        &self,
        limits: &UpstreamLimits,
        connect_timeout: Duration,
        now_ms: u64,
        told: Option<&Bytes>,
    ) -> Result<Link, AcquireError> {
        if let Some(permit) = Permit::take(&self.account, limits.max_connections) {
            return self.open((permit, told), limits, connect_timeout, now_ms).await;
        }
        let Some(_waiting) = Waiting::take(&self.account.endpoint, limits.max_pending) else {
            return Err(AcquireError::Overloaded);
        };
        if told.is_some() {
            self.make_room();
        }
        let wait = async {
            loop {
                // Also at first: one may have closed before it was known that somebody waits.
                if let Some(permit) = Permit::take(&self.account, limits.max_connections) {
                    return self.open((permit, told), limits, connect_timeout, now_ms).await;
                }
                let (sender, receiver) = oneshot::channel();
                self.queue(sender);
                tokio::select! {
                    biased;
                    link = receiver => if let Ok(link) = link { return Ok(link) },
                    () = self.account.endpoint.released.notified() => {}
                    () = self.account.endpoint.left() => return Err(AcquireError::Left),
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
        (permit, told): (Permit, Option<&Bytes>),
        limits: &UpstreamLimits,
        connect_timeout: Duration,
        now_ms: u64,
    ) -> Result<Link, AcquireError> {
        let connect = self.account.transport(told.map(|told| &told[..]));
        let transport = self.account.connecting(connect_timeout, connect).await?;
        let expires_ms = now_ms.saturating_add(millis(limits.idle_timeout));
        let wire = Wire::new(transport, permit);
        Ok(Link { wire, opened_ms: now_ms, expires_ms, reused: false, told: told.cloned(), upload: None })
    }
}

impl Link {
    /// Takes the connection out of HTTP, once the endpoint has agreed to another protocol.
    pub(super) fn switch(&self) -> Option<Switched> {
        self.wire.switch()
    }

    /// Sends a request; then waits for the head of its answer. Interim answers are not passed on.
    pub(super) async fn send<B>(
        &mut self,
        head: &mut Parts,
        body: &mut Option<B>,
    ) -> Result<Response<Received>, SendError>
    where
        B: Body<Data = Bytes> + Unpin + 'static,
        B::Error: Into<BodyError>,
    {
        join_cookies(&mut head.headers);
        let (response, rest) = self.wire.send(head, body).await?;
        if let Some(upload) = rest {
            // The answer has come first. Its client may read nothing of it before its request is sent.
            let task = tokio::task::spawn_local(Rc::clone(&self.wire).finish_upload(upload));
            self.upload = Some(Uploading(task.abort_handle()));
        }
        Ok(response.map(Received::H1))
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
