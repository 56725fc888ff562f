//! Leader election by a `coordination.k8s.io` Lease: one replica writes status, the others stand by.
//!
//! The algorithm of client-go. Clocks are never compared: a record counts as expired once it has been *seen unchanged*
//! for its duration, by the monotonic clock of the one who looks. Every write carries the `resourceVersion` of the record
//! it was decided on, so of two candidates one gets a conflict.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::with_causes;
use crate::api::DEFAULT_CLASS;

/// How long a record that does not change protects its holder.
const DURATION: Duration = Duration::from_secs(15);
/// How long after its last renewal the holder still trusts it: less than [`DURATION`], which others count from the
/// moment they see that renewal.
const TRUST: Duration = Duration::from_secs(10);
/// How often the holder renews.
const RENEW: Duration = Duration::from_secs(5);
/// How often the others look, and the holder tries again after a failure; up to a fifth is added at random.
const RETRY: Duration = Duration::from_secs(2);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(4);

/// Which Lease, and who asks for it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of the Lease: the pod's own.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Who asks; unique among the processes that ever ask.
    pub identity: String,
}

impl Settings {
    /// The Lease of a class, asked for by a pod. A random part keeps two lives of one pod name apart.
    pub fn new(namespace: &str, class: &str, pod: &str) -> Self {
        let class = if class.is_empty() { DEFAULT_CLASS } else { class };
        Self {
            namespace: namespace.to_owned(),
            name: format!("lockgate-{class}"),
            identity: format!("{pod}_{:016x}", fastrand::u64(..)),
        }
    }
}

