//! Composition: builds every part, binds, runs, drains.

mod access_log;
mod certificates;
mod cluster;
mod files;
mod offline;
mod pages;
mod traces;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::{mpsc, watch};

pub use self::offline::Offline;
use crate::admin::{Admin, Parts};
use crate::descriptors::{self, Descriptors};
use crate::ir::{Fragment, ObjectName, Served};
use crate::lifecycle::{self, Cause, DrainSettings, Driver, Lifecycle, Phase, Signal};
use crate::proxy::accept::Bound;
use crate::proxy::{Outputs, Shared, Workers};
use crate::publish::{Published, Publisher};
use crate::routing::ListenerIndex;
use crate::settings::{Limits, LogFormat, Settings};
use crate::source::{UpdateSender, translate};
use crate::telemetry::logs::{self, Format, LogSettings, Logs};
use crate::telemetry::metrics::{Buckets, Metrics};
use crate::telemetry::panics;
use crate::telemetry::traces::Exporter;
use crate::upstream::{Clusters, dns};

/// Updates that a source may be ahead of the publisher.
const UPDATES: usize = 256;
/// Log lines that may wait for the writer.
const LOG_QUEUE: usize = 8192;
/// The most connections that the kernel completes ahead of any `accept`.
const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";
/// Threads of the controller's runtime: one may translate while the other answers probes.
const CONTROLLER_THREADS: usize = 2;

/// Why the gateway ended in failure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings cannot be used.
    #[error("{0}")]
    Settings(String),
    /// Something outside failed.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

impl Error {
    fn settings(error: impl std::fmt::Display) -> Self {
        Self::Settings(error.to_string())
    }
}

/// A gateway that is bound and not started.
pub struct App {
    settings: Settings,
    shared: Arc<Shared>,
    listeners: Vec<Bound>,
    tables: Publisher,
    clusters: Arc<Clusters>,
    driver: Driver,
    admin: Admin,
    exporter: Option<Exporter>,
}

/// Runs a gateway until a signal ends it. `warnings` are logged first.
pub fn run(settings: Settings, warnings: &[String]) -> Result<(), Error> {
    let format = match settings.log.format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    };
    let level = settings.log.level.clone();
    let logs = logs::init(&LogSettings { level, format, queue: LOG_QUEUE })
        .map_err(|e| Error::Settings(format!("setting log: {e}")))?;
    let logs = Arc::new(logs);
    panics::log();
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    // Before anybody asks how many there may be.
    if let Err(error) = descriptors::raise() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROLLER_THREADS)
        .thread_name("controller")
        .enable_all()
        .build()
        .context("the controller's runtime")?;
    runtime.block_on(async {
        let signals = lifecycle::watch_signals().context("signal handlers")?;
        App::bind(settings)?.run(signals, logs).await
    })
}

