//! What belongs to a worker or a listener rather than to a configured object.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::proto::MetricType;

use super::cells::{Block, Buckets, PerWorker};
use super::family::{Family, Source, Spec, Sum};
use super::labels::{Handshake, Refusal, TlsVersion};

/// Counters of one worker.
pub struct WorkerMetrics {
    buckets: Arc<Buckets>,
    /// Words: queue length, open tunnels, refusals by reason, TLS handshakes by result and version, then the histogram of waits.
    block: Block,
}

/// Connections of one listener.
pub struct ListenerMetrics {
    /// Words: open, accepted.
    workers: PerWorker<Block>,
}

/// All workers.
pub(super) struct Workers {
    handles: Vec<Arc<WorkerMetrics>>,
    busy: Mutex<BTreeMap<usize, Busy>>,
    buckets: Arc<Buckets>,
}

/// All listeners.
pub(super) struct Listeners {
    workers: usize,
    handles: Mutex<BTreeMap<Arc<str>, Arc<ListenerMetrics>>>,
}

type ReadBusy = Box<dyn Fn() -> Duration + Send + Sync>;

struct Busy {
    read: ReadBusy,
    since: Instant,
    total: Duration,
    ratio: f64,
}

const QUEUED: usize = 0;
const TUNNELS: usize = 1;
const DROPPED: usize = 2;
const REFUSED: usize = 3;
const HANDSHAKES: usize = REFUSED + Refusal::ALL.len();
const WAITS: usize = HANDSHAKES + Handshake::ALL.len() * TlsVersion::ALL.len();
const OPEN: usize = 0;
const ACCEPTED: usize = 1;
const PAUSES: usize = 2;
const LISTENER_WORDS: usize = 3;

/// Two scrapers in the same second would otherwise see the ratio of a moment.
const BUSY_WINDOW: Duration = Duration::from_secs(1);

static WORKER_SPECS: [Spec; 8] = [
    Spec {
        name: "lockgate_requests_refused_total",
        help: "Requests that no backend answered, by reason.",
        kind: MetricType::COUNTER,
        labels: &["reason"],
    },
    Spec {
        name: "lockgate_fields_dropped_total",
        help: "Header fields of requests that were dropped for the underscore in their name.",
        kind: MetricType::COUNTER,
        labels: &[],
    },
    Spec {
        name: "lockgate_tunnels",
        help: "Open tunnels: connections that have changed to another protocol, such as WebSocket, or are passed through.",
        kind: MetricType::GAUGE,
        labels: &[],
    },
    Spec {
        name: "lockgate_tls_handshakes_total",
        help: "TLS handshakes with clients, by how they ended and the version agreed on.",
        kind: MetricType::COUNTER,
        labels: &["result", "version"],
    },
    Spec {
        name: "lockgate_queue_length",
        help: "Requests that wait for a place under a limit.",
        kind: MetricType::GAUGE,
        labels: &[],
    },
    Spec {
        name: "lockgate_queue_wait_seconds",
        help: "How long requests waited for a place, whether they got one or not.",
        kind: MetricType::HISTOGRAM,
        labels: &[],
    },
    Spec {
        name: "lockgate_worker_busy_ratio",
        help: "Share of time in which a worker had work, between the last two scrapes.",
        kind: MetricType::GAUGE,
        labels: &["worker"],
    },
    Spec {
        name: "lockgate_worker_busy_seconds_total",
        help: "Time in which a worker had work.",
        kind: MetricType::COUNTER,
        labels: &["worker"],
    },
];

static LISTENER_SPECS: [Spec; 3] = [
    Spec {
        name: "lockgate_connections",
        help: "Open client connections.",
        kind: MetricType::GAUGE,
        labels: &["listener"],
    },
    Spec {
        name: "lockgate_connections_accepted_total",
        help: "Client connections accepted.",
        kind: MetricType::COUNTER,
        labels: &["listener"],
    },
    Spec {
        name: "lockgate_accept_pauses_total",
        help: "Times that a worker stopped accepting for want of descriptors or memory.",
        kind: MetricType::COUNTER,
        labels: &["listener"],
    },
];

/// The word of a kind of handshakes.
const fn handshake(result: Handshake, version: TlsVersion) -> usize {
    HANDSHAKES + result as usize * TlsVersion::ALL.len() + version as usize
}

// === impl WorkerMetrics ===

impl WorkerMetrics {
    /// One request that no backend answered.
    pub fn refused(&self, reason: Refusal) {
        self.block.add(REFUSED + reason as usize, 1);
    }

