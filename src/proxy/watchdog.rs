//! Deadlines of client connections, judged by one coarse clock per worker.
//!
//! A timer per request would cost more than matching it. Here a request stores two numbers in its connection's
//! state, and one sweep each [`SWEEP`] looks for connections whose time is over. Deadlines are late by up to a sweep.

use std::cell::{Cell, Ref, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Held;
use crate::lifecycle::{Holder, Phase};
use crate::routing::RuleKey;

/// Time between two sweeps: how late a deadline may be noticed.
pub(super) const SWEEP: Duration = Duration::from_millis(100);

/// How long a connection may be idle before it gives up what it needs for the next request.
const WARM: Duration = Duration::from_secs(1);
/// How many idle connections of a worker may keep it at all.
const MOST_WARM: usize = 64;

/// What a connection is doing. Decides which time limit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Accepted, nothing read yet.
    New,
    /// Between two requests.
    Idle,
    /// Part of a request's head has come.
    Head,
    /// A request is being served.
    Exchange,
    /// Streams of HTTP/2 are open, each of which has a state of its own.
    Streams,
    /// The client has been asked to leave, and nothing is being served.
    Leaving,
}

/// The state of one client connection, shared by its IO, its service and the sweep.
pub(super) struct Conn {
    stage: Cell<Stage>,
    since_ms: Cell<u64>,
    limit_ms: Cell<u64>,
    expired: Cell<bool>,
    /// When the exchange has to be over, however many bytes flow.
    deadline_ms: Cell<u64>,
    late: Cell<bool>,
    /// The answer's head has been handed over: who waits now waits for bytes to move.
    answering: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    began_ms: Cell<u64>,
    received: Cell<u64>,
    sent: Cell<u64>,
    peer: Cell<Option<SocketAddr>>,
    /// It holds the drain though its exchange is over, for the end of that is still on its way.
    lasting: Cell<bool>,
    rule: RefCell<Option<(Held, RuleKey)>>,
    /// Once the connection has changed to another protocol.
    tunnel: RefCell<Option<Box<TunnelName>>>,
    limits: StageLimits,
    protocol: Cell<&'static str>,
    /// Whether to wake the task when the gateway begins to leave, or the connection is old.
    waits_for_leave: Cell<bool>,
    /// Requests after which the client is asked to leave.
    requests_left: Cell<u32>,
    /// When it is asked to.
    leaves_at_ms: Cell<u64>,
    /// Idle, and ready for the next request at once.
    warm: Cell<bool>,
    /// To give up what it needs for the next request.
    to_park: Cell<bool>,
    shared: Rc<Shared>,
}

/// What the connections of a worker share.
#[derive(Default)]
struct Shared {
    clock: Cell<u64>,
    warm: Cell<usize>,
}

/// What people are told of a tunnel.
struct TunnelName {
    route: String,
    protocol: Arc<str>,
}

/// How long a connection may stay in a stage. Zero is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StageLimits {
    /// For the first byte, and from the first byte to the end of a request's head.
    pub header: Duration,
    /// Between two requests.
    pub keep_alive: Duration,
}

/// All client connections of one worker, and its clock.
pub(super) struct Watchdog {
    started: Instant,
    shared: Rc<Shared>,
    conns: RefCell<Slab<Rc<Conn>>>,
    wanted: Notify,
}

/// Keeps a connection in the watchdog's list.
pub(super) struct Watched {
    conn: Rc<Conn>,
    watchdog: Rc<Watchdog>,
    key: usize,
}