impl App {
    /// Builds every part and binds every address; a port in use is an error here, before anything is served.
    pub fn bind(settings: Settings) -> Result<Self, Error> {
        if let [first, ..] = &settings.problems()[..] {
            return Err(Error::Settings(format!("setting {first}")));
        }
        let drain = drain_settings(&settings);
        drain.check().map_err(Error::settings)?;
        let buckets = match &settings.metrics.buckets[..] {
            [] => Buckets::default(),
            bounds => Buckets::new(bounds).map_err(|e| Error::Settings(format!("setting metrics.buckets: {e}")))?,
        };
        let workers = match settings.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            set => set,
        };
        let metrics = Metrics::new(workers, buckets);
        let (lifecycle, driver) = Lifecycle::new(workers, drain);
        observe(&metrics, &lifecycle).context("metrics")?;
        let names: Vec<Arc<str>> = settings.listeners.iter().map(|l| l.name.as_str().into()).collect();
        let listeners = bind_listeners(&settings, &metrics)?;
        let admin = Admin::bind(settings.admin.address, settings.admin.operator_address).context("admin ports")?;
        let published = Arc::new(Published::new(&names));
        let clusters = Arc::new(Clusters::new(Arc::clone(&metrics)));
        let tls = certificates::settings(&settings.tls).map_err(Error::Settings)?;
        let tables = Publisher::new(names, tls, Arc::clone(&published), Arc::clone(&clusters), Arc::clone(&metrics));
        let access_log = access_log::open(&settings.access_log, &metrics)?;
        let traces = traces::start(&settings.traces, cluster::hostname(), &metrics)?;
        let (traces, exporter) = traces.map_or((None, None), |(traces, exporter)| (Some(traces), Some(exporter)));
        let outputs = Outputs { access_log, traces };
        let shared = Shared::new(settings.clone(), workers, published, lifecycle, metrics, outputs);
        Ok(Self { settings, shared, listeners, tables, clusters, driver, admin, exporter })
    }

    /// The name and address of each listener; a port 0 of the settings is the real one here.
    pub fn listeners(&self) -> impl Iterator<Item = (&str, SocketAddr)> {
        self.listeners.iter().map(|bound| (&*bound.name, bound.address))
    }

    /// Serves until a signal and the drain after it.
    pub async fn run(self, signals: mpsc::Receiver<Signal>, logs: Arc<Logs>) -> Result<(), Error> {
        let Self { settings, shared, listeners, tables, clusters, driver, admin, exporter } = self;
        for misfit in misfits(&settings.limits, descriptors::of_process()) {
            tracing::warn!("{misfit}");
        }
        let (version, class, workers) = (env!("CARGO_PKG_VERSION"), &settings.class_name, shared.metrics.workers());
        tracing::info!(version, class, workers, "starting");
        let lifecycle = Arc::clone(&shared.lifecycle);
        let table = lifecycle.readiness().register("table");
        let (updates, received) = mpsc::channel(UPDATES);
        let mut served = tables.served();
        let examined = tables.examined();
        count_lost_lines(&shared.metrics, logs.dropped()).context("metrics")?;
        let parts = Parts {
            lifecycle: Arc::clone(&lifecycle),
            metrics: Arc::clone(&shared.metrics),
            logs,
            pages: pages::pages(&shared, &clusters, served.clone(), examined.clone()),
        };
        tokio::spawn(admin.serve(parts));
        let hangups = access_log::hangups().context("signal handlers")?;
        tokio::spawn(access_log::reopen(Arc::clone(&shared), hangups));
        let trust = if settings.manifests.is_some() { dns::Trust::Any } else { dns::Trust::Outside };
        tokio::spawn(dns::resolve(clusters, trust, tables.clusters_changed()));
        let publisher = tokio::spawn(tables.run(received));
        certificates::start(&settings.tls, &updates).await?;
        let source = start_source(&settings, &shared, updates, Tables { served: served.clone(), examined }).await?;
        let mut driver = tokio::spawn(driver.run(signals));
        let workers = tokio::select! {
            first = served.wait_for(Option::is_some) => {
                first.context("the publisher ended before it served a table")?;
                drop(table);
                start_workers(&shared, &listeners)?
            }
            ended = &mut driver => {
                ended.context("the drain's task failed")?;
                return Ok(());
            }
        };
        let outcome = driver.await.context("the drain's task failed")?;
        tracing::info!(cause = %outcome.cause, forced = outcome.forced, "drained");
        source.stop().await;
        publisher.abort();
        let end = move || {
            workers.join();
            access_log::finish(&shared);
        };
        tokio::task::spawn_blocking(end).await.context("the workers' end")?;
        if let Some(exporter) = exporter {
            exporter.finish().await;
        }
        match outcome.cause {
            Cause::Signal(_) => Ok(()),
            Cause::WorkerPanicked => {
                Err(anyhow::anyhow!("a worker panicked; what the others served was drained").into())
            }
        }
    }
}

/// What keeps running beside the workers, and has something to give back at the end.
struct Source {
    stop: watch::Sender<bool>,
    lease: Option<tokio::task::JoinHandle<()>>,
}

/// How long the Lease may take to be given back.
const RELEASE: Duration = Duration::from_secs(1);

impl Source {
    async fn stop(self) {
        self.stop.send_replace(true);
        if let Some(lease) = self.lease
            && tokio::time::timeout(RELEASE, lease).await.is_err()
        {
            tracing::warn!("the Lease was not released in time; another gateway takes it when it expires");
        }
    }
}

/// What sources are told of the tables made of what they tell.
struct Tables {
    served: watch::Receiver<Option<Arc<Fragment>>>,
    examined: watch::Receiver<Option<Arc<Served>>>,
}

async fn start_source(
    settings: &Settings,
    shared: &Arc<Shared>,
    updates: UpdateSender,
    tables: Tables,
) -> Result<Source, Error> {
    match &settings.manifests {
        Some(dir) => files::start(dir, settings, shared, updates, tables),
        None => cluster::start(settings, shared, updates, tables.examined).await,
    }
}

