//! Backends of a rule: references to Services, and hosts outside the cluster.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crate::api::reason::{BACKEND_NOT_FOUND, INVALID, REF_NOT_PERMITTED, UNSUPPORTED_PROTOCOL, UNSUPPORTED_VALUE};
use crate::api::{self, BackendPort};
use crate::ir::{Backend, BackendTarget, Cluster, ClusterId, Hostname, ObjectName, Protocol, Target};
use crate::source::endpoints::{Service, ServicePort};

use super::filters::{Broken, backend_filters};
use super::report::{Field, Report};
use super::{HostBackends, World};

/// What backends are to be spoken to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    /// A version of HTTP, as the port says.
    Http,
    /// What the client speaks, whatever the port says.
    Clients,
}

/// The backends of a rule. One that cannot be used stays with its weight, so that its share is refused instead of
/// going to the others.
pub(super) fn backends(
    backends: &[api::Backend],
    (namespace, speech): (&str, Speech),
    world: &impl World,
    rule: &Field<'_>,
    (accepted, report): (&mut Report, &mut Report),
    clusters: &mut Vec<Arc<Cluster>>,
) -> Vec<Backend> {
    let mut result = Vec::with_capacity(backends.len());
    for (index, backend) in backends.iter().enumerate() {
        let entry = rule.entry("backends", index);
        let filters = backend_filters(&backend.filters, &entry, accepted);
        let target = match (cluster(&backend.reference(), (namespace, speech), world), &filters) {
            (Ok(cluster), Ok(_)) => {
                let id = cluster.id.clone();
                clusters.push(Arc::new(cluster));
                BackendTarget::Cluster(id)
            }
            // A request that a filter should have changed goes nowhere without the change.
            (Ok(_), Err(Broken)) => BackendTarget::Invalid { reason: INVALID },
            (Err(problem), _) => {
                problem.tell(&entry, report);
                BackendTarget::Invalid { reason: problem.reason }
            }
        };
        result.push(Backend { weight: backend.weight, target, filters: filters.unwrap_or_default() });
    }
    if !result.is_empty() && result.iter().all(|backend| backend.weight == 0) {
        report.add(INVALID, &rule.member("backends"), "every weight is 0: the rule answers 500");
    }
    result
}

/// Why a reference cannot be used.
pub(super) struct Problem {
    reason: &'static str,
    member: Option<&'static str>,
    what: String,
}

impl Problem {
    /// Reports it at the reference or its member.
    pub(super) fn tell(&self, reference: &Field<'_>, report: &mut Report) {
        match self.member {
            Some(member) => report.add(self.reason, &reference.member(member), &self.what),
            None => report.add(self.reason, reference, &self.what),
        }
    }
}

fn problem(reason: &'static str, member: impl Into<Option<&'static str>>, what: impl Into<String>) -> Problem {
    Problem { reason, member: member.into(), what: what.into() }
}

/// The Cluster that a reference of an object in `namespace` leads to.
pub(super) fn cluster(
    backend: &api::BackendReference,
    (namespace, speech): (&str, Speech),
    world: &impl World,
) -> Result<Cluster, Problem> {
    match (&backend.service, &backend.host) {
        (Some(service), None) => {
            let name = ObjectName::new(backend.namespace.as_deref().unwrap_or(namespace), service.as_str());
            service_cluster(name, &backend.port, (namespace, speech), world)
        }
        (None, Some(host)) => host_cluster(host, &backend.port, speech, &world.settings().host_backends),
        _ => Err(problem(INVALID, None, "a backend needs either service or host")),
    }
}

fn service_cluster(
    name: ObjectName,
    port: &BackendPort,
    (namespace, speech): (&str, Speech),
    world: &impl World,
) -> Result<Cluster, Problem> {
    // Comes first and says the same whether the Service is there or not: that is its namespace's secret.
    if *name.namespace != *namespace && !world.is_granted(namespace, &name) {
        let what = format!(
            "no ReferenceGrant in namespace {} lets Routes of namespace {namespace} refer to Service {}",
            name.namespace, name.name
        );
        return Err(problem(REF_NOT_PERMITTED, None, what));
    }
    let Some(service) = world.service(&name) else {
        return Err(problem(BACKEND_NOT_FOUND, "service", format!("Service {name} does not exist")));
    };
    if service.is_external_name {
        let what = format!("Service {name} is of type ExternalName, which is not supported");
        return Err(problem(UNSUPPORTED_VALUE, "service", what));
    }
    let found = service.ports.iter().find(|candidate| match port {
        BackendPort::Number(number) => candidate.number == *number,
        BackendPort::Name(name) => *candidate.name == **name,
    });
    let Some(found) = found else {
        return Err(problem(BACKEND_NOT_FOUND, "port", no_port(&name, port, service)));
    };
    let Some(protocol) = protocol(found.app_protocol.as_deref(), speech) else {
        let what = format!(
            "port {} of Service {name} has appProtocol {}, which the gateway does not speak to backends",
            found.number,
            found.app_protocol.as_deref().unwrap_or_default()
        );
        return Err(problem(UNSUPPORTED_PROTOCOL, "port", what));
    };
    Ok(Cluster { id: ClusterId::service(name, found.number, protocol), target: Target::Slices })
}

