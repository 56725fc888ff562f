//! Attempts: choose a backend, an endpoint and a connection, send, and try again where that is safe.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use hyper::body::Body as _;

use super::Worker;
use super::access::Record;
use super::body::{Download, MAX_KEPT, RequestBody, ResponseBody, Upload};
use super::connection::Client;
use super::error::Failure;
use super::head;
use super::incoming::Incoming;
use super::mirror::Tee;
use super::tunnel::{Agreed, Silence};
use super::upgrade::Wanted;
use super::watchdog::Conn;
use crate::http1::spare;
use crate::ir::{self, RetryOn};
use crate::publish::{RuleRuntime, RuleState, Target};
use crate::routing::Found;
use crate::telemetry::metrics::{Refusal, RetryReason};
use crate::upstream::pool::{AcquireError, BodyError, EndpointPool, Link, LocalCluster, Received, SendError};
use crate::upstream::{Cluster, Load};

/// How many endpoints are tried when connecting fails, whatever the rule says: nothing was sent to the others.
const MAX_CONNECTS: usize = 3;

/// How many endpoints are connected to for a request that leave before that is done.
const MAX_LEFT: usize = 10;

/// How often a request is sent that endpoints refuse unprocessed.
const MAX_REFUSED: u32 = 3;

/// How often a request is sent that was too late for each of its connections. Servers that take few requests on one
/// leave often, and most of what is under way then is late.
const MAX_LATE: u32 = 10;

/// The longest wait before a request goes again to an endpoint that has just refused it.
const REFUSED_BACKOFF: Duration = Duration::from_millis(25);

/// A request ready to be sent.
pub(super) struct Outbound {
    /// Its head.
    pub parts: http::request::Parts,
    /// Its body.
    pub body: Incoming,
    /// Bytes that the body may have.
    pub max_body: Option<u64>,
    /// Copies that wait for the body.
    pub mirrors: Vec<Tee>,
    /// The protocols that its head asks the backend for.
    pub wanted: Option<Wanted>,
    /// When its client will have given up.
    pub deadline: Option<tokio::time::Instant>,
    /// Its line of the access log, if it gets one.
    pub record: Option<Rc<Record>>,
}

/// The backend of its rule that a request goes to: its position and its Cluster.
pub(super) fn pick<'a>(worker: &Worker, runtime: &'a RuleRuntime) -> Result<(usize, &'a Arc<Cluster>), Failure> {
    let Some(weights) = &runtime.weights else {
        return Err(Failure::because(Refusal::InvalidRule, "no backend has a weight"));
    };
    let pick = match runtime.targets.len() {
        1 => 0,
        _ => weights.pick(runtime.state.next_turn(worker.index)),
    };
    match runtime.targets.get(pick) {
        Some(Target::Cluster(cluster)) => Ok((pick, cluster)),
        Some(Target::Invalid { reason }) => Err(Failure::because(Refusal::InvalidBackend, reason)),
        None => Err(Failure::because(Refusal::Internal, "a backend is missing")),
    }
}

/// Sends a request to a Cluster of its rule.
pub(super) async fn forward(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    found: &Found<'_, RuleRuntime>,
    cluster: &Arc<Cluster>,
    outbound: Outbound,
) -> Result<Response<ResponseBody>, Failure> {
    let left = outbound.deadline.map(|at| at.saturating_duration_since(tokio::time::Instant::now()));
    let mut attempts = Attempts::new(worker, client, found, cluster, outbound);
    let timeout = match (found.rule.timeouts.request, left) {
        (Duration::ZERO, left) => left,
        (timeout, None) => Some(timeout),
        (timeout, Some(left)) => Some(timeout.min(left)),
    };
    match timeout {
        None => attempts.run().await,
        Some(timeout) => match tokio::time::timeout(timeout, attempts.run()).await {
            Ok(result) => result,
            Err(_) => Err(Failure::new(Refusal::RequestTimeout)),
        },
    }
}