    /// Fields of a request were dropped for their names.
    pub fn fields_dropped(&self, count: usize) {
        self.block.add(DROPPED, i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A connection has changed to another protocol.
    pub fn tunnel_opened(&self) {
        self.block.add(TUNNELS, 1);
    }

    /// Such a connection has ended.
    pub fn tunnel_closed(&self) {
        self.block.add(TUNNELS, -1);
    }

    /// One TLS handshake that ended.
    pub fn handshake(&self, result: Handshake, version: TlsVersion) {
        self.block.add(handshake(result, version), 1);
    }

    /// A request begins to wait for a place.
    pub fn queued(&self) {
        self.block.add(QUEUED, 1);
    }

    /// A request stops waiting, with or without a place.
    pub fn unqueued(&self, waited: Duration) {
        self.block.add(QUEUED, -1);
        self.buckets.observe(&self.block, WAITS, waited);
    }
}

// === impl ListenerMetrics ===

impl ListenerMetrics {
    /// `worker` takes a new connection over.
    pub fn opened(&self, worker: usize) {
        if let Some(block) = self.workers.get(worker, || Block::new(LISTENER_WORDS)) {
            block.add(OPEN, 1);
            block.add(ACCEPTED, 1);
        }
    }

    /// A connection of `worker` is closed.
    pub fn closed(&self, worker: usize) {
        if let Some(block) = self.workers.get(worker, || Block::new(LISTENER_WORDS)) {
            block.add(OPEN, -1);
        }
    }

    /// `worker` stops accepting for a while.
    pub fn paused(&self, worker: usize) {
        if let Some(block) = self.workers.get(worker, || Block::new(LISTENER_WORDS)) {
            block.add(PAUSES, 1);
        }
    }

    fn total(&self, word: usize) -> f64 {
        self.workers.used().map(|block| block.get_signed(word)).sum::<i64>() as f64
    }
}

// === impl Workers ===

impl Workers {
    pub(super) fn new(workers: usize, buckets: Arc<Buckets>) -> Self {
        let make = |_| {
            let block = Block::new(WAITS + buckets.words());
            Arc::new(WorkerMetrics { buckets: Arc::clone(&buckets), block })
        };
        Self { handles: (0..workers).map(make).collect(), busy: Mutex::default(), buckets }
    }

    pub(super) fn len(&self) -> usize {
        self.handles.len()
    }

    pub(super) fn get(&self, worker: usize) -> Option<Arc<WorkerMetrics>> {
        self.handles.get(worker).cloned()
    }

    pub(super) fn observe_busy(&self, worker: usize, read: ReadBusy) {
        let total = read();
        self.busy.lock().insert(worker, Busy { read, since: Instant::now(), total, ratio: 0.0 });
    }

    fn total(&self, word: usize) -> f64 {
        self.handles.iter().map(|worker| worker.block.get_signed(word)).sum::<i64>() as f64
    }
}

impl Busy {
    /// The total in seconds, with the ratio brought up to date.
    fn sample(&mut self, now: Instant) -> f64 {
        let total = (self.read)();
        let window = now.duration_since(self.since);
        if window >= BUSY_WINDOW {
            self.ratio = (total.saturating_sub(self.total).as_secs_f64() / window.as_secs_f64()).min(1.0);
            self.since = now;
            self.total = total;
        }
        total.as_secs_f64()
    }
}

impl Source for Workers {
    fn specs() -> &'static [Spec] {
        &WORKER_SPECS
    }

    fn gather(&self) -> Vec<Family> {
        let mut families = WORKER_SPECS.each_ref().map(Spec::family);
        let [refused, dropped, tunnels, handshakes, length, wait, ratio, busy] = &mut families;
        for reason in Refusal::ALL {
            refused.push(&[reason.as_str()], self.total(REFUSED + *reason as usize));
        }
        for (result, version) in
            Handshake::ALL.iter().flat_map(|result| TlsVersion::ALL.iter().map(move |v| (result, v)))
        {
            // Only what agreed on a version has one.
            if matches!(result, Handshake::Full | Handshake::Resumed) != (*version == TlsVersion::None) {
                handshakes.push(&[result.as_str(), version.as_str()], self.total(handshake(*result, *version)));
            }
        }
        dropped.push(&[], self.total(DROPPED));
        tunnels.push(&[], self.total(TUNNELS));
        length.push(&[], self.total(QUEUED));
        let mut sum = Sum::default();
        self.handles.iter().for_each(|worker| self.buckets.sum_up(&worker.block, WAITS, &mut sum));
        wait.push_histogram(&[], &self.buckets, &sum);
        let now = Instant::now();
        for (worker, sample) in self.busy.lock().iter_mut() {
            let worker = worker.to_string();
            busy.push(&[&worker], sample.sample(now));
            ratio.push(&[&worker], sample.ratio);
        }
        families.into()
    }
}

// === impl Listeners ===

impl Listeners {
    pub(super) fn new(workers: usize) -> Self {
        Self { workers, handles: Mutex::default() }
    }

    pub(super) fn get(&self, name: &str) -> Arc<ListenerMetrics> {
        let mut listeners = self.handles.lock();
        let make = || Arc::new(ListenerMetrics { workers: PerWorker::new(self.workers) });
        Arc::clone(listeners.entry(name.into()).or_insert_with(make))
    }
}

impl Source for Listeners {
    fn specs() -> &'static [Spec] {
        &LISTENER_SPECS
    }

    fn gather(&self) -> Vec<Family> {
        let mut families = LISTENER_SPECS.each_ref().map(Spec::family);
        let [open, accepted, pauses] = &mut families;
        for (name, listener) in self.handles.lock().iter() {
            open.push(&[name], listener.total(OPEN));
            accepted.push(&[name], listener.total(ACCEPTED));
            pauses.push(&[name], listener.total(PAUSES));
        }
        families.into()
    }
}
