//! Connections that carry many requests at a time: HTTP/2 (RFC 9113).
//!
//! Built on the `h2` crate itself and not on hyper's client. That one has two tasks and two channels for each request,
//! learns of a `GOAWAY` only from the next request, does not tell what an endpoint never processed, and takes
//! `RST_STREAM` with `NO_ERROR` in the middle of a body for its end.

mod connect;
mod message;
mod stream;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use ::h2::client::SendRequest;
use bytes::Bytes;
use http::uri::Scheme;
use tokio::sync::oneshot;

use self::connect::Terms;
pub use self::stream::H2Body;
pub(super) use self::stream::Link;
use super::AcquireError;
use super::account::{Account, Permit, Waiting};
use crate::ir::UpstreamLimits;

/// Streams that one connection carries, where its peer allows as many: beyond, another connection shares the work.
const MAX_STREAMS: usize = 256;

/// One worker's connections to one endpoint that take new streams.
pub(super) struct Connections {
    account: Rc<Account>,
    open: RefCell<Vec<Rc<Connection>>>,
    /// A connection is being made. One at a time: how many streams it takes decides whether another one is needed.
    connecting: Cell<bool>,
    /// Requests that wait for the connection being made.
    arriving: RefCell<Queue>,
    /// Requests that wait because the process has its most connections to the endpoint.
    waiting: RefCell<Queue>,
    terms: Cell<Terms>,
    now_ms: Cell<u64>,
    /// The endpoint has left: connections end with their last stream.
    retired: Cell<bool>,
}

type Waiter = oneshot::Sender<Result<Lease, AcquireError>>;

/// Waiters in the order they came.
#[derive(Default)]
struct Queue(VecDeque<Waiter>);

impl Queue {
    fn enter(&mut self) -> oneshot::Receiver<Result<Lease, AcquireError>> {
        // Those who gave up first came first: they must not pile up where nobody is served.
        self.forget_gone();
        let (sender, receiver) = oneshot::channel();
        self.0.push_back(sender);
        receiver
    }

    fn forget_gone(&mut self) {
        while self.0.front().is_some_and(oneshot::Sender::is_closed) {
            self.0.pop_front();
        }
    }

    fn next(&mut self) -> Option<Waiter> {
        self.forget_gone();
        self.0.pop_front()
    }

    fn is_empty(&mut self) -> bool {
        self.forget_gone();
        self.0.is_empty()
    }
}

/// One connection. Closed by its driver when nothing refers to it any more and its last stream has ended.
struct Connection {
    send: RefCell<SendRequest<Bytes>>,
    /// What requests name as theirs.
    scheme: Scheme,
    pool: Weak<Connections>,
    /// Streams lent.
    streams: Cell<usize>,
    /// Whether it is among those that take new streams.
    is_open: Cell<bool>,
    was_used: Cell<bool>,
    opened_ms: u64,
    /// When it may no longer be used, whatever it does.
    ends_ms: Cell<u64>,
    idle_for_ms: Cell<u64>,
    /// When it is closed if it has no stream.
    expires_ms: Cell<u64>,
    /// Bytes written to the socket so far.
    written: Rc<Cell<u64>>,
}

/// A stream of a connection, lent to one request.
pub(super) struct Lease {
    connection: Rc<Connection>,
    /// Whether the connection carried a request before.
    is_reused: bool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.connection.returned();
    }
}

impl Connection {
    fn has_room(&self, now_ms: u64) -> bool {
        let streams = self.streams.get();
        let is_fresh = self.ends_ms.get() > now_ms && (streams > 0 || self.expires_ms.get() > now_ms);
        is_fresh && streams < MAX_STREAMS.min(self.send.borrow().current_max_send_streams())
    }

    /// Whether the connection has ended or its peer wants no new streams on it.
    fn refuses_streams(&self, cx: &mut Context<'_>) -> bool {
        matches!(self.send.borrow_mut().poll_ready(cx), Poll::Ready(Err(_)))
    }

