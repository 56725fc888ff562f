//! From fragments to the served snapshot: hold off, compile, swap.
//!
//! Endpoints are applied at once. Tables are compiled off the task, a burst of changes together, and swapped in whole;
//! an old snapshot is freed here, never on a worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant as Time;

use crate::ir::{self, Action, BackendTarget, Fragment};
use crate::routing::RouteTable;
use crate::source::Update;
use crate::telemetry::metrics::{Metrics, RuleMetrics};
use crate::upstream::balance::Weights;
use crate::upstream::{Cluster, Clusters};

mod shadows;
mod states;
mod tls;

pub use self::states::RuleState;
use self::states::RuleStates;
use self::tls::Terminators;
pub use self::tls::{End, Terminator, TlsSettings, TlsTable};

/// After a change, others are awaited for this long.
const HOLD_OFF: Duration = Duration::from_millis(10);
/// Between two tables at least this much time passes.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// How often snapshots that workers have let go of are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Why a backend whose Cluster no source declared answers 500.
const UNDECLARED: &str = "ClusterNotDeclared";

/// What a rule needs at run time.
#[derive(Clone)]
pub struct RuleRuntime {
    /// Its counters and its limit; they outlive tables.
    pub state: Arc<RuleState>,
    /// The backends of a forwarding rule, in its order.
    pub targets: Vec<Target>,
    /// Chooses among `targets`; `None` where no backend has a weight.
    pub weights: Option<Weights>,
    /// Where copies of requests go.
    pub mirrors: Vec<Mirror>,
}

/// Where copies go, and of which share of requests.
#[derive(Clone)]
pub struct Mirror {
    /// The Cluster that gets the copies.
    pub cluster: Arc<Cluster>,
    /// This many of `denominator`.
    pub numerator: u32,
    /// Never 0.
    pub denominator: u32,
}

/// Where one backend's requests go.
#[derive(Clone)]
pub enum Target {
    /// To a Cluster.
    Cluster(Arc<Cluster>),
    /// Nowhere: the reference is broken.
    Invalid {
        /// The reason in the Route's verdict.
        reason: &'static str,
    },
}

/// The immutable table that requests read.
pub struct Snapshot {
    /// Counts up from 1; 0 is the empty table before the first one.
    pub generation: u64,
    /// The table.
    pub table: RouteTable<RuleRuntime>,
    /// Where TLS connections end.
    tls: TlsTable,
}

/// The snapshot that is served, as workers see it.
pub struct Published {
    current: ArcSwap<Snapshot>,
    generation: AtomicU64,
}

impl Published {
    /// Starts with an empty table.
    pub fn new(listeners: &[Arc<str>]) -> Self {
        let table = RouteTable::compile(listeners, &[], None, |_, _, _| unreachable!("no rule in an empty table"));
        let empty = Snapshot { generation: 0, table, tls: TlsTable::default() };
        Self { current: ArcSwap::from_pointee(empty), generation: AtomicU64::new(0) }
    }

    /// The generation served: one load, to see whether [`Published::load`] would give another snapshot.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The snapshot served.
    pub fn load(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    fn store(&self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        let generation = snapshot.generation;
        let old = self.current.swap(snapshot);
        self.generation.store(generation, Ordering::Release);
        old
    }
}

/// Makes tables of fragments.
pub struct Publisher {
    listeners: Vec<Arc<str>>,
    published: Arc<Published>,
    clusters: Arc<Clusters>,
    metrics: Arc<Metrics>,
    states: Arc<Mutex<RuleStates>>,
    terminators: Arc<Mutex<Terminators>>,
    /// The default certificate, where it comes from files.
    default_certificate: Option<Arc<ir::Certificate>>,
    /// What was last told to be wrong with the default certificate.
    default_trouble: Option<String>,
    served: watch::Sender<Option<Arc<Fragment>>>,
    examined: watch::Sender<Option<Arc<ir::Served>>>,
    clusters_changed: watch::Sender<u64>,
    retired: Vec<Arc<Snapshot>>,
}

struct Compiled {
    snapshot: Snapshot,
    fragment: Arc<Fragment>,
    default_certificate: Option<Result<Arc<ir::Certificate>, String>>,
    /// Requests that Clusters may have in flight.
    limits: HashMap<ir::ClusterId, u32>,
    took: Duration,
}

impl Publisher {
    /// A publisher into `published`; `listeners` are the names of the gateway's listeners in the order of their indices.
    pub fn new(
        listeners: Vec<Arc<str>>,
        tls: TlsSettings,
        published: Arc<Published>,
        clusters: Arc<Clusters>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            listeners,
            published,
            clusters,
            states: Arc::new(Mutex::new(RuleStates::new(Arc::clone(&metrics)))),
            terminators: Arc::new(Mutex::new(Terminators::new(tls))),
            default_certificate: None,
            default_trouble: None,
            metrics,
            served: watch::Sender::new(None),
            examined: watch::Sender::new(None),
            clusters_changed: watch::Sender::new(0),
            retired: Vec::new(),
        }
    }

