//! Places in flight: what a request needs before it goes to a backend, and keeps to its end.
//!
//! From the narrowest limit to the widest, the rule's, the backend's, the gateway's, so that who waits for one rule takes
//! nothing away from others. Where there is no limit nothing is counted.

use std::time::Instant;

use tokio::time::Instant as Time;

use super::Worker;
use super::error::Failure;
use crate::ir;
use crate::limiter::{Limiter, Place, Queue};
use crate::publish::RuleRuntime;
use crate::settings::Reject;
use crate::telemetry::metrics::Refusal;
use crate::upstream::Cluster;

/// The places of one request.
#[derive(Debug, Default)]
pub(super) struct Places([Option<Place>; 3]);

impl Places {
    /// Has it have one more.
    pub(super) fn add(&mut self, place: Option<Place>) {
        if place.is_some()
            && let Some(free) = self.0.iter_mut().find(|kept| kept.is_none())
        {
            *free = place;
        }
    }
}

/// A place among the rule's requests, waited for if need be, until `deadline` if there is one. `None` without a limit.
pub(super) async fn rule(
    worker: &Worker,
    rule: &ir::Rule,
    runtime: &RuleRuntime,
    deadline: Option<Time>,
) -> Result<Option<Place>, Failure> {
    let (Some(limiter), Some(max)) = (&runtime.state.limiter, rule.limits.max_in_flight) else { return Ok(None) };
    let limits = &rule.limits;
    let queue = Queue { length: limits.max_queued, wait: limits.queue_timeout, displaces: limits.rejects_oldest };
    let limit = Limit { limiter, max, queue, reason: Refusal::RuleLimit };
    limit.enter(worker, deadline).await.map(Some)
}

/// The same among the Cluster's.
pub(super) async fn backend(
    worker: &Worker,
    rule: &ir::Rule,
    cluster: &Cluster,
    deadline: Option<Time>,
) -> Result<Option<Place>, Failure> {
    let Some(max) = cluster.max_requests() else { return Ok(None) };
    let (length, wait) = (rule.upstream.max_pending, rule.upstream.acquire_timeout);
    let queue = Queue { length, wait, displaces: rule.limits.rejects_oldest };
    let limit = Limit { limiter: &cluster.limiter, max, queue, reason: Refusal::BackendLimit };
    limit.enter(worker, deadline).await.map(Some)
}

/// The same among all of the gateway's.
pub(super) async fn gateway(worker: &Worker, deadline: Option<Time>) -> Result<Option<Place>, Failure> {
    let limits = &worker.shared.settings.limits;
    let Some(max) = limits.max_in_flight else { return Ok(None) };
    let queue = Queue {
        length: limits.max_queued,
        wait: limits.queue_timeout.get(),
        displaces: limits.reject == Reject::Oldest,
    };
    let limit = Limit { limiter: &worker.shared.requests, max, queue, reason: Refusal::RequestLimit };
    limit.enter(worker, deadline).await.map(Some)
}

/// A limit to get past.
struct Limit<'a> {
    limiter: &'a Limiter,
    max: u32,
    queue: Queue,
    reason: Refusal,
}

impl Limit<'_> {
    async fn enter(self, worker: &Worker, deadline: Option<Time>) -> Result<Place, Failure> {
        match self.limiter.try_enter(self.max) {
            Some(place) => Ok(place),
            // In a box, for requests that do not wait are not to carry what waiting takes.
            None => Box::pin(self.wait(worker, deadline)).await,
        }
    }

    /// Waits as long as the queue and the client have time for.
    async fn wait(self, worker: &Worker, deadline: Option<Time>) -> Result<Place, Failure> {
        let refused = |refused| Failure::because(self.reason, refused);
        let place = self.limiter.join(self.max, self.queue).map_err(refused)?.place();
        let _queued = Queued::new(worker);
        let place = match deadline {
            None => place.await,
            Some(at) => {
                let in_time = tokio::time::timeout_at(at, place).await;
                in_time.map_err(|_| Failure::new(Refusal::RequestTimeout))?
            }
        };
        place.map_err(refused)
    }
}

/// A request in a queue, also one whose client leaves.
struct Queued<'a> {
    worker: &'a Worker,
    since: Instant,
}

impl<'a> Queued<'a> {
    fn new(worker: &'a Worker) -> Self {
        worker.metrics.queued();
        Self { worker, since: Instant::now() }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.worker.metrics.unqueued(self.since.elapsed());
    }
}
