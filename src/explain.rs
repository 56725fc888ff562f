//! What the gateway would do with a request, and why: from the text of a URL to the backends and what they would get.
//!
//! The head is judged by [`crate::proxy::preview`], the decision is that of [`crate::routing::RouteTable::find`]; this
//! module puts both together with what is known of backends, and renders it. It does no IO, so that the command line
//! and a running gateway say the same of the same table.

mod action;
mod filter;
mod grpc;
mod https;
mod limits;
pub mod live;
mod question;
pub mod routes;
mod text;
mod upgrade;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use self::action::{Action, BackendTold, EndpointTold, Endpoints};
pub use self::filter::FilterTold;
pub use self::limits::{GatewayLimits, LimitTold};
pub use self::question::{Asked, Question, QuestionError};
use crate::ir::{FieldProblem, Finding, Fragment, ObjectName, Rule, Verdict};
use crate::proxy::preview::{self, Head, HeadLimits, Refused, Taken};
use crate::routing::explain::{Explained, Explanation, Extent};
use crate::routing::{ListenerIndex, Now, Request, RouteTable, preflight};

/// What of the gateway's settings a decision depends on.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// The listeners, in the order of their indices.
    pub listeners: Vec<Listener>,
    /// Whether there is a certificate for hosts that have none of their own.
    pub has_default_certificate: bool,
    /// Networks whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// What a request's head may have.
    pub limits: HeadLimits,
    /// What rules may take.
    pub rules: GatewayLimits,
    /// Protocols that connections may change to where a rule names none.
    pub upgrades: Vec<Arc<str>>,
}

/// A listener, as far as a URL can tell it from others.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its name.
    pub name: Arc<str>,
    /// Its port.
    pub port: u16,
    /// Whether load balancers tell it of their clients.
    pub proxy_protocol: bool,
    /// Whether it ends TLS.
    pub tls: bool,
    /// The port of https that it sends every request to.
    pub https_redirect: Option<u16>,
}

impl From<&crate::settings::Settings> for Gateway {
    fn from(settings: &crate::settings::Settings) -> Self {
        let listeners = settings.listeners.iter();
        Self {
            listeners: listeners
                .map(|l| Listener {
                    name: l.name.as_str().into(),
                    port: l.address.port(),
                    proxy_protocol: l.proxy_protocol,
                    tls: l.tls,
                    https_redirect: l.https_redirect,
                })
                .collect(),
            has_default_certificate: settings.tls.default_certificate != crate::settings::DefaultCertificate::default(),
            trusted_proxies: settings.trusted_proxies.clone(),
            limits: (&settings.limits).into(),
            rules: (&settings.limits).into(),
            upgrades: settings.upgrades.iter().map(|protocol| protocol.as_str().into()).collect(),
        }
    }
}

/// What there is to decide with.
pub struct World<'a, P> {
    /// The gateway.
    pub gateway: &'a Gateway,
    /// The table.
    pub table: &'a RouteTable<P>,
    /// What it was made of, for what the translation says of the objects; `None` where that is not known.
    pub fragment: Option<&'a Fragment>,
    /// The endpoints of Clusters.
    pub endpoints: &'a dyn Endpoints,
    /// Where the table comes from, in words.
    pub source: String,
    /// The table's generation, where it is being served.
    pub generation: Option<u64>,
}

/// What the gateway would do with a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The result.
    pub result: Outcome,
    /// The request as the gateway sees it.
    pub request: Seen,
    /// Where the table comes from.
    pub source: String,
    /// Its generation, where it is being served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// What the table says; absent where the request is refused before it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Explanation>,
    /// What the rule does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// What the translation says of the winning Selector and Route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Told>,
    /// What else is to be known, such as guesses that were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The result, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// What kind of answer it is.
    pub kind: Kind,
    /// Its status, where that is known in advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// For an answer that the gateway gives for want of a better one, its reason, as in `x-lockgate-reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For such an answer to a request of gRPC, its `grpc-status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<String>,
    /// The result in words.
    pub summary: String,
}

