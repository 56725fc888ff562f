//! One worker's connections to endpoints.
//!
//! Low-level connections that never leave their worker: taking and giving back costs no lock. What must hold for the
//! whole process (connections open, requests waiting) is counted in the shared [`Endpoint`]. A Cluster's protocol
//! decides which connections: `h1` lends each to one request, `h2` lends streams of few.

mod account;
mod dial;
mod h1;
mod h2;
mod received;
mod switched;
mod transport;

use std::cell::{Cell, RefCell};
use std::io;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::Either;
use http::Response;
use http::request::Parts;
use http_body::Body;

use self::account::{Account, Purpose};
pub use self::h2::H2Body;
pub use self::received::Received;
pub use self::switched::Switched;
use super::balance::{Random, choose};
use super::{Cluster, Endpoint, Endpoints};
pub use crate::http1::BodyError;
use crate::ir::{ClusterId, LoadBalancing, Protocol, UpstreamLimits};

/// Bytes that an answer's head may take.
const MAX_RESPONSE_HEAD: usize = 64 << 10;

/// Every pool of one worker. `B` is the body of the requests sent.
pub struct Pools<B> {
    worker: usize,
    purpose: Purpose,
    slots: RefCell<Vec<Option<Rc<LocalCluster<B>>>>>,
    random: RefCell<Random>,
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
    connections: Connections,
    /// Of the requests sent.
    body: PhantomData<B>,
}

enum Connections {
    H1(h1::Connections),
    H2(Rc<h2::Connections>),
    /// None is kept: each is for one client.
    Opaque(Rc<Account>),
}

/// The way of one request to an endpoint: a connection, or a stream of one. Dropped before its answer has ended, it
/// cancels the request.
pub enum Link<B> {
    /// A connection for this request alone.
    H1(h1::Link),
    /// A stream.
    H2(h2::Link<B>),
}

/// Why there is no connection.
#[derive(Debug)]
pub enum AcquireError {
    /// Connecting failed.
    Connect(io::Error),
    /// The endpoint was connected to, and no TLS came of it.
    Tls(io::Error),
    /// Connecting took too long.
    ConnectTimeout,
    /// The endpoint has left meanwhile.
    Left,
    /// The process has no descriptor or memory for it, which is no fault of the endpoint.
    Exhausted(io::Error),
    /// The endpoint has its most connections and its most waiting requests.
    Overloaded,
    /// No connection came free in time.
    AcquireTimeout,
}

/// Why a request got no answer.
#[derive(Debug)]
pub enum SendError {
    /// The connection had ended before: nothing of it was sent.
    Unsent(BodyError),
    /// The endpoint did nothing with it (RFC 9113, section 8.7), so that it may be sent again whatever its method. Its body
    /// is still there if none of it was sent.
    Unprocessed {
        /// The connection takes nothing more: another try is on another one.
        is_leaving: bool,
        /// What the endpoint said.
        error: BodyError,
    },
    /// What came is no answer.
    Invalid(BodyError),
    /// The connection or the stream broke.
    Broken(BodyError),
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

impl<B> Pools<B> {
    /// Closes connections that are not in use; those of HTTP/2 stay, for they are few.
    pub fn close_idle(&self) {
        for local in self.slots.borrow().iter().flatten() {
            for pool in &local.endpoints.borrow().pools {
                if let Connections::H1(connections) = &pool.connections {
                    connections.drop_expired(u64::MAX);
                }
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

    /// The Cluster's identity.
    pub fn id(&self) -> &ClusterId {
        &self.cluster.id
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
        let account = Account::new(Arc::clone(&endpoint), Arc::clone(&cluster.metrics), purpose, worker);
        let account = Rc::new(account.over(cluster.tls.clone()));
        let connections = match cluster.id.protocol() {
            Protocol::Http1 => Connections::H1(h1::Connections::new(account)),
            Protocol::Http2 => Connections::H2(Rc::new(h2::Connections::new(account))),
            Protocol::Opaque => Connections::Opaque(account),
        };
        Self { endpoint, connections, body: PhantomData }
    }

    fn retire(&self) {
        match &self.connections {
            Connections::H1(connections) => connections.retire(),
            Connections::H2(connections) => connections.retire(),
            Connections::Opaque(_) => {}
        }
    }

    fn drop_expired(&self, now_ms: u64) {
        match &self.connections {
            Connections::H1(connections) => connections.drop_expired(now_ms),
            Connections::H2(connections) => connections.drop_expired(now_ms),
            Connections::Opaque(_) => {}
        }
    }

    /// A way to the endpoint over a connection that there is. `told` is what its bytes began with, of its client.
    pub fn take_idle(&self, now_ms: u64, told: Option<&Bytes>) -> Option<Link<B>> {
        match &self.connections {
            Connections::H1(connections) => connections.take(now_ms, told).map(Link::H1),
            Connections::H2(connections) => connections.take(now_ms).map(|lease| Link::H2(h2::Link::new(lease))),
            Connections::Opaque(_) => None,
        }
    }

    /// Gives back what a request whose answer has ended was sent on.
    pub fn give_back(&self, link: Link<B>, now_ms: u64, limits: &UpstreamLimits) {
        match (&self.connections, link) {
            (Connections::H1(connections), Link::H1(link)) => connections.give_back(link, now_ms, limits),
            (_, Link::H2(link)) => link.end(now_ms, limits),
            // Of another pool: closed.
            (Connections::H2(_) | Connections::Opaque(_), Link::H1(_)) => {}
        }
    }
}

impl<B> EndpointPool<B>
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BodyError>,
{
    /// A new connection, or one that has room again while the endpoint has its most connections. It begins with `told`, and
    /// is for who is told the same alone; in HTTP/2 nobody is.
    pub async fn connect(
        &self,
        limits: &UpstreamLimits,
        connect_timeout: Duration,
        now_ms: u64,
        told: Option<&Bytes>,
    ) -> Result<Link<B>, AcquireError> {
        match &self.connections {
            Connections::H1(connections) => {
                connections.connect(limits, connect_timeout, now_ms, told).await.map(Link::H1)
            }
            Connections::H2(connections) => {
                let lease = connections.acquire(limits, connect_timeout, now_ms).await?;
                Ok(Link::H2(h2::Link::new(lease)))
            }
            Connections::Opaque(_) => Err(AcquireError::Connect(io::ErrorKind::Unsupported.into())),
        }
    }
}

impl<B> Link<B>
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BodyError>,
{
    /// Whether the connection carried a request before.
    pub fn is_reused(&self) -> bool {
        match self {
            Self::H1(link) => link.reused,
            Self::H2(link) => link.is_reused(),
        }
    }

    /// Takes the connection out of HTTP, once the endpoint has agreed to another protocol. `None` where it cannot change.
    pub fn switch(&self) -> Option<Switched> {
        match self {
            Self::H1(link) => link.switch(),
            Self::H2(_) => None,
        }
    }

    /// Sends a request; then waits for the head of its answer. Dropped before, the future cancels the request. Takes the
    /// body only when something of it is sent.
    pub fn send<'a>(
        &'a mut self,
        head: &'a mut Parts,
        body: &'a mut Option<B>,
    ) -> impl Future<Output = Result<Response<Received>, SendError>> {
        match self {
            Self::H1(link) => Either::Left(link.send(head, body)),
            Self::H2(link) => Either::Right(link.send(head, body)),
        }
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