    /// The fragment of the table that is served; `None` until there is one.
    pub fn served(&self) -> watch::Receiver<Option<Arc<Fragment>>> {
        self.served.subscribe()
    }

    /// The fragment of a table that is served, once its shadowed matches are known: a little later than
    /// [`Publisher::served`], and not for every table when they follow each other quickly.
    pub fn examined(&self) -> watch::Receiver<Option<Arc<ir::Served>>> {
        self.examined.subscribe()
    }

    /// Changes whenever Clusters come or go.
    pub fn clusters_changed(&self) -> watch::Receiver<u64> {
        self.clusters_changed.subscribe()
    }

    /// Applies what sources tell until they are gone.
    pub async fn run(mut self, mut updates: mpsc::Receiver<Update>) {
        let mut pending: Option<Arc<Fragment>> = None;
        // The last one that came.
        let mut newest: Option<Arc<Fragment>> = None;
        let mut due = Time::now();
        let mut next_table = Time::now();
        let mut compiling: Option<JoinHandle<Compiled>> = None;
        let mut sweep = tokio::time::interval(SWEEP);
        let examine = watch::Sender::new(None);
        tokio::spawn(shadows::examine(examine.subscribe(), self.examined.clone()));
        loop {
            let wait = async {
                match &mut compiling {
                    Some(task) => Some(task.await),
                    None if pending.is_some() => {
                        tokio::time::sleep_until(due).await;
                        None
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                update = updates.recv() => match update {
                    Some(Update::Endpoints { set, observed }) => self.apply(&set, observed),
                    Some(Update::Table { fragment, endpoints }) => {
                        self.declare(&fragment, &endpoints);
                        if pending.is_none() {
                            due = (Time::now() + HOLD_OFF).max(next_table);
                        }
                        newest = Some(Arc::clone(&fragment));
                        pending = Some(fragment);
                    }
                    Some(Update::DefaultCertificate(certificate)) => {
                        self.default_certificate = Some(certificate);
                        let last = newest.clone();
                        if let Some(fragment) = last.filter(|_| pending.is_none()) {
                            due = (Time::now() + HOLD_OFF).max(next_table);
                            pending = Some(fragment);
                        }
                    }
                    None => return,
                },
                done = wait => match done {
                    Some(Ok(compiled)) => {
                        compiling = None;
                        next_table = Time::now() + MIN_INTERVAL;
                        let fragment = self.serve(compiled, pending.as_ref());
                        examine.send_replace(Some((self.published.load(), fragment)));
                    }
                    Some(Err(error)) => {
                        compiling = None;
                        tracing::error!(%error, "compiling the table failed; the former one stays");
                    }
                    None => compiling = pending.take().map(|fragment| self.compile(fragment)),
                },
                _ = sweep.tick() => self.retired.retain(|old| Arc::strong_count(old) > 1),
            }
        }
    }

    fn apply(&self, set: &ir::EndpointSet, observed: Instant) {
        self.clusters.update(set);
        self.metrics.control().endpoints_updated(observed.elapsed());
    }

    fn declare(&self, fragment: &Fragment, endpoints: &[Arc<ir::EndpointSet>]) {
        self.clusters.declare(&fragment.clusters);
        for set in endpoints {
            self.clusters.update(set);
        }
        self.clusters_changed.send_modify(|n| *n += 1);
    }

    fn compile(&self, fragment: Arc<Fragment>) -> JoinHandle<Compiled> {
        let previous = self.published.load();
        let listeners = self.listeners.clone();
        let clusters = Arc::clone(&self.clusters);
        let states = Arc::clone(&self.states);
        let terminators = Arc::clone(&self.terminators);
        let default = self.default_certificate.clone().map(Ok).or_else(|| fragment.default_certificate.clone());
        tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let mut states = states.lock();
            let table = RouteTable::compile(
                &listeners,
                &fragment.selectors,
                Some(&previous.table),
                |selector, rule, former| {
                    let former = former.filter(|former| former.is_current()).cloned();
                    former.unwrap_or_else(|| runtime(selector, rule, &clusters, &mut states))
                },
            );
            let usable = default.as_ref().and_then(|certificate| certificate.as_ref().ok());
            let tls = terminators.lock().table(table.selectors(), usable);
            let snapshot = Snapshot { generation: previous.generation + 1, table, tls };
            let limits = cluster_limits(&fragment);
            Compiled { snapshot, fragment, default_certificate: default, limits, took: started.elapsed() }
        })
    }

