//! Clusters at run time: their endpoints, and what all workers share of them.
//!
//! A [`Cluster`] outlives routing tables. Its endpoints are swapped in place, so an `EndpointSlice` event costs no
//! new table, and pools and set-aside marks of the endpoints that stay are kept.

pub mod balance;
pub mod dns;
pub mod pool;
pub mod tls;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::tls::{ClientTls, TlsClients};
use crate::ir;
use crate::limiter::Limiter;
use crate::telemetry::metrics::{ClusterMetrics, Metrics};

/// After the first refused or timed-out connect an endpoint is set aside for this long; it doubles with each more.
const SET_ASIDE_BASE: Duration = Duration::from_millis(500);
/// The longest time an endpoint is set aside.
const SET_ASIDE_MAX: Duration = Duration::from_secs(10);

/// One address, shared by all workers.
#[derive(Debug)]
pub struct Endpoint {
    /// Tells endpoints apart, also ones that come back under the same address.
    pub uid: u64,
    /// Where to connect.
    pub addr: SocketAddr,
    /// Open connections of the whole process that carry requests.
    pub connections: AtomicU32,
    /// Open connections of the whole process that carry copies for mirrors: they take no place of a request's.
    pub mirror_connections: AtomicU32,
    /// Requests of the whole process; counted only for rules that balance by it.
    pub in_flight: AtomicU32,
    /// Requests that wait for a connection.
    pub waiters: AtomicU32,
    /// Told when a connection closes while somebody waits.
    pub released: Notify,
    /// A worker waits that has no connection while the others have all that may be: one of them is to give one up.
    pub starving: AtomicBool,
    /// Whether it takes new requests.
    usable: AtomicBool,
    /// Told when it takes none any more.
    leaving: Notify,
    born: Instant,
    failures: AtomicU32,
    aside_until_ms: AtomicU64,
}

impl Endpoint {
    fn new(uid: u64, addr: SocketAddr) -> Self {
        Self {
            uid,
            addr,
            connections: AtomicU32::new(0),
            mirror_connections: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            released: Notify::new(),
            starving: AtomicBool::new(false),
            usable: AtomicBool::new(true),
            leaving: Notify::new(),
            born: Instant::now(),
            failures: AtomicU32::new(0),
            aside_until_ms: AtomicU64::new(0),
        }
    }

    /// Waits until it takes no new requests: whoever waits for a connection to it goes elsewhere.
    pub async fn left(&self) {
        let mut told = pin!(self.leaving.notified());
        told.as_mut().enable();
        if self.usable.load(Ordering::Acquire) {
            told.await;
        }
    }

    fn leave(&self) {
        self.usable.store(false, Ordering::Release);
        self.leaving.notify_waiters();
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether it is set aside after failed connects.
    pub fn is_set_aside(&self) -> bool {
        let until = self.aside_until_ms.load(Ordering::Relaxed);
        until != 0 && until > self.age_ms()
    }

    /// How much longer it is set aside; zero if it is not.
    pub fn set_aside_for(&self) -> Duration {
        Duration::from_millis(self.aside_until_ms.load(Ordering::Relaxed).saturating_sub(self.age_ms()))
    }

    /// Connects that failed since the last one that went well.
    pub fn connect_failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Notes a failed connect: the endpoint is set aside for a while that doubles with each failure.
    pub fn connect_failed(&self) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).min(8);
        let aside = (SET_ASIDE_BASE * (1 << failures)).min(SET_ASIDE_MAX);
        let aside = u64::try_from(aside.as_millis()).unwrap_or(u64::MAX);
        self.aside_until_ms.store(self.age_ms().saturating_add(aside), Ordering::Relaxed);
    }

    /// Notes a connect that went well.
    pub fn connected(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.aside_until_ms.store(0, Ordering::Relaxed);
        }
    }
}

/// Counts a request in flight to an endpoint while it lives.
#[derive(Debug)]
pub struct Load(Arc<Endpoint>);

impl Load {
    /// Counts one more.
    pub fn new(endpoint: &Arc<Endpoint>) -> Self {
        endpoint.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(endpoint))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The endpoints of a Cluster at one time.
#[derive(Debug, Default)]
pub struct Endpoints {
    /// Those that take new requests. Draining ones are here only when no endpoint is ready.
    pub usable: Vec<Arc<Endpoint>>,
    /// All of them, sorted by address.
    pub all: Vec<Arc<Endpoint>>,
}

/// A Cluster at run time.
pub struct Cluster {
    /// Its identity.
    pub id: ir::ClusterId,
    /// The DNS name and port that its endpoints come from, if they do.
    pub name: Option<(Arc<str>, u16)>,
    /// Its place in each worker's list of pools.
    pub slot: usize,
    /// Its series.
    pub metrics: Arc<ClusterMetrics>,
    /// How its endpoints are connected to over TLS, if they are.
    pub tls: Option<Arc<ClientTls>>,
    /// Requests in flight, counted only while there is a limit.
    pub limiter: Limiter,
    /// 0 for none.
    max_requests: AtomicU32,
    version: AtomicU64,
    removed: AtomicBool,
    endpoints: ArcSwap<Endpoints>,
}

impl Cluster {
    /// Changes whenever the endpoints do: workers compare it before they load.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether no current table refers to it: workers let go of their pools.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    /// Requests that may be in flight to it; `None` is no limit.
    pub fn max_requests(&self) -> Option<u32> {
        NonZeroU32::new(self.max_requests.load(Ordering::Relaxed)).map(NonZeroU32::get)
    }

