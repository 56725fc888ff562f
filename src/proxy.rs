//! The data plane: accepts connections, matches requests, forwards them, answers.
//!
//! One thread per core with a runtime of its own, and everything a request touches on it: connections to backends,
//! the snapshot, round-robin positions, metric cells. Threads share what is counted for the whole process and the
//! published snapshot, nothing else.

pub mod accept;
mod access;
mod admission;
mod body;
mod connection;
mod cors;
mod error;
mod exchange;
mod filters;
mod forward;
mod goodbye;
mod grpc;
mod head;
mod headers;
mod https;
mod incoming;
mod io;
mod mirror;
mod passthrough;
pub mod preview;
pub mod proxy_protocol;
mod query;
mod quic;
pub mod raw;
mod service;
mod span;
mod target;
pub mod tls;
mod traceparent;
mod tunnel;
mod upgrade;
mod watchdog;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use self::accept::{Bound, Handover};
use self::body::RequestBody;
use self::watchdog::{Conn, StageLimits, Watchdog};
use crate::lifecycle::{HEARTBEAT_INTERVAL, Holder, Ledger, Lifecycle, Phase};
use crate::limiter::Limiter;
use crate::publish::{Published, Snapshot};
use crate::settings::Settings;
use crate::telemetry::access::{AccessLog, Pen};
use crate::telemetry::metrics::{Metrics, RuleMetrics, WorkerMetrics};
use crate::telemetry::traces::Traces;
use crate::upstream::balance::Random;
use crate::upstream::pool::Pools;

/// How often unused connections and old snapshots are looked for.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// What all workers share.
pub struct Shared {
    /// The settings.
    pub settings: Settings,
    /// The snapshot served.
    pub published: Arc<Published>,
    /// The phase, and what is in flight.
    pub lifecycle: Arc<Lifecycle>,
    /// All metrics.
    pub metrics: Arc<Metrics>,
    /// Where requests are logged, if they are.
    pub access_log: Option<AccessLog>,
    access: Arc<access::Plan>,
    /// Where spans of requests go, if anywhere.
    traces: Option<Traces>,
    /// Protocols that connections may change to where a rule names none.
    upgrades: Vec<Arc<str>>,
    /// What a head in HTTP/1 may take.
    heads: raw::Limits,
    /// What answers say of HTTP/3, for each listener that has it.
    alternatives: Box<[Option<HeaderValue>]>,
    loads: Box<[WorkerLoad]>,
    /// Requests in flight, where there is a limit of them.
    requests: Limiter,
}

/// What is told of each request, apart from metrics.
#[derive(Default)]
pub struct Outputs {
    /// Where requests are logged, if they are.
    pub access_log: Option<AccessLog>,
    /// Where spans of requests go, if anywhere.
    pub traces: Option<Traces>,
}

/// How many connections a worker has; on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct WorkerLoad(AtomicUsize);

impl Shared {
    /// What `workers` workers share.
    pub fn new(
        settings: Settings,
        workers: usize,
        published: Arc<Published>,
        lifecycle: Arc<Lifecycle>,
        metrics: Arc<Metrics>,
        outputs: Outputs,
    ) -> Arc<Self> {
        let Outputs { access_log, traces } = outputs;
        let loads = (0..workers).map(|_| WorkerLoad::default()).collect();
        let upgrades = settings.upgrades.iter().map(|protocol| protocol.as_str().into()).collect();
        let heads = connection::h1::heads(&settings.limits);
        let access = Arc::new(access::Plan::new(&settings));
        let alternatives = settings.listeners.iter().map(|listener| https::alternative(listener.http3?)).collect();
        Arc::new(Self {
            settings,
            published,
            lifecycle,
            metrics,
            access_log,
            access,
            traces,
            upgrades,
            heads,
            alternatives,
            loads,
            requests: Limiter::default(),
        })
    }

    /// Client connections of the process.
    pub fn connections(&self) -> usize {
        self.loads.iter().map(|load| load.0.load(Ordering::Relaxed)).sum()
    }

    /// The worker with the fewest connections, and how many it has.
    fn least_loaded(&self) -> (usize, usize) {
        let loads = self.loads.iter().map(|load| load.0.load(Ordering::Relaxed)).enumerate();
        loads.min_by_key(|&(_, load)| load).unwrap_or((0, 0))
    }
}

/// A worker's hold on a snapshot. Counted by the worker alone: taking one touches no line that other workers write.
#[derive(Clone)]
struct Held(Rc<HeldSnapshot>);

struct HeldSnapshot(Arc<Snapshot>);

impl Held {
    fn new(snapshot: Arc<Snapshot>) -> Self {
        Self(Rc::new(HeldSnapshot(snapshot)))
    }
}

impl std::ops::Deref for Held {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0.0
    }
}

