//! What happens to a request: judge its head, match, answer or forward, and one way out for all failures.

use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Body as _;

use super::Worker;
use super::body::ResponseBody;
use super::connection::Client;
use super::cors::{self, Grant};
use super::error::Failure;
use super::exchange::Exchange;
use super::forward::{self, Outbound};
use super::head;
use super::headers::{self, REQUEST_ID};
use super::incoming::Incoming;
use super::target::{self, RequestTarget};
use super::tls::{self, Standing};
use super::upgrade::{self, Asked, Extended, Wanted};
use super::{admission, filters, grpc, https, mirror};
use crate::ir::{self, Action};
use crate::lifecycle::Phase;
use crate::publish::RuleRuntime;
use crate::routing::{self, Now, preflight};
use crate::settings::Underscores;
use crate::telemetry::metrics::Refusal;
use crate::upstream::Cluster;

/// Answers a request. Never fails: what goes wrong becomes an answer.
pub(super) async fn handle(
    worker: Rc<Worker>,
    client: Rc<Client>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let version = request.version();
    client.conn().begin_exchange(ir::Timeouts::default().idle);
    let is_grpc = grpc::is_request(request.method(), request.headers());
    let mut exchange = Exchange::begin(&worker, &client, request.method());
    if is_grpc {
        exchange.is_call(request.headers());
    }
    let id = headers::request_id(request.headers(), client.peer.trusted, || worker.random());
    exchange.log(&request, &id);
    exchange.trace(&request);
    let mut grant = None;
    let result = answer(&worker, &client, request, &id, (&mut exchange, &mut grant)).await;
    // Asked now and not before: a drain that began meanwhile must reach this answer.
    let leave = worker.shared.lifecycle.phase().asks_to_leave() || client.conn().is_worn();
    let (mut response, failure) = match result {
        Ok(response) => (response, None),
        Err(failure) => {
            tracing::debug!(reason = %failure.reason, detail = failure.detail, "request refused");
            (failure.answer(leave, is_grpc), Some(failure.reason))
        }
    };
    // Failures too: else a page would be told of a CORS error instead.
    if let Some(grant) = grant {
        grant.apply(response.headers_mut());
    }
    response.headers_mut().insert(REQUEST_ID, id);
    if !leave {
        https::advertise(&worker, &client, version, response.headers_mut());
    }
    exchange.log_answer(response.headers());
    if let Some(agreed) = response.body_mut().take_tunnel() {
        client.go_on_as(exchange.switch(agreed));
        return response;
    }
    let closing = if version >= Version::HTTP_2 {
        // A stream's failure is no reason to end its connection, and its leaving is said by GOAWAY.
        response.headers_mut().remove(header::CONNECTION);
        leave
    } else {
        if leave || exchange.asks_switch() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.headers().contains_key(header::CONNECTION)
    };
    if closing {
        client.linger();
    }
    exchange.note_status(response.headers());
    exchange.answered(response.status(), closing, failure);
    response.body_mut().end(exchange);
    response
}

