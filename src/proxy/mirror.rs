//! Copies of requests for mirrors, which no request ever waits for.
//!
//! A copy is a task of its own with its own connections, so that it takes none from requests. Everything about it is
//! bounded: how many there are, how long they take, how much of a body they keep. What goes beyond is counted and dropped.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Body;

use super::Worker;
use super::body::RequestBody;
use crate::ir::{LoadBalancing, UpstreamLimits};
use crate::publish::Mirror;
use crate::telemetry::metrics::MirrorOutcome;
use crate::upstream::Cluster;
use crate::upstream::pool::{AcquireError, Received, SendError};

/// Copies that one worker has at a time.
const MAX_COPIES: usize = 128;
/// Bytes of a body that are kept for a copy. It is sent whole or not at all.
const MAX_BODY: usize = 256 << 10;
/// Bytes of an answer that are read to keep its connection; a longer one is cut.
const MAX_ANSWER: usize = 256 << 10;
/// From a copy's start to the end of its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// To connect to an endpoint.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections of mirrors to one endpoint: none of them is waited for.
const LIMITS: UpstreamLimits = UpstreamLimits {
    max_requests: None,
    max_connections: 64,
    max_pending: 0,
    acquire_timeout: Duration::from_secs(1),
    idle_timeout: Duration::from_secs(10),
    max_lifetime: Duration::from_hours(1),
};

/// Begins the copies of a request whose head is ready. One without a body is on its way when this returns; the others
/// wait for the body to pass.
pub(super) fn copies(
    worker: &Rc<Worker>,
    mirrors: &[Mirror],
    parts: &http::request::Parts,
    body: &impl Body,
) -> Vec<Tee> {
    let mut tees = Vec::new();
    for mirror in mirrors.iter().filter(|mirror| takes(mirror, || worker.random())) {
        let outcome = |outcome| mirror.cluster.metrics.mirrored(worker.index, outcome);
        if body.size_hint().lower() > MAX_BODY as u64 {
            outcome(MirrorOutcome::BodyTooLarge);
            continue;
        }
        let Some(place) = Place::take(worker) else {
            outcome(MirrorOutcome::Overloaded);
            continue;
        };
        let copy = Copy { place, cluster: Arc::clone(&mirror.cluster), parts: parts.clone() };
        if body.is_end_stream() {
            copy.send(Bytes::new());
        } else {
            tees.push(Tee { kept: Vec::new(), copy: Some(copy) });
        }
    }
    tees
}

/// Whether a request is among the share that is copied.
fn takes(mirror: &Mirror, random: impl FnOnce() -> u64) -> bool {
    if mirror.numerator >= mirror.denominator {
        return true;
    }
    let below_denominator = (u128::from(random()) * u128::from(mirror.denominator)) >> 64;
    below_denominator < u128::from(mirror.numerator)
}

/// A place among a worker's copies.
struct Place(Rc<Worker>);

impl Place {
    fn take(worker: &Rc<Worker>) -> Option<Self> {
        let taken = worker.copies.get();
        if taken >= MAX_COPIES {
            return None;
        }
        worker.copies.set(taken + 1);
        Some(Self(Rc::clone(worker)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.copies.set(self.0.copies.get() - 1);
    }
}

/// A copy that has not been sent.
struct Copy {
    place: Place,
    cluster: Arc<Cluster>,
    parts: http::request::Parts,
}

impl Copy {
    fn ended(&self, outcome: MirrorOutcome) {
        self.cluster.metrics.mirrored(self.place.0.index, outcome);
    }

    fn send(self, body: Bytes) {
        tokio::task::spawn_local(async move {
            let Self { place, cluster, parts } = self;
            let sent = tokio::time::timeout(TIMEOUT, deliver(&place.0, &cluster, parts, body));
            let outcome = sent.await.unwrap_or(MirrorOutcome::Timeout);
            cluster.metrics.mirrored(place.0.index, outcome);
        });
    }
}

/// Keeps what passes of a request's body until it is whole. Dropped before, the copy is given up.
pub(super) struct Tee {
    kept: Vec<u8>,
    copy: Option<Copy>,
}

impl Tee {
    /// Keeps a part of the body.
    pub(super) fn push(&mut self, data: &[u8]) {
        if self.copy.is_none() {
            return;
        }
        if self.kept.len() + data.len() > MAX_BODY {
            self.kept = Vec::new();
            if let Some(copy) = self.copy.take() {
                copy.ended(MirrorOutcome::BodyTooLarge);
            }
            return;
        }
        self.kept.extend_from_slice(data);
    }

    /// Sends the copy: the body is whole.
    pub(super) fn finish(mut self) {
        if let Some(copy) = self.copy.take() {
            copy.send(std::mem::take(&mut self.kept).into());
        }
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        if let Some(copy) = self.copy.take() {
            copy.ended(MirrorOutcome::Incomplete);
        }
    }
}

/// Sends a copy to one endpoint and reads the answer for nobody.
async fn deliver(worker: &Worker, cluster: &Arc<Cluster>, parts: http::request::Parts, body: Bytes) -> MirrorOutcome {
    let local = worker.mirrors.cluster(cluster);
    let Some(pool) = worker.mirrors.choose(&local, &LoadBalancing::RoundRobin, &[]) else {
        return MirrorOutcome::NoEndpoints;
    };
    let (mut head, mut body) = (parts, Some(RequestBody::full(body)));
    loop {
        let now = worker.watchdog.now_ms();
        let mut link = match pool.take_idle(now, None) {
            Some(link) => link,
            None => match pool.connect(&LIMITS, CONNECT_TIMEOUT, now, None).await {
                Ok(link) => link,
                Err(AcquireError::Overloaded | AcquireError::AcquireTimeout) => return MirrorOutcome::Overloaded,
                Err(
                    AcquireError::Connect(_)
                    | AcquireError::Tls(_)
                    | AcquireError::ConnectTimeout
                    | AcquireError::Left
                    | AcquireError::Exhausted(_),
                ) => return MirrorOutcome::Failed,
            },
        };
        match link.send(&mut head, &mut body).await {
            Ok(response) => {
                if discard(response).await {
                    pool.give_back(link, worker.watchdog.now_ms(), &LIMITS);
                }
                return MirrorOutcome::Answered;
            }
            // Closed while nobody used it, and nothing was sent.
            Err(SendError::Unsent(_)) if link.is_reused() => {}
            Err(_) => return MirrorOutcome::Failed,
        }
    }
}

/// Reads an answer to its end; false if it has none that is worth waiting for.
async fn discard(response: Response<Received>) -> bool {
    if response.status().is_informational() {
        return false;
    }
    let mut body = response.into_body();
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > MAX_ANSWER {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests;
