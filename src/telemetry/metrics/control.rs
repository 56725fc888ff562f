//! What the controller counts: tables, sources, status. Off the request path, so any thread may write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::proto::MetricType;
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts, Registry};

use super::family::{Family, Source, Spec, registered};
use super::labels::{EventWrite, SourceError, StatusWrite};

/// Tables, endpoint updates and status writes.
pub struct ControlMetrics {
    generation: IntGauge,
    publish: Histogram,
    endpoint_lag: Histogram,
    status_writes: IntCounterVec,
    events: IntCounterVec,
    fields_missing: IntGauge,
}

/// One source.
pub struct SourceMetrics {
    synced: AtomicBool,
    born: Instant,
    /// Milliseconds after `born`.
    heard: AtomicU64,
    errors: [AtomicU64; SourceError::ALL.len()],
}

/// How a source is, for those who look beside the scrapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTold {
    /// Its name, such as `kube/routes`.
    pub name: Arc<str>,
    /// Whether it has listed everything once.
    pub synced: bool,
    /// How long ago it was last heard of.
    pub staleness: Duration,
    /// What went wrong and how often; what never did is left out.
    pub errors: Vec<(SourceError, u64)>,
}

/// All sources.
#[derive(Default)]
pub(super) struct Sources(Mutex<BTreeMap<Arc<str>, Arc<SourceMetrics>>>);

/// From a table of one rule to one of a hundred thousand, and from an endpoint's event to a stuck publisher.
const CONTROL_SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

static SPECS: [Spec; 3] = [
    Spec {
        name: "lockgate_source_synced",
        help: "1 when a source has listed everything once.",
        kind: MetricType::GAUGE,
        labels: &["source"],
    },
    Spec {
        name: "lockgate_source_staleness_seconds",
        help: "Time since a source was last heard of.",
        kind: MetricType::GAUGE,
        labels: &["source"],
    },
    Spec {
        name: "lockgate_source_errors_total",
        help: "What went wrong in a source.",
        kind: MetricType::COUNTER,
        labels: &["source", "reason"],
    },
];

// === impl ControlMetrics ===

impl ControlMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let histogram = |name, help| {
            let opts = HistogramOpts::new(name, help).buckets(CONTROL_SECONDS.to_vec());
            registered(registry, Histogram::with_opts(opts))
        };
        let build = Opts::new("lockgate_build_info", "Always 1; the labels tell the build.");
        registered(registry, IntGauge::with_opts(build.const_label("version", env!("CARGO_PKG_VERSION")))).set(1);
        let generation = IntGauge::new("lockgate_table_generation", "Generation of the table that is served.");
        let events = Opts::new("lockgate_events_total", "Events about objects, by what became of them.");
        let missing = IntGauge::new(
            "lockgate_definition_fields_missing",
            "Fields that this gateway reads and the cluster's definitions of Selector and Route lack.",
        );
        let writes = Opts::new("lockgate_status_writes_total", "Writes of an object's status, by result.");
        Self {
            generation: registered(registry, generation),
            publish: histogram("lockgate_table_publish_seconds", "Time to merge, compile and swap a table."),
            endpoint_lag: histogram(
                "lockgate_endpoint_update_lag_seconds",
                "Time from an endpoint event to its use by the proxy.",
            ),
            status_writes: registered(registry, IntCounterVec::new(writes, &["result"])),
            fields_missing: registered(registry, missing),
            events: registered(registry, IntCounterVec::new(events, &["result"])),
        }
    }

    /// A table was published.
    pub fn published(&self, generation: u64, took: Duration) {
        self.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        self.publish.observe(took.as_secs_f64());
    }

    /// Endpoints were swapped that long after their event.
    pub fn endpoints_updated(&self, lag: Duration) {
        self.endpoint_lag.observe(lag.as_secs_f64());
    }

    /// A status write ended.
    pub fn status_write(&self, result: StatusWrite) {
        self.status_writes.with_label_values(&[result.as_str()]).inc();
    }

    /// So many fields are missing in the cluster's definitions.
    pub fn fields_missing(&self, count: usize) {
        self.fields_missing.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// An Event was written or will not be.
    pub fn event_write(&self, result: EventWrite) {
        self.events.with_label_values(&[result.as_str()]).inc();
    }
}

// === impl SourceMetrics ===

impl SourceMetrics {
    fn new() -> Self {
        Self {
            synced: AtomicBool::new(false),
            born: Instant::now(),
            heard: AtomicU64::new(0),
            errors: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Whether it has listed everything once.
    pub fn set_synced(&self, synced: bool) {
        self.synced.store(synced, Relaxed);
    }

    /// It was heard of just now: an event, a bookmark, a list that ended, a directory that was read.
    pub fn heard(&self) {
        self.heard_ago(Duration::ZERO);
    }

    /// It was last heard of that long ago.
    pub fn heard_ago(&self, ago: Duration) {
        let at = self.born.elapsed().saturating_sub(ago);
        self.heard.store(u64::try_from(at.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Something went wrong.
    pub fn error(&self, reason: SourceError) {
        self.errors[reason as usize].fetch_add(1, Relaxed);
    }

    fn staleness(&self) -> Duration {
        self.born.elapsed().saturating_sub(Duration::from_millis(self.heard.load(Relaxed)))
    }
}

// === impl Sources ===

impl Sources {
    pub(super) fn get(&self, name: &str) -> Arc<SourceMetrics> {
        Arc::clone(self.0.lock().entry(name.into()).or_insert_with(|| Arc::new(SourceMetrics::new())))
    }
}

impl Sources {
    /// How they are, by name.
    pub(super) fn told(&self) -> Vec<SourceTold> {
        let one = |(name, source): (&Arc<str>, &Arc<SourceMetrics>)| {
            let errors = SourceError::ALL.iter().map(|e| (*e, source.errors[*e as usize].load(Relaxed)));
            SourceTold {
                name: Arc::clone(name),
                synced: source.synced.load(Relaxed),
                staleness: source.staleness(),
                errors: errors.filter(|(_, count)| *count > 0).collect(),
            }
        };
        self.0.lock().iter().map(one).collect()
    }
}

impl Source for Sources {
    fn specs() -> &'static [Spec] {
        &SPECS
    }

    fn gather(&self) -> Vec<Family> {
        let mut families = SPECS.each_ref().map(Spec::family);
        let [synced, staleness, errors] = &mut families;
        for (name, source) in self.0.lock().iter() {
            synced.push(&[name], f64::from(u8::from(source.synced.load(Relaxed))));
            staleness.push(&[name], source.staleness().as_secs_f64());
            for reason in SourceError::ALL {
                errors.push(&[name, reason.as_str()], source.errors[*reason as usize].load(Relaxed) as f64);
            }
        }
        families.into()
    }
}