/// One thread's half of the data plane.
pub struct Worker {
    /// Its number.
    pub index: usize,
    /// What it shares with the others.
    pub shared: Arc<Shared>,
    /// Its counters.
    pub metrics: Arc<WorkerMetrics>,
    unmatched: Arc<RuleMetrics>,
    /// Where it logs requests, if they are.
    access: Option<access::Desk>,
    /// Makes their spans, if there are any.
    tracer: Option<span::Tracer>,
    watchdog: Rc<Watchdog>,
    pools: Pools<RequestBody>,
    /// Connections for copies of requests.
    mirrors: Pools<RequestBody>,
    /// Copies of requests on their way.
    copies: Cell<usize>,
    /// Clients that are being turned away.
    goodbyes: Cell<usize>,
    /// Where bytes pass through on their way through a tunnel.
    scratch: RefCell<Box<[u8]>>,
    http2: h2::server::Builder,
    date: connection::Date,
    random: RefCell<Random>,
    snapshot: RefCell<Held>,
    generation: Cell<u64>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Worker {
    fn new(index: usize, shared: Arc<Shared>) -> Option<Rc<Self>> {
        let seed = random_seed();
        let snapshot = shared.published.load();
        Some(Rc::new(Self {
            index,
            metrics: shared.metrics.worker(index)?,
            unmatched: shared.metrics.unmatched(),
            access: shared.access_log.as_ref().map(|log| access::Desk::new(Arc::clone(&shared.access), log.pen())),
            tracer: shared.traces.clone().map(|traces| span::Tracer::new(traces, &shared.settings)),
            watchdog: Watchdog::new(),
            pools: Pools::new(index, seed),
            mirrors: Pools::for_mirrors(index, seed),
            copies: Cell::new(0),
            goodbyes: Cell::new(0),
            scratch: RefCell::new(vec![0; tunnel::BUFFER].into_boxed_slice()),
            http2: connection::h2::server(&shared.settings.limits),
            date: connection::Date::default(),
            random: RefCell::new(Random::new(seed.rotate_left(32))),
            generation: Cell::new(snapshot.generation),
            snapshot: RefCell::new(Held::new(snapshot)),
            shared,
        }))
    }

    /// The snapshot to serve a request from.
    fn snapshot(&self) -> Held {
        if self.generation.get() != self.shared.published.generation() {
            let snapshot = self.shared.published.load();
            self.generation.set(snapshot.generation);
            *self.snapshot.borrow_mut() = Held::new(snapshot);
        }
        self.snapshot.borrow().clone()
    }

    fn random(&self) -> u64 {
        self.random.borrow_mut().next_u64()
    }

    /// What it writes the access log with.
    fn pen(&self) -> Option<Rc<Pen>> {
        self.access.as_ref().map(|desk| Rc::clone(desk.pen()))
    }

    fn stage_limits(&self) -> StageLimits {
        let timeouts = &self.shared.settings.timeouts;
        StageLimits { header: timeouts.header.get(), keep_alive: timeouts.keep_alive.get() }
    }

    /// Has a client connection end some day.
    fn wear(&self, conn: &Conn) {
        let limits = &self.shared.settings.limits;
        if limits.max_requests_per_connection.is_none() && limits.max_connection_age.is_none() {
            return;
        }
        let age = limits.max_connection_age.map(|age| {
            let age = age.get();
            let tenth = u64::try_from(age.as_millis() / 10).unwrap_or(u64::MAX);
            age.saturating_sub(Duration::from_millis(self.random() % tenth.saturating_add(1)))
        });
        conn.wears_out(limits.max_requests_per_connection, age);
    }

    fn load(&self) -> &AtomicUsize {
        &self.shared.loads[self.index].0
    }

    fn connection_opened(&self) {
        self.load().fetch_add(1, Ordering::Relaxed);
    }

    fn connection_closed(&self) {
        self.load().fetch_sub(1, Ordering::Relaxed);
    }

    /// Everything that a worker does, until the process aborts.
    async fn run(self: Rc<Self>, listeners: Vec<Bound>, handover: Handover, inbox: Inbox) {
        let Inbox { accepted, asked, mut questions } = inbox;
        let watchdog = Rc::clone(&self.watchdog);
        let lifecycle = Arc::clone(&self.shared.lifecycle);
        let mut parts = JoinSet::new();
        parts.spawn_local(async move {
            watchdog.run(|| lifecycle.phase()).await;
        });
        if let Some(pen) = self.pen() {
            tokio::task::spawn_local(async move { pen.run().await });
        }
        for listener in listeners {
            parts.spawn_local(accept::accept(Rc::clone(&self), listener, handover.clone()));
        }
        parts.spawn_local(accept::take_over(Rc::clone(&self), accepted));
        parts.spawn_local(quic::take_over(Rc::clone(&self), asked));
        let mut phase = self.shared.lifecycle.subscribe();
        let mut maintenance = tokio::time::interval(MAINTENANCE);
        let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
        loop {
            tokio::select! {
                aborting = phase.wait_for(|phase| *phase >= Phase::Aborting) => {
                    drop(aborting);
                    return;
                }
                _ = maintenance.tick() => {
                    self.snapshot();
                    let now = self.watchdog.tick();
                    self.pools.maintain(now);
                    self.mirrors.maintain(now);
                }
                Some(ended) = parts.join_next() => go_down_with(ended),
                Some(question) = questions.recv() => {
                    // Whoever asked may have stopped waiting.
                    let _ = question.send(self.watchdog.holders());
                }
                _ = heartbeat.tick() => {
                    if let Some(worker) = self.shared.lifecycle.worker(self.index) {
                        worker.heartbeat();
                    }
                }
            }
        }
    }
}

/// The panic of one request is that request's, but a worker without one of its parts is none: it goes down as a whole.
fn go_down_with(part: Result<(), JoinError>) {
    if let Err(error) = part
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// A seed that differs between workers and runs; no secret.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0u8)
}

/// The running workers.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Workers {
    /// Starts a thread per worker on listeners that are bound already, and one for each that has HTTP/3.
    pub fn start(shared: &Arc<Shared>, listeners: &[Bound]) -> std::io::Result<Self> {
        let (handover, receivers) = accept::handover(shared.loads.len());
        let (over_quic, quic_receivers) = quic::handover(shared.loads.len());
        let mut threads = Vec::new();
        let mut workers = Vec::new();
        for (index, (accepted, asked)) in receivers.into_iter().zip(quic_receivers).enumerate() {
            let (ask, questions) = mpsc::unbounded_channel();
            workers.push(ask);
            let inbox = Inbox { accepted, asked, questions };
            let listeners = listeners.iter().map(Bound::try_clone).collect::<std::io::Result<Vec<_>>>()?;
            let (shared, handover) = (Arc::clone(shared), handover.clone());
            let run = move || run_worker(index, shared, listeners, handover, inbox);
            threads.push(std::thread::Builder::new().name(format!("worker-{index}")).spawn(run)?);
        }
        for listener in listeners {
            if let Some(bound) = listener.quic()? {
                threads.push(quic::start(shared, bound, Arc::clone(&over_quic))?);
            }
        }
        shared.lifecycle.set_ledger(Arc::new(Requests { workers }));
        Ok(Self { threads })
    }

