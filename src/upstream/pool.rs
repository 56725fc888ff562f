//! One worker's connections to endpoints.
//!
//! Lists of hyper's low-level connections that never leave their worker: taking and giving back costs no lock. What
//! must hold for the whole process (connections open, requests waiting) is counted in the shared [`Endpoint`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http_body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::balance::{Random, choose};
use super::{Cluster, Endpoint, Endpoints};
use crate::ir::{LoadBalancing, UpstreamLimits};
use crate::telemetry::metrics::{ClusterMetrics, ConnectionState};

/// Bytes that an answer's head may take.
const MAX_RESPONSE_HEAD: usize = 64 << 10;
/// Header fields that an answer may have.
const MAX_RESPONSE_HEADERS: usize = 128;

/// Every pool of one worker. `B` is the body of the requests sent.
pub struct Pools<B> {
    worker: usize,
    purpose: Purpose,
    slots: RefCell<Vec<Option<Rc<LocalCluster<B>>>>>,
    random: RefCell<Random>,
}

/// What connections are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Requests,
    /// Copies of requests, which must not be felt: connections are counted by themselves, and failures say nothing.
    Mirrors,
}

impl Purpose {
    fn open(self, endpoint: &Endpoint) -> &AtomicU32 {
        match self {
            Self::Requests => &endpoint.connections,
            Self::Mirrors => &endpoint.mirror_connections,
        }
    }
}

/// One worker's view of a Cluster.
pub struct LocalCluster<B> {
    cluster: Arc<Cluster>,
    purpose: Purpose,
    version: Cell<u64>,
    turn: Cell<usize>,
    endpoints: RefCell<LocalEndpoints<B>>,
}

struct LocalEndpoints<B> {
    shared: Arc<Endpoints>,
    /// One for each of `shared.usable`.
    pools: Vec<Rc<EndpointPool<B>>>,
}

/// One worker's connections to one endpoint.
pub struct EndpointPool<B> {
    /// What all workers share of the endpoint.
    pub endpoint: Arc<Endpoint>,
    metrics: Arc<ClusterMetrics>,
    purpose: Purpose,
    worker: usize,
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
    pub reused: bool,
}

impl<B> Link<B> {
    /// hyper's handle, to send on.
    pub fn sender(&mut self) -> &mut http1::SendRequest<B> {
        &mut self.send
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub enum AcquireError {
    /// Connecting failed.
    Connect(io::Error),
    /// Connecting took too long.
    ConnectTimeout,
    /// The endpoint has its most connections and its most waiting requests.
    Overloaded,
    /// No connection came free in time.
    AcquireTimeout,
}

/// Counts one connection of the process while it lives.
struct Permit {
    endpoint: Arc<Endpoint>,
    metrics: Arc<ClusterMetrics>,
    purpose: Purpose,
    worker: usize,
}

impl Permit {
    fn take<B>(pool: &EndpointPool<B>, max: u32) -> Option<Self> {
        let EndpointPool { endpoint, metrics, purpose, worker, .. } = pool;
        let more = |open: u32| (open < max).then_some(open + 1);
        purpose.open(endpoint).fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).ok()?;
        metrics.add_connections(*worker, ConnectionState::Active, 1);
        Some(Self { endpoint: Arc::clone(endpoint), metrics: Arc::clone(metrics), purpose: *purpose, worker: *worker })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.purpose.open(&self.endpoint).fetch_sub(1, Ordering::AcqRel);
        self.metrics.add_connections(self.worker, ConnectionState::Active, -1);
        if self.purpose == Purpose::Requests && self.endpoint.waiters.load(Ordering::Acquire) > 0 {
            self.endpoint.released.notify_one();
        }
    }
}

/// Counts a request that waits for a connection while it lives.
struct Waiting<'a>(&'a Endpoint);