/// The attempts of one request.
struct Attempts<'a> {
    worker: &'a Rc<Worker>,
    conn: Rc<Conn>,
    rule: &'a ir::Rule,
    state: &'a RuleState,
    cluster: &'a Arc<Cluster>,
    local: Rc<LocalCluster<RequestBody>>,
    head: http::request::Parts,
    /// Gone once something of it has been sent.
    body: Option<RequestBody>,
    /// Whether it may be sent again when an endpoint may have acted on it.
    may_repeat: bool,
    upload: Option<Rc<Upload>>,
    wanted: Option<Wanted>,
    /// What the backend is told of the client in front of the connection's bytes.
    told: Option<Bytes>,
    /// Endpoints that could not be connected to, or are passed over for the retry.
    tried: Vec<u64>,
    connects: usize,
    retries: u32,
    /// Times that it was sent and not processed.
    refused: u32,
    resent: bool,
    record: Option<Rc<Record>>,
}

impl Drop for Attempts<'_> {
    fn drop(&mut self) {
        spare::give(std::mem::take(&mut self.head.headers));
    }
}

/// What one attempt came to.
enum Attempt {
    Answered(Response<ResponseBody>),
    /// Try again, another endpoint if there is one.
    Again(RetryReason),
}

impl<'a> Attempts<'a> {
    fn new(
        worker: &'a Rc<Worker>,
        client: &Rc<Client>,
        found: &Found<'a, RuleRuntime>,
        cluster: &'a Arc<Cluster>,
        outbound: Outbound,
    ) -> Self {
        let rule: &'a ir::Rule = found.rule;
        let state: &'a RuleState = &found.payload.state;
        if let Some(retry) = &rule.retry {
            state.deposit_retry(worker.index, retry.budget_percent);
        }
        let Outbound { parts, body, max_body, mirrors, wanted, deadline: _, record } = outbound;
        let has_body = !body.is_end_stream();
        // Only what is idempotent can be sent twice (RFC 9110, section 9.2.2), and of that what has no body or a short one.
        let may_repeat = parts.method.is_idempotent();
        let is_short = || body.size_hint().exact().is_some_and(|bytes| bytes <= MAX_KEPT);
        let upload =
            has_body.then(|| Rc::new(if may_repeat && is_short() { Upload::keeping() } else { Upload::default() }));
        let body = match &upload {
            Some(upload) => RequestBody::streamed(body, Rc::clone(client), Rc::clone(upload), max_body, mirrors),
            None => RequestBody::empty(),
        };
        let local = worker.pools.cluster(cluster);
        if let Some(record) = &record {
            record.goes_to(&local, upload.as_ref());
        }
        Self {
            worker,
            conn: Rc::clone(client.conn()),
            rule,
            state,
            cluster,
            local,
            head: parts,
            body: Some(body),
            may_repeat,
            upload,
            wanted,
            told: cluster.id.proxy_protocol.map(|version| client.told(version)),
            tried: Vec::new(),
            connects: 0,
            retries: 0,
            refused: 0,
            resent: false,
            record,
        }
    }

    async fn run(&mut self) -> Result<Response<ResponseBody>, Failure> {
        loop {
            let choice = self.worker.pools.choose(&self.local, &self.rule.load_balancing, &self.tried);
            let Some(pool) = choice else {
                let reason = if self.tried.is_empty() { Refusal::NoEndpoints } else { Refusal::ConnectFailed };
                return Err(Failure::because(reason, &self.cluster.id));
            };
            let attempt = match self.rule.timeouts.backend_request {
                Duration::ZERO => self.attempt(&pool).await,
                timeout => match tokio::time::timeout(timeout, self.attempt(&pool)).await {
                    Ok(result) => result,
                    Err(_) => Err(Failure::because(Refusal::UpstreamTimeout, pool.endpoint.addr)),
                },
            };
            match attempt? {
                Attempt::Answered(response) => return Ok(response),
                Attempt::Again(reason) => self.cluster.metrics.retried(self.worker.index, reason),
            }
        }
    }