    /// Waits until every worker has ended: they do once the process aborts.
    pub fn join(self) {
        for thread in self.threads {
            // A worker that panicked has been reported by its guard.
            let _ = thread.join();
        }
    }
}

/// Tells the lifecycle when the thread ends by a panic.
struct PanicGuard {
    index: usize,
    lifecycle: Arc<Lifecycle>,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.lifecycle.worker_panicked(self.index);
        }
    }
}

fn run_worker(index: usize, shared: Arc<Shared>, listeners: Vec<Bound>, handover: Handover, inbox: Inbox) {
    let _guard = PanicGuard { index, lifecycle: Arc::clone(&shared.lifecycle) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, worker = index, "a worker's runtime cannot be made");
            shared.lifecycle.worker_panicked(index);
            return;
        }
    };
    let busy = runtime.handle().metrics();
    shared.metrics.observe_busy(index, move || busy.worker_total_busy_duration(0));
    if let Some(worker) = Worker::new(index, shared) {
        // The log lives until its last lines are handed over.
        let (pen, _shared) = (worker.pen(), Arc::clone(&worker.shared));
        runtime.block_on(worker.run(listeners, handover, inbox));
        // What is cut is logged, too.
        drop(runtime);
        if let Some(pen) = pen {
            pen.finish();
        }
    }
}

/// What comes to a worker from other threads.
struct Inbox {
    accepted: mpsc::UnboundedReceiver<accept::Accepted>,
    asked: mpsc::UnboundedReceiver<quic::Asked>,
    questions: mpsc::UnboundedReceiver<Question>,
}

/// A question for a worker: what it has in flight.
type Question = std_mpsc::Sender<Vec<Holder>>;

/// How long workers have to answer before a drain goes on without them.
const ANSWER: Duration = Duration::from_millis(200);

/// Asks the workers what they have in flight.
struct Requests {
    workers: Vec<mpsc::UnboundedSender<Question>>,
}

impl Ledger for Requests {
    fn holders(&self) -> Vec<Holder> {
        let (sender, receiver) = std_mpsc::channel();
        let asked = self.workers.iter().filter(|worker| worker.send(sender.clone()).is_ok()).count();
        let deadline = Instant::now() + ANSWER;
        let answers =
            (0..asked).map_while(|_| receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok());
        answers.flatten().collect()
    }
}

#[cfg(test)]
mod tests;