fn start_workers(shared: &Arc<Shared>, listeners: &[Bound]) -> Result<Workers, Error> {
    for bound in listeners {
        bound
            .listen(shared.settings.limits.accept_backlog)
            .with_context(|| format!("listener {} on {}", bound.name, bound.address))?;
        tracing::info!(listener = %bound.name, address = %bound.address, "listening");
    }
    let workers = Workers::start(shared, listeners).context("worker threads")?;
    // Fails only when a signal came meanwhile; the drain has begun then.
    if let Err(error) = shared.lifecycle.serving() {
        tracing::info!(%error, "not serving");
    }
    Ok(workers)
}

fn bind_listeners(settings: &Settings, metrics: &Metrics) -> Result<Vec<Bound>, Error> {
    let mut listeners: Vec<Bound> = Vec::new();
    for (index, listener) in settings.listeners.iter().enumerate() {
        let bound = Bound::bind(listener, ListenerIndex(index), metrics.listener(&listener.name))
            .with_context(|| format!("listener {} on {}", listener.name, listener.address))?;
        listeners.push(bound);
    }
    Ok(listeners)
}

/// What the system does not let the gateway have of its limits.
fn misfits(limits: &Limits, descriptors: Descriptors) -> Vec<String> {
    let mut misfits = Vec::new();
    // Each client may need a connection to a backend.
    let wanted = (limits.max_connections as u64).saturating_mul(2);
    if let (Some(limit), Some(most)) = (descriptors.limit, descriptors.for_clients())
        && wanted > most
    {
        misfits.push(format!(
            "limits.maxConnections: {} clients with as many connections to backends do not fit the limit of {limit} open \
             files; no more clients are accepted while {most} are in use",
            limits.max_connections
        ));
    }
    let backlog = std::fs::read_to_string(SOMAXCONN).ok().and_then(|text| text.trim().parse::<u32>().ok());
    if let Some(most) = backlog.filter(|most| *most < limits.accept_backlog) {
        misfits.push(format!(
            "limits.acceptBacklog: {} is more than net.core.somaxconn, {most} hold",
            limits.accept_backlog
        ));
    }
    misfits
}

fn drain_settings(settings: &Settings) -> DrainSettings {
    let drain = &settings.drain;
    DrainSettings {
        delay: drain.delay.get(),
        max_delay: drain.max_delay.get(),
        timeout: drain.timeout.get(),
        readiness_delay: drain.readiness_delay.get(),
        grace_period: drain.grace_period.map(crate::api::Duration::get),
    }
}

fn count_lost_lines(
    metrics: &Metrics,
    dropped: impl Fn() -> u64 + Send + Sync + 'static,
) -> Result<(), prometheus::Error> {
    metrics.counter_fn("lockgate_log_lines_dropped_total", "Log lines that found the queue full.", dropped)
}

fn observe(metrics: &Metrics, lifecycle: &Arc<Lifecycle>) -> Result<(), prometheus::Error> {
    let phase = Arc::clone(lifecycle);
    metrics.observe_phase(Phase::NAMES, move || phase.phase() as usize)?;
    let in_flight = Arc::clone(lifecycle);
    metrics
        .gauge_fn("lockgate_http_requests_in_flight", "Requests in flight.", move || in_flight.in_flight() as f64)?;
    let forced = Arc::clone(lifecycle);
    metrics.counter_fn("lockgate_drain_forced_total", "Requests that a drain cut.", move || forced.forced())?;
    let leaving = Arc::clone(lifecycle);
    metrics.gauge_fn(
        "lockgate_drain_seconds",
        "How long clients have been asked to leave; 0 while they are not.",
        move || leaving.leaving_for().as_secs_f64(),
    )?;
    metrics.counter_fn(
        "lockgate_panics_total",
        "Faults of the gateway's own that ended a task or a thread.",
        panics::count,
    )
}

/// What the translation needs to know of the settings.
fn translation(settings: &Settings, host_backends: translate::HostBackends) -> translate::Settings {
    let listener = |l: &crate::settings::Listener| translate::Listener { name: l.name.as_str().into(), tls: l.tls };
    let secret = settings.tls.default_certificate.secret();
    translate::Settings {
        class_name: settings.class_name.clone(),
        listeners: settings.listeners.iter().map(listener).collect(),
        host_backends,
        default_certificate: secret.map(|(namespace, name)| ObjectName::new(namespace, name)),
        reads_secrets: true,
    }
}

#[cfg(test)]
mod tests;