    async fn attempt(&mut self, pool: &Rc<EndpointPool<RequestBody>>) -> Result<Attempt, Failure> {
        if let Some(record) = &self.record {
            record.tries(pool);
        }
        let mut link = match pool.take_idle(self.worker.watchdog.now_ms(), self.told.as_ref()) {
            Some(link) => link,
            None => match self.connect(pool).await {
                Ok(link) => link,
                Err(error) => return self.connect_failed(pool, error),
            },
        };
        let by_load = matches!(self.rule.load_balancing, ir::LoadBalancing::LeastRequest);
        let load = by_load.then(|| Load::new(&pool.endpoint));
        let started = Instant::now();
        let reused = link.is_reused();
        if let Some(record) = &self.record {
            record.connected(reused);
        }
        let sent = self.conn.unless_expired(link.send(&mut self.head, &mut self.body)).await;
        match sent {
            None => Err(Failure::because(Refusal::IdleTimeout, pool.endpoint.addr)),
            Some(Ok(response)) => {
                let elapsed = started.elapsed();
                self.cluster.metrics.record(self.worker.index, elapsed);
                if let Some(record) = &self.record {
                    record.heard(started, elapsed);
                }
                self.conn.touch();
                self.answered(pool, link, load, response).await
            }
            // It was never begun, so any method may be tried again.
            Some(Err(SendError::Unsent(error))) => {
                if reused {
                    return Ok(Attempt::Again(RetryReason::StaleConnection));
                }
                // Accepted and closed at once: as good as refused.
                self.cluster.metrics.connect_failed(self.worker.index);
                self.connect_failed(pool, AcquireError::Connect(std::io::Error::other(error)))
            }
            Some(Err(SendError::Unprocessed { is_leaving, error })) => {
                drop((link, load));
                self.unprocessed(pool, is_leaving, &error).await
            }
            Some(Err(SendError::Invalid(error))) => Err(self.upload_failure().unwrap_or_else(|| {
                Failure::because(Refusal::UpstreamInvalid, format!("{}: {error}", pool.endpoint.addr))
            })),
            Some(Err(SendError::Broken(error))) => self.broken(pool, reused, &error),
        }
    }

    async fn connect(&mut self, pool: &EndpointPool<RequestBody>) -> Result<Link<RequestBody>, AcquireError> {
        self.connects += 1;
        let now = self.worker.watchdog.now_ms();
        pool.connect(&self.rule.upstream, self.rule.timeouts.connect, now, self.told.as_ref()).await
    }

    fn connect_failed(&mut self, pool: &EndpointPool<RequestBody>, error: AcquireError) -> Result<Attempt, Failure> {
        if matches!(error, AcquireError::Left) && self.connects < MAX_LEFT {
            // Nothing was sent, and those that are there now are other ones.
            return Ok(Attempt::Again(RetryReason::ConnectFailure));
        }
        let addr = pool.endpoint.addr;
        let failure = unconnected(addr, error);
        if !is_unreachable(&failure) {
            return Err(failure);
        }
        tracing::debug!(cluster = %self.cluster.id, detail = failure.detail, "connecting failed");
        self.tried.push(pool.endpoint.uid);
        if self.connects < max_connects(self.rule) && self.local.has_other(&self.tried) {
            return Ok(Attempt::Again(RetryReason::ConnectFailure));
        }
        Err(failure)
    }