    fn returned(self: &Rc<Self>) {
        self.streams.set(self.streams.get() - 1);
        let Some(pool) = self.pool.upgrade().filter(|_| self.is_open.get()) else { return };
        if self.streams.get() == 0 {
            pool.account.idle_changed(1);
            self.expires_ms.set(pool.now_ms.get().saturating_add(self.idle_for_ms.get()));
        }
        pool.has_room_again(self);
    }

    /// The peer may have raised its limit of streams.
    fn may_have_room(&self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.hand_out();
        }
    }

    /// No new stream is to use it.
    fn close(&self) {
        if let Some(pool) = self.pool.upgrade().filter(|_| self.is_open.get()) {
            pool.leave(self);
            pool.hand_out();
        }
    }
}

impl Connections {
    pub(super) fn new(account: Rc<Account>) -> Self {
        Self {
            account,
            open: RefCell::default(),
            connecting: Cell::new(false),
            arriving: RefCell::default(),
            waiting: RefCell::default(),
            terms: Cell::default(),
            now_ms: Cell::new(0),
            retired: Cell::new(false),
        }
    }

    /// Lets all connections end with their last stream, and sends away who waits.
    pub(super) fn retire(&self) {
        self.retired.set(true);
        for connection in self.open.take() {
            self.left(&connection);
        }
        self.send_away();
    }

    /// Lets connections go that were unused for too long, that are too old, or that other workers need more.
    pub(super) fn drop_expired(&self, now_ms: u64) {
        self.now_ms.set(now_ms);
        let is_wanted_elsewhere = self.account.somebody_waits();
        let is_over = |connection: &Connection| {
            let is_unused = connection.streams.get() == 0;
            connection.ends_ms.get() <= now_ms
                || (is_unused && (connection.expires_ms.get() <= now_ms || is_wanted_elsewhere))
        };
        let over: Vec<_> = self.open.borrow_mut().extract_if(.., |connection| is_over(connection)).collect();
        for connection in over {
            self.left(&connection);
        }
    }

    /// A stream of a connection that there is.
    pub(super) fn take(&self, now_ms: u64) -> Option<Lease> {
        self.now_ms.set(now_ms);
        // The first with room, so that those that are too many become unused.
        let open = self.open.borrow();
        let connection = open.iter().find(|connection| connection.has_room(now_ms))?;
        if connection.streams.get() == 0 {
            self.account.idle_changed(-1);
        }
        connection.streams.set(connection.streams.get() + 1);
        Some(Lease { connection: Rc::clone(connection), is_reused: connection.was_used.replace(true) })
    }

    /// A stream of a new connection, or of one that has room again while the endpoint has its most connections.
    pub(super) async fn acquire(
        self: &Rc<Self>,
        limits: &UpstreamLimits,
        connect_timeout: Duration,
        now_ms: u64,
    ) -> Result<Lease, AcquireError> {
        self.terms.set(Terms { limits: *limits, connect_timeout });
        self.now_ms.set(now_ms);
        // Connecting has a time limit of its own.
        while self.connecting.get() || self.begin() {
            let receiver = self.arriving.borrow_mut().enter();
            if let Ok(outcome) = receiver.await {
                return outcome;
            }
            if let Some(lease) = self.take(self.now_ms.get()) {
                return Ok(lease);
            }
        }
        if self.retired.get() {
            return Err(AcquireError::Left);
        }
        let endpoint = &self.account.endpoint;
        let Some(_waiting) = Waiting::take(endpoint, limits.max_pending) else {
            return Err(AcquireError::Overloaded);
        };
        let wait = async {
            let mut receiver = self.waiting.borrow_mut().enter();
            // One may have closed before it was known that somebody waits.
            self.begin();
            loop {
                if self.open.borrow().is_empty() {
                    endpoint.starving.store(true, Ordering::Release);
                }
                tokio::select! {
                    biased;
                    outcome = &mut receiver => return outcome.unwrap_or(Err(AcquireError::Left)),
                    () = endpoint.released.notified() => { self.begin(); }
                }
            }
        };
        match limits.acquire_timeout {
            Duration::ZERO => wait.await,
            timeout => tokio::time::timeout(timeout, wait).await.unwrap_or(Err(AcquireError::AcquireTimeout)),
        }
    }

