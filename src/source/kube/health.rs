//! How far each watch is, and since when nothing was heard on it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::KINDS;
use crate::source::index::Kind;

/// State of all watches of a source, to be read by metrics and readiness.
#[derive(Debug)]
pub struct Health {
    start: Instant,
    synced: [AtomicBool; KINDS.len()],
    pulses: Mutex<Vec<Weak<Pulse>>>,
}

impl Default for Health {
    fn default() -> Self {
        Self { start: Instant::now(), synced: Default::default(), pulses: Mutex::default() }
    }
}

impl Health {
    /// Whether every object of a kind has been listed once.
    pub fn synced(&self, kind: Kind) -> bool {
        self.synced[kind as usize].load(Ordering::Acquire)
    }

    /// The kinds that have not been listed yet.
    pub fn pending(&self) -> Vec<Kind> {
        KINDS.into_iter().filter(|&kind| !self.synced(kind)).collect()
    }

    /// How long ago the API server last proved that a watch of a kind is alive; of several watches, the worst. A healthy
    /// idle watch goes up to a good minute, the interval of bookmarks.
    pub fn staleness(&self, kind: Kind) -> Duration {
        let now = self.start.elapsed();
        let pulses = self.pulses.lock();
        let alive = pulses.iter().filter_map(Weak::upgrade).filter(|pulse| pulse.kind == kind);
        let oldest = alive.map(|pulse| pulse.last.load(Ordering::Relaxed)).min();
        // Of a kind that nothing is watched of, nothing is stale.
        oldest.map_or(Duration::ZERO, |oldest| now.saturating_sub(Duration::from_millis(oldest)))
    }

    pub(super) fn set_synced(&self, kind: Kind) {
        self.synced[kind as usize].store(true, Ordering::Release);
    }

    /// A new watch, heard of now.
    pub(super) fn pulse(&self, kind: Kind) -> Arc<Pulse> {
        let pulse = Arc::new(Pulse {
            kind,
            start: self.start,
            last: AtomicU64::new(0),
            begun: AtomicU64::new(u64::MAX),
            healthy: AtomicBool::new(true),
        });
        pulse.beat();
        let mut pulses = self.pulses.lock();
        pulses.retain(|pulse| pulse.strong_count() > 0);
        pulses.push(Arc::downgrade(&pulse));
        drop(pulses);
        pulse
    }
}

/// One watch.
#[derive(Debug)]
pub(super) struct Pulse {
    kind: Kind,
    start: Instant,
    /// Milliseconds from `start` to the last sign of life.
    last: AtomicU64,
    /// Milliseconds from `start` to the beginning of the last watch that the API server granted.
    begun: AtomicU64,
    healthy: AtomicBool,
}

impl Pulse {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The API server granted a watch, or a list: a watch after that is never too soon.
    pub(super) fn begun(&self, watch: bool) {
        self.begun.store(if watch { self.now() } else { u64::MAX }, Ordering::Relaxed);
    }

    /// How long ago the watch before this one began; long if there is none.
    pub(super) fn since_begun(&self) -> Duration {
        match self.begun.load(Ordering::Relaxed) {
            u64::MAX => Duration::MAX,
            begun => Duration::from_millis(self.now().saturating_sub(begun)),
        }
    }

    /// The API server gave a sign of life.
    pub(super) fn beat(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// Notes whether the watch works; returns whether it did before.
    pub(super) fn set_healthy(&self, healthy: bool) -> bool {
        self.healthy.swap(healthy, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn staleness_is_that_of_the_worst_watch_of_a_kind() {
        let health = Health::default();
        let (a, _b) = (health.pulse(Kind::Route), health.pulse(Kind::Route));
        let c = health.pulse(Kind::Service);
        tokio::time::advance(Duration::from_secs(90)).await;
        a.beat();
        c.beat();
        assert_eq!(health.staleness(Kind::Route), Duration::from_secs(90));
        assert_eq!(health.staleness(Kind::Service), Duration::ZERO);
    }

    #[tokio::test]
    async fn every_kind_is_pending_until_it_is_listed() {
        let health = Health::default();
        assert_eq!(health.pending(), KINDS);
        health.set_synced(Kind::Selector);
        assert!(!health.pending().contains(&Kind::Selector));
        assert!(health.synced(Kind::Selector));
    }
}