impl Watchdog {
    /// An empty one. Its clock starts now, at 0.
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            started: Instant::now(),
            shared: Rc::default(),
            conns: RefCell::default(),
            wanted: Notify::new(),
        })
    }

    /// The worker's clock in milliseconds. It moves with each sweep while there are connections.
    pub(super) fn now_ms(&self) -> u64 {
        self.shared.clock.get()
    }

    /// Reads the real clock; called where there may have been no sweep for long.
    pub(super) fn tick(&self) -> u64 {
        let now = millis(self.started.elapsed());
        self.shared.clock.set(now);
        now
    }

    /// Watches a new connection.
    pub(super) fn watch(self: &Rc<Self>, limits: StageLimits) -> Watched {
        let mut conns = self.conns.borrow_mut();
        if conns.is_empty() {
            self.tick();
            self.wanted.notify_one();
        }
        let conn = Rc::new(Conn {
            stage: Cell::new(Stage::New),
            since_ms: Cell::new(self.now_ms()),
            limit_ms: Cell::new(limit(limits.header)),
            expired: Cell::new(false),
            deadline_ms: Cell::new(u64::MAX),
            late: Cell::new(false),
            answering: Cell::new(false),
            waker: RefCell::default(),
            began_ms: Cell::new(0),
            received: Cell::new(0),
            sent: Cell::new(0),
            peer: Cell::new(None),
            lasting: Cell::new(false),
            rule: RefCell::default(),
            tunnel: RefCell::default(),
            limits,
            protocol: Cell::new("http/1.1"),
            waits_for_leave: Cell::new(false),
            requests_left: Cell::new(u32::MAX),
            leaves_at_ms: Cell::new(u64::MAX),
            warm: Cell::new(false),
            to_park: Cell::new(false),
            shared: Rc::clone(&self.shared),
        });
        let key = conns.insert(Rc::clone(&conn));
        Watched { conn, watchdog: Rc::clone(self), key }
    }

    /// Sweeps for ever, while there are connections. `phase` tells the gateway's.
    pub(super) async fn run(&self, phase: impl Fn() -> Phase) {
        loop {
            if self.conns.borrow().is_empty() {
                self.wanted.notified().await;
            }
            tokio::time::sleep(SWEEP).await;
            self.sweep(phase());
        }
    }

    /// Everything that holds the drain.
    pub(super) fn holders(&self) -> Vec<Holder> {
        let now = self.now_ms();
        let holder = |conn: &Conn| {
            let (route, protocol) = match &*conn.tunnel.borrow() {
                Some(tunnel) => (tunnel.route.clone(), tunnel.protocol.to_string().into()),
                None => (conn.route(), conn.protocol.get().into()),
            };
            Holder {
                route,
                protocol,
                peer: conn.peer.get().map_or_else(|| "-".to_owned(), shown),
                age: Duration::from_millis(now.saturating_sub(conn.began_ms.get())),
                received: conn.received.get(),
                sent: conn.sent.get(),
            }
        };
        let conns = self.conns.borrow();
        let holds = |conn: &Conn| conn.stage() == Stage::Exchange || conn.lasting.get();
        conns.iter().filter(|(_, conn)| holds(conn)).map(|(_, conn)| holder(conn)).collect()
    }

    /// Ends connections on which no request was begun for `silence`, as if their time was over, to have what they hold.
    pub(super) fn end_silent(&self, silence: Duration) {
        let now = self.tick();
        for (_, conn) in self.conns.borrow().iter() {
            let is_silent = now.saturating_sub(conn.since_ms.get()) >= millis(silence);
            if matches!(conn.stage.get(), Stage::New | Stage::Idle) && is_silent && !conn.expired.replace(true) {
                conn.wake();
            }
        }
    }

    /// Wakes every connection whose time is over: in [`Phase::Draining`] that of idle ones is.
    pub(super) fn sweep(&self, phase: Phase) {
        let now = self.tick();
        let (leaving, closing) = (phase.asks_to_leave(), phase >= Phase::Draining);
        for (_, conn) in self.conns.borrow().iter() {
            let over = now.saturating_sub(conn.since_ms.get()) >= conn.limit_ms.get();
            if !conn.expired.get() && (over || (closing && conn.stage.get() == Stage::Idle)) {
                conn.expired.set(true);
                conn.wake();
            } else if (leaving || conn.is_worn()) && conn.waits_for_leave.take() {
                conn.wake();
            }
            if conn.warm.get() && now.saturating_sub(conn.since_ms.get()) >= millis(WARM) && !conn.to_park.replace(true)
            {
                conn.wake();
            }
            if now >= conn.deadline_ms.get() && !conn.late.replace(true) {
                conn.wake();
            }
        }
    }
}