    /// Begins to make a connection, if none is being made and there may be one more.
    fn begin(self: &Rc<Self>) -> bool {
        let terms = self.terms.get();
        if self.retired.get() || self.connecting.get() {
            return false;
        }
        let Some(permit) = Permit::take(&self.account, terms.limits.max_connections) else { return false };
        self.connecting.set(true);
        let pool = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let opened = connect::open(&pool, permit, terms).await;
            pool.connecting.set(false);
            match opened {
                Ok(connection) => pool.opened(connection),
                Err(error) => pool.failed(&error),
            }
        });
        true
    }

    fn opened(self: &Rc<Self>, connection: Rc<Connection>) {
        if self.retired.get() {
            self.send_away();
            return;
        }
        connection.is_open.set(true);
        self.account.idle_changed(1);
        self.open.borrow_mut().push(connection);
        self.hand_out();
    }

    fn failed(&self, error: &AcquireError) {
        let mut failing = self.arriving.take().0;
        if self.open.borrow().is_empty() {
            failing.append(&mut self.waiting.take().0);
        }
        for waiter in failing {
            // Who has given up needs no answer.
            let _ = waiter.send(Err(error.again()));
        }
    }

    /// Gives streams to who waits, those first who have waited longest. Who cannot be helped by connections that there
    /// are gets a new one, or learns that there can be none.
    fn hand_out(self: &Rc<Self>) {
        while !self.waiting.borrow_mut().is_empty() || !self.arriving.borrow_mut().is_empty() {
            let Some(lease) = self.take(self.now_ms.get()) else { break };
            let waiter = self.waiting.borrow_mut().next();
            let waiter = waiter.or_else(|| self.arriving.borrow_mut().next());
            if let Some(waiter) = waiter {
                // Who has given up meanwhile gives the stream back.
                let _ = waiter.send(Ok(lease));
            }
        }
        let is_left = !self.arriving.borrow_mut().is_empty();
        if is_left && !self.connecting.get() && !self.begin() {
            self.arriving.take();
        }
    }

    /// A stream of `connection` has ended.
    fn has_room_again(self: &Rc<Self>, connection: &Connection) {
        if !self.waiting.borrow_mut().is_empty() || !self.arriving.borrow_mut().is_empty() {
            self.hand_out();
        } else if self.account.somebody_waits() {
            // Another worker does. One that has no connection at all must not wait for ever for this one to be unused.
            let starving = &self.account.endpoint.starving;
            if connection.streams.get() == 0 || starving.swap(false, Ordering::AcqRel) {
                self.leave(connection);
            }
        }
    }

    /// Takes a connection out: it ends with its last stream.
    fn leave(&self, connection: &Connection) {
        let mut open = self.open.borrow_mut();
        let Some(at) = open.iter().position(|other| std::ptr::eq(&raw const **other, connection)) else { return };
        let connection = open.swap_remove(at);
        drop(open);
        self.left(&connection);
    }

    fn left(&self, connection: &Connection) {
        connection.is_open.set(false);
        if connection.streams.get() == 0 {
            self.account.idle_changed(-1);
        }
    }

    fn send_away(&self) {
        self.arriving.take();
        self.waiting.take();
    }
}

impl AcquireError {
    /// The same for another request that waited for the same connection.
    fn again(&self) -> Self {
        match self {
            Self::Connect(error) => Self::Connect(io::Error::new(error.kind(), error.to_string())),
            Self::Tls(error) => Self::Tls(io::Error::new(error.kind(), error.to_string())),
            Self::ConnectTimeout => Self::ConnectTimeout,
            Self::Left => Self::Left,
            Self::Exhausted(error) => Self::Exhausted(io::Error::new(error.kind(), error.to_string())),
            Self::Overloaded => Self::Overloaded,
            Self::AcquireTimeout => Self::AcquireTimeout,
        }
    }
}