async fn answer(
    worker: &Rc<Worker>,
    client: &Rc<Client>,
    request: Request<Incoming>,
    id: &HeaderValue,
    (exchange, grant): (&mut Exchange, &mut Option<Grant>),
) -> Result<Response<ResponseBody>, Failure> {
    if let Some(fault) = client.fault.take() {
        return Err(Failure::because(fault.reason, fault.detail));
    }
    if !is_served(worker, client) {
        return Err(Failure::new(Refusal::Draining));
    }
    let (mut parts, body) = request.into_parts();
    let authority = judge_head(worker, &mut parts)?;
    let authority = match &*authority {
        // HTTP/1.0 need not name a host: Selectors of any host take it.
        "" => None,
        named => Some(routing::host::parse(named).map_err(|e| Failure::because(Refusal::BadRequest, e.reason()))?),
    };
    if let Some(port) = https::port(client.local.https_redirect, &parts.headers, &client.peer) {
        let location = https::location(port, authority.as_ref(), &parts.uri, max_path(worker))?;
        return Ok(redirected(https::STATUS, location));
    }
    let path =
        routing::path::normalise(parts.uri.path()).map_err(|e| Failure::because(Refusal::BadPath, e.reason()))?;
    let settings = &worker.shared.settings;
    let snapshot = worker.snapshot();
    let asked = preflight::asked(&parts.method, &parts.headers);
    let lookup = routing::Request {
        method: &parts.method,
        host: authority.as_ref().map_or("", |authority| &authority.host),
        path: &path,
        query: parts.uri.query(),
        headers: &parts.headers,
        client_ip: client.peer.client_ip(&parts.headers, &settings.trusted_proxies),
        now: Now::Ask(SystemTime::now),
    };
    let listener = client.local.index;
    let found = snapshot.table.find_asked(listener, &lookup, asked.as_ref());
    let selector = found.as_ref().map_or_else(|_| snapshot.table.selector(listener, &lookup), |f| Some(f.selector));
    let certificate =
        match selector.map(|s| tls::standing(client.secured.as_deref(), &snapshot, listener, lookup.host, s)) {
            // Before anything tells what paths there are.
            Some(Standing::Misdirected(why)) => return Err(Failure::because(Refusal::Misdirected, why)),
            Some(Standing::Serves(certificate)) => certificate,
            None => None,
        };
    let found = found?;
    let rule: &ir::Rule = found.rule;
    client.conn().matched(snapshot.clone(), found.key, rule.timeouts.idle);
    if let Some(filter) = preflight::cors(rule) {
        match &asked {
            Some(asked) if !matches!(rule.action, Action::Invalid { .. }) => {
                return Ok(cors::answer(filter, asked, &parts.headers));
            }
            _ => *grant = Some(Grant::new(filter, &parts.headers)),
        }
    }
    admit(worker, exchange, rule, found.payload, body.size_hint().lower()).await?;

    let target = RequestTarget {
        scheme: client.peer.scheme,
        authority: authority.as_ref(),
        path: &path,
        query: parts.uri.query(),
        matched: found.matched_prefix_len(),
        max_path: max_path(worker),
    };
    let (mut response, backend) = match &rule.action {
        Action::Invalid { reason } => return Err(Failure::because(Refusal::InvalidRule, reason)),
        Action::Redirect(redirect) => (redirect_to(redirect, &target)?, None),
        Action::DirectResponse(direct) => (direct_response(direct, &parts)?, None),
        Action::Forward(backends) => {
            let (index, cluster) = forward::pick(worker, found.payload)?;
            exchange.hold(admission::backend(worker, rule, cluster, exchange.deadline()).await?);
            exchange.hold(admission::gateway(worker, exchange.deadline()).await?);
            let backend = backends.get(index);
            let extended = parts.extensions.remove::<Extended>();
            let wanted = wanted(worker, &parts, extended, rule, cluster)?;
            if let Some(uri) = filters::rewritten(rule, &target, &parts.uri)? {
                parts.uri = uri;
            }
            if let Some(context) = exchange.context() {
                context.pass_on(&mut parts.headers);
            }
            let port = authority.as_ref().and_then(|authority| authority.port);
            prepare(&mut parts, client, rule, (port, certificate, settings.headers.forwarded), id);
            if authority.is_none() {
                // RFC 9112, section 3.2: a request of HTTP/1.1 has it, and it is empty where nobody is named.
                parts.headers.entry(header::HOST).or_insert(HeaderValue::from_static(""));
            }
            let mirrors = match &wanted {
                None => mirror::copies(worker, &found.payload.mirrors, &parts, &body),
                // What it is about comes after it, and a mirror would never see that.
                Some(_) => Vec::new(),
            };
            filters::edit_request(&mut parts.headers, backend.map_or(&[], |backend| &backend.filters));
            if let Some(wanted) = &wanted {
                wanted.ask(&mut parts.headers);
                exchange.ask_switch();
            }
            let (max_body, deadline) = (max_body(worker, rule), exchange.deadline());
            let record = exchange.record();
            let outbound = Outbound { parts, body, max_body, mirrors, wanted, deadline, record };
            (forward::forward(worker, client, &found, cluster, outbound).await?, backend)
        }
    };
    finish(&mut response, rule, backend);
    Ok(response)
}

/// Whether a request is served and not refused: in [`Phase::Draining`] those that its client could not know to send elsewhere,
/// unless the drain is to be strict. It is the last one of its connection, and idle ones are closed.
fn is_served(worker: &Worker, client: &Client) -> bool {
    let lifecycle = &worker.shared.lifecycle;
    let phase = lifecycle.phase();
    phase.serves() || (phase == Phase::Draining && client.is_untold() && !lifecycle.settings().strict())
}

/// Makes a backend's or a rule's answer one for the client.
fn finish(response: &mut Response<ResponseBody>, rule: &ir::Rule, backend: Option<&ir::Backend>) {
    let headers = response.headers_mut();
    headers::strip_hop_by_hop(headers);
    filters::edit_answer(headers, backend.map_or(&[], |backend| &backend.filters));
    filters::edit_answer(headers, &rule.filters);
    match response.body().agreed().map(|agreed| (Arc::clone(&agreed.protocol), agreed.is_extended)) {
        Some((_, true)) => upgrade::confirm(response),
        Some((protocol, false)) => upgrade::announce(response.headers_mut(), &protocol),
        None => {}
    }
    *response.version_mut() = Version::HTTP_11;
}

