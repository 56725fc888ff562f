//! Requests per rule.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Method;
use prometheus::proto::MetricType;

use super::cells::{Block, Buckets, Counts, PerWorker};
use super::family::{Family, Source, Spec, Sum};
use super::labels::{GrpcStatus, Refusal, is_server_error, method_code, method_code_key, passed_key, passed_result};
use super::weak::WeakMap;

/// Requests of one rule under one Selector.
pub struct RuleMetrics {
    labels: Labels,
    buckets: Arc<Buckets>,
    workers: PerWorker<Cells>,
}

/// Selector, Route, rule.
type Labels = [Arc<str>; 3];

struct Cells {
    counts: Counts,
    durations: Block,
    /// Calls of gRPC by their status, where there were any.
    calls: OnceLock<Block>,
}

/// What a rule has counted so far, for those who look beside the scrapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleTotals {
    /// Requests answered.
    pub requests: u64,
    /// Those of them that were answered with 500 to 599.
    pub server_errors: u64,
    /// Requests by duration: one count per bucket, the last one above all bounds.
    pub buckets: Vec<u64>,
}

/// All rules.
pub(super) struct Rules {
    workers: usize,
    buckets: Arc<Buckets>,
    handles: WeakMap<Labels, RuleMetrics>,
}

static SPECS: [Spec; 4] = [
    Spec {
        name: "lockgate_http_requests_total",
        help: "Requests answered, by the rule that took them.",
        kind: MetricType::COUNTER,
        labels: &["selector", "route", "rule", "method", "code"],
    },
    Spec {
        name: "lockgate_http_request_duration_seconds",
        help: "Time from a request's head to the end of its answer.",
        kind: MetricType::HISTOGRAM,
        labels: &["selector", "route", "rule"],
    },
    Spec {
        name: "lockgate_passthrough_connections_total",
        help: "TLS connections of clients that were joined with one to a backend, or why they were not.",
        kind: MetricType::COUNTER,
        labels: &["selector", "route", "rule", "result"],
    },
    Spec {
        name: "lockgate_grpc_responses_total",
        help: "Calls of gRPC by the status they ended with, whoever gave it, and by the rule that took them.",
        kind: MetricType::COUNTER,
        labels: &["selector", "route", "rule", "grpc_status"],
    },
];

// === impl RuleMetrics ===

impl RuleMetrics {
    /// Records one finished request; `worker` is the worker that runs this. A code outside 100 to 599 counts as `other`.
    pub fn record(&self, worker: usize, method: &Method, code: u16, duration: Duration) {
        let Some(cells) = self.workers.get(worker, || Cells::new(&self.buckets)) else { return };
        cells.counts.add(method_code_key(method, code));
        self.buckets.observe(&cells.durations, 0, duration);
    }

    /// Records one connection that was to be passed through; `refused` is why it was not.
    pub fn passed(&self, worker: usize, refused: Option<Refusal>) {
        let Some(cells) = self.workers.get(worker, || Cells::new(&self.buckets)) else { return };
        cells.counts.add(passed_key(refused));
    }

    /// Records how a call of gRPC ended; `worker` is the worker that runs this.
    pub fn called(&self, worker: usize, status: GrpcStatus) {
        let Some(cells) = self.workers.get(worker, || Cells::new(&self.buckets)) else { return };
        cells.calls.get_or_init(|| Block::new(GrpcStatus::ALL.len())).add(status as usize, 1);
    }

    /// Adds what this rule has counted so far.
    pub fn add_to(&self, totals: &mut RuleTotals) {
        let mut sum = Sum { counts: std::mem::take(&mut totals.buckets), ..Sum::default() };
        for cells in self.workers.used() {
            self.buckets.sum_up(&cells.durations, 0, &mut sum);
            cells.counts.for_each(|key, count| {
                if passed_result(key).is_none() {
                    totals.requests += count;
                    totals.server_errors += if is_server_error(key) { count } else { 0 };
                }
            });
        }
        totals.buckets = sum.counts;
    }

    fn label_values(&self) -> [&str; 3] {
        let [selector, route, rule] = &self.labels;
        [selector, route, rule]
    }

    fn gather(&self, [requests, durations, passed, calls]: &mut [Family; 4]) {
        let mut counts = std::collections::BTreeMap::<u64, u64>::new();
        let mut sum = Sum::default();
        for cells in self.workers.used() {
            cells.counts.for_each(|key, count| *counts.entry(key).or_default() += count);
            self.buckets.sum_up(&cells.durations, 0, &mut sum);
        }
        let [selector, route, rule] = self.label_values();
        for (result, count) in counts.iter().filter_map(|(key, count)| Some((passed_result(*key)?, count))) {
            passed.push(&[selector, route, rule, result], *count as f64);
        }
        counts.retain(|key, _| passed_result(*key).is_none());
        for (key, count) in &counts {
            let (method, code) = method_code(*key);
            requests.push(&[selector, route, rule, method, &code], *count as f64);
        }
        if !counts.is_empty() {
            durations.push_histogram(&[selector, route, rule], &self.buckets, &sum);
        }
        for status in GrpcStatus::ALL {
            let of = |cells: &Cells| cells.calls.get().map_or(0, |calls| calls.get(*status as usize));
            let count: u64 = self.workers.used().map(of).sum();
            if count > 0 {
                calls.push(&[selector, route, rule, status.as_str()], count as f64);
            }
        }
    }
}

impl Cells {
    fn new(buckets: &Buckets) -> Self {
        Self { counts: Counts::default(), durations: Block::new(buckets.words()), calls: OnceLock::new() }
    }
}

// === impl Rules ===

impl Rules {
    pub(super) fn new(workers: usize, buckets: Arc<Buckets>) -> Self {
        Self { workers, buckets, handles: WeakMap::new() }
    }

    /// What all of them have counted so far.
    pub(super) fn totals(&self) -> RuleTotals {
        let mut totals = RuleTotals::default();
        self.handles.all().iter().for_each(|rule| rule.add_to(&mut totals));
        totals
    }

    pub(super) fn get(&self, selector: &str, route: &str, rule: &str) -> Arc<RuleMetrics> {
        self.handles.get([selector.into(), route.into(), rule.into()], |labels| RuleMetrics {
            labels: labels.clone(),
            buckets: Arc::clone(&self.buckets),
            workers: PerWorker::new(self.workers),
        })
    }
}

impl Source for Rules {
    fn specs() -> &'static [Spec] {
        &SPECS
    }

    fn gather(&self) -> Vec<Family> {
        let mut families = SPECS.each_ref().map(Spec::family);
        for rule in self.handles.all() {
            rule.gather(&mut families);
        }
        families.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_in_use_by_one_worker_is_small() {
        let buckets = Buckets::default();
        let handle = size_of::<RuleMetrics>() + size_of::<[usize; 2]>();
        let slots = 2 * size_of::<OnceLock<Box<Cells>>>();
        let used = size_of::<Cells>() + buckets.words().div_ceil(8) * 64;
        assert!(handle + slots + used < 512, "{handle} + {slots} + {used}");
    }
}
