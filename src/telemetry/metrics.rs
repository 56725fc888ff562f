//! Metrics in Prometheus' text format.
//!
//! The request path neither locks, nor allocates, nor writes to a cache line that another worker writes: every
//! worker has cells of its own, made when it first needs them, and a scrape adds them up. So a count is exact as
//! soon as the worker has gone on, and costs a load and a store. Whoever passes a worker's index must run on that
//! worker: two writers of one cell lose counts.
//!
//! Labels come from configured objects and closed enums only. Handles of rules and clusters are held weakly here:
//! the tables own them, and a series goes when the last table that has the object goes.

mod cells;
mod certificates;
mod cluster;
mod control;
mod family;
mod labels;
mod process;
mod rule;
mod sampled;
#[cfg(test)]
mod tests;
mod weak;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Registry, TextEncoder};

pub use self::cells::{Buckets, InvalidBuckets};
pub use self::cluster::{ClusterMetrics, ClusterTotals};
pub use self::control::{ControlMetrics, SourceMetrics, SourceTold};
pub use self::labels::{
    ConnectionState, EventWrite, GrpcStatus, Handshake, MirrorOutcome, Refusal, RetryReason, SourceError, StatusWrite,
    TlsVersion,
};
pub use self::rule::{RuleMetrics, RuleTotals};
pub use self::worker::{ListenerMetrics, WorkerMetrics};

use self::certificates::Certificates;
use self::cluster::Clusters;
use self::control::Sources;
use self::family::{Gather, register};
use self::process::Process;
use self::rule::Rules;
use self::sampled::Sampled;
use self::worker::{Listeners, Workers};

/// What labels say where there is nothing to name: a request that no Selector or rule took.
pub const NOTHING: &str = "-";

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// All metrics of one gateway.
pub struct Metrics {
    registry: Registry,
    bounds: Box<[f64]>,
    rules: Arc<Rules>,
    unmatched: Arc<RuleMetrics>,
    clusters: Arc<Clusters>,
    workers: Arc<Workers>,
    listeners: Arc<Listeners>,
    sources: Arc<Sources>,
    certificates: Arc<Certificates>,
    control: ControlMetrics,
}

// === impl Metrics ===

impl Metrics {
    /// Makes the metrics of a gateway with that many workers; `buckets` are those of all request durations.
    pub fn new(workers: usize, buckets: Buckets) -> Arc<Self> {
        let registry = Registry::new();
        let bounds = buckets.bounds().into();
        let buckets = Arc::new(buckets);
        let rules = Arc::new(Rules::new(workers, Arc::clone(&buckets)));
        let clusters = Arc::new(Clusters::new(workers, Arc::clone(&buckets)));
        let workers = Arc::new(Workers::new(workers, buckets));
        let listeners = Arc::new(Listeners::new(workers.len()));
        let sources = Arc::new(Sources::default());
        let certificates = Arc::new(Certificates::default());
        register(&registry, Gather::new(Arc::clone(&rules)));
        register(&registry, Gather::new(Arc::clone(&clusters)));
        register(&registry, Gather::new(Arc::clone(&workers)));
        register(&registry, Gather::new(Arc::clone(&listeners)));
        register(&registry, Gather::new(Arc::clone(&sources)));
        register(&registry, Gather::new(Arc::clone(&certificates)));
        register(&registry, Gather::new(Arc::new(Process)));
        let control = ControlMetrics::new(&registry);
        let unmatched = rules.get(NOTHING, NOTHING, NOTHING);
        Arc::new(Self {
            registry,
            bounds,
            rules,
            unmatched,
            clusters,
            workers,
            listeners,
            sources,
            certificates,
            control,
        })
    }

    /// All series in the text format. Takes as long as there are series: call it off the data path.
    pub fn render(&self) -> String {
        let families = self.registry.gather();
        // The encoder fails for a family without a name or a sample only, and such a family is not gathered.
        TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }

    /// The handle of one rule: the same as long as anybody holds it, so that counters outlive tables.
    ///
    /// `selector` and `route` are `namespace/name`.
    pub fn rule(&self, selector: &str, route: &str, rule: &str) -> Arc<RuleMetrics> {
        self.rules.get(selector, route, rule)
    }

    /// The handle for requests that no Selector took.
    pub fn unmatched(&self) -> Arc<RuleMetrics> {
        Arc::clone(&self.unmatched)
    }

    /// The handle of one Cluster, kept like those of rules.
    pub fn cluster(&self, name: &str) -> Arc<ClusterMetrics> {
        self.clusters.get(name)
    }

    /// The handle of one worker; `None` for an index past the workers.
    pub fn worker(&self, worker: usize) -> Option<Arc<WorkerMetrics>> {
        self.workers.get(worker)
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The handle of one listener, kept for good: listeners are settings.
    pub fn listener(&self, name: &str) -> Arc<ListenerMetrics> {
        self.listeners.get(name)
    }

    /// The handle of one source, such as `kube/routes`, kept for good.
    pub fn source(&self, name: &str) -> Arc<SourceMetrics> {
        self.sources.get(name)
    }

    /// Tells which certificates are served: the Secret of each and when it expires, in seconds since the epoch.
    pub fn set_certificates(&self, certificates: Vec<(String, i64)>) {
        self.certificates.set(certificates);
    }

    /// The upper bounds in seconds of the buckets of all request durations.
    pub fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// What all rules together have counted so far, and requests that none took.
    pub fn totals(&self) -> RuleTotals {
        self.rules.totals()
    }

    /// How every source is, by name.
    pub fn sources(&self) -> Vec<SourceTold> {
        self.sources.told()
    }

    /// What the controller counts.
    pub fn control(&self) -> &ControlMetrics {
        &self.control
    }

    /// Has a gauge read at every scrape, such as `lockgate_http_requests_in_flight`. Fails if the name is taken or invalid.
    pub fn gauge_fn(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> prometheus::Result<()> {
        self.registry.register(Box::new(Sampled::gauge(name, help, read)?))
    }

    /// Has a counter read at every scrape, such as `lockgate_drain_forced_total`. Fails if the name is taken or invalid.
    pub fn counter_fn(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> prometheus::Result<()> {
        self.registry.register(Box::new(Sampled::counter(name, help, read)?))
    }

    /// Has the phase read at every scrape as `lockgate_drain_phase{phase}`: one series per phase, of which the present
    /// one, whose index in `phases` is read, is 1 and the others are 0. Fails if it is read already.
    pub fn observe_phase(
        &self,
        phases: &'static [&'static str],
        read: impl Fn() -> usize + Send + Sync + 'static,
    ) -> prometheus::Result<()> {
        self.registry.register(Box::new(Sampled::phase(phases, read)?))
    }

    /// Has a worker's busy time read at every scrape: the total since its start, as
    /// `tokio::runtime::RuntimeMetrics::worker_total_busy_duration` gives it.
    pub fn observe_busy(&self, worker: usize, read: impl Fn() -> Duration + Send + Sync + 'static) {
        self.workers.observe_busy(worker, Box::new(read));
    }
}