    /// The connection broke after the request was begun and before an answer came.
    fn broken(
        &mut self,
        pool: &EndpointPool<RequestBody>,
        reused: bool,
        error: &BodyError,
    ) -> Result<Attempt, Failure> {
        if let Some(failure) = self.upload_failure() {
            return Err(failure);
        }
        let method = &self.head.method;
        // A connection that broke just as it was used again was most likely closed before anything was done.
        let by_default = !self.resent && (method.is_safe() || (reused && method.is_idempotent()));
        // The backend may have done what was asked: only what can be done twice is asked twice (RFC 9110, section 9.2.2).
        let wanted = self.rule.retry.as_ref().filter(|_| !by_default && method.is_idempotent());
        let by_rule = wanted.is_some_and(|r| r.on.contains(&RetryOn::Reset) && self.retries < r.attempts)
            && self.state.withdraw_retry(self.worker.index);
        if (by_default || by_rule) && self.rearm() {
            self.resent = true;
            self.retries += u32::from(by_rule);
            if reused {
                return Ok(Attempt::Again(RetryReason::StaleConnection));
            }
            self.pass_over(pool);
            return Ok(Attempt::Again(RetryReason::Reset));
        }
        Err(Failure::because(Refusal::UpstreamReset, format!("{}: {error}", pool.endpoint.addr)))
    }

    /// The endpoint did nothing with the request.
    async fn unprocessed(
        &mut self,
        pool: &EndpointPool<RequestBody>,
        is_leaving: bool,
        error: &BodyError,
    ) -> Result<Attempt, Failure> {
        if let Some(failure) = self.upload_failure() {
            return Err(failure);
        }
        self.refused += 1;
        let most = if is_leaving { MAX_LATE } else { MAX_REFUSED };
        if self.body.is_none() || self.refused >= most {
            return Err(Failure::because(Refusal::UpstreamReset, format!("{}: {error}", pool.endpoint.addr)));
        }
        if is_leaving {
            return Ok(Attempt::Again(RetryReason::Refused));
        }
        self.pass_over(pool);
        if self.tried.is_empty() && self.refused > 1 {
            tokio::time::sleep(self.jitter(REFUSED_BACKOFF)).await;
        }
        Ok(Attempt::Again(RetryReason::Refused))
    }

    /// The request's own body is why there is no answer.
    fn upload_failure(&self) -> Option<Failure> {
        self.upload.as_ref().and_then(|upload| upload.failure()).map(Failure::new)
    }

