//! The life of the process: its phases, who may still be served, and when it is over.
//!
//! ```text
//! Starting ─▶ Serving ─▶ LameDuck ─▶ Draining ─▶ Aborting ─▶ Stopped
//!                 ◀── cancel ──┘
//! ```
//!
//! A [`Lifecycle`] is asked and told by everybody; its one [`Driver`] moves it. Time is tokio's, so that tests pause it.

mod driver;
mod phase;
mod readiness;
mod settings;
mod signals;
#[cfg(test)]
mod tests;
mod worker;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub use self::driver::{Cause, Driver, Outcome};
pub use self::phase::{InvalidPhase, Phase};
pub use self::readiness::{Latch, Readiness};
pub use self::settings::{DrainSettings, InvalidDrain, MARGIN};
pub use self::signals::{Signal, watch_signals};
pub use self::worker::{RequestGuard, Worker};

/// A worker whose heartbeat is older than this is stuck.
pub const HEARTBEAT_LIMIT: Duration = Duration::from_secs(10);

/// How often a worker shows that it is alive.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Something that holds the drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The rule that it belongs to, for people.
    pub route: String,
    /// Its protocol, such as `http/1.1` or `websocket`.
    pub protocol: Cow<'static, str>,
    /// The other end: an address, with the port where that is known.
    pub peer: String,
    /// How long it has been running.
    pub age: Duration,
    /// Bytes that came from the client.
    pub received: u64,
    /// Bytes that went to the client.
    pub sent: u64,
}

/// Knows what holds the drain. Implemented by what serves requests; asked once, before the rest is cut.
pub trait Ledger: Send + Sync {
    /// Everything in flight.
    fn holders(&self) -> Vec<Holder>;
}

/// The state of the process. Shared by all; see the module for its phases.
pub struct Lifecycle {
    /// A copy of the phase for the request path.
    phase: AtomicU8,
    state: Mutex<State>,
    watch: watch::Sender<Phase>,
    commands: mpsc::UnboundedSender<Command>,
    settings: DrainSettings,
    workers: Box<[Worker]>,
    readiness: Readiness,
    ledger: RwLock<Option<Arc<dyn Ledger>>>,
    forced: AtomicU64,
}

/// What changes with the phase, under one lock.
struct State {
    phase: Phase,
    /// When the phase was entered.
    since: Instant,
    /// When clients were first asked to leave.
    leaving: Option<Instant>,
    /// The drain was asked for and not signalled: it can be cancelled.
    held: bool,
}

/// What the driver is told besides signals.
enum Command {
    WorkerPanicked,
}

/// What `/readyz` or `/livez` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// 200 or 503.
    pub ok: bool,
    /// One line per reason, or `ok`.
    pub text: String,
}

// === impl Lifecycle ===

impl Lifecycle {
    /// Makes the state of a process with that many workers, and what drives it.
    pub fn new(workers: usize, settings: DrainSettings) -> (Arc<Self>, Driver) {
        let (commands, receiver) = mpsc::unbounded_channel();
        let born = Instant::now();
        let lifecycle = Arc::new(Self {
            phase: AtomicU8::new(Phase::Starting as u8),
            state: Mutex::new(State { phase: Phase::Starting, since: born, leaving: None, held: false }),
            watch: watch::Sender::new(Phase::Starting),
            commands,
            settings,
            workers: (0..workers).map(|_| Worker::new(born)).collect(),
            readiness: Readiness::default(),
            ledger: RwLock::new(None),
            forced: AtomicU64::new(0),
        });
        let driver = Driver::new(Arc::clone(&lifecycle), receiver);
        (lifecycle, driver)
    }

    /// The phase; one relaxed load, for the request path.
    pub fn phase(&self) -> Phase {
        Phase::from_u8(self.phase.load(Relaxed))
    }

    /// The phase and its changes. A slow reader sees the last one only.
    pub fn subscribe(&self) -> watch::Receiver<Phase> {
        self.watch.subscribe()
    }

    /// The settings of the drain.
    pub fn settings(&self) -> &DrainSettings {
        &self.settings
    }

    /// The latches that hold readiness back.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// One worker's part; `None` for an index past the workers.
    pub fn worker(&self, worker: usize) -> Option<&Worker> {
        self.workers.get(worker)
    }

    /// Requests, tunnels and streams in flight, over all workers.
    pub fn in_flight(&self) -> u64 {
        self.workers.iter().map(Worker::in_flight).sum()
    }

    /// Requests that were cut by a drain.
    pub fn forced(&self) -> u64 {
        self.forced.load(Relaxed)
    }

