//! Policies: a rule's block replaces the Selector's block of the same key as a whole.

use std::sync::Arc;

use crate::api::reason::UNSUPPORTED_VALUE;
use crate::api::{self, LoadBalancingType, Policy, Reject, RouteRule};
use crate::ir::{Limits, LoadBalancing, Retry, RetryOn, Timeouts, UpstreamLimits};

use super::report::{Field, Report};

/// The policies of a rule.
pub(super) struct Policies {
    pub(super) timeouts: Timeouts,
    pub(super) retry: Option<Retry>,
    /// The reason why the rule cannot be served where its way of balancing is none.
    pub(super) load_balancing: Result<LoadBalancing, &'static str>,
    pub(super) limits: Limits,
    pub(super) upstream: UpstreamLimits,
    pub(super) upgrades: Option<Vec<Arc<str>>>,
}

/// The policies of a rule, the Selector's merged in. Problems of inherited blocks name the Selector's field.
pub(super) fn policies(
    rule: &RouteRule,
    inherited: Option<&Policy>,
    field: &Field<'_>,
    report: &mut Report,
) -> Policies {
    const SELECTOR: Field<'static> = Field::named("Selector's spec.policy");
    let of = |own: bool| if own { *field } else { SELECTOR };
    let retry = rule.retry.as_deref().or_else(|| inherited?.retry.as_ref());
    let balancing = rule.load_balancing.as_ref().or_else(|| inherited?.load_balancing.as_ref());
    let upgrades = rule.upgrades.as_ref().or_else(|| inherited?.upgrades.as_ref());
    let upstream = rule.upstream.as_deref().or_else(|| inherited?.upstream.as_ref());
    Policies {
        timeouts: timeouts(rule.timeouts.as_deref().or_else(|| inherited?.timeouts.as_ref())),
        retry: retry.map(|block| retries(block, &of(rule.retry.is_some()), report)),
        load_balancing: balancing.map_or(Ok(LoadBalancing::default()), |block| {
            load_balancing(block, &of(rule.load_balancing.is_some()), report)
        }),
        limits: limits(rule.limits.as_deref().or_else(|| inherited?.limits.as_ref())),
        upstream: upstream.map_or_else(UpstreamLimits::default, upstream_limits),
        upgrades: upgrades.map(|protocols| protocols.iter().map(|protocol| protocol.as_str().into()).collect()),
    }
}

/// What is wrong with a Selector's policies, for its own verdict.
pub(super) fn check(policy: &Policy, field: &Field<'_>, report: &mut Report) {
    if let Some(block) = &policy.retry {
        retries(block, field, report);
    }
    if let Some(block) = &policy.load_balancing {
        // What it means for rules is told in their Routes' verdicts.
        let _ = load_balancing(block, field, report);
    }
}

fn timeouts(block: Option<&api::Timeouts>) -> Timeouts {
    block.map_or_else(Timeouts::default, |block| Timeouts {
        request: block.request.get(),
        backend_request: block.backend_request.get(),
        connect: block.connect.get(),
        idle: block.idle.get(),
        tunnel: block.tunnel.get(),
    })
}

/// A cause that is not known is left out: what remains is still right.
fn retries(block: &api::Retry, field: &Field<'_>, report: &mut Report) -> Retry {
    let field = field.member("retry");
    let mut on = Vec::with_capacity(block.when.len());
    for (index, cause) in block.when.iter().enumerate() {
        if let Some(cause) = retry_cause(cause) {
            on.push(cause);
        } else {
            let what = format!("{cause:?} is not supported; connect-failure, reset and statuses are");
            report.add(UNSUPPORTED_VALUE, &field.entry("when", index), what);
        }
    }
    Retry { attempts: block.attempts, on, backoff: block.backoff.get(), budget_percent: block.budget_percent }
}

fn retry_cause(cause: &str) -> Option<RetryOn> {
    match cause {
        "connect-failure" => Some(RetryOn::ConnectFailure),
        "reset" => Some(RetryOn::Reset),
        status => status.parse().ok().filter(|status| (400..600).contains(status)).map(RetryOn::Status),
    }
}

/// Requests that count on a fixed endpoint are not spread over all of them: the rule is broken instead.
fn load_balancing(
    block: &api::LoadBalancing,
    field: &Field<'_>,
    report: &mut Report,
) -> Result<LoadBalancing, &'static str> {
    match block.r#type {
        LoadBalancingType::RoundRobin => Ok(LoadBalancing::RoundRobin),
        LoadBalancingType::LeastRequest => Ok(LoadBalancing::LeastRequest),
        LoadBalancingType::Random => Ok(LoadBalancing::Random),
        LoadBalancingType::ConsistentHash => {
            let what = "ConsistentHash is not supported; RoundRobin, LeastRequest and Random are";
            report.add(UNSUPPORTED_VALUE, &field.member("loadBalancing").member("type"), what);
            Err(UNSUPPORTED_VALUE)
        }
    }
}

fn limits(block: Option<&api::Limits>) -> Limits {
    block.map_or_else(Limits::default, |block| Limits {
        // Written as 0, "no limit" also lifts the gateway's own, which an absent one leaves alone.
        max_body_bytes: block.max_body_bytes.map(|size| if size.get() == 0 { u64::MAX } else { size.get() }),
        max_in_flight: block.max_in_flight,
        max_queued: block.max_queued,
        queue_timeout: block.queue_timeout.get(),
        rejects_oldest: block.reject == Reject::Oldest,
    })
}

fn upstream_limits(block: &api::Upstream) -> UpstreamLimits {
    UpstreamLimits {
        max_requests: block.max_requests,
        max_connections: block.max_connections,
        max_pending: block.max_pending,
        acquire_timeout: block.acquire_timeout.get(),
        idle_timeout: block.idle_timeout.get(),
        max_lifetime: block.max_lifetime.get(),
    }
}
