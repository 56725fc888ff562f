//! Clusters and endpoints: where requests go.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;

use super::{BackendTls, ObjectName};

/// What endpoints are spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: without TLS begun with prior knowledge (RFC 9113, section 3.3), with TLS agreed on.
    Http2,
    /// What clients and endpoints have agreed on, of which the gateway sees nothing.
    Opaque,
}

/// How endpoints are told of clients in front of their bytes (`HAProxy`'s `proxy-protocol.txt`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum ProxyProtocol {
    /// By a line of text.
    V1,
    /// In binary, with whether the client came over TLS.
    V2,
}

/// What a Cluster stands for; names it across tables. Another protocol is another Cluster, so that no connection
/// outlives the change and none is used for what it was not made for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterId {
    /// Where its endpoints are.
    pub place: ClusterPlace,
    /// What they are spoken to in.
    pub protocol: Protocol,
    /// The TLS that it is spoken over, if it is.
    pub tls: Option<Arc<BackendTls>>,
    /// How it is told of clients, if it is: then every connection is for one of them.
    pub proxy_protocol: Option<ProxyProtocol>,
}

/// Where the endpoints of a Cluster are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClusterPlace {
    /// At a port of a Service.
    Service {
        /// The Service.
        service: ObjectName,
        /// The number of the Service's port.
        port: u16,
    },
    /// At a host and port outside the cluster.
    Host {
        /// An IP address or a DNS name.
        host: Arc<str>,
        /// The port.
        port: u16,
    },
}

impl ClusterId {
    /// A port of a Service.
    pub const fn service(service: ObjectName, port: u16, protocol: Protocol) -> Self {
        Self { place: ClusterPlace::Service { service, port }, protocol, tls: None, proxy_protocol: None }
    }

    /// A host and port that are spoken to in HTTP/1.1.
    pub fn host(host: impl Into<Arc<str>>, port: u16) -> Self {
        let place = ClusterPlace::Host { host: host.into(), port };
        Self { place, protocol: Protocol::Http1, tls: None, proxy_protocol: None }
    }

    /// What the Cluster's endpoints are spoken to in.
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }
}

impl fmt::Display for ClusterId {
    /// `namespace/service:port` or `host:port`: the `cluster` label of metrics, whose series go on when the protocol
    /// of a port changes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ClusterPlace::Service { service, port } => write!(f, "{service}:{port}"),
            ClusterPlace::Host { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            ClusterPlace::Host { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl Serialize for ClusterId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let protocol = match (self.protocol, &self.tls) {
            (Protocol::Http1, _) => "",
            (Protocol::Http2, None) => " h2c",
            (Protocol::Http2, Some(_)) => " h2",
            (Protocol::Opaque, _) => " opaque",
        };
        let proxied = match self.proxy_protocol {
            None => "",
            Some(ProxyProtocol::V1) => " proxy v1",
            Some(ProxyProtocol::V2) => " proxy v2",
        };
        match &self.tls {
            None => serializer.collect_str(&format_args!("{self}{protocol}{proxied}")),
            Some(tls) => serializer.collect_str(&format_args!("{self}{protocol}{proxied} tls {}", tls.hostname)),
        }
    }
}

/// How a Cluster learns its endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Target {
    /// From the source's `EndpointSlices`, by [`EndpointSet`].
    Slices,
    /// One fixed address.
    Address(SocketAddr),
    /// A DNS name that the data plane resolves.
    Dns {
        /// The name.
        name: Arc<str>,
        /// The port.
        port: u16,
    },
}

/// A Cluster of the data plane, without its endpoints: those move without a new table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cluster {
    /// Its identity.
    pub id: ClusterId,
    /// Where its endpoints come from.
    pub target: Target,
}

/// Whether an endpoint takes new requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum EndpointState {
    /// Takes requests.
    Ready,
    /// Finishes those it has.
    Draining,
}

/// One address of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Endpoint {
    /// Where to connect.
    pub addr: SocketAddr,
    /// Whether it takes new requests.
    pub state: EndpointState,
}

/// All endpoints of one Cluster at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndpointSet {
    /// The Cluster.
    pub cluster: ClusterId,
    /// Sorted by address, each address once.
    pub endpoints: Vec<Endpoint>,
}
