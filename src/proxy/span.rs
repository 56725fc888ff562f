//! The span of a request.
//!
//! Without a collector there is no [`Tracer`], and that is all that a request finds out. Of a request that is not sampled
//! its context is known and nothing else.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, Method, Request, Version, header};
use ipnet::IpNet;

use super::access::{Ended, Redacted};
use super::connection::Client;
use super::traceparent::{self, TRACEPARENT, TRACESTATE};
use crate::routing;
use crate::settings::Settings;
use crate::telemetry::traces::{Span, Traces, Value};

/// The longest text of a request that goes into a span, in bytes.
const MAX_TEXT: usize = 2048;

/// Makes the spans of a worker.
pub(super) struct Tracer {
    traces: Traces,
    /// Traces whose last eight bytes, halved, are below this are recorded.
    threshold: u64,
    follows_parent: bool,
    redacted: Redacted,
    trusted: Vec<IpNet>,
}

/// The context of a request.
pub(super) struct Context {
    trace: [u8; 16],
    /// The span that caused it.
    parent: Option<[u8; 8]>,
    /// The gateway's own span, where there is one or the request had no context.
    own: Option<[u8; 8]>,
    /// What is told of it, if it is sampled.
    sampled: Option<Box<Sampled>>,
}

struct Sampled {
    started: SystemTime,
    state: String,
    method: Method,
    attributes: Vec<(&'static str, Value)>,
}

impl Tracer {
    pub(super) fn new(traces: Traces, settings: &Settings) -> Self {
        // Of the 63 bits that are compared.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the share is from 0 to 1")]
        let threshold = (settings.traces.share * (1_u64 << 63) as f64) as u64;
        Self {
            traces,
            threshold,
            follows_parent: settings.traces.follow_parent,
            redacted: Redacted::new(&settings.access_log.redact_query),
            trusted: settings.trusted_proxies.clone(),
        }
    }

    /// Begins with a request's head.
    pub(super) fn begin<B>(&self, client: &Client, request: &Request<B>, mut random: impl FnMut() -> u64) -> Context {
        let headers = request.headers();
        let told = traceparent::parent(headers);
        let parent = told.and_then(|told| Some((told.trace_id()?, told.span_id()?, told.is_sampled())));
        let trace = parent.map_or_else(|| new_trace(&mut random), |(trace, _, _)| trace);
        let by_share = || u64::from_be_bytes(std::array::from_fn(|at| trace[8 + at])) >> 1 < self.threshold;
        let is_sampled = match parent {
            Some((_, _, is_sampled)) if self.follows_parent => is_sampled,
            _ => by_share(),
        };
        let own = (is_sampled || parent.is_none()).then(|| (random() | 1).to_be_bytes());
        let sampled = is_sampled.then(|| {
            let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
            Box::new(Sampled {
                started: SystemTime::now(),
                state: if parent.is_some() { text(TRACESTATE) } else { String::new() },
                method: request.method().clone(),
                attributes: self.attributes(client, request),
            })
        });
        Context { trace, parent: parent.map(|(_, span, _)| span), own, sampled }
    }

    /// What a request says, in the names of OpenTelemetry's conventions for HTTP servers.
    fn attributes<B>(&self, client: &Client, request: &Request<B>) -> Vec<(&'static str, Value)> {
        let (uri, headers) = (request.uri(), request.headers());
        let mut attributes = Vec::with_capacity(20);
        let mut add = |name, text: &str| attributes.push((name, Value::Text(shortened(text).to_owned())));
        let method = request.method();
        let known = known_method(method);
        add("http.request.method", known);
        if known == OTHER {
            add("http.request.method_original", method.as_str());
        }
        add("url.scheme", client.peer.scheme);
        add("url.path", uri.path());
        if let Some(query) = uri.query() {
            let mut space = Vec::new();
            add("url.query", &String::from_utf8_lossy(self.redacted.query(query.as_bytes(), &mut space)));
        }
        add("network.protocol.version", version(request.version()));
        let ip: IpAddr = client.peer.client_ip(headers, &self.trusted);
        add("client.address", &ip.to_string());
        add("network.peer.address", &client.peer.ip.to_string());
        if let Some(agent) = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()) {
            add("user_agent.original", agent);
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let named = uri.authority().map(http::uri::Authority::as_str).or(host);
        if let Some(authority) = named.and_then(|named| routing::host::parse(named).ok()) {
            add("server.address", &authority.host);
            if let Some(port) = authority.port {
                attributes.push(("server.port", Value::Number(port.into())));
            }
        }
        attributes
    }

    /// Ends the span of a request, if it has one.
    pub(super) fn finish(&self, context: Context, ended: &Ended<'_>) {
        let (Some(own), Some(sampled)) = (context.own, context.sampled) else { return };
        let Sampled { started, state, method, mut attributes } = *sampled;
        let mut name = known_method(&method).to_owned();
        if name == OTHER {
            "HTTP".clone_into(&mut name);
        }
        let mut add = |name, text: &str| attributes.push((name, Value::Text(text.to_owned())));
        if let Some((selector, rule)) = ended.rule {
            let route = rule.origin.object.to_string();
            name.push(' ');
            name.push_str(&route);
            add("lockgate.selector", &selector.origin.object.to_string());
            add("lockgate.route", &route);
            add("lockgate.rule", &rule.name);
        }
        let is_error = ended.broke_off || ended.status.is_some_and(|status| status >= 500);
        if let Some(reason) = ended.reason {
            add("lockgate.reason", reason.as_str());
        }
        if is_error {
            let of_status = || ended.status.map(|status| status.to_string());
            if let Some(kind) = ended.reason.map(|reason| reason.as_str().to_owned()).or_else(of_status) {
                add("error.type", &kind);
            }
        }
        if let Some(status) = ended.grpc {
            add("rpc.system", "grpc");
            if let Ok(code) = status.as_str().parse() {
                attributes.push(("rpc.grpc.status_code", Value::Number(code)));
            }
        }
        if let Some(status) = ended.status {
            attributes.push(("http.response.status_code", Value::Number(status.into())));
        }
        self.traces.export(Span {
            trace: context.trace,
            id: own,
            parent: context.parent,
            state,
            name,
            started,
            duration: ended.duration.unwrap_or_default(),
            attributes,
            is_error,
        });
    }
}

impl Context {
    /// Tells a backend which span it is asked by.
    pub(super) fn pass_on(&self, headers: &mut HeaderMap) {
        // Without a span of its own the gateway is no part of the trace, and what the client says goes on.
        let Some(own) = self.own else { return };
        if self.parent.is_none() {
            // It belongs to no context that is known.
            headers.remove(TRACESTATE);
        }
        if let Some(field) = traceparent::field(self.trace, own, self.sampled.is_some()) {
            headers.insert(TRACEPARENT, field);
        }
    }
}

fn new_trace(random: &mut impl FnMut() -> u64) -> [u8; 16] {
    // The time in front keeps ids apart that two processes draw alike.
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let high = (seconds << 32) | (random() >> 32);
    let number = (u128::from(high) << 64) | u128::from(random() | 1);
    number.to_be_bytes()
}

/// What stands for a method that is not known.
const OTHER: &str = "_OTHER";

fn known_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::CONNECT => "CONNECT",
        Method::OPTIONS => "OPTIONS",
        Method::TRACE => "TRACE",
        Method::PATCH => "PATCH",
        _ => OTHER,
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}