/// Kinds of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A backend's.
    Forward,
    /// A redirect.
    Redirect,
    /// An answer that a rule gives by itself.
    DirectResponse,
    /// An error.
    Refused,
}

/// A request as the gateway sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// The method.
    pub method: String,
    /// The target as the client sends it.
    pub target: String,
    /// `Host` as the client sends it.
    pub authority: String,
    /// The host that is matched; empty where it is refused.
    pub host: String,
    /// The path that is matched; empty where it is refused.
    pub path: String,
    /// The query, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The listener it comes in on.
    pub listener: String,
    /// The address that connects.
    pub peer: IpAddr,
    /// The client's address that conditions see.
    pub client_ip: IpAddr,
    /// The time that conditions see.
    pub time: String,
}

/// A finding on an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// `Route` or `Selector`.
    pub kind: String,
    /// `namespace/name`.
    pub object: String,
    /// `Accepted` or `ResolvedRefs`, which is false.
    pub condition: String,
    /// The reason.
    pub reason: String,
    /// What is wrong, and where.
    pub message: String,
}

impl<P> World<'_, P> {
    /// Says what becomes of a request.
    pub fn answer(&self, question: &Question) -> Result<Answer, QuestionError> {
        let asked = question.parse(self.gateway)?;
        let peer = asked.peer.to_canonical();
        let client_ip = preview::client_ip(peer, &asked.parts.headers, &self.gateway.trusted_proxies);
        let mut answer = Answer {
            result: Outcome::new(Kind::Refused, None, String::new()),
            request: seen(&asked, peer, client_ip),
            source: self.source.clone(),
            generation: self.generation,
            decision: None,
            action: None,
            findings: Vec::new(),
            notes: asked.notes.clone(),
        };
        match preview::judge(&asked.parts, &self.gateway.limits) {
            Ok(head) => {
                let extent = if question.all { Extent::ALL } else { Extent::default() };
                answer.request.host.clone_from(&head.host);
                answer.request.path.clone_from(&head.path);
                match self.before(&asked, &head) {
                    Some(result) => answer.result = result,
                    None if self.pass(&asked, &head, &mut answer) => {}
                    None => self.decide(&asked, &head, client_ip, extent, &mut answer),
                }
            }
            Err(refused) => answer.result = refusal(&refused),
        }
        if preview::is_grpc(&asked.parts) {
            grpc::tell(&mut answer);
        }
        Ok(answer)
    }

    fn decide(&self, asked: &Asked, head: &Head, client_ip: IpAddr, extent: Extent, answer: &mut Answer) {
        let request = Request {
            method: &asked.parts.method,
            host: &head.host,
            path: &head.path,
            query: asked.parts.uri.query(),
            headers: &asked.parts.headers,
            client_ip,
            now: Now::At(asked.at),
        };
        let wanted = preflight::asked(request.method, request.headers);
        let explained = self.explain_asked(ListenerIndex(asked.listener), &request, wanted.as_ref(), extent);
        answer.decision = Some(explained.explanation);
        let found = match explained.found {
            Ok(found) => found,
            Err(miss) => return answer.result = refusal(&miss.into()),
        };
        if let Some(refused) = self.clients(asked, head, found.selector, &mut answer.notes) {
            return answer.result = refusal(&refused);
        }
        let (matched, max_path) = (found.matched_prefix_len(), self.gateway.limits.max_uri_bytes);
        let taken = Taken { parts: &asked.parts, head, scheme: asked.scheme, matched, max_path };
        let (mut action, result) = action::act(found.rule, taken, self.endpoints);
        action.limits = limits::told(found.rule, &self.gateway.rules, self.fragment);
        answer.action = Some(action);
        answer.result = result;
        answer.findings = self.findings(&found.selector.origin.object, found.rule);
        answer.notes.extend(upgrade::notes(found.rule, &asked.parts, &self.gateway.upgrades));
        let status = wanted.and_then(|method| {
            let status = preview::preflight(found.rule, &method, request.headers)?;
            answer.notes.push(format!("the preflight is decided as the {method} that it asks for"));
            Some(status)
        });
        if let Some(status) = status {
            let allowed = preview::is_origin_allowed(found.rule, request.headers);
            answer.result = action::preflight(status, allowed);
            answer.action = Some(action::of_preflight(found.rule));
        }
    }

    /// Explains a request that may be a preflight, as [`RouteTable::find_asked`] decides it.
    fn explain_asked(
        &self,
        listener: ListenerIndex,
        request: &Request<'_>,
        asked: Option<&http::Method>,
        extent: Extent,
    ) -> Explained<'_, P> {
        if let Some(method) = asked {
            let explained = self.table.explain(listener, &Request { method, ..*request }, extent);
            if explained.found.as_ref().is_ok_and(|found| preflight::cors(found.rule).is_some()) {
                return explained;
            }
        }
        self.table.explain(listener, request, extent)
    }

    fn findings(&self, selector: &ObjectName, rule: &Rule) -> Vec<Told> {
        let route = &rule.origin.object;
        let concerned = |verdict: &&Arc<Verdict>| match verdict.parent.as_ref() {
            Some(parent) => verdict.object == *route && parent == selector,
            None => verdict.kind == crate::ir::Kind::Selector && verdict.object == *selector,
        };
        let verdicts = self.fragment.into_iter().flat_map(|fragment| &fragment.verdicts).filter(concerned);
        verdicts.flat_map(|verdict| told(verdict, rule.index)).collect()
    }
}

