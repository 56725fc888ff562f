//! Header fields that a gateway takes away and puts there: hop-by-hop fields, the forwarded family, edits of filters.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use crate::ir::HeaderEdit;

/// The request id, to the backend and back to the client.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields that speak of one connection only, whether `Connection` names them or not (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Fields that only a peer of the same side may set; a client's own are dropped.
const FORWARDED_FAMILY: [HeaderName; 8] = [
    HeaderName::from_static("forwarded"),
    FORWARDED_FOR,
    FORWARDED_HOST,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    FORWARDED_PROTO,
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-real-ip"),
];

/// What `Connection` may not take away: a client could hide from the backend what the gateway relies on.
fn is_protected(name: &HeaderName) -> bool {
    matches!(*name, header::HOST | header::AUTHORIZATION | header::CONTENT_LENGTH | header::COOKIE)
        || FORWARDED_FAMILY.contains(name)
        || *name == REQUEST_ID
}

/// Removes the hop-by-hop fields of a message, those that `Connection` names included; keeps `TE: trailers`.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .flat_map(|v| v.split(','))
            .filter_map(|n| n.trim().parse().ok())
            .filter(|n| !is_protected(n))
            .collect();
        // `TE` has to be named in `Connection`; what it says about trailers still has to reach the backend.
        let trailers = takes_trailers(headers);
        for name in named {
            headers.remove(name);
        }
        remove_listed(headers, &HOP_BY_HOP);
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
    } else if headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        let trailers = takes_trailers(headers);
        remove_listed(headers, &HOP_BY_HOP);
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
    }
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::TE)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

fn remove_listed(headers: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        headers.remove(name);
    }
}

/// What the gateway knows of a client, prepared once per connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The socket's peer, an IPv4 address in IPv6 form folded.
    pub ip: IpAddr,
    /// Whether its forwarded fields are believed.
    pub trusted: bool,
    forwarded_for: HeaderValue,
}

impl Peer {
    /// Prepares what is sent of `ip`; it is trusted when one of `trusted` contains it.
    pub(super) fn new(ip: IpAddr, trusted: &[IpNet]) -> Self {
        let ip = ip.to_canonical();
        // An address has no byte that a field value may not have.
        let forwarded_for =
            HeaderValue::from_str(&ip.to_string()).unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        Self { ip, trusted: is_trusted(ip, trusted), forwarded_for }
    }

    /// The client's address: the socket's peer, or what trusted peers report, counted from the right.
    pub(super) fn client_ip(&self, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
        if !self.trusted {
            return self.ip;
        }
        let mut client = self.ip;
        let lines: Vec<&str> = headers.get_all(FORWARDED_FOR).iter().map(|v| v.to_str().unwrap_or_default()).collect();
        for entry in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
            let Ok(ip) = entry.trim().parse::<IpAddr>() else { break };
            client = ip.to_canonical();
            if !is_trusted(client, trusted) {
                break;
            }
        }
        client
    }
}

fn is_trusted(ip: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|net| net.contains(&ip))
}

/// Rebuilds the forwarded family: a trusted peer's fields are kept and added to, anybody else's dropped.
pub(super) fn forward(headers: &mut HeaderMap, peer: &Peer, proto: &'static str) {
    if peer.trusted {
        let mut chain: Vec<u8> = Vec::new();
        for line in headers.get_all(FORWARDED_FOR) {
            chain.extend_from_slice(line.as_bytes());
            chain.extend_from_slice(b", ");
        }
        chain.extend_from_slice(peer.forwarded_for.as_bytes());
        let value = HeaderValue::from_bytes(&chain).unwrap_or_else(|_| peer.forwarded_for.clone());
        headers.insert(FORWARDED_FOR, value);
    } else {
        if headers.keys().any(|name| FORWARDED_FAMILY.contains(name)) {
            remove_listed(headers, &FORWARDED_FAMILY);
        }
        headers.insert(FORWARDED_FOR, peer.forwarded_for.clone());
    }
    if !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(proto));
    }
    if !headers.contains_key(FORWARDED_HOST)
        && let Some(host) = headers.get(header::HOST).cloned()
    {
        headers.insert(FORWARDED_HOST, host);
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The request's id: a trusted peer's, else a new one of 128 bits in hexadecimal.
pub(super) fn request_id(headers: &HeaderMap, trusted: bool, mut random: impl FnMut() -> u64) -> HeaderValue {
    if trusted && let Some(id) = headers.get(REQUEST_ID) {
        return id.clone();
    }
    let mut text = [0; 32];
    for half in text.chunks_mut(16) {
        let mut bits = random();
        for digit in half {
            *digit = HEX[(bits & 15) as usize];
            bits >>= 4;
        }
    }
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("-"))
}

/// Applies a filter's changes: remove, then set, then add.
pub(super) fn edit(headers: &mut HeaderMap, edit: &HeaderEdit) {
    for name in &edit.remove {
        headers.remove(name);
    }
    for (name, value) in &edit.set {
        headers.insert(name, value.clone());
    }
    for (name, value) in &edit.add {
        headers.append(name, value.clone());
    }
}

#[cfg(test)]
mod tests;