/// What a port with this `appProtocol` is spoken to in; `None` where it says that nothing the gateway speaks will do
/// (GEP-1911 of Gateway API). Names of no known meaning leave HTTP/1.1, which is what the field's absence means.
fn protocol(app_protocol: Option<&str>, speech: Speech) -> Option<Protocol> {
    match app_protocol {
        _ if speech == Speech::Clients => Some(Protocol::Opaque),
        Some("kubernetes.io/h2c") => Some(Protocol::H2c),
        None | Some("kubernetes.io/ws") => Some(Protocol::Http1),
        // Protocols that begin with TLS, and standard ones that are not known yet.
        Some("https") => None,
        Some(name) if name.starts_with("kubernetes.io/") => None,
        Some(_) => Some(Protocol::Http1),
    }
}

fn no_port(name: &ObjectName, port: &BackendPort, service: &Service) -> String {
    let label = |port: &ServicePort| match &*port.name {
        "" => port.number.to_string(),
        name => format!("{} ({name})", port.number),
    };
    let ports: Vec<String> = service.ports.iter().map(label).collect();
    if ports.is_empty() {
        return format!("Service {name} has no TCP port {port}, nor any other");
    }
    format!("Service {name} has no port {port}; it has {}", ports.join(", "))
}

fn host_cluster(host: &str, port: &BackendPort, speech: Speech, allowed: &HostBackends) -> Result<Cluster, Problem> {
    let BackendPort::Number(port) = *port else {
        return Err(problem(INVALID, "port", "the port of a host must be a number"));
    };
    let address = host.parse::<IpAddr>().ok();
    let name = match Hostname::parse(host) {
        Ok(Hostname::Exact(name)) => Some(name),
        _ => None,
    };
    match allowed {
        HostBackends::Never => {
            let what = "the gateway's settings allow no backends outside the cluster";
            return Err(problem(REF_NOT_PERMITTED, "host", what));
        }
        HostBackends::Outside { admin_ports } => {
            if address.is_some_and(is_own_host) || name.as_deref().is_some_and(is_local_name) {
                let what = format!("{host} is the gateway's own host or its link, where no backend may be");
                return Err(problem(REF_NOT_PERMITTED, "host", what));
            }
            if name.as_deref().is_some_and(is_service_name) {
                let what = format!("{host} may be a Service; name it by service, so that its namespace decides");
                return Err(problem(REF_NOT_PERMITTED, "host", what));
            }
            if admin_ports.contains(&port) {
                let what = format!("port {port} is that of the gateway's own admin server");
                return Err(problem(REF_NOT_PERMITTED, "port", what));
            }
        }
        HostBackends::Anywhere => {}
    }
    let protocol = match speech {
        Speech::Http => Protocol::Http1,
        Speech::Clients => Protocol::Opaque,
    };
    let id = |host: Arc<str>| ClusterId { protocol, ..ClusterId::host(host, port) };
    if let Some(address) = address {
        // One spelling of an address is one Cluster.
        let id = id(address.to_string().into());
        return Ok(Cluster { id, target: Target::Address(SocketAddr::new(address, port)) });
    }
    match name {
        // `10.1.2` and `0x7f.1` are read as addresses by resolvers, past the checks above.
        Some(name) if !has_numeric_end(&name) => {
            Ok(Cluster { id: id(Arc::clone(&name)), target: Target::Dns { name, port } })
        }
        _ => Err(problem(INVALID, "host", format!("{host:?} is neither an IP address nor a DNS name"))),
    }
}

/// Loopback, link-local, unspecified, multicast and broadcast addresses, IPv4 ones inside IPv6 too.
fn is_own_host(address: IpAddr) -> bool {
    let is_own_v4 = |ip: Ipv4Addr| {
        ip.is_loopback() || ip.is_link_local() || ip.octets()[0] == 0 || ip.is_multicast() || ip.is_broadcast()
    };
    match address {
        IpAddr::V4(ip) => is_own_v4(ip),
        IpAddr::V6(ip) => {
            ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_unicast_link_local()
                || ip.is_multicast()
                || ip.to_ipv4().is_some_and(is_own_v4)
        }
    }
}

/// `localhost` and names below it (RFC 6761, section 6.3).
fn is_local_name(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Names that lead to Services past `ReferenceGrants`: below `svc`, or of one label.
fn is_service_name(name: &str) -> bool {
    !name.contains('.') || name.split('.').skip(1).any(|label| label == "svc")
}

fn has_numeric_end(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x")
}