impl Watched {
    /// The connection's state.
    pub(super) fn conn(&self) -> &Rc<Conn> {
        &self.conn
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.conn.cool();
        self.watchdog.conns.borrow_mut().try_remove(self.key);
    }
}

impl Conn {
    /// What it is doing.
    pub(super) fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// Notes bytes that went to the client.
    pub(super) fn wrote(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
        if self.stage.get() == Stage::Exchange {
            self.since_ms.set(self.shared.clock.get());
        }
    }

    /// Notes bytes that came from the client.
    pub(super) fn read(&self, bytes: usize) {
        self.received.set(self.received.get() + bytes as u64);
        self.touch();
    }

    /// Notes that bytes came from the client, or in an exchange from a backend.
    pub(super) fn touch(&self) {
        match self.stage.get() {
            Stage::Exchange => self.since_ms.set(self.shared.clock.get()),
            Stage::New | Stage::Idle => {
                self.cool();
                self.enter(Stage::Head, self.limits.header);
            }
            // The time for a head runs from its first byte, however slowly the others drip in.
            // In HTTP/2 bytes of a connection say nothing of its streams.
            Stage::Head | Stage::Streams | Stage::Leaving => {}
        }
    }

    /// The client is asked to leave after so many requests and so much time; `None` is no limit.
    pub(super) fn wears_out(&self, requests: Option<u32>, age: Option<Duration>) {
        self.requests_left.set(requests.unwrap_or(u32::MAX));
        self.leaves_at_ms.set(age.map_or(u64::MAX, |age| self.shared.clock.get().saturating_add(millis(age))));
    }

    /// One more request of the connection.
    pub(super) fn count_request(&self) {
        self.requests_left.set(self.requests_left.get().saturating_sub(1));
    }

    /// Whether the connection has had its requests or its time.
    pub(super) fn is_worn(&self) -> bool {
        self.requests_left.get() == 0 || self.shared.clock.get() >= self.leaves_at_ms.get()
    }

    /// A request begins; `idle` is the limit without a byte either way.
    pub(super) fn begin_exchange(&self, idle: Duration) {
        self.count_request();
        self.enter(Stage::Exchange, idle);
        self.answering.set(false);
        self.began_ms.set(self.shared.clock.get());
        self.received.set(0);
        self.sent.set(0);
        self.lasting.set(false);
    }

    /// The last bytes of an answer are written.
    pub(super) fn release(&self) {
        self.lasting.set(false);
        self.rule.take();
    }

    /// Who is at the other end.
    pub(super) fn comes_from(&self, peer: SocketAddr) {
        self.peer.set(Some(peer));
    }

    /// It holds the drain though its exchange is over: the last bytes of that are on their way.
    pub(super) fn lasts(&self) {
        self.lasting.set(true);
    }

    /// The answer's head is handed over.
    pub(super) fn begin_answer(&self) {
        self.answering.set(true);
    }

    /// A rule has taken the request, which may be silent for `idle`.
    pub(super) fn matched(&self, snapshot: Held, key: RuleKey, idle: Duration) {
        *self.rule.borrow_mut() = Some((snapshot, key));
        self.limit_ms.set(limit(idle));
    }

