//! What of a rule outlives tables: its counters, its limit of requests in flight, its turns.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;

use crate::ir::{self, Action, ObjectName, RuleName};
use crate::limiter::Limiter;
use crate::telemetry::metrics::{Metrics, RuleMetrics};

/// The lasting part of a rule.
pub struct RuleState {
    /// Its series.
    pub metrics: Arc<RuleMetrics>,
    /// Its requests in flight, where there is a limit of them.
    pub limiter: Option<Limiter>,
    /// One per worker, for rules that have more than one backend or retry.
    workers: Box<[PerWorker]>,
}

/// What one worker alone writes; on a cache line of its own, lest workers slow each other down.
#[derive(Debug)]
#[repr(align(64))]
struct PerWorker {
    turn: AtomicU64,
    /// Thousandths of a retry.
    budget: AtomicU64,
}

/// Thousandths of a retry that are saved up at most, and that a rule starts with.
const MAX_BUDGET: u64 = 10_000;
/// Thousandths that a retry costs.
const RETRY: u64 = 1_000;

impl RuleState {
    /// This worker's next turn among weighted backends.
    pub fn next_turn(&self, worker: usize) -> u64 {
        let Some(PerWorker { turn, .. }) = self.workers.get(worker) else { return 0 };
        let now = turn.load(Ordering::Relaxed);
        turn.store(now.wrapping_add(1), Ordering::Relaxed);
        now
    }

    /// Notes a request: it earns `percent` hundredths of a retry.
    pub fn deposit_retry(&self, worker: usize, percent: u32) {
        if let Some(PerWorker { budget, .. }) = self.workers.get(worker) {
            let saved = budget.load(Ordering::Relaxed) + u64::from(percent) * RETRY / 100;
            budget.store(saved.min(MAX_BUDGET), Ordering::Relaxed);
        }
    }

    /// Takes one retry from the budget; false when there is none left.
    pub fn withdraw_retry(&self, worker: usize) -> bool {
        let Some(PerWorker { budget, .. }) = self.workers.get(worker) else { return false };
        let Some(left) = budget.load(Ordering::Relaxed).checked_sub(RETRY) else { return false };
        budget.store(left, Ordering::Relaxed);
        true
    }
}

/// The states of all rules that a table refers to.
pub(super) struct RuleStates {
    metrics: Arc<Metrics>,
    states: HashMap<(ObjectName, ObjectName, RuleName), Weak<RuleState>, RandomState>,
    /// The map is swept when it has grown to this size.
    sweep_at: usize,
}

impl RuleStates {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, states: HashMap::default(), sweep_at: 1024 }
    }

    /// The state of a rule: the one that it has in a table still in use, else a new one.
    pub(super) fn get(&mut self, selector: &ir::Selector, rule: &ir::Rule) -> Arc<RuleState> {
        if self.states.len() >= self.sweep_at {
            self.states.retain(|_, state| state.strong_count() > 0);
            self.sweep_at = (self.states.len() * 2).max(1024);
        }
        let key = (selector.origin.object.clone(), rule.origin.object.clone(), Arc::clone(&rule.name));
        let known = self.states.get(&key).and_then(Weak::upgrade);
        let per_worker =
            rule.retry.is_some() || matches!(&rule.action, Action::Forward(backends) if backends.len() > 1);
        // Another limit finds what is in flight counted already.
        let is_limited = rule.limits.max_in_flight.is_some();
        let same = |s: &Arc<RuleState>| s.limiter.is_some() == is_limited && s.workers.is_empty() != per_worker;
        if let Some(state) = known.filter(same) {
            return state;
        }
        let (selector, route, name) = &key;
        let state = Arc::new(RuleState {
            metrics: self.metrics.rule(&selector.to_string(), &route.to_string(), name),
            limiter: is_limited.then(Limiter::default),
            workers: if per_worker {
                // Each worker starts elsewhere in the sequence, lest they all send their first requests to one backend.
                let first = |worker| PerWorker { turn: AtomicU64::new(worker), budget: AtomicU64::new(MAX_BUDGET) };
                (0..self.metrics.workers() as u64).map(first).collect()
            } else {
                Box::default()
            },
        });
        self.states.insert(key, Arc::downgrade(&state));
        state
    }
}
