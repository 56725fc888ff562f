//! Listeners that send every request to https, and answers that tell of HTTP/3.

use http::header;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, Version};

use super::Worker;
use super::connection::Client;
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
) -> Result<HeaderValue, Failure> {
    let path = path::normalise(uri.path()).map_err(|e| Failure::because(Refusal::BadPath, e.reason()))?;
    let redirect =
        Redirect { scheme: Some("https".into()), hostname: None, port: Some(port), path: None, status: STATUS };
    let request = RequestTarget { scheme: "http", authority, path: &path, query: uri.query(), matched: 0, max_path };
    Ok(target::location(&redirect, &request)?)
}

/// What answers say of HTTP/3 at this port of the same host (RFC 7838): for a day, and on other networks too.
pub(super) fn alternative(port: u16) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("h3=\":{port}\"; ma=86400")).ok()
}

/// Tells a client that came over TLS and TCP of HTTP/3, if its listener has that. Of its backend's own alternatives none is
/// the gateway's.
pub(super) fn advertise(worker: &Worker, client: &Client, version: Version, headers: &mut HeaderMap) {
    if client.secured.is_some()
        && version < Version::HTTP_3
        && let Some(Some(value)) = worker.shared.alternatives.get(client.local.index.0)
    {
        headers.insert(header::ALT_SVC, value.clone());
    }
}
