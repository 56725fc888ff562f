//! What moves the lifecycle.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Command, Holder, Lifecycle, Phase, Signal};

/// No new connection for this long means that nobody sends new ones any more.
const QUIET: Duration = Duration::from_secs(1);

/// How often the requests in flight are counted while they are waited for.
const COUNT_INTERVAL: Duration = Duration::from_millis(10);
/// How often it is told what a drain waits for.
const TELL_INTERVAL: Duration = Duration::from_secs(5);
/// Of what is cut, so many are told one by one: a line each of a hundred thousand tunnels would be lost in the log's queue,
/// and everything else with them.
const MAX_TOLD: usize = 1000;

/// How long workers may take to cut what is left. Part of [`super::MARGIN`].
const ABORT_LIMIT: Duration = Duration::from_secs(1);

/// Moves one [`Lifecycle`] to its end.
pub struct Driver {
    lifecycle: Arc<Lifecycle>,
    commands: mpsc::UnboundedReceiver<Command>,
}

/// What ended the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A signal.
    Signal(Signal),
    /// A worker panicked.
    WorkerPanicked,
}

/// How the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What ended it.
    pub cause: Cause,
    /// What was cut. The exit code does not depend on it.
    pub forced: u64,
}

/// The signals, and how often one of them came.
struct Signals {
    receiver: mpsc::Receiver<Signal>,
    interrupts: u32,
}

// === impl Cause ===

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signal(Signal::Terminate) => "SIGTERM",
            Self::Signal(Signal::Interrupt) => "SIGINT",
            Self::WorkerPanicked => "a worker panicked",
        })
    }
}

// === impl Driver ===

impl Driver {
    pub(super) fn new(lifecycle: Arc<Lifecycle>, commands: mpsc::UnboundedReceiver<Command>) -> Self {
        Self { lifecycle, commands }
    }

    /// Waits for a signal (or a worker's panic), drains, and returns when the process has [`Phase::Stopped`].
    pub async fn run(mut self, signals: mpsc::Receiver<Signal>) -> Outcome {
        let mut signals = Signals { receiver: signals, interrupts: 0 };
        let cause = tokio::select! {
            biased;
            signal = signals.next() => Cause::Signal(signal),
            Some(Command::WorkerPanicked) = self.commands.recv() => Cause::WorkerPanicked,
        };
        let lifecycle = &self.lifecycle;
        tracing::info!(%cause, phase = %lifecycle.phase(), "the process ends");
        // Nothing was served yet, so nothing can be lost.
        if lifecycle.step(Phase::Stopped, |state| state.phase == Phase::Starting).is_ok() {
            return Outcome { cause, forced: 0 };
        }
        tokio::select! {
            biased;
            () = signals.second_interrupt() => tracing::warn!("interrupted again, the drain ends at once"),
            () = lifecycle.drain_out() => {}
        }
        let forced = lifecycle.abort().await;
        lifecycle.move_to(Phase::Stopped);
        Outcome { cause, forced }
    }
}

// === impl Lifecycle ===

impl Lifecycle {
    /// `LameDuck` and `Draining`.
    async fn drain_out(&self) {
        if !self.settings.strict() {
            self.lame_duck().await;
        }
        self.move_to(Phase::Draining);
        let begin = Instant::now();
        let deadline = after(begin, self.settings.timeout);
        let mut told = begin;
        while self.in_flight() > 0 && Instant::now() < deadline {
            if told.elapsed() >= TELL_INTERVAL {
                told = Instant::now();
                self.log_waiting();
            }
            sleep(COUNT_INTERVAL).await;
        }
    }

    /// Tells what the drain waits for.
    fn log_waiting(&self) {
        let in_flight = self.in_flight();
        if let Some(oldest) = self.holders().into_iter().max_by_key(|held| held.age) {
            let Holder { route, protocol, peer, age, received, sent } = oldest;
            let age_seconds = age.as_secs_f64();
            tracing::info!(
                in_flight,
                route,
                %protocol,
                peer,
                age_seconds,
                received,
                sent,
                "the drain waits, most of all for this"
            );
        }
    }

    async fn lame_duck(&self) {
        self.move_to(Phase::LameDuck);
        // An operator's drain may have begun long ago: its time counts.
        let since = self.state.lock().since;
        let earliest = after(since, self.settings.delay);
        let latest = after(since, self.settings.max_delay);
        loop {
            let quiet = self.last_connection().map_or(earliest, |last| last + QUIET);
            let end = earliest.max(quiet).min(latest);
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// Tells what is left, has it cut, and returns how much that was.
    async fn abort(&self) -> u64 {
        let left = self.in_flight();
        if left > 0 {
            self.forced.fetch_add(left, Relaxed);
            self.log_holders(left);
        }
        self.move_to(Phase::Aborting);
        let deadline = Instant::now() + ABORT_LIMIT;
        while self.in_flight() > 0 && Instant::now() < deadline {
            sleep(COUNT_INTERVAL).await;
        }
        left
    }

    fn log_holders(&self, left: u64) {
        tracing::warn!(left, "the drain's time is over, what is in flight is cut");
        let mut holders = self.holders();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.age));
        for Holder { route, protocol, peer, age, received, sent } in holders.iter().take(MAX_TOLD) {
            tracing::warn!(route, %protocol, peer, age_seconds = age.as_secs_f64(), received, sent, "cut");
        }
        if let Some(others) = holders.len().checked_sub(MAX_TOLD).filter(|others| *others > 0) {
            tracing::warn!(others, "cut, younger than those");
        }
    }

    /// Moves on; from here nothing can be cancelled.
    fn move_to(&self, to: Phase) {
        let moved = self.step(to, |state| {
            state.held = false;
            state.phase <= to
        });
        if let Err(error) = moved {
            tracing::error!(%error, "phase out of order");
        }
    }
}

// === impl Signals ===

impl Signals {
    /// The next signal; never returns when there can be none any more.
    async fn next(&mut self) -> Signal {
        let Some(signal) = self.receiver.recv().await else { return std::future::pending().await };
        self.interrupts += u32::from(signal == Signal::Interrupt);
        signal
    }

    /// Swallows every other signal.
    async fn second_interrupt(&mut self) {
        while self.interrupts < 2 {
            self.next().await;
        }
    }
}

/// As far in the future as a clock can tell, if it is further.
fn after(start: Instant, duration: Duration) -> Instant {
    start.checked_add(duration).unwrap_or_else(|| start + Duration::from_hours(24 * 365))
}
