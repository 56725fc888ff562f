//! Header fields that a gateway takes away and puts there: hop-by-hop fields, the forwarded family, edits of filters.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use super::proxy_protocol;
use crate::ir::HeaderEdit;
use crate::routing::host;

/// The request id, to the backend and back to the client.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
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
    FORWARDED_PORT,
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

/// Removes the fields with `_` in their name, and says how many. Many a backend takes `x_user` and `x-user` for the same
/// variable, and so a client's own for one that the gateway vouches for (RFC 9110, section 17.10).
pub(super) fn drop_underscored(headers: &mut HeaderMap) -> usize {
    let is_underscored = |name: &HeaderName| name.as_str().as_bytes().contains(&b'_');
    if !headers.keys().any(is_underscored) {
        return 0;
    }
    let before = headers.len();
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_underscored(name)).cloned().collect();
    remove_listed(headers, &names);
    before - headers.len()
}

const HTTP: &str = "http";
const HTTPS: &str = "https";

/// A client's certificate, to the backend (RFC 9440, section 2.2).
const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");

/// Fields that tell of a client's certificate, with `-` for whatever else is no letter: backends that make variables of
/// names do not tell them apart. Only the gateway knows, so nobody else may send one.
const IDENTITY_FAMILY: [&str; 3] = ["client-cert", "client-cert-chain", "x-forwarded-client-cert"];

fn is_identity(name: &str) -> bool {
    let same = |known: &&str| {
        let alike = |(own, known): (u8, u8)| own == known || (known == b'-' && !own.is_ascii_alphanumeric());
        name.len() == known.len() && name.bytes().zip(known.bytes()).all(alike)
    };
    // Names are in lower case. Most requests have none that begins so.
    name.starts_with(['c', 'x']) && IDENTITY_FAMILY.iter().any(same)
}

/// Puts the client's certificate, which verified, in the place of whatever the request says of one.
pub(super) fn identify(headers: &mut HeaderMap, certificate: Option<&HeaderValue>) {
    while let Some(name) = headers.keys().find(|name| is_identity(name.as_str())).cloned() {
        headers.remove(name);
    }
    if let Some(certificate) = certificate {
        headers.insert(CLIENT_CERT, certificate.clone());
    }
}

/// What the gateway knows of a client, prepared once per connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The socket's peer or, behind a load balancer that tells it, the load balancer's; an IPv4 address in IPv6 form
    /// folded.
    pub ip: IpAddr,
    /// Whether its forwarded fields are believed.
    pub trusted: bool,
    /// What the client speaks, to the gateway or to the load balancer: `http` or `https`.
    pub scheme: &'static str,
    /// The ends of its connection, its own first, as far as they are known.
    ends: Option<(SocketAddr, SocketAddr)>,
    forwarded_for: HeaderValue,
    /// The port of requests that name none.
    usual_port: HeaderValue,
    /// The port that a request named last; a client rarely names another on the same connection.
    named_port: RefCell<Option<(u16, HeaderValue)>>,
}

impl Peer {
    /// A client that connected itself from `ip`, to a listener that ends TLS or not; it is trusted when one of `trusted`
    /// contains it.
    pub(super) fn new(ip: IpAddr, trusted: &[IpNet], tls: bool) -> Self {
        Self::prepared(ip.to_canonical(), is_trusted(ip, trusted), if tls { HTTPS } else { HTTP }, None)
    }

    /// A client of whom the load balancer at `balancer` tells; `tls` as for [`Self::new`]. Where it tells no address the load balancer's is used, but
    /// forwarded fields are not believed: somebody behind it may have written them.
    pub(super) fn told(header: &proxy_protocol::Header, balancer: IpAddr, trusted: &[IpNet], tls: bool) -> Self {
        let scheme = if header.tls || tls { HTTPS } else { HTTP };
        match header.addresses {
            Some((source, destination)) => {
                let (ip, port) = (source.ip(), destination.port());
                let trusted = is_trusted(ip, trusted);
                let peer = Self::prepared(ip.to_canonical(), trusted, scheme, (port != 0).then_some(port));
                peer.between(header.addresses)
            }
            None => Self::prepared(balancer.to_canonical(), false, scheme, None),
        }
    }

    fn prepared(ip: IpAddr, trusted: bool, scheme: &'static str, port: Option<u16>) -> Self {
        // An address has no byte that a field value may not have.
        let forwarded_for =
            HeaderValue::from_str(&ip.to_string()).unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        let usual_port = port.map_or_else(|| usual_port(scheme), HeaderValue::from);
        Self { ip, trusted, scheme, ends: None, forwarded_for, usual_port, named_port: RefCell::default() }
    }

    /// The same with the ends of its connection, its own first, unless a load balancer has told them.
    pub(super) fn between(self, ends: Option<(SocketAddr, SocketAddr)>) -> Self {
        let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        let ends = ends.map(|(own, other)| (canonical(own), canonical(other)));
        Self { ends: self.ends.or(ends), ..self }
    }