impl<'a> Waiting<'a> {
    fn take(endpoint: &'a Endpoint, max: u32) -> Option<Self> {
        let more = |waiting: u32| (waiting < max).then_some(waiting + 1);
        endpoint.waiters.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).ok()?;
        Some(Self(endpoint))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<B> Pools<B> {
    /// The pools of a worker, empty.
    pub fn new(worker: usize, seed: u64) -> Self {
        Self::with_purpose(worker, seed, Purpose::Requests)
    }

    /// Pools for copies of requests: their connections take no place of a request's, and a failure to connect does not
    /// set an endpoint aside.
    pub fn for_mirrors(worker: usize, seed: u64) -> Self {
        Self::with_purpose(worker, seed, Purpose::Mirrors)
    }

    fn with_purpose(worker: usize, seed: u64, purpose: Purpose) -> Self {
        Self { worker, purpose, slots: RefCell::default(), random: RefCell::new(Random::new(seed)) }
    }

    /// This worker's view of a Cluster.
    pub fn cluster(&self, cluster: &Arc<Cluster>) -> Rc<LocalCluster<B>> {
        let mut slots = self.slots.borrow_mut();
        if slots.len() <= cluster.slot {
            slots.resize_with(cluster.slot + 1, || None);
        }
        let slot = &mut slots[cluster.slot];
        match slot {
            Some(local) if Arc::ptr_eq(&local.cluster, cluster) => Rc::clone(local),
            // Empty, or left by a Cluster that has gone and whose place was given to this one.
            _ => {
                let turn = usize::try_from(self.random.borrow_mut().next_u64() >> 32).unwrap_or(0);
                let local = Rc::new(LocalCluster::new(Arc::clone(cluster), self.purpose, self.worker, turn));
                *slot = Some(Rc::clone(&local));
                local
            }
        }
    }

    /// A pool for the next request to a Cluster, not of an endpoint in `tried`; `None` when none is left.
    pub fn choose(
        &self,
        local: &LocalCluster<B>,
        policy: &LoadBalancing,
        tried: &[u64],
    ) -> Option<Rc<EndpointPool<B>>> {
        local.refresh(self.worker);
        let endpoints = local.endpoints.borrow();
        let mut turn = local.turn.get();
        let chosen = choose(policy, &endpoints.shared.usable, &mut turn, &mut self.random.borrow_mut(), tried);
        local.turn.set(turn);
        chosen.map(|i| Rc::clone(&endpoints.pools[i]))
    }

    /// Closes connections that were unused for too long, and all of endpoints and Clusters that have gone.
    pub fn maintain(&self, now_ms: u64) {
        for slot in self.slots.borrow_mut().iter_mut() {
            let Some(local) = slot else { continue };
            if local.cluster.is_removed() {
                local.retire();
                *slot = None;
                continue;
            }
            local.refresh(self.worker);
            for pool in &local.endpoints.borrow().pools {
                pool.drop_expired(now_ms);
            }
        }
    }
}

impl<B> LocalCluster<B> {
    fn new(cluster: Arc<Cluster>, purpose: Purpose, worker: usize, turn: usize) -> Self {
        let version = cluster.version();
        let shared = cluster.endpoints();
        let pool = |e: &Arc<Endpoint>| Rc::new(EndpointPool::new(Arc::clone(e), &cluster, purpose, worker));
        let pools = shared.usable.iter().map(pool).collect();
        Self {
            purpose,
            version: Cell::new(version),
            turn: Cell::new(turn),
            endpoints: RefCell::new(LocalEndpoints { shared, pools }),
            cluster,
        }
    }

    /// Whether there is an endpoint that is not in `tried`.
    pub fn has_other(&self, tried: &[u64]) -> bool {
        self.endpoints.borrow().shared.usable.iter().any(|endpoint| !tried.contains(&endpoint.uid))
    }

    /// Follows a change of endpoints: pools of those that stay are kept, those of the others are closed.
    fn refresh(&self, worker: usize) {
        let version = self.cluster.version();
        if version == self.version.get() {
            return;
        }
        self.version.set(version);
        let shared = self.cluster.endpoints();
        let mut current = self.endpoints.borrow_mut();
        let mut old = std::mem::take(&mut current.pools);
        current.pools = shared
            .usable
            .iter()
            .map(|endpoint| match old.iter().position(|p| p.endpoint.uid == endpoint.uid) {
                Some(i) => old.swap_remove(i),
                None => Rc::new(EndpointPool::new(Arc::clone(endpoint), &self.cluster, self.purpose, worker)),
            })
            .collect();
        current.shared = shared;
        for pool in old {
            pool.retire();
        }
    }

    fn retire(&self) {
        for pool in &self.endpoints.borrow().pools {
            pool.retire();
        }
    }
}

impl<B> EndpointPool<B> {
    fn new(endpoint: Arc<Endpoint>, cluster: &Cluster, purpose: Purpose, worker: usize) -> Self {
        Self {
            endpoint,
            metrics: Arc::clone(&cluster.metrics),
            purpose,
            worker,
            idle: RefCell::default(),
            waiters: RefCell::default(),
            retired: Cell::new(false),
        }
    }

