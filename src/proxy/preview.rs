//! What the proxy would make of a request, told without sending it: the same judgements, by the same functions.

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use ipnet::IpNet;

use super::cors;
use super::error::{self, Failure, status};
use super::filters;
use super::grpc;
use super::head;
use super::headers::Peer;
use super::https;
use super::target::{RequestTarget, location};
use super::upgrade::Asked;
use crate::ir::{Action, Redirect, Rule};
use crate::routing::{Miss, host, path, preflight};
use crate::telemetry::metrics::{GrpcStatus, Refusal};

/// An answer that the proxy gives instead of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The closed reason.
    pub reason: Refusal,
    /// What is wrong.
    pub detail: String,
}

impl Refused {
    /// A refusal and what is wrong.
    pub fn because(reason: Refusal, detail: impl std::fmt::Display) -> Self {
        Self { reason, detail: detail.to_string() }
    }

    /// The status it is answered with.
    pub fn status(&self) -> u16 {
        status(self.reason).as_u16()
    }
}

/// Whether a request is one of gRPC: it is then refused with the status 200 and a [`grpc_status`].
pub fn is_grpc(parts: &Parts) -> bool {
    grpc::is_head(parts)
}

/// The `grpc-status` with which a request of gRPC is refused.
pub fn grpc_status(reason: Refusal) -> GrpcStatus {
    error::grpc_status(reason)
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self { reason: failure.reason, detail: failure.detail }
    }
}

impl From<Miss> for Refused {
    fn from(miss: Miss) -> Self {
        Failure::from(miss).into()
    }
}

/// What of a request's head is matched and forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The host and port as the client sent them.
    pub authority: String,
    /// The host in its one form; empty where a client of HTTP/1.0 names none.
    pub host: String,
    /// The normalised path.
    pub path: String,
}

/// What a request's head may have.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes of the target.
    pub max_uri_bytes: u64,
    /// Bytes of the whole head.
    pub max_header_bytes: u64,
    /// Header fields.
    pub max_headers: usize,
}

impl From<&crate::settings::Limits> for HeadLimits {
    fn from(limits: &crate::settings::Limits) -> Self {
        Self {
            max_uri_bytes: limits.max_uri_bytes.get(),
            max_header_bytes: limits.max_header_bytes.get(),
            max_headers: limits.max_headers,
        }
    }
}

/// What the reader of heads refuses before anything else sees them.
fn readable(parts: &Parts, limits: &HeadLimits) -> Result<(), Refused> {
    let count = parts.headers.len();
    if count > limits.max_headers {
        let detail = format!("there are {count} header fields, at most {}", limits.max_headers);
        return Err(Refused::because(Refusal::HeadersTooLarge, detail));
    }
    let target = parts.uri.path_and_query().map_or(1, |target| target.as_str().len());
    // `METHOD SP target SP HTTP/1.1 CRLF`, then `name: value CRLF` for each field and an empty line (RFC 9112, section 2.1).
    let line = parts.method.as_str().len() + target + " HTTP/1.1\r\n".len() + 1;
    let fields = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    let bytes = (line + fields.sum::<usize>() + 2) as u64;
    if bytes > limits.max_header_bytes {
        let detail = format!("the head has {bytes} bytes, at most {}", limits.max_header_bytes);
        return Err(Refused::because(Refusal::HeadersTooLarge, detail));
    }
    let lengths: Vec<&HeaderValue> = parts.headers.get_all(header::CONTENT_LENGTH).iter().collect();
    let is_length = |value: &&HeaderValue| {
        let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        digits.is_some_and(|digits| digits.parse::<u64>().is_ok())
    };
    if !lengths.iter().all(is_length) || lengths.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(Refused::because(Refusal::BadRequest, "Content-Length is not one number"));
    }
    let codings = parts.headers.get_all(header::TRANSFER_ENCODING).iter().next_back();
    let is_chunked = |value: &HeaderValue| {
        let last = value.to_str().ok().and_then(|text| text.rsplit(',').next());
        last.is_some_and(|coding| coding.trim().eq_ignore_ascii_case("chunked"))
    };
    if codings.is_some_and(|codings| !is_chunked(codings)) {
        return Err(Refused::because(Refusal::BadRequest, "Transfer-Encoding does not end in chunked"));
    }
    Ok(())
}

/// Judges a request's head as the proxy does, and brings host and path into their one form.
pub fn judge(parts: &Parts, limits: &HeadLimits) -> Result<Head, Refused> {
    readable(parts, limits)?;
    let authority = head::authority(parts, limits.max_uri_bytes)?;
    let host = match &*authority {
        "" => String::new(),
        named => {
            let parsed = host::parse(named).map_err(|e| Refused::because(Refusal::BadRequest, e))?;
            parsed.host.into_owned()
        }
    };
    let path = path::normalise(parts.uri.path()).map_err(|e| Refused::because(Refusal::BadPath, e))?;
    let path = path.into_owned();
    Ok(Head { authority, host, path })
}