    /// The endpoints now.
    pub fn endpoints(&self) -> Arc<Endpoints> {
        self.endpoints.load_full()
    }
}

/// Every Cluster of the process, by identity.
pub struct Clusters {
    metrics: Arc<Metrics>,
    tls: TlsClients,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    clusters: HashMap<ir::ClusterId, Arc<Cluster>>,
    next_slot: usize,
    free_slots: Vec<usize>,
    next_uid: u64,
    /// Whether any Cluster has a limit.
    is_limited: bool,
    /// Removed Clusters whose slot is not free while an old table may still refer to it.
    leaving: Vec<Arc<Cluster>>,
}

impl Clusters {
    /// An empty registry.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, tls: TlsClients::new(), inner: Mutex::default() }
    }

    /// Makes the Clusters of a fragment exist; those there already stay as they are, endpoints and all.
    pub fn declare(&self, clusters: &[Arc<ir::Cluster>]) {
        let mut inner = self.inner.lock();
        for cluster in clusters {
            inner.declare(cluster, (&self.metrics, &self.tls));
        }
    }

    /// The Cluster with this identity.
    pub fn get(&self, id: &ir::ClusterId) -> Option<Arc<Cluster>> {
        self.inner.lock().clusters.get(id).cloned()
    }

    /// Swaps the endpoints of a Cluster. Endpoints that stay keep what is known of them; a Cluster that nobody
    /// declared is ignored.
    pub fn update(&self, set: &ir::EndpointSet) {
        let mut inner = self.inner.lock();
        let Some(cluster) = inner.clusters.get(&set.cluster).cloned() else { return };
        let old = cluster.endpoints();
        let mut known: HashMap<SocketAddr, &Arc<Endpoint>> = old.all.iter().map(|e| (e.addr, e)).collect();
        let mut new = Endpoints::default();
        let any_ready = set.endpoints.iter().any(|e| e.state == ir::EndpointState::Ready);
        for endpoint in &set.endpoints {
            let shared = match known.remove(&endpoint.addr) {
                Some(shared) => Arc::clone(shared),
                None => inner.endpoint(endpoint.addr),
            };
            if endpoint.state == ir::EndpointState::Ready || !any_ready {
                new.usable.push(Arc::clone(&shared));
            }
            new.all.push(shared);
        }
        let mut leaving: HashMap<u64, &Arc<Endpoint>> = old.usable.iter().map(|e| (e.uid, e)).collect();
        for endpoint in &new.usable {
            leaving.remove(&endpoint.uid);
            endpoint.usable.store(true, Ordering::Release);
        }
        cluster.endpoints.store(Arc::new(new));
        cluster.version.fetch_add(1, Ordering::Release);
        // Now they find others.
        for endpoint in leaving.values() {
            endpoint.leave();
        }
    }

    /// Forgets Clusters that the predicate does not keep. Old tables go on with theirs.
    pub fn retain(&self, keep: impl Fn(&ir::ClusterId) -> bool) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        for (_, cluster) in inner.clusters.extract_if(|id, _| !keep(id)) {
            cluster.removed.store(true, Ordering::Relaxed);
            inner.leaving.push(cluster);
        }
        inner.leaving.retain(|cluster| {
            let referred_to = Arc::strong_count(cluster) > 1;
            if !referred_to {
                inner.free_slots.push(cluster.slot);
            }
            referred_to
        });
    }

    /// Gives these Clusters limits of requests in flight, and the others none. Requests that were not counted before are
    /// not counted now.
    pub fn limit(&self, limits: &HashMap<ir::ClusterId, u32>) {
        let mut inner = self.inner.lock();
        let was_limited = std::mem::replace(&mut inner.is_limited, !limits.is_empty());
        // Gateways without limits do not look at every Cluster for each table.
        if !was_limited && limits.is_empty() {
            return;
        }
        for (id, cluster) in &inner.clusters {
            cluster.max_requests.store(limits.get(id).copied().unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Every Cluster, sorted by identity.
    pub fn all(&self) -> Vec<Arc<Cluster>> {
        let mut all: Vec<_> = self.inner.lock().clusters.values().cloned().collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }
}

impl Inner {
    fn endpoint(&mut self, addr: SocketAddr) -> Arc<Endpoint> {
        self.next_uid += 1;
        Arc::new(Endpoint::new(self.next_uid, addr))
    }

    fn declare(&mut self, cluster: &ir::Cluster, (metrics, tls): (&Metrics, &TlsClients)) {
        if self.clusters.contains_key(&cluster.id) {
            return;
        }
        let endpoints = match cluster.target {
            ir::Target::Address(addr) => {
                let endpoint = self.endpoint(addr);
                Endpoints { usable: vec![Arc::clone(&endpoint)], all: vec![endpoint] }
            }
            ir::Target::Slices | ir::Target::Dns { .. } => Endpoints::default(),
        };
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.next_slot += 1;
            self.next_slot - 1
        });
        let shared = Cluster {
            id: cluster.id.clone(),
            name: match &cluster.target {
                ir::Target::Dns { name, port } => Some((Arc::clone(name), *port)),
                ir::Target::Slices | ir::Target::Address(_) => None,
            },
            slot,
            metrics: metrics.cluster(&cluster.id.to_string()),
            tls: tls.get(&cluster.id).map(Arc::new),
            limiter: Limiter::default(),
            max_requests: AtomicU32::new(0),
            version: AtomicU64::new(0),
            removed: AtomicBool::new(false),
            endpoints: ArcSwap::from_pointee(endpoints),
        };
        self.clusters.insert(cluster.id.clone(), Arc::new(shared));
    }
}

#[cfg(test)]
mod tests;