    /// The ends of its connection, its own first, as far as they are known.
    pub(super) const fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.ends
    }

    /// Its address; port 0 where nobody has told it.
    pub(super) fn address(&self) -> SocketAddr {
        self.ends.map_or_else(|| SocketAddr::new(self.ip, 0), |(own, _)| own)
    }

    /// Whether the client came over TLS, to the gateway or to the load balancer.
    pub(super) fn is_https(&self) -> bool {
        self.scheme == HTTPS
    }

    /// The port that the client used: the one that the request names, else the load balancer's, else the scheme's. Never
    /// the listener's own, which the client does not know.
    fn port(&self, named: Option<u16>) -> HeaderValue {
        let Some(port) = named else { return self.usual_port.clone() };
        let mut kept = self.named_port.borrow_mut();
        match &*kept {
            Some((same, value)) if *same == port => value.clone(),
            _ => kept.insert((port, HeaderValue::from(port))).1.clone(),
        }
    }

    /// The client's address: the socket's peer, or what trusted peers report, counted from the right.
    pub(super) fn client_ip(&self, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
        if !self.trusted {
            return self.ip;
        }
        let mut client = self.ip;
        let lines = headers.get_all(FORWARDED_FOR).iter().rev().map(|v| v.to_str().unwrap_or_default());
        for entry in lines.flat_map(|line| line.rsplit(',')) {
            let Some(ip) = address(entry) else { break };
            client = ip.to_canonical();
            if !is_trusted(client, trusted) {
                break;
            }
        }
        client
    }
}

/// The address of an entry of `x-forwarded-for`. Some load balancers add the client's port, or write an IPv6 address in
/// brackets.
fn address(entry: &str) -> Option<IpAddr> {
    let entry = entry.trim();
    let bare = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(entry);
    bare.parse().ok().or_else(|| Some(entry.parse::<SocketAddr>().ok()?.ip()))
}

/// Whether one of `trusted` contains `ip`, an IPv4 address in IPv6 form folded.
pub(super) fn is_trusted(ip: IpAddr, trusted: &[IpNet]) -> bool {
    let ip = ip.to_canonical();
    trusted.iter().any(|net| net.contains(&ip))
}

fn usual_port(scheme: &str) -> HeaderValue {
    HeaderValue::from_static(if scheme == HTTPS { "443" } else { "80" })
}

/// Whether the client came over TLS, to the gateway or, as a trusted peer says, to one in front of it.
pub(super) fn came_over_tls(headers: &HeaderMap, peer: &Peer) -> bool {
    let told =
        || headers.get(FORWARDED_PROTO).is_some_and(|told| told.as_bytes().eq_ignore_ascii_case(HTTPS.as_bytes()));
    peer.is_https() || (peer.trusted && told())
}

/// Rebuilds the forwarded family: a trusted peer's fields are kept and added to, anybody else's dropped. `port` is that
/// of the request's host, if it names one.
pub(super) fn forward(headers: &mut HeaderMap, peer: &Peer, port: Option<u16>) {
    if peer.trusted {
        extend(headers, peer, port);
        return;
    }
    if headers.keys().any(|name| FORWARDED_FAMILY.contains(name)) {
        remove_listed(headers, &FORWARDED_FAMILY);
    }
    headers.insert(FORWARDED_FOR, peer.forwarded_for.clone());
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(peer.scheme));
    headers.insert(FORWARDED_PORT, peer.port(port));
    if let Some(host) = headers.get(header::HOST).cloned() {
        headers.insert(FORWARDED_HOST, host);
    }
}

/// Adds what a trusted peer has left out.
fn extend(headers: &mut HeaderMap, peer: &Peer, port: Option<u16>) {
    let mut chain: Vec<u8> = Vec::new();
    for line in headers.get_all(FORWARDED_FOR) {
        chain.extend_from_slice(line.as_bytes());
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(peer.forwarded_for.as_bytes());
    let value = HeaderValue::from_bytes(&chain).unwrap_or_else(|_| peer.forwarded_for.clone());
    headers.insert(FORWARDED_FOR, value);
    if !headers.contains_key(FORWARDED_PORT) {
        let port = port_told(headers, peer, port);
        headers.insert(FORWARDED_PORT, port);
    }
    if !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(peer.scheme));
    }
    if !headers.contains_key(FORWARDED_HOST)
        && let Some(host) = headers.get(header::HOST).cloned()
    {
        headers.insert(FORWARDED_HOST, host);
    }
}

/// Adds this hop to `Forwarded` (RFC 7239), behind what a trusted peer says there. Comes after [`forward`], which has
/// dropped anybody else's.
pub(super) fn add_forwarded(headers: &mut HeaderMap, peer: &Peer) {
    let mut chain: Vec<u8> = Vec::new();
    for line in headers.get_all(header::FORWARDED) {
        chain.extend_from_slice(line.as_bytes());
        chain.extend_from_slice(b", ");
    }
    match peer.ip {
        IpAddr::V4(ip) => chain.extend_from_slice(format!("for={ip}").as_bytes()),
        // Colons and brackets are no token (section 4).
        IpAddr::V6(ip) => chain.extend_from_slice(format!("for=\"[{ip}]\"").as_bytes()),
    }
    if let Some(host) = headers.get(header::HOST).filter(|host| !host.is_empty()) {
        chain.extend_from_slice(b";host=\"");
        for &byte in host.as_bytes() {
            if matches!(byte, b'"' | b'\\') {
                chain.push(b'\\');
            }
            chain.push(byte);
        }
        chain.push(b'"');
    }
    chain.extend_from_slice(b";proto=");
    chain.extend_from_slice(peer.scheme.as_bytes());
    // All of it was in field values, or has no byte that they may not have.
    if let Ok(value) = HeaderValue::from_bytes(&chain) {
        headers.insert(header::FORWARDED, value);
    }
}

/// The port that fits what a trusted peer says of host and scheme, where it says nothing of the port.
fn port_told(headers: &HeaderMap, peer: &Peer, port: Option<u16>) -> HeaderValue {
    let named = match headers.get(FORWARDED_HOST) {
        Some(told) => told.to_str().ok().and_then(|told| host::parse(told).ok()?.port),
        None => port,
    };
    match headers.get(FORWARDED_PROTO).map(HeaderValue::as_bytes) {
        Some(b"https") if named.is_none() => usual_port(HTTPS),
        Some(b"http") if named.is_none() => usual_port(HTTP),
        _ => peer.port(named),
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