    /// The rule that has taken the request, and the table that it is in.
    pub(super) fn rule(&self) -> Ref<'_, Option<(Held, RuleKey)>> {
        self.rule.borrow()
    }

    /// The rule for people, `-` for none.
    fn route(&self) -> String {
        let rule = self.rule();
        let found = rule.as_ref().and_then(|(held, key)| held.table.rule(*key));
        found.map_or_else(|| "-".to_owned(), |found| format!("{} {}", found.rule.origin.object, found.rule.name))
    }

    /// The exchange goes on as a tunnel of this protocol, which may be silent for `idle`. Lets go of the table, which it
    /// may outlive by days.
    pub(super) fn switch(&self, protocol: Arc<str>, idle: Duration) {
        let route = self.route();
        self.rule.take();
        *self.tunnel.borrow_mut() = Some(Box::new(TunnelName { route, protocol }));
        self.enter(Stage::Exchange, idle);
    }

    /// The exchange has to be over within `left`, and gets the time of a sweep or two on top of it.
    pub(super) fn end_within(&self, left: Duration) {
        self.deadline_ms.set(self.shared.clock.get().saturating_add(millis(left + SWEEP)));
    }

    /// Whether the exchange's own time is over.
    pub(super) fn is_late(&self) -> bool {
        self.late.get()
    }

    /// From now on an exchange may be silent for `idle`.
    pub(super) fn may_be_silent(&self, idle: Duration) {
        self.enter(Stage::Exchange, idle);
    }

    /// An answer has been handed to the connection whole. Until its last bytes are written it holds the drain, and it stays
    /// known whose they are.
    pub(super) fn end_exchange(&self) {
        self.lasts();
        self.enter(Stage::Idle, self.limits.keep_alive);
        let warm = &self.shared.warm;
        if !self.warm.replace(true) {
            warm.set(warm.get() + 1);
        }
        self.to_park.set(warm.get() > MOST_WARM);
    }

    /// Whether it has been idle for long, or among many.
    pub(super) fn is_to_park(&self) -> bool {
        self.to_park.get() && self.stage.get() == Stage::Idle
    }

    /// It is not ready for the next request at once.
    pub(super) fn cool(&self) {
        self.to_park.set(false);
        if self.warm.replace(false) {
            self.shared.warm.set(self.shared.warm.get() - 1);
        }
    }

    /// Whether the connection is to end because its time is over. Whoever has a request answers it first, or ends the
    /// answer; a client that takes nothing of one leaves nobody who could.
    pub(super) fn poll_stuck(&self, cx: &Context<'_>) -> bool {
        (self.stage.get() != Stage::Exchange || self.answering.get()) && self.poll_expired(cx)
    }

    /// Whether the stage's time is over.
    pub(super) fn is_expired(&self) -> bool {
        // A byte may have moved since it was noticed.
        let has_moved = || self.shared.clock.get().saturating_sub(self.since_ms.get()) < self.limit_ms.get();
        if self.expired.get() && self.stage.get() == Stage::Exchange && has_moved() {
            self.expired.set(false);
        }
        self.expired.get()
    }

    /// What the client turned out to speak.
    pub(super) fn speaks(&self, protocol: &'static str) {
        self.protocol.set(protocol);
    }

    /// Enters a stage that may last for `limit`, unless it is in it; zero is no limit.
    pub(super) fn stay(&self, stage: Stage, limit: Duration) {
        if self.stage.get() != stage {
            self.enter(stage, limit);
        }
    }

    /// How long it may stay in a stage.
    pub(super) fn limits(&self) -> StageLimits {
        self.limits
    }

    /// The worker's clock in milliseconds.
    pub(super) fn now_ms(&self) -> u64 {
        self.shared.clock.get()
    }

    /// Wakes the task when the gateway begins to leave.
    pub(super) fn wait_for_leave(&self) {
        self.waits_for_leave.set(true);
    }

    /// Wakes the task that waits for the stage's end.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    fn enter(&self, stage: Stage, for_at_most: Duration) {
        self.stage.set(stage);
        self.since_ms.set(self.shared.clock.get());
        self.limit_ms.set(limit(for_at_most));
        self.expired.set(false);
        self.deadline_ms.set(u64::MAX);
        self.late.set(false);
    }

    /// Runs a future unless the stage's time is over first; `None` then.
    pub(super) async fn unless_expired<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.poll_expired(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Whether the stage's time is over; else the task is woken when it is.
    pub(super) fn poll_expired(&self, cx: &Context<'_>) -> bool {
        if self.is_late() || self.is_expired() {
            return true;
        }
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        false
    }
}

/// An address for people: port 0 is one that nobody knows.
fn shown(peer: SocketAddr) -> String {
    if peer.port() == 0 { peer.ip().to_string() } else { peer.to_string() }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn limit(duration: Duration) -> u64 {
    if duration.is_zero() { u64::MAX } else { millis(duration) }
}

#[cfg(test)]
mod tests;
