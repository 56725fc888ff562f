//! Services and `EndpointSlices` to endpoint sets. Pure.
//!
//! The endpoints of a Service port are the union of all slices of the Service, each address once, of the Service's
//! first IP family. A port is found by the name that the Service gives it, in each slice for itself: slices may serve
//! the same name on different numbers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;

use crate::ir::{ClusterId, ClusterPlace, Endpoint, EndpointSet, EndpointState, ObjectName};

/// The label of an `EndpointSlice` that names its Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    fn named(name: &str) -> Option<Self> {
        match name {
            "IPv4" => Some(Self::V4),
            "IPv6" => Some(Self::V6),
            _ => None,
        }
    }

    const fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// A TCP port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; empty where a Service's only port has none.
    pub name: Arc<str>,
    /// The number clients of the Service use.
    pub number: u16,
    /// Its `appProtocol`, as the object has it.
    pub app_protocol: Option<Arc<str>>,
}

/// What is needed of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Its first IP family, where it says so.
    pub family: Option<Family>,
    /// Whether it is but a DNS alias, which no slice belongs to.
    pub is_external_name: bool,
    /// Its TCP ports in the order of the object.
    pub ports: Vec<ServicePort>,
}

impl From<&core::Service> for Service {
    fn from(service: &core::Service) -> Self {
        let Some(spec) = &service.spec else { return Self::default() };
        let declared = spec.ip_families.as_deref().and_then(|families| families.first());
        let inferred = || spec.cluster_ip.as_deref().and_then(|ip| ip.parse().ok()).map(Family::of);
        let port = |port: &core::ServicePort| {
            let name = port.name.as_deref().unwrap_or_default().into();
            let app_protocol = port.app_protocol.as_deref().filter(|name| !name.is_empty()).map(Arc::from);
            Some(ServicePort { name, number: positive(port.port)?, app_protocol })
        };
        Self {
            family: declared.and_then(|name| Family::named(name)).or_else(inferred),
            is_external_name: spec.type_.as_deref() == Some("ExternalName"),
            ports: spec.ports.iter().flatten().filter(|p| is_tcp(p.protocol.as_deref())).filter_map(port).collect(),
        }
    }
}

fn is_tcp(protocol: Option<&str>) -> bool {
    protocol.is_none_or(|protocol| protocol == "TCP")
}

fn positive(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port > 0)
}

/// What is needed of an `EndpointSlice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The Service it belongs to.
    pub service: ObjectName,
    family: Family,
    /// Names and numbers. What they speak is the Service's to say.
    ports: Vec<(Arc<str>, u16)>,
    endpoints: Vec<(IpAddr, EndpointState)>,
}

/// Why an `EndpointSlice` is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSlice {
    /// It belongs to no Service.
    #[error("metadata.labels: no label {SERVICE_LABEL}, so that the slice belongs to no Service")]
    NoService,
    /// Its addresses are no IP addresses.
    #[error("addressType: {0} is not supported; it must be IPv4 or IPv6")]
    AddressType(String),
}

impl TryFrom<&discovery::EndpointSlice> for Slice {
    type Error = UnusableSlice;

    fn try_from(slice: &discovery::EndpointSlice) -> Result<Self, UnusableSlice> {
        let metadata = &slice.metadata;
        let service = metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_LABEL));
        let service = service.filter(|name| !name.is_empty()).ok_or(UnusableSlice::NoService)?;
        let family =
            Family::named(&slice.address_type).ok_or_else(|| UnusableSlice::AddressType(slice.address_type.clone()))?;
        let port = |port: &discovery::EndpointPort| {
            let name: Arc<str> = port.name.as_deref().unwrap_or_default().into();
            Some((name, port.port.and_then(positive)?))
        };
        let endpoint = |endpoint: &discovery::Endpoint| {
            // Kubernetes gives no meaning to further addresses of one endpoint.
            let address: IpAddr = endpoint.addresses.first()?.parse().ok()?;
            (Family::of(address) == family).then_some((address, state(endpoint.conditions.as_ref())?))
        };
        Ok(Self {
            service: ObjectName::new(metadata.namespace.as_deref().unwrap_or_default(), service.as_str()),
            family,
            ports: slice.ports.iter().flatten().filter(|p| is_tcp(p.protocol.as_deref())).filter_map(port).collect(),
            endpoints: slice.endpoints.iter().filter_map(endpoint).collect(),
        })
    }
}

/// The state that conditions stand for; `None` for an endpoint that takes no traffic at all. Absent `ready` and
/// `serving` are true, absent `terminating` is false.
fn state(conditions: Option<&discovery::EndpointConditions>) -> Option<EndpointState> {
    let Some(conditions) = conditions else { return Some(EndpointState::Ready) };
    if conditions.ready.unwrap_or(true) {
        return Some(EndpointState::Ready);
    }
    let drains = conditions.terminating.unwrap_or(false) && conditions.serving.unwrap_or(true);
    drains.then_some(EndpointState::Draining)
}

/// The endpoints of a Cluster that stands for a port of a Service: none where the Service or the port is not there.
pub fn endpoint_set<'a>(
    cluster: &ClusterId,
    service: Option<&Service>,
    slices: impl Iterator<Item = &'a Slice> + Clone,
) -> EndpointSet {
    let mut found: BTreeMap<SocketAddr, EndpointState> = BTreeMap::new();
    let port = service.zip(number_of(cluster)).and_then(|(service, number)| {
        service.ports.iter().find(|port| port.number == number).map(|port| (service, &port.name))
    });
    if let Some((service, name)) = port {
        let family = service.family.or_else(|| slices.clone().map(|slice| slice.family).min());
        for slice in slices.filter(|slice| Some(slice.family) == family) {
            for (_, number) in slice.ports.iter().filter(|(port, _)| port == name) {
                for (address, state) in &slice.endpoints {
                    // While an endpoint moves between slices it is in two of them: the better state counts.
                    let entry = found.entry(SocketAddr::new(*address, *number)).or_insert(*state);
                    *entry = (*entry).min(*state);
                }
            }
        }
    }
    let none_ready = found.values().all(|state| *state == EndpointState::Draining);
    let endpoint = |(addr, state)| Endpoint { addr, state: if none_ready { EndpointState::Ready } else { state } };
    EndpointSet { cluster: cluster.clone(), endpoints: found.into_iter().map(endpoint).collect() }
}

fn number_of(cluster: &ClusterId) -> Option<u16> {
    match &cluster.place {
        ClusterPlace::Service { port, .. } => Some(*port),
        ClusterPlace::Host { .. } => None,
    }
}

#[cfg(test)]
mod tests;