/// Holds the Lease whenever it can and says so in `leading`, until `shutdown` ends; then gives the Lease back.
///
/// `leading` turns false before anyone else can hold the Lease. Never fails: without the API server nobody leads.
pub async fn hold(
    client: Client,
    settings: Settings,
    leading: watch::Sender<bool>,
    shutdown: impl Future<Output = ()>,
) {
    let mut candidate = Candidate::new(client, settings);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let pause = tokio::select! {
            () = shutdown.as_mut() => break,
            pause = candidate.round(&leading) => pause,
        };
        tokio::select! {
            () = shutdown.as_mut() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    leading.send_replace(false);
    candidate.release().await;
}

/// The record as last seen.
#[derive(Clone, Debug)]
struct Seen {
    lease: Lease,
    /// When this very record was first seen.
    since: Instant,
}

impl Seen {
    fn spec(&self) -> Option<&LeaseSpec> {
        self.lease.spec.as_ref()
    }

    fn holder(&self) -> Option<&str> {
        self.spec()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// How long the record still protects its holder.
    fn remaining(&self, now: Instant) -> Duration {
        let seconds = self.spec().and_then(|spec| spec.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
        let duration = seconds.map_or(DURATION, Duration::from_secs);
        duration.saturating_sub(now.saturating_duration_since(self.since))
    }
}

/// What the record lets a candidate do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Take or renew it.
    Write,
    /// Somebody else holds it.
    StandBy,
}

fn decide(seen: &Seen, identity: &str, now: Instant) -> Step {
    match seen.holder() {
        Some(holder) if holder != identity && !seen.remaining(now).is_zero() => Step::StandBy,
        _ => Step::Write,
    }
}

/// The record that makes `identity` the holder, after the one seen.
fn claim(seen: Option<&LeaseSpec>, identity: &str, now: Timestamp) -> LeaseSpec {
    let ours = seen.is_some_and(|spec| spec.holder_identity.as_deref() == Some(identity));
    let transitions = seen.and_then(|spec| spec.lease_transitions).unwrap_or(0);
    let acquired = seen.filter(|_| ours).and_then(|spec| spec.acquire_time.clone());
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        acquire_time: Some(acquired.unwrap_or(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        lease_transitions: Some(if ours || seen.is_none() { transitions } else { transitions.saturating_add(1) }),
        ..LeaseSpec::default()
    }
}

struct Candidate {
    api: Api<Lease>,
    settings: Settings,
    seen: Option<Seen>,
    /// Until when the last successful renewal may be trusted.
    trusted_until: Option<Instant>,
    /// The last failure, so that a lasting one is logged once.
    failure: Option<Failure>,
}

impl Candidate {
    fn new(client: Client, settings: Settings) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        Self { api, settings, seen: None, trusted_until: None, failure: None }
    }

    /// One look at the record and, where it lets us, one write. Returns how long to wait for the next.
    async fn round(&mut self, leading: &watch::Sender<bool>) -> Duration {
        let started = Instant::now();
        // A request that hangs must not keep us leading beyond our trust.
        let limit = self.trusted_until.map_or(REQUEST, |until| REQUEST.min(until.saturating_duration_since(started)));
        let outcome = match tokio::time::timeout(limit, self.attempt()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure { message: "no answer in time".to_owned(), denied: false }),
        };
        match outcome {
            Ok(true) => {
                self.trusted_until = Some(started + TRUST);
                self.recovered();
                self.announce(leading, true);
                RENEW
            }
            Ok(false) => {
                self.trusted_until = None;
                self.recovered();
                self.announce(leading, false);
                RETRY.mul_f64(1.0 + 0.2 * fastrand::f64())
            }
            Err(failure) => {
                self.failed(failure);
                let now = Instant::now();
                let left = self.trusted_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
                if left.is_zero() {
                    self.trusted_until = None;
                    self.announce(leading, false);
                    RETRY.mul_f64(1.0 + 0.2 * fastrand::f64())
                } else {
                    left.min(RETRY)
                }
            }
        }
    }

    /// Whether we hold the Lease now.
    async fn attempt(&mut self) -> Result<bool, Failure> {
        // The holder writes on what it knows; only a conflict makes it look again.
        let renewing = self.trusted_until.is_some();
        if !renewing {
            self.look().await?;
        }
        let Some(seen) = &self.seen else { return self.create().await };
        if decide(seen, &self.settings.identity, Instant::now()) == Step::StandBy {
            return Ok(false);
        }
        let mut lease = seen.lease.clone();
        lease.spec = Some(claim(seen.spec(), &self.settings.identity, Timestamp::now()));
        match self.api.replace(&self.settings.name, &PostParams::default(), &lease).await {
            Ok(written) => {
                self.remember(written);
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {
                self.look().await?;
                let ours = self.seen.as_ref().and_then(Seen::holder) == Some(&self.settings.identity);
                if ours && renewing {
                    // The record changed under us and still names us: written by the attempt before, whose answer was lost.
                    return Err(Failure {
                        message: "the Lease changed while it was renewed".to_owned(),
                        denied: false,
                    });
                }
                Ok(false)
            }
            Err(error) => Err(self.failure_of("update", &error)),
        }
    }

    async fn look(&mut self) -> Result<(), Failure> {
        match self.api.get_opt(&self.settings.name).await {
            Ok(Some(lease)) => self.remember(lease),
            Ok(None) => self.seen = None,
            Err(error) => return Err(self.failure_of("get", &error)),
        }
        Ok(())
    }

    fn remember(&mut self, lease: Lease) {
        let unchanged = self
            .seen
            .as_ref()
            .is_some_and(|seen| seen.lease.metadata.uid == lease.metadata.uid && seen.lease.spec == lease.spec);
        let since = match &self.seen {
            Some(seen) if unchanged => seen.since,
            _ => Instant::now(),
        };
        self.seen = Some(Seen { lease, since });
    }

    async fn create(&mut self) -> Result<bool, Failure> {
        let lease = Lease {
            metadata: ObjectMeta { name: Some(self.settings.name.clone()), ..ObjectMeta::default() },
            spec: Some(claim(None, &self.settings.identity, Timestamp::now())),
        };
        match self.api.create(&PostParams::default(), &lease).await {
            Ok(lease) => {
                self.remember(lease);
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(self.failure_of("create", &error)),
        }
    }

    /// Gives the Lease back, so that the next candidate need not wait for it to expire.
    async fn release(&mut self) {
        let Some(seen) = self.seen.take().filter(|seen| seen.holder() == Some(&self.settings.identity)) else { return };
        let mut lease = seen.lease;
        let now = MicroTime(Timestamp::now());
        lease.spec = Some(LeaseSpec {
            holder_identity: None,
            lease_duration_seconds: Some(1),
            renew_time: Some(now.clone()),
            acquire_time: Some(now),
            ..lease.spec.unwrap_or_default()
        });
        let params = PostParams::default();
        let write = self.api.replace(&self.settings.name, &params, &lease);
        match tokio::time::timeout(REQUEST, write).await {
            Ok(Ok(_)) => info!(lease = %self.settings.name, "gave the Lease back"),
            Ok(Err(error)) => debug!(lease = %self.settings.name, %error, "could not give the Lease back; it expires"),
            Err(_) => debug!(lease = %self.settings.name, "no answer while giving the Lease back; it expires"),
        }
    }

    fn announce(&self, leading: &watch::Sender<bool>, now: bool) {
        let changed = leading.send_if_modified(|leading| std::mem::replace(leading, now) != now);
        if changed && now {
            info!(lease = %self.settings.name, identity = %self.settings.identity, "holds the Lease; writes status");
        } else if changed {
            warn!(lease = %self.settings.name, "lost the Lease; status is left to its next holder, traffic goes on");
        }
    }

    fn failure_of(&self, verb: &str, error: &kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) if status.is_forbidden() => Failure {
                message: format!(
                    "missing permission: {verb} leases.coordination.k8s.io in namespace {}: {}",
                    self.settings.namespace, status.message
                ),
                denied: true,
            },
            error => Failure { message: format!("{verb}: {}", with_causes(error)), denied: false },
        }
    }

    fn failed(&mut self, failure: Failure) {
        if self.failure.as_ref() == Some(&failure) {
            return;
        }
        let lease = &self.settings.name;
        if failure.denied {
            warn!(%lease, error = %failure.message, "cannot hold the Lease; no status is written");
        } else {
            debug!(%lease, error = %failure.message, "could not renew or read the Lease");
        }
        self.failure = Some(failure);
    }

    fn recovered(&mut self) {
        if self.failure.take().is_some_and(|failure| failure.denied) {
            info!(lease = %self.settings.name, "the Lease can be held again");
        }
    }
}

/// Why an attempt came to nothing.
#[derive(PartialEq, Eq)]
struct Failure {
    message: String,
    /// Waiting does not help.
    denied: bool,
}

#[cfg(test)]
mod tests;