    /// A random part of `most`, in whole milliseconds.
    fn jitter(&self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.worker.random() % most.saturating_add(1))
    }

    /// Has the next attempt go to another endpoint, if there is one.
    fn pass_over(&mut self, pool: &EndpointPool<RequestBody>) {
        self.tried.push(pool.endpoint.uid);
        if !self.local.has_other(&self.tried) {
            self.tried.clear();
        }
    }

    /// Makes the request ready to be sent again; false when it may not be repeated.
    fn rearm(&mut self) -> bool {
        let body = match &self.upload {
            _ if !self.may_repeat => None,
            None => Some(RequestBody::empty()),
            Some(upload) => upload.again(),
        };
        let is_ready = body.is_some();
        if is_ready {
            self.body = body;
        }
        is_ready
    }

    async fn answered(
        &mut self,
        pool: &Rc<EndpointPool<RequestBody>>,
        link: Link<RequestBody>,
        load: Option<Load>,
        response: Response<Received>,
    ) -> Result<Attempt, Failure> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switched(pool, &link, load, response);
        }
        // Connections of HTTP/1.1 refuse such answers themselves.
        if let Received::H2(_) = response.body()
            && let Err(ambiguity) = head::judge_framing(response.headers())
        {
            return Err(Failure::because(Refusal::UpstreamInvalid, format!("{}: {ambiguity}", pool.endpoint.addr)));
        }
        if response.status().is_success() && self.wanted.as_ref().is_some_and(Wanted::is_extended) {
            // To its client it would say that there is a tunnel.
            let detail = format!("{}: {} instead of a 101", pool.endpoint.addr, response.status());
            return Err(Failure::because(Refusal::UpstreamInvalid, detail));
        }
        if let Some(backoff) = self.retry_on_status(response.status().as_u16()) {
            self.pass_over(pool);
            drop((response, link, load));
            tokio::time::sleep(backoff).await;
            return Ok(Attempt::Again(RetryReason::Status));
        }
        if let Some(upload) = &self.upload {
            upload.forget();
        }
        let (parts, incoming) = response.into_parts();
        let mut download = Download {
            incoming,
            link: Some(link),
            pool: Rc::clone(pool),
            limits: self.rule.upstream,
            upload: self.upload.take(),
            load,
        };
        // An answer that can have no body may still come with an end of its own.
        let is_bodiless = self.head.method == Method::HEAD
            || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let body = if is_bodiless || download.incoming.is_end_stream() {
            download.finish(self.worker.watchdog.now_ms());
            ResponseBody::full(Bytes::new())
        } else {
            ResponseBody::upstream(download)
        };
        Ok(Attempt::Answered(Response::from_parts(parts, body)))
    }

    /// The endpoint goes on in another protocol.
    fn switched(
        &self,
        pool: &EndpointPool<RequestBody>,
        link: &Link<RequestBody>,
        load: Option<Load>,
        response: Response<Received>,
    ) -> Result<Attempt, Failure> {
        let agreed = self.wanted.as_ref().and_then(|wanted| wanted.agreed(&response));
        let Some((protocol, backend)) = agreed.zip(link.switch()) else {
            // What follows would be bytes of no known meaning (RFC 9110, section 15.2.2).
            let detail = format!("{}: 101 to what nobody asked for, or without its proof", pool.endpoint.addr);
            return Err(Failure::because(Refusal::UpstreamInvalid, detail));
        };
        let silence = Silence { whole: self.rule.timeouts.tunnel, half: self.rule.timeouts.idle };
        let is_extended = self.wanted.as_ref().is_some_and(Wanted::is_extended);
        let body = ResponseBody::tunnel(Agreed { backend, protocol, load, silence, is_extended });
        Ok(Attempt::Answered(response.map(|_| body)))
    }

    /// How long to wait before the request is sent again because of its answer; `None` to pass the answer on.
    fn retry_on_status(&mut self, status: u16) -> Option<Duration> {
        let retry = self.rule.retry.as_ref()?;
        if self.retries >= retry.attempts
            || !self.head.method.is_idempotent()
            || !retry.on.contains(&RetryOn::Status(status))
        {
            return None;
        }
        if !self.state.withdraw_retry(self.worker.index) {
            self.cluster.metrics.retry_denied(self.worker.index);
            return None;
        }
        if !self.rearm() {
            return None;
        }
        let most = retry.backoff.saturating_mul(1 << self.retries.min(10));
        self.retries += 1;
        Some(self.jitter(most))
    }
}

/// What it means that there is no connection to the endpoint at `addr`.
pub(super) fn unconnected(addr: SocketAddr, error: AcquireError) -> Failure {
    match error {
        AcquireError::Left => Failure::because(Refusal::ConnectFailed, format!("{addr} has left")),
        AcquireError::Connect(error) => Failure::because(Refusal::ConnectFailed, format!("{addr}: {error}")),
        AcquireError::Tls(error) => Failure::because(Refusal::UpstreamTls, format!("{addr}: {error}")),
        AcquireError::ConnectTimeout => Failure::because(Refusal::ConnectTimeout, addr),
        AcquireError::Overloaded => Failure::because(Refusal::BackendLimit, addr),
        AcquireError::Exhausted(error) => Failure::because(Refusal::Exhausted, format!("{addr}: {error}")),
        AcquireError::AcquireTimeout => Failure::because(Refusal::PoolTimeout, addr),
    }
}

/// Whether the endpoint could not be connected to, so that another one may be tried.
pub(super) fn is_unreachable(failure: &Failure) -> bool {
    matches!(failure.reason, Refusal::ConnectFailed | Refusal::UpstreamTls | Refusal::ConnectTimeout)
}

/// To how many endpoints a connection is tried.
pub(super) fn max_connects(rule: &ir::Rule) -> usize {
    let wanted = rule.retry.as_ref().filter(|retry| retry.on.contains(&RetryOn::ConnectFailure));
    wanted.map_or(MAX_CONNECTS, |retry| MAX_CONNECTS.max(retry.attempts as usize + 1))
}
