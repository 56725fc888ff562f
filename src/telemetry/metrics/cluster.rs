//! Upstream work per Cluster.

use std::sync::Arc;
use std::time::Duration;

use prometheus::proto::MetricType;

use super::cells::{Block, Buckets, PerWorker};
use super::family::{Family, Source, Spec, Sum};
use super::labels::{ConnectionState, MirrorOutcome, RetryReason};
use super::weak::WeakMap;

/// Upstream work of one Cluster.
pub struct ClusterMetrics {
    name: Arc<str>,
    buckets: Arc<Buckets>,
    /// Words: connect failures, denied retries, connections by state, retries by reason, copies by outcome, then the
    /// histogram.
    workers: PerWorker<Block>,
}

/// What a Cluster has counted so far, for those who look beside the scrapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTotals {
    /// Attempts that were answered, by time to the head of the answer: one count per bucket, the last above all bounds.
    pub buckets: Vec<u64>,
    /// Connections that carry a request now.
    pub active: u64,
    /// Connections that wait in pools now.
    pub idle: u64,
    /// Connections that could not be made.
    pub connect_failures: u64,
    /// Attempts after the first one.
    pub retries: u64,
}

/// All Clusters.
pub(super) struct Clusters {
    workers: usize,
    buckets: Arc<Buckets>,
    handles: WeakMap<Arc<str>, ClusterMetrics>,
}

const CONNECT_FAILURES: usize = 0;
const DENIED: usize = 1;
const CONNECTIONS: usize = 2;
const RETRIES: usize = CONNECTIONS + ConnectionState::ALL.len();
const MIRRORED: usize = RETRIES + RetryReason::ALL.len();
const DURATIONS: usize = MIRRORED + MirrorOutcome::ALL.len();

static SPECS: [Spec; 6] = [
    Spec {
        name: "lockgate_upstream_request_duration_seconds",
        help: "Time from sending a request to an endpoint to the head of its answer, per attempt.",
        kind: MetricType::HISTOGRAM,
        labels: &["cluster"],
    },
    Spec {
        name: "lockgate_upstream_connections",
        help: "Open connections to endpoints.",
        kind: MetricType::GAUGE,
        labels: &["cluster", "state"],
    },
    Spec {
        name: "lockgate_upstream_retries_total",
        help: "Attempts after the first one, by what made them necessary.",
        kind: MetricType::COUNTER,
        labels: &["cluster", "reason"],
    },
    Spec {
        name: "lockgate_upstream_retries_denied_total",
        help: "Retries not made because the budget is used up.",
        kind: MetricType::COUNTER,
        labels: &["cluster"],
    },
    Spec {
        name: "lockgate_upstream_connect_failures_total",
        help: "Connections to endpoints that could not be made.",
        kind: MetricType::COUNTER,
        labels: &["cluster"],
    },
    Spec {
        name: "lockgate_mirrored_requests_total",
        help: "Copies of requests for a mirror, by what became of them.",
        kind: MetricType::COUNTER,
        labels: &["cluster", "outcome"],
    },
];

// === impl ClusterMetrics ===

impl ClusterMetrics {
    /// Records one attempt that was answered.
    pub fn record(&self, worker: usize, duration: Duration) {
        if let Some(block) = self.block(worker) {
            self.buckets.observe(block, DURATIONS, duration);
        }
    }

    /// More (or, negative, fewer) connections in a state.
    pub fn add_connections(&self, worker: usize, state: ConnectionState, n: i64) {
        self.add(worker, CONNECTIONS + state as usize, n);
    }

    /// One attempt after the first.
    pub fn retried(&self, worker: usize, reason: RetryReason) {
        self.add(worker, RETRIES + reason as usize, 1);
    }

    /// A retry that the budget did not allow.
    pub fn retry_denied(&self, worker: usize) {
        self.add(worker, DENIED, 1);
    }

    /// A connection that could not be made.
    pub fn connect_failed(&self, worker: usize) {
        self.add(worker, CONNECT_FAILURES, 1);
    }

    /// A copy of a request came to its end.
    pub fn mirrored(&self, worker: usize, outcome: MirrorOutcome) {
        self.add(worker, MIRRORED + outcome as usize, 1);
    }

    /// What it has counted so far.
    pub fn totals(&self) -> ClusterTotals {
        let mut sum = Sum::default();
        self.workers.used().for_each(|block| self.buckets.sum_up(block, DURATIONS, &mut sum));
        // A gauge that two workers change is negative in one of them for a moment.
        let words =
            |word: usize| self.workers.used().map(|block| block.get_signed(word)).sum::<i64>().max(0).cast_unsigned();
        ClusterTotals {
            buckets: sum.counts,
            active: words(CONNECTIONS + ConnectionState::Active as usize),
            idle: words(CONNECTIONS + ConnectionState::Idle as usize),
            connect_failures: words(CONNECT_FAILURES),
            retries: (0..RetryReason::ALL.len()).map(|reason| words(RETRIES + reason)).sum(),
        }
    }

    fn add(&self, worker: usize, word: usize, n: i64) {
        if let Some(block) = self.block(worker) {
            block.add(word, n);
        }
    }

    fn block(&self, worker: usize) -> Option<&Block> {
        self.workers.get(worker, || Block::new(DURATIONS + self.buckets.words()))
    }

    fn total(&self, word: usize) -> f64 {
        self.workers.used().map(|block| block.get_signed(word)).sum::<i64>() as f64
    }

    fn gather(&self, families: &mut [Family; 6]) {
        if self.workers.used().next().is_none() {
            return;
        }
        let [durations, connections, retries, denied, failures, mirrored] = families;
        let mut sum = Sum::default();
        self.workers.used().for_each(|block| self.buckets.sum_up(block, DURATIONS, &mut sum));
        durations.push_histogram(&[&self.name], &self.buckets, &sum);
        for state in ConnectionState::ALL {
            connections.push(&[&self.name, state.as_str()], self.total(CONNECTIONS + *state as usize));
        }
        for reason in RetryReason::ALL {
            retries.push(&[&self.name, reason.as_str()], self.total(RETRIES + *reason as usize));
        }
        denied.push(&[&self.name], self.total(DENIED));
        failures.push(&[&self.name], self.total(CONNECT_FAILURES));
        let copies = MirrorOutcome::ALL.iter().map(|outcome| (outcome, self.total(MIRRORED + *outcome as usize)));
        // Few Clusters are mirrors: the others have no series.
        if copies.clone().any(|(_, count)| count > 0.0) {
            copies.for_each(|(outcome, count)| mirrored.push(&[&self.name, outcome.as_str()], count));
        }
    }
}

// === impl Clusters ===

impl Clusters {
    pub(super) fn new(workers: usize, buckets: Arc<Buckets>) -> Self {
        Self { workers, buckets, handles: WeakMap::new() }
    }

    pub(super) fn get(&self, name: &str) -> Arc<ClusterMetrics> {
        self.handles.get(name.into(), |name| ClusterMetrics {
            name: Arc::clone(name),
            buckets: Arc::clone(&self.buckets),
            workers: PerWorker::new(self.workers),
        })
    }
}

impl Source for Clusters {
    fn specs() -> &'static [Spec] {
        &SPECS
    }

    fn gather(&self) -> Vec<Family> {
        let mut families = SPECS.each_ref().map(Spec::family);
        for cluster in self.handles.all() {
            cluster.gather(&mut families);
        }
        families.into()
    }
}