    fn serve(&mut self, compiled: Compiled, pending: Option<&Arc<Fragment>>) -> Arc<Fragment> {
        let Compiled { snapshot, fragment, default_certificate, limits, took } = compiled;
        let generation = snapshot.generation;
        self.retired.push(self.published.store(Arc::new(snapshot)));
        self.metrics.control().published(generation, took);
        tracing::info!(generation, selectors = fragment.selectors.len(), ?took, "table in use");
        self.tell_certificates(&fragment, default_certificate);
        // What a fragment that waits already refers to has been declared, and stays.
        let newest = pending.unwrap_or(&fragment);
        self.clusters.retain(|id| newest.clusters.binary_search_by(|c| c.id.cmp(id)).is_ok());
        self.clusters.limit(&limits);
        self.served.send_replace(Some(Arc::clone(&fragment)));
        fragment
    }
}

impl Publisher {
    /// Tells metrics which certificates are served, and the log that the default one cannot be.
    fn tell_certificates(&mut self, fragment: &Fragment, default: Option<Result<Arc<ir::Certificate>, String>>) {
        let own = fragment.selectors.iter().filter_map(|selector| selector.tls.as_ref()?.termination());
        let own = own.filter_map(|termination| termination.certificate.as_ref().ok());
        let shown = fragment.clusters.iter().filter_map(|cluster| cluster.id.tls.as_ref()?.client.as_ref());
        let served = own.chain(shown).chain(default.iter().filter_map(|default| default.as_ref().ok()));
        let expiry = |certificate: &Arc<ir::Certificate>| (certificate.source.to_string(), certificate.not_after);
        self.metrics.set_certificates(served.map(expiry).collect());
        let trouble = default.and_then(Result::err);
        if let Some(reason) = trouble.as_ref().filter(|_| trouble != self.default_trouble) {
            tracing::warn!(
                "the default certificate cannot be used: {reason}; hosts without one of their own have none"
            );
        }
        self.default_trouble = trouble;
    }
}

/// The requests that each Cluster may have in flight: the smallest number that a rule names for it.
pub fn cluster_limits(fragment: &Fragment) -> HashMap<ir::ClusterId, u32> {
    let mut limits: HashMap<ir::ClusterId, u32> = HashMap::new();
    for rule in fragment.selectors.iter().flat_map(|selector| &selector.rules) {
        let (Some(max), Action::Forward(backends)) = (rule.upstream.max_requests, &rule.action) else { continue };
        for backend in backends {
            if let BackendTarget::Cluster(id) = &backend.target {
                limits.entry(id.clone()).and_modify(|least| *least = max.min(*least)).or_insert(max);
            }
        }
    }
    limits
}

fn runtime(
    selector: &Arc<ir::Selector>,
    rule: &Arc<ir::Rule>,
    clusters: &Clusters,
    states: &mut RuleStates,
) -> RuleRuntime {
    let state = states.get(selector, rule);
    let Action::Forward(backends) = &rule.action else {
        return RuleRuntime { state, targets: Vec::new(), weights: None, mirrors: Vec::new() };
    };
    let target = |backend: &ir::Backend| match &backend.target {
        BackendTarget::Invalid { reason } => Target::Invalid { reason },
        BackendTarget::Cluster(id) => match clusters.get(id) {
            Some(cluster) => Target::Cluster(cluster),
            // A source that names a Cluster without declaring it is at fault; its rule answers 500.
            None => Target::Invalid { reason: UNDECLARED },
        },
    };
    let weights: Vec<u32> = backends.iter().map(|b| b.weight).collect();
    let mirror = |filter: &ir::Filter| match filter {
        ir::Filter::Mirror(mirror) => {
            let ir::Mirror { cluster, numerator, denominator } = mirror;
            Some(Mirror { cluster: clusters.get(cluster)?, numerator: *numerator, denominator: *denominator })
        }
        _ => None,
    };
    RuleRuntime {
        state,
        targets: backends.iter().map(target).collect(),
        weights: Weights::new(&weights),
        mirrors: rule.filters.iter().filter_map(mirror).collect(),
    }
}

impl RuleRuntime {
    /// Whether making it anew of the same rule would give the same.
    fn is_current(&self) -> bool {
        let targets = self.targets.iter().all(|target| match target {
            Target::Cluster(cluster) => !cluster.is_removed(),
            Target::Invalid { reason } => *reason != UNDECLARED,
        });
        targets && self.mirrors.iter().all(|mirror| !mirror.cluster.is_removed())
    }

    /// Its series.
    pub fn metrics(&self) -> &RuleMetrics {
        &self.state.metrics
    }
}

#[cfg(test)]
mod tests;
