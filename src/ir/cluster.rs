//! Clusters and endpoints: where requests go.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;

use super::ObjectName;

/// What endpoints are spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2 without TLS, begun with prior knowledge (RFC 9113, section 3.3).
    H2c,
}

/// What a Cluster stands for; names it across tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClusterId {
    /// A port of a Service.
    Service {
        /// The Service.
        service: ObjectName,
        /// The number of the Service's port.
        port: u16,
        /// What the port speaks: another protocol is another Cluster, so that no connection outlives the change.
        protocol: Protocol,
    },
    /// A host and port outside the cluster.
    Host {
        /// An IP address or a DNS name.
        host: Arc<str>,
        /// The port.
        port: u16,
    },
}

impl ClusterId {
    /// What the Cluster's endpoints are spoken to in.
    pub const fn protocol(&self) -> Protocol {
        match self {
            Self::Service { protocol, .. } => *protocol,
            Self::Host { .. } => Protocol::Http1,
        }
    }
}

impl fmt::Display for ClusterId {
    /// `namespace/service:port` or `host:port`: the `cluster` label of metrics, whose series go on when the protocol
    /// of a port changes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service { service, port, .. } => write!(f, "{service}:{port}"),
            Self::Host { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Host { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl Serialize for ClusterId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.protocol() {
            Protocol::Http1 => serializer.collect_str(self),
            Protocol::H2c => serializer.collect_str(&format_args!("{self} h2c")),
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
