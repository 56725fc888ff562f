//! What a rule does with a request that it takes.

use std::fmt::Write as _;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::filter::{self, FilterTold};
use super::limits::LimitTold;
use super::{Kind, Outcome, refusal};
use crate::ir::{self, Backend, BackendTarget, ClusterId, Rule};
use crate::proxy::preview::{self, Refused, Taken};
use crate::telemetry::metrics::Refusal;

/// Most endpoints that are told of one backend.
const MAX_ENDPOINTS: usize = 16;
/// Most bytes of a body that are told.
const MAX_BODY: usize = 1024;

/// The endpoints of Clusters, as far as they are known.
pub trait Endpoints {
    /// All endpoints of a Cluster; `None` where they are not known, as those of a DNS name before it is resolved.
    fn of(&self, cluster: &ClusterId) -> Option<Vec<EndpointTold>>;
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointTold {
    /// Where requests go.
    pub address: SocketAddr,
    /// Whether it gets new requests.
    pub takes_requests: bool,
    /// Such as `draining`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What a rule does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// `forward`, `passthrough`, `redirect`, `directResponse`, `preflight` or `invalid`.
    pub kind: String,
    /// The filters that apply, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilterTold>,
    /// The backends in the order of the rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendTold>,
    /// How one of a backend's endpoints is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancing: Option<String>,
    /// Its limits, as far as they are set, the narrowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitTold>,
    /// The target that a backend gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The `Host` that a backend gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Where a redirect leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The body of a direct response, cut where it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// A backend of a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTold {
    /// Its weight.
    pub weight: u32,
    /// Its share of the rule's requests, in percent.
    pub percent: f64,
    /// The Cluster: `namespace/service:port` or `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The host that its certificate must be for, where it is spoken to over TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// What its share is answered with where that is known to be an error, such as `503 no-endpoints`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The filters that apply to its requests alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilterTold>,
    /// How many endpoints get requests; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<usize>,
    /// Its endpoints, the first ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<EndpointTold>,
    /// How many endpoints were left out.
    #[serde(default)]
    pub more_endpoints: usize,
}

/// What a rule does with a request, and the result.
pub(super) fn act(rule: &Rule, taken: Taken<'_>, endpoints: &dyn Endpoints) -> (Action, Outcome) {
    let filters = filter::told(&rule.filters);
    let kind = match rule.action {
        ir::Action::Forward(_) => "forward",
        ir::Action::Redirect(_) => "redirect",
        ir::Action::DirectResponse(_) => "directResponse",
        ir::Action::Invalid { .. } => "invalid",
    };
    let mut action = Action { kind: kind.to_owned(), filters, ..Action::default() };
    let result = match &rule.action {
        ir::Action::Forward(backends) => {
            action.load_balancing = Some(format!("{:?}", rule.load_balancing));
            action.backends = told(backends, endpoints);
            match preview::upstream(rule, taken) {
                Ok((target, host)) => {
                    (action.target, action.host) = (Some(target), Some(host));
                    forwarded(&action.backends)
                }
                Err(refused) => refusal(&refused),
            }
        }
        ir::Action::Redirect(redirect) => match preview::redirect(rule, redirect, taken) {
            Ok(location) => {
                let result = answered(Kind::Redirect, redirect.status, &format!("redirected to {location}"));
                action.location = Some(location);
                result
            }
            Err(refused) => refusal(&refused),
        },
        ir::Action::DirectResponse(direct) => {
            action.body = (!direct.body.is_empty()).then(|| cut(&direct.body));
            answered(Kind::DirectResponse, direct.status, "the rule answers by itself")
        }
        ir::Action::Invalid { reason } => {
            refusal(&Refused::because(Refusal::InvalidRule, format!("the rule is broken ({reason})")))
        }
    };
    (action, result)
}

/// What a rule does with a TLS connection that is passed through.
pub(super) fn pass(rule: &Rule, endpoints: &dyn Endpoints) -> (Action, Outcome) {
    let mut action = Action { kind: "passthrough".to_owned(), ..Action::default() };
    let ir::Action::Forward(backends) = &rule.action else {
        return (action, closed(Refusal::InvalidRule, "the rule is broken"));
    };
    action.load_balancing = Some(format!("{:?}", rule.load_balancing));
    action.backends = told(backends, endpoints);
    for backend in &mut action.backends {
        // Nobody could read a status.
        let refused = backend.refused.take();
        backend.refused =
            refused.map(|what| what.split_once(' ').map_or(what.clone(), |(_, reason)| reason.to_owned()));
    }
    let shares = action.backends.iter().filter(|backend| backend.weight > 0);
    let (good, bad): (Vec<_>, Vec<_>) = shares.partition(|backend| backend.refused.is_none());
    if good.is_empty() {
        let reason = match bad.first() {
            None => Refusal::InvalidRule,
            Some(backend) if backend.cluster.is_some() => Refusal::NoEndpoints,
            Some(_) => Refusal::InvalidBackend,
        };
        return (action, closed(reason, "no backend can take it"));
    }
    let names: Vec<&str> = good.iter().filter_map(|backend| backend.cluster.as_deref()).collect();
    let mut summary = format!("TLS is passed through to {}, which answers", names.join(", "));
    for backend in bad {
        let _ = write!(summary, "; {} % closed: {}", backend.percent, backend.refused.as_deref().unwrap_or_default());
    }
    (action, Outcome::new(Kind::Forward, None, summary))
}

/// The result of a TLS connection that no backend gets.
pub(super) fn closed(reason: Refusal, why: &str) -> Outcome {
    let summary = format!("the TLS connection is closed: {why}");
    Outcome { reason: Some(reason.as_str().to_owned()), ..Outcome::new(Kind::Refused, None, summary) }
}

/// What a rule does with a preflight that its filter answers: none of its backends hears of it.
pub(super) fn of_preflight(rule: &Rule) -> Action {
    Action { kind: "preflight".to_owned(), filters: filter::told(&rule.filters), ..Action::default() }
}

/// The result of a preflight that a rule's filter answers.
pub(super) fn preflight(status: u16, is_allowed: bool) -> Outcome {
    let allowed = if is_allowed { "which lets the origin in" } else { "which does not let the origin in" };
    let summary = format!("answered with {status}: a preflight, which the rule's filter CORS answers, {allowed}");
    Outcome::new(Kind::DirectResponse, Some(status), summary)
}

fn answered(kind: Kind, status: http::StatusCode, what: &str) -> Outcome {
    let summary = format!("answered with {}: {what}", status.as_u16());
    Outcome::new(kind, Some(status.as_u16()), summary)
}

fn cut(body: &str) -> String {
    if body.len() <= MAX_BODY {
        return body.to_owned();
    }
    format!("{}\u{2026}", &body[..body.floor_char_boundary(MAX_BODY)])
}

fn told(backends: &[Backend], endpoints: &dyn Endpoints) -> Vec<BackendTold> {
    let total: u64 = backends.iter().map(|backend| u64::from(backend.weight)).sum();
    let one = |backend: &Backend| {
        let percent = if total == 0 { 0.0 } else { f64::from(backend.weight) * 100.0 / total as f64 };
        let mut told = BackendTold {
            weight: backend.weight,
            // Two digits are enough to tell shares apart, and read well.
            percent: (percent * 100.0).round() / 100.0,
            cluster: None,
            tls: None,
            refused: None,
            filters: filter::told(&backend.filters),
            ready: None,
            endpoints: Vec::new(),
            more_endpoints: 0,
        };
        match &backend.target {
            BackendTarget::Invalid { reason } => {
                let refused = Refused::because(Refusal::InvalidBackend, reason);
                told.refused = Some(format!("{} {} ({reason})", refused.status(), refused.reason));
            }
            BackendTarget::Cluster(id) => {
                told.cluster = Some(id.to_string());
                told.tls = id.tls.as_ref().map(|tls| tls.hostname.to_string());
                if let Some(mut all) = endpoints.of(id) {
                    let ready = all.iter().filter(|endpoint| endpoint.takes_requests).count();
                    told.ready = Some(ready);
                    told.more_endpoints = all.len().saturating_sub(MAX_ENDPOINTS);
                    all.truncate(MAX_ENDPOINTS);
                    told.endpoints = all;
                    let refused = Refused::because(Refusal::NoEndpoints, "");
                    told.refused = (ready == 0).then(|| format!("{} {}", refused.status(), refused.reason));
                }
            }
        }
        told
    };
    backends.iter().map(one).collect()
}

/// The result of a rule that forwards. It is an error only where every share of it is.
fn forwarded(backends: &[BackendTold]) -> Outcome {
    let with_share = || backends.iter().filter(|backend| backend.weight > 0);
    let good: Vec<&BackendTold> = with_share().filter(|backend| backend.refused.is_none()).collect();
    let name = |backend: &BackendTold| backend.cluster.clone().unwrap_or_else(|| "a broken backend".to_owned());
    match (&good[..], with_share().next()) {
        (_, None) => refusal(&Refused::because(Refusal::InvalidRule, "no backend has a weight")),
        ([], Some(first)) => {
            let same = with_share().all(|backend| backend.refused == first.refused);
            let reason = if same && first.cluster.is_some() { Refusal::NoEndpoints } else { Refusal::InvalidBackend };
            let status = Refused::because(reason, "").status();
            let summary = with_share().map(|b| format!("{}: {}", name(b), b.refused.as_deref().unwrap_or_default()));
            let answered = if same { format!("answered with {status} {reason}: ") } else { String::new() };
            let summary = format!("{answered}no backend can answer ({})", summary.collect::<Vec<_>>().join(", "));
            let reason = same.then(|| reason.as_str().to_owned());
            Outcome { reason, ..Outcome::new(Kind::Refused, same.then_some(status), summary) }
        }
        (good, Some(_)) => {
            let shares = good.iter().map(|backend| match with_share().count() {
                1 => name(backend),
                _ => format!("{} ({} %)", name(backend), backend.percent),
            });
            let mut summary = format!("forwarded to {}", shares.collect::<Vec<_>>().join(", "));
            for bad in with_share().filter_map(|backend| Some((backend, backend.refused.as_deref()?))) {
                let _ = write!(summary, "; {} % answered with {}", bad.0.percent, bad.1);
            }
            Outcome::new(Kind::Forward, None, summary)
        }
    }
}