/// The client's address: `peer`, or what it reports if it is among `trusted`.
pub fn client_ip(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    Peer::new(peer, trusted, false).client_ip(headers, trusted)
}

/// Where a listener with `https_redirect` sends a request from `peer`; `None` for one that it serves.
pub fn to_https(
    https_redirect: Option<u16>,
    came_over_tls: bool,
    (peer, trusted): (IpAddr, &[IpNet]),
    parts: &Parts,
    head: &Head,
    max_path: u64,
) -> Option<Result<String, Refused>> {
    let peer = Peer::new(peer, trusted, came_over_tls);
    let port = https::port(https_redirect, &parts.headers, &peer)?;
    let authority = host::parse(&head.authority).ok();
    let location =
        https::location(port, authority.as_ref(), &parts.uri, usize::try_from(max_path).unwrap_or(usize::MAX));
    Some(location.map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned()).map_err(Refused::from))
}

/// The status that it sends them with.
pub const TO_HTTPS: http::StatusCode = https::STATUS;

/// A request that a rule takes, as far as the rule can change it.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    /// Its head, as it was sent.
    pub parts: &'a Parts,
    /// Its head, judged.
    pub head: &'a Head,
    /// What the client speaks: `http` or `https`.
    pub scheme: &'a str,
    /// Bytes of the path that the match covers.
    pub matched: usize,
    /// Bytes that a rewritten path may have.
    pub max_path: u64,
}

impl Taken<'_> {
    /// Looks at it as the filters do.
    fn seen<T>(&self, look: impl FnOnce(&RequestTarget<'_>) -> T) -> T {
        let authority = host::parse(&self.head.authority).ok();
        look(&RequestTarget {
            scheme: self.scheme,
            authority: authority.as_ref(),
            path: &self.head.path,
            query: self.parts.uri.query(),
            matched: self.matched,
            max_path: usize::try_from(self.max_path).unwrap_or(usize::MAX),
        })
    }
}

/// The target and `Host` that a rule's backends get.
pub fn upstream(rule: &Rule, taken: Taken<'_>) -> Result<(String, String), Refused> {
    let uri = taken.seen(|request| filters::rewritten(rule, request, &taken.parts.uri))?;
    let uri = uri.as_ref().unwrap_or(&taken.parts.uri);
    let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let mut headers = HeaderMap::new();
    if let Ok(host) = HeaderValue::from_str(&taken.head.authority) {
        headers.insert(header::HOST, host);
    }
    filters::edit_request(&mut headers, &rule.filters);
    let host = headers.get(header::HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    Ok((target, host.unwrap_or_default()))
}

/// What becomes of a request's `Upgrade`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// Protocols that a backend is asked for, if it speaks HTTP/1.1.
    pub asked_for: Vec<Arc<str>>,
    /// Protocols that it is not asked for.
    pub dropped: Vec<Arc<str>>,
}

/// What becomes of the `Upgrade` of a request that a rule forwards; `None` where it has none. `usual` are the protocols
/// that the gateway's settings allow.
pub fn upgrade(rule: &Rule, parts: &Parts, usual: &[Arc<str>]) -> Option<Upgrade> {
    if !parts.headers.contains_key(header::UPGRADE) {
        return None;
    }
    let asked = Asked::read(parts, rule.upgrades.as_deref().unwrap_or(usual));
    Some(Upgrade { asked_for: asked.allowed, dropped: asked.refused })
}

/// The `Location` of a rule's redirect, the rule's changes of answers included.
pub fn redirect(rule: &Rule, redirect: &Redirect, taken: Taken<'_>) -> Result<String, Refused> {
    let location = taken.seen(|request| location(redirect, request)).map_err(Failure::from)?;
    let mut headers = HeaderMap::from_iter([(header::LOCATION, location)]);
    filters::edit_answer(&mut headers, &rule.filters);
    let lines = headers.get_all(header::LOCATION).iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
    Ok(lines.collect::<Vec<_>>().join(", "))
}

/// Whether the origin that a request names is one that the rule's filter lets in.
pub fn is_origin_allowed(rule: &Rule, headers: &HeaderMap) -> bool {
    preflight::cors(rule).is_some_and(|filter| cors::allows(filter, headers))
}

/// The status with which a rule answers a preflight by itself; `None` for a rule that does not.
pub fn preflight(rule: &Rule, asked: &Method, headers: &HeaderMap) -> Option<u16> {
    let filter = preflight::cors(rule)?;
    (!matches!(rule.action, Action::Invalid { .. })).then(|| cors::answer(filter, asked, headers).status().as_u16())
}