    /// How long clients have been asked to leave; zero while they are not.
    pub fn leaving_for(&self) -> Duration {
        self.state.lock().leaving.map_or(Duration::ZERO, |leaving| leaving.elapsed())
    }

    /// Names what will be asked for everything in flight before it is cut.
    pub fn set_ledger(&self, ledger: Arc<dyn Ledger>) {
        *self.ledger.write() = Some(ledger);
    }

    /// Everything in flight, as far as it can be told.
    pub fn holders(&self) -> Vec<Holder> {
        let ledger = self.ledger.read().clone();
        ledger.map(|ledger| ledger.holders()).unwrap_or_default()
    }

    /// Everything is listed, compiled and bound: from now on requests are served. Fails when it is no longer starting.
    pub fn serving(&self) -> Result<(), InvalidPhase> {
        self.step(Phase::Serving, |state| state.phase == Phase::Starting)
    }

    /// Begins a drain that stays in [`Phase::LameDuck`] until it is cancelled or a signal comes. Asked again it
    /// changes nothing. Fails before serving, and after a signal.
    pub fn drain(&self) -> Result<(), InvalidPhase> {
        self.step(Phase::LameDuck, |state| {
            let begins = state.phase == Phase::Serving;
            state.held |= begins;
            begins || state.phase == Phase::LameDuck && state.held
        })
    }

    /// Takes a drain back that was begun by [`Lifecycle::drain`]. Fails when there is none, or a signal made it final.
    pub fn cancel_drain(&self) -> Result<(), InvalidPhase> {
        self.step(Phase::Serving, |state| {
            let cancels = state.phase == Phase::LameDuck && state.held;
            state.held &= !cancels;
            cancels
        })
    }

    /// A worker is gone: what it served is lost, and the others drain.
    pub fn worker_panicked(&self, worker: usize) {
        tracing::error!(worker, "a worker panicked, the process drains");
        // Without a driver the process is past its end anyway.
        let _ = self.commands.send(Command::WorkerPanicked);
    }

    /// Whether new traffic should be sent here.
    pub fn ready(&self) -> Health {
        let (phase, since) = {
            let state = self.state.lock();
            (state.phase, state.since)
        };
        let open = match phase {
            Phase::Serving => true,
            Phase::LameDuck => since.elapsed() < self.settings.readiness_delay,
            _ => false,
        };
        let pending = self.readiness.pending();
        if open && pending.is_empty() {
            return Health::ok();
        }
        let phase = (!open).then(|| format!("phase {phase}"));
        let pending = pending.into_iter().map(|name| format!("pending: {name}"));
        Health { ok: false, text: phase.into_iter().chain(pending).collect::<Vec<_>>().join("\n") }
    }

    /// Whether the process works: every worker has shown itself lately.
    pub fn live(&self) -> Health {
        let (phase, since) = {
            let state = self.state.lock();
            (state.phase, state.since)
        };
        if !matches!(phase, Phase::Serving | Phase::LameDuck | Phase::Draining) {
            return Health::ok();
        }
        let now = Instant::now();
        let mut stuck = Vec::new();
        for (index, worker) in self.workers.iter().enumerate() {
            // A worker may begin to beat when it begins to serve.
            let last = worker.last_heartbeat().unwrap_or(since);
            let age = now.saturating_duration_since(last);
            if age > HEARTBEAT_LIMIT {
                stuck.push(format!("worker {index} has not moved for {} s", age.as_secs()));
            }
        }
        if stuck.is_empty() { Health::ok() } else { Health { ok: false, text: stuck.join("\n") } }
    }

    /// Moves to a phase if `allowed` says so.
    fn step(&self, to: Phase, allowed: impl FnOnce(&mut State) -> bool) -> Result<(), InvalidPhase> {
        let mut state = self.state.lock();
        if !allowed(&mut state) {
            return Err(InvalidPhase { from: state.phase, to });
        }
        if state.phase != to {
            tracing::info!(from = %state.phase, to = %to, in_flight = self.in_flight(), "phase");
            state.phase = to;
            state.since = Instant::now();
            state.leaving = state.leaving.or(Some(state.since)).filter(|_| to.asks_to_leave());
            self.phase.store(to as u8, Relaxed);
            self.watch.send_replace(to);
        }
        Ok(())
    }

    /// The last time that any worker took a new connection.
    fn last_connection(&self) -> Option<Instant> {
        self.workers.iter().filter_map(Worker::last_connection).max()
    }
}

impl Health {
    fn ok() -> Self {
        Self { ok: true, text: "ok".to_owned() }
    }
}
