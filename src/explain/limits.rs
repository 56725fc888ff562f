//! What a rule takes at most, and what becomes of the rest.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ir::{Action, BackendTarget, Fragment, Rule, UpstreamLimits};
use crate::publish;
use crate::settings::{self, Reject};
use crate::telemetry::metrics::Refusal;

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitTold {
    /// Of what.
    pub of: String,
    /// How much.
    pub max: u64,
    /// What becomes of more.
    pub over: String,
}

/// Limits of the gateway that rules can have of their own, or add to.
#[derive(Clone, Debug)]
pub struct GatewayLimits {
    max_body_bytes: Option<u64>,
    in_flight: Option<(u32, Queue)>,
}

/// A queue before a limit.
#[derive(Clone, Copy, Debug)]
struct Queue {
    length: u32,
    wait: Duration,
    rejects_oldest: bool,
}

impl From<&settings::Limits> for GatewayLimits {
    fn from(limits: &settings::Limits) -> Self {
        let queue = Queue {
            length: limits.max_queued,
            wait: limits.queue_timeout.get(),
            rejects_oldest: limits.reject == Reject::Oldest,
        };
        Self { max_body_bytes: limits.max_body(), in_flight: limits.max_in_flight.map(|max| (max, queue)) }
    }
}

/// The limits of a rule that are set, the narrowest first.
pub(super) fn told(rule: &Rule, gateway: &GatewayLimits, fragment: Option<&Fragment>) -> Vec<LimitTold> {
    let body = rule.limits.max_body_bytes.or(gateway.max_body_bytes).filter(|max| *max != u64::MAX);
    let over = format!("413 {}", Refusal::BodyTooLarge);
    let body = body.map(|max| LimitTold { of: "bytes of a request's body".to_owned(), max, over });
    body.into_iter().chain(at_once(rule, gateway, fragment)).collect()
}

/// Those of requests at once, which are those of connections where TLS is passed through.
pub(super) fn at_once(rule: &Rule, gateway: &GatewayLimits, fragment: Option<&Fragment>) -> Vec<LimitTold> {
    let mut told = Vec::new();
    let rejects_oldest = rule.limits.rejects_oldest;
    if let Some(max) = rule.limits.max_in_flight {
        let queue = Queue { length: rule.limits.max_queued, wait: rule.limits.queue_timeout, rejects_oldest };
        told.push(limit("requests of the rule".to_owned(), max, queue, Refusal::RuleLimit));
    }
    let Action::Forward(backends) = &rule.action else { return told };
    let upstream = &rule.upstream;
    let queue = Queue { length: upstream.max_pending, wait: upstream.acquire_timeout, rejects_oldest };
    let limits = fragment.map(publish::cluster_limits).unwrap_or_default();
    for backend in backends {
        let BackendTarget::Cluster(id) = &backend.target else { continue };
        if let Some(max) = limits.get(id).copied().or(upstream.max_requests) {
            told.push(limit(format!("requests to {id}, of all rules"), max, queue, Refusal::BackendLimit));
        }
    }
    if upstream.max_connections != UpstreamLimits::default().max_connections {
        let queue = Queue { rejects_oldest: false, ..queue };
        told.push(limit(
            "connections to one endpoint".to_owned(),
            upstream.max_connections,
            queue,
            Refusal::BackendLimit,
        ));
    }
    if let Some((max, queue)) = gateway.in_flight {
        told.push(limit("requests of the gateway".to_owned(), max, queue, Refusal::RequestLimit));
    }
    told
}

fn limit(of: String, max: u32, queue: Queue, reason: Refusal) -> LimitTold {
    let Queue { length, wait, rejects_oldest } = queue;
    let answer = format!("503 {reason}");
    let over = match (length, rejects_oldest) {
        (0, _) => answer,
        (_, is_oldest) => {
            let patience = if wait.is_zero() { String::new() } else { format!(" up to {wait:?}") };
            let who = if is_oldest { ", of more the oldest gets " } else { ", others get " };
            format!("{length} wait{patience}{who}{answer}")
        }
    };
    LimitTold { of, max: max.into(), over }
}
