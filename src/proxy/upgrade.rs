//! Requests that ask to go on in another protocol: with `Upgrade` (RFC 9110, section 7.8), or with extended CONNECT in HTTP/2
//! (RFC 8441).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use h2::ext::Protocol;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

const WEBSOCKET: &str = "websocket";
const UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");

/// In a request's extensions: it came as extended CONNECT, for this protocol.
#[derive(Clone, Debug)]
pub(super) struct Extended(pub Arc<str>);

/// The protocols that a request may ask its backend for, one at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// As the client wrote them, in the client's order.
    protocols: Vec<Arc<str>>,
    /// Of extended CONNECT, whose clients leave the handshake of WebSocket to the gateway: its key.
    key: Option<HeaderValue>,
}

/// What a client asked for and what of it is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// To be asked of a backend.
    pub allowed: Vec<Arc<str>>,
    /// The others.
    pub refused: Vec<Arc<str>>,
}

impl Asked {
    /// Reads a request's head. Nothing is asked where `Connection` does not say that `Upgrade` is meant for the gateway,
    /// nor by a client of HTTP/1.0.
    pub(super) fn read(parts: &Parts, allowed: &[Arc<str>]) -> Self {
        let mut asked = Self::default();
        let is_meant = entries(&parts.headers, header::CONNECTION).any(|option| option.eq_ignore_ascii_case("upgrade"));
        if parts.version != Version::HTTP_11 || !is_meant {
            return asked;
        }
        for protocol in entries(&parts.headers, header::UPGRADE) {
            let is_allowed = allowed.iter().any(|allowed| covers(allowed, protocol));
            let list = if is_allowed { &mut asked.allowed } else { &mut asked.refused };
            list.push(protocol.into());
        }
        asked
    }

    /// What a backend is to be asked for.
    pub(super) fn wanted(self) -> Option<Wanted> {
        (!self.allowed.is_empty()).then_some(Wanted { protocols: self.allowed, key: None })
    }
}

/// Makes a request of extended CONNECT what it stands for: a GET that asks for the protocol (RFC 8441, section 5). False if
/// it is none.
pub(super) fn unfold<B>(request: &mut Request<B>) -> bool {
    if *request.method() != Method::CONNECT {
        return false;
    }
    let Some(protocol) = request.extensions_mut().remove::<Protocol>() else { return false };
    *request.method_mut() = Method::GET;
    request.extensions_mut().insert(Extended(protocol.as_str().into()));
    true
}

impl Wanted {
    /// What extended CONNECT asks a backend for; `None` if it is not allowed.
    pub(super) fn extended(
        Extended(protocol): Extended,
        allowed: &[Arc<str>],
        mut random: impl FnMut() -> u64,
    ) -> Option<Self> {
        if !allowed.iter().any(|allowed| covers(allowed, &protocol)) {
            return None;
        }
        // Sixteen bytes (RFC 6455, section 4.1).
        let key = STANDARD.encode([random().to_be_bytes(), random().to_be_bytes()].concat());
        Some(Self { protocols: vec![protocol], key: HeaderValue::try_from(key).ok() })
    }

    /// Whether the client has asked with extended CONNECT.
    pub(super) fn is_extended(&self) -> bool {
        self.key.is_some()
    }

    /// Has a request ask for the protocols. To be called when everybody else is done with its head.
    pub(super) fn ask(&self, headers: &mut HeaderMap) {
        // They came in a field's value, and have no comma.
        let Ok(list) = HeaderValue::from_str(&self.protocols.join(", ")) else { return };
        headers.insert(header::UPGRADE, list);
        headers.insert(header::CONNECTION, UPGRADE);
        if let Some(key) = &self.key {
            headers.insert(header::SEC_WEBSOCKET_KEY, key.clone());
        }
    }

    /// The protocol that a 101 changes to; `None` where it names none, or one that nobody asked for.
    pub(super) fn agreed<B>(&self, answer: &Response<B>) -> Option<Arc<str>> {
        let mut named = entries(answer.headers(), header::UPGRADE).map(|name| {
            let asked = self.protocols.iter().find(|asked| asked.eq_ignore_ascii_case(name));
            asked.map(Arc::clone)
        });
        let first = named.next()??;
        // With `Upgrade` that is for the client to look at, who knows the key.
        let is_proven = |key: &HeaderValue| {
            let accept = answer.headers().get(header::SEC_WEBSOCKET_ACCEPT);
            accept.is_some_and(|accept| accept.as_bytes() == derive_accept_key(key.as_bytes()).as_bytes())
        };
        if first.eq_ignore_ascii_case(WEBSOCKET) && self.key.as_ref().is_some_and(|key| !is_proven(key)) {
            return None;
        }
        // Several are layers of one protocol over another: each must have been asked for.
        named.all(|other| other.is_some()).then_some(first)
    }
}

/// Makes a 101's head the answer to extended CONNECT.
pub(super) fn confirm<B>(answer: &mut Response<B>) {
    *answer.status_mut() = StatusCode::OK;
    for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::UPGRADE, header::SEC_WEBSOCKET_ACCEPT] {
        answer.headers_mut().remove(name);
    }
}

/// Makes a 101's head what the client has to see. `protocol` is the one that was agreed on.
pub(super) fn announce(headers: &mut HeaderMap, protocol: &str) {
    // It has no body, and must not speak of one (RFC 9110, section 8.6, and RFC 9112, section 6.1).
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRANSFER_ENCODING);
    if let Ok(protocol) = HeaderValue::from_str(protocol) {
        headers.insert(header::UPGRADE, protocol);
    }
    headers.insert(header::CONNECTION, UPGRADE);
}

/// Whether an entry of a list allows a protocol. One without a version allows every version.
fn covers(allowed: &str, protocol: &str) -> bool {
    let (name, version) = protocol.split_once('/').map_or((protocol, None), |(name, version)| (name, Some(version)));
    let is_any_version = !allowed.contains('/') && version.is_none_or(|v| v.bytes().all(|b| b.is_ascii_graphic()));
    allowed.eq_ignore_ascii_case(protocol) || (is_any_version && allowed.eq_ignore_ascii_case(name))
}

/// The entries of a field that is a list.
fn entries(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests;