    /// More, or fewer, unused connections: what is not idle is active.
    fn idle_changed(&self, n: i64) {
        self.metrics.add_connections(self.worker, ConnectionState::Idle, n);
        self.metrics.add_connections(self.worker, ConnectionState::Active, -n);
    }

    fn retire(&self) {
        self.retired.set(true);
        let idle = std::mem::take(&mut *self.idle.borrow_mut());
        self.idle_changed(-signed(idle.len()));
    }

    fn drop_expired(&self, now_ms: u64) {
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        idle.retain(|link| link.expires_ms > now_ms && !link.send.is_closed());
        self.idle_changed(signed(idle.len()) - signed(before));
    }

    /// The most recently used connection that still works.
    pub fn take_idle(&self, now_ms: u64) -> Option<Link<B>> {
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
        self.idle_changed(signed(idle.len()) - signed(before));
        found
    }

    /// Gives a connection back after an answer, to whoever waits for one, else to the list.
    pub fn give_back(&self, mut link: Link<B>, now_ms: u64, limits: &UpstreamLimits) {
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
        if self.purpose == Purpose::Requests && self.endpoint.waiters.load(Ordering::Acquire) > 0 {
            return;
        }
        self.idle.borrow_mut().push(link);
        self.idle_changed(1);
    }
}

impl<B> EndpointPool<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// A new connection, or one that comes free while the endpoint has its most connections.
    pub async fn connect(
        &self,
        limits: &UpstreamLimits,
        connect_timeout: Duration,
        now_ms: u64,
    ) -> Result<Link<B>, AcquireError> {
        if let Some(permit) = Permit::take(self, limits.max_connections) {
            return self.open(permit, limits, connect_timeout, now_ms).await;
        }
        let Some(_waiting) = Waiting::take(&self.endpoint, limits.max_pending) else {
            return Err(AcquireError::Overloaded);
        };
        let wait = async {
            loop {
                let (sender, receiver) = oneshot::channel();
                self.queue(sender);
                tokio::select! {
                    biased;
                    link = receiver => if let Ok(link) = link { return Ok(link) },
                    () = self.endpoint.released.notified() => {}
                }
                if let Some(permit) = Permit::take(self, limits.max_connections) {
                    return self.open(permit, limits, connect_timeout, now_ms).await;
                }
            }
        };
        match limits.acquire_timeout {
            Duration::ZERO => wait.await,
            timeout => tokio::time::timeout(timeout, wait).await.unwrap_or(Err(AcquireError::AcquireTimeout)),
        }
    }

    /// Has the next connection given back go to `waiter`, if nobody waited before.
    fn queue(&self, waiter: oneshot::Sender<Link<B>>) {
        let mut waiters = self.waiters.borrow_mut();
        waiters.retain(|waiter| !waiter.is_closed());
        waiters.push_back(waiter);
    }

    /// Notes for the whole process whether the endpoint could be connected to.
    fn judge(&self, connected: bool) {
        match (self.purpose, connected) {
            (Purpose::Mirrors, _) => {}
            (Purpose::Requests, true) => self.endpoint.connected(),
            (Purpose::Requests, false) => self.endpoint.connect_failed(),
        }
    }

    async fn open(
        &self,
        permit: Permit,
        limits: &UpstreamLimits,
        connect_timeout: Duration,
        now_ms: u64,
    ) -> Result<Link<B>, AcquireError> {
        let connect = TcpStream::connect(self.endpoint.addr);
        let connected = match connect_timeout {
            Duration::ZERO => connect.await,
            timeout => tokio::time::timeout(timeout, connect).await.map_err(|_| {
                self.judge(false);
                AcquireError::ConnectTimeout
            })?,
        };
        let stream = connected.and_then(|s| s.set_nodelay(true).map(|()| s)).map_err(|e| {
            self.judge(false);
            AcquireError::Connect(e)
        })?;
        self.judge(true);
        let mut builder = http1::Builder::new();
        builder.max_headers(MAX_RESPONSE_HEADERS).max_header_size(MAX_RESPONSE_HEAD);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (send, connection) = handshake.map_err(|e| AcquireError::Connect(io::Error::other(e)))?;
        tokio::task::spawn_local(async move {
            let _permit = permit;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "upstream connection ended");
            }
        });
        let expires_ms = now_ms.saturating_add(millis(limits.idle_timeout));
        Ok(Link { send, opened_ms: now_ms, expires_ms, reused: false })
    }
}

fn millis(duration: Duration) -> u64 {
    match duration {
        Duration::ZERO => u64::MAX,
        duration => u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