/// Refuses heads that are ambiguous or not served, and brings `Host` into its one form. Gives the authority.
fn judge_head(worker: &Worker, parts: &mut http::request::Parts) -> Result<String, Failure> {
    let limits = &worker.shared.settings.limits;
    if parts.version >= Version::HTTP_2 {
        head::count_fields(&parts.headers, limits.max_headers)?;
    }
    let authority = head::authority(parts, limits.max_uri_bytes.get())?;
    if worker.shared.settings.headers.underscores == Underscores::Drop {
        let dropped = headers::drop_underscored(&mut parts.headers);
        if dropped > 0 {
            worker.metrics.fields_dropped(dropped);
        }
    }
    // The client is answered 100 when the backend begins to take the body; the backend must not do it too.
    parts.headers.remove(header::EXPECT);
    // RFC 9112, section 3.2.2: the authority of an absolute target replaces Host.
    if parts.uri.authority().is_some() {
        let value = HeaderValue::from_str(&authority).map_err(|e| Failure::because(Refusal::BadRequest, e))?;
        parts.headers.insert(header::HOST, value);
    }
    Ok(authority)
}

/// The protocols that the backend of a request may be asked for. Extended CONNECT has no other meaning, and fails where that
/// is none.
fn wanted(
    worker: &Worker,
    parts: &http::request::Parts,
    extended: Option<Extended>,
    rule: &ir::Rule,
    cluster: &Cluster,
) -> Result<Option<Wanted>, Failure> {
    // HTTP/2 has no `Upgrade` (RFC 9113, section 8.2.2).
    let is_http1 = cluster.id.protocol() == ir::Protocol::Http1;
    let allowed = rule.upgrades.as_deref().unwrap_or(&worker.shared.upgrades);
    if let Some(extended) = extended {
        let wanted = Wanted::extended(extended, allowed, || worker.random()).filter(|_| is_http1);
        let refused = || Failure::because(Refusal::NotImplemented, "the rule or its backend has no such tunnel");
        return wanted.ok_or_else(refused).map(Some);
    }
    let may_ask = is_http1 && parts.headers.contains_key(header::UPGRADE);
    Ok(if may_ask { Asked::read(parts, allowed).wanted() } else { None })
}

/// Bytes that a request's body may have: the rule's limit, else the gateway's.
fn max_body(worker: &Worker, rule: &ir::Rule) -> Option<u64> {
    rule.limits.max_body_bytes.or_else(|| worker.shared.settings.limits.max_body())
}

/// Waits for a place among the rule's requests, and refuses a body that is known to be too large.
async fn admit(
    worker: &Worker,
    exchange: &mut Exchange,
    rule: &ir::Rule,
    runtime: &RuleRuntime,
    body_bytes: u64,
) -> Result<(), Failure> {
    if max_body(worker, rule).is_some_and(|max| body_bytes > max) {
        return Err(Failure::because(Refusal::BodyTooLarge, body_bytes));
    }
    let place = admission::rule(worker, rule, runtime, exchange.deadline()).await?;
    exchange.hold(place);
    Ok(())
}

fn redirect_to(redirect: &ir::Redirect, request: &RequestTarget<'_>) -> Result<Response<ResponseBody>, Failure> {
    Ok(redirected(redirect.status, target::location(redirect, request)?))
}

fn redirected(status: StatusCode, location: HeaderValue) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(Bytes::new()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::LOCATION, location);
    response
}

/// The text of a direct response, which requests share.
struct Text(Arc<str>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

fn direct_response(
    direct: &ir::DirectResponse,
    asked: &http::request::Parts,
) -> Result<Response<ResponseBody>, Failure> {
    if direct.status.is_success() && asked.extensions.get::<Extended>().is_some() {
        return Err(Failure::because(Refusal::NotImplemented, "the rule has no backend for a tunnel"));
    }
    let mut response = Response::new(ResponseBody::full(Bytes::from_owner(Text(Arc::clone(&direct.body)))));
    *response.status_mut() = direct.status;
    for (name, value) in &direct.headers {
        response.headers_mut().append(name, value.clone());
    }
    Ok(response)
}

/// Bytes that a path may have.
fn max_path(worker: &Worker) -> usize {
    usize::try_from(worker.shared.settings.limits.max_uri_bytes.get()).unwrap_or(usize::MAX)
}

/// Makes a client's head one for a backend. `port` is the one that the request's host names, `certificate` the client's;
/// `forwarded` asks for that field too.
fn prepare(
    parts: &mut http::request::Parts,
    client: &Client,
    rule: &ir::Rule,
    (port, certificate, forwarded): (Option<u16>, Option<&HeaderValue>, bool),
    id: &HeaderValue,
) {
    let headers = &mut parts.headers;
    // Before our own fields are put in: `Connection` must not be able to name them (RFC 9110, section 7.6.1).
    headers::strip_hop_by_hop(headers);
    headers::forward(headers, &client.peer, port);
    if forwarded {
        headers::add_forwarded(headers, &client.peer);
    }
    headers::identify(headers, certificate);
    headers.insert(REQUEST_ID, id.clone());
    filters::edit_request(headers, &rule.filters);
    parts.version = Version::HTTP_11;
}
