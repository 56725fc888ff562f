//! What the proxy would make of a request, told without sending it: the same judgements, by the same functions.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Version};
use ipnet::IpNet;

use super::error::status;
use super::headers::Peer;
use super::target::{RequestTarget, location, origin_form, rewrite_path};
use crate::ir::{Filter, Redirect, Rule};
use crate::routing::{Miss, host, path};
use crate::telemetry::metrics::Refusal;

/// The scheme of the listeners there are: plain HTTP.
const SCHEME: &str = "http";

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

impl From<Miss> for Refused {
    fn from(miss: Miss) -> Self {
        let reason = match miss {
            Miss::NoHost | Miss::NoSelector => Refusal::NoSelector,
            Miss::NoMatch => Refusal::NoRoute,
        };
        Self::because(reason, miss)
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

/// Judges a request's head as the proxy does, and brings host and path into their one form.
pub fn judge(parts: &Parts, max_uri: u64) -> Result<Head, Refused> {
    let authority = authority(parts, max_uri)?;
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

fn authority(parts: &Parts, max_uri: u64) -> Result<String, Refused> {
    if parts.method == Method::CONNECT {
        return Err(Refused::because(Refusal::NotImplemented, "CONNECT is not served"));
    }
    let length = parts.uri.path_and_query().map_or(0, |p| p.as_str().len() as u64);
    if length > max_uri {
        return Err(Refused::because(Refusal::UriTooLong, format!("the target has {length} bytes, at most {max_uri}")));
    }
    if let Some(expect) = parts.headers.get(header::EXPECT)
        && !expect.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        return Err(Refused::because(Refusal::ExpectationFailed, "Expect knows 100-continue alone"));
    }
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Refused::because(Refusal::BadRequest, "there is more than one Host"));
    }
    if let Some(authority) = parts.uri.authority() {
        if authority.as_str().contains('@') {
            return Err(Refused::because(Refusal::BadRequest, "there is user information in the target"));
        }
        return Ok(authority.as_str().to_owned());
    }
    match host.map(HeaderValue::to_str) {
        Some(Ok("")) => Err(Refused::because(Refusal::NoHost, "Host is empty")),
        Some(Ok(host)) => Ok(host.to_owned()),
        Some(Err(error)) => Err(Refused::because(Refusal::BadRequest, error)),
        None if parts.version <= Version::HTTP_10 => Ok(String::new()),
        None => Err(Refused::because(Refusal::NoHost, "there is no Host")),
    }
}

/// The client's address: `peer`, or what it reports if it is among `trusted`.
pub fn client_ip(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    Peer::new(peer, trusted).client_ip(headers, trusted)
}

/// The target and `Host` that a rule's backends get.
pub fn upstream(rule: &Rule, head: &Head, query: Option<&str>, matched: usize) -> Result<(String, String), Refused> {
    let rewrites = || {
        rule.filters.iter().filter_map(|filter| match filter {
            Filter::Rewrite { hostname, path } => Some((hostname, path)),
            _ => None,
        })
    };
    let path = rewrites().find_map(|(_, path)| path.as_ref());
    let path = path.map(|rewrite| rewrite_path(&head.path, matched, rewrite));
    let target = origin_form(path.as_deref().unwrap_or(&head.path), query);
    let target = target.map_err(|e| Refused::because(Refusal::BadRequest, e))?;
    let hostname = rewrites().filter_map(|(hostname, _)| hostname.as_deref()).next_back();
    Ok((target.to_string(), hostname.unwrap_or(&head.authority).to_owned()))
}

/// The `Location` of a redirect.
pub fn redirect(redirect: &Redirect, head: &Head, query: Option<&str>, matched: usize) -> Result<String, Refused> {
    let request = RequestTarget { scheme: SCHEME, host: &head.authority, path: &head.path, query, matched };
    let location = location(redirect, &request).map_err(|e| Refused::because(Refusal::BadRequest, e))?;
    Ok(String::from_utf8_lossy(location.as_bytes()).into_owned())
}