/// What a verdict says of the object and of its rule `rule`.
fn told(verdict: &Verdict, rule: u16) -> impl Iterator<Item = Told> {
    let own = format!("spec.rules[{rule}]");
    let concerns = move |finding: &Finding| {
        let is_other = |problem: &FieldProblem| {
            problem.field.starts_with("spec.rules[") && !problem.field.starts_with(own.as_str())
        };
        finding.problems.is_empty() || !finding.problems.iter().all(is_other)
    };
    let findings = [("Accepted", &verdict.accepted), ("ResolvedRefs", &verdict.resolved_refs)];
    findings.into_iter().filter(move |(_, finding)| !finding.ok && concerns(finding)).map(|(condition, finding)| Told {
        kind: verdict.kind.to_string(),
        object: verdict.object.to_string(),
        condition: condition.to_owned(),
        reason: finding.reason.to_owned(),
        message: finding.message.clone(),
    })
}

impl Outcome {
    fn new(kind: Kind, status: Option<u16>, summary: String) -> Self {
        Self { kind, status, reason: None, grpc_status: None, summary }
    }
}

fn refusal(refused: &Refused) -> Outcome {
    let summary = format!("answered with {} {}: {}", refused.status(), refused.reason, refused.detail);
    let reason = Some(refused.reason.as_str().to_owned());
    Outcome { reason, ..Outcome::new(Kind::Refused, Some(refused.status()), summary) }
}

fn seen(asked: &Asked, peer: IpAddr, client_ip: IpAddr) -> Seen {
    let uri = &asked.parts.uri;
    let host = asked.parts.headers.get(http::header::HOST);
    Seen {
        method: asked.parts.method.to_string(),
        target: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        authority: host.map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned()).unwrap_or_default(),
        host: String::new(),
        path: String::new(),
        query: uri.query().map(str::to_owned),
        listener: asked.listener_name.to_string(),
        peer,
        client_ip,
        time: crate::routing::phrase::time(asked.at),
    }
}

impl Answer {
    /// Whether a rule takes the request and can be expected to answer it.
    pub fn is_served(&self) -> bool {
        self.result.kind != Kind::Refused
    }

    /// As text for a terminal.
    pub fn to_text(&self) -> String {
        text::render(self)
    }
}

/// Reads a time of a question; `now` where there is none.
fn time_or_now(at: Option<&str>) -> Result<SystemTime, QuestionError> {
    let Some(at) = at else { return Ok(SystemTime::now()) };
    at.parse::<jiff::Timestamp>()
        .map(SystemTime::from)
        .map_err(|_| QuestionError::new("at", format!("{at:?} is not an RFC 3339 time, such as 2026-01-31T08:30:00Z")))
}

#[cfg(test)]
mod tests;
