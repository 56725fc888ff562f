//! Listeners that send every request to https.

use http::{HeaderMap, StatusCode, Uri};

use super::error::Failure;
use super::headers::{self, Peer};
use super::target::{self, RequestTarget};
use crate::ir::Redirect;
use crate::routing::host::Authority;
use crate::routing::path;
use crate::telemetry::metrics::Refusal;

/// 308 keeps method and body, so that a request of any method is the same one at its new place (RFC 9110, section
/// 15.4.9).
pub(super) const STATUS: StatusCode = StatusCode::PERMANENT_REDIRECT;

/// The port to send a request to, unless it came over TLS to a load balancer that says so.
pub(super) fn port(redirect: Option<u16>, headers: &HeaderMap, peer: &Peer) -> Option<u16> {
    redirect.filter(|_| !headers::came_over_tls(headers, peer))
}

/// Where a request is sent.
pub(super) fn location(
    port: u16,
    authority: Option<&Authority<'_>>,
    uri: &Uri,
    max_path: usize,
) -> Result<http::HeaderValue, Failure> {
    let path = path::normalise(uri.path()).map_err(|e| Failure::because(Refusal::BadPath, e.reason()))?;
    let redirect =
        Redirect { scheme: Some("https".into()), hostname: None, port: Some(port), path: None, status: STATUS };
    let request = RequestTarget { scheme: "http", authority, path: &path, query: uri.query(), matched: 0, max_path };
    Ok(target::location(&redirect, &request)?)
}
