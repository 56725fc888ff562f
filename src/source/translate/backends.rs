//! Backends of a rule: references to Services, and hosts outside the cluster.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crate::api::reason::{BACKEND_NOT_FOUND, INVALID, REF_NOT_PERMITTED, UNSUPPORTED_PROTOCOL, UNSUPPORTED_VALUE};
use crate::api::{self, BackendPort, BackendProtocol, BackendProxyProtocol};
use crate::ir::{Backend, BackendTarget, Cluster, ClusterId, Hostname, ObjectName, Protocol, ProxyProtocol, Target};
use crate::source::endpoints::{Service, ServicePort};

use super::backend_tls;
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
        let found = cluster(&backend.reference(), (namespace, speech), world);
        let target = match (found.and_then(|cluster| telling(cluster, backend.proxy_protocol)), &filters) {
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

pub(super) fn problem(
    reason: &'static str,
    member: impl Into<Option<&'static str>>,
    what: impl Into<String>,
) -> Problem {
    Problem { reason, member: member.into(), what: what.into() }
}

/// The Cluster that a reference of an object in `namespace` leads to.
pub(super) fn cluster(
    backend: &api::BackendReference,
    (namespace, speech): (&str, Speech),
    world: &impl World,
) -> Result<Cluster, Problem> {
    let (mut cluster, usual_name) = match (&backend.service, &backend.host) {
        (Some(service), None) => {
            let name = ObjectName::new(backend.namespace.as_deref().unwrap_or(namespace), service.as_str());
            let usual_name = format!("{}.{}.svc", name.name, name.namespace);
            (service_cluster(name, backend, (namespace, speech), world)?, usual_name)
        }
        (None, Some(host)) => (host_cluster(host, backend, speech, &world.settings().host_backends)?, host.clone()),
        _ => return Err(problem(INVALID, None, "a backend needs either service or host")),
    };
    cluster.id.tls = match &backend.tls {
        Some(_) if speech == Speech::Clients => {
            let what = "does not go with TLS that is passed through, which is the client's";
            return Err(problem(UNSUPPORTED_VALUE, "tls", what));
        }
        Some(tls) => Some(backend_tls::resolve(tls, &usual_name, namespace, world)?),
        None => None,
    };
    Ok(cluster)
}

/// A Cluster that is told of its clients.
fn telling(mut cluster: Cluster, version: Option<BackendProxyProtocol>) -> Result<Cluster, Problem> {
    if version.is_some() && cluster.id.protocol == Protocol::Http2 {
        let what = "does not go with HTTP/2, where one connection carries the requests of many clients";
        return Err(problem(UNSUPPORTED_VALUE, "proxyProtocol", what));
    }
    cluster.id.proxy_protocol = version.map(|version| match version {
        BackendProxyProtocol::V1 => ProxyProtocol::V1,
        BackendProxyProtocol::V2 => ProxyProtocol::V2,
    });
    Ok(cluster)
}

fn service_cluster(
    name: ObjectName,
    backend: &api::BackendReference,
    (namespace, speech): (&str, Speech),
    world: &impl World,
) -> Result<Cluster, Problem> {
    let port = &backend.port;
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
    let protocol = protocol(found.app_protocol.as_deref(), speech, backend.tls.as_ref()).map_err(|why| {
        let app_protocol = found.app_protocol.as_deref().unwrap_or_default();
        let what = format!("port {} of Service {name} has appProtocol {app_protocol}, {why}", found.number);
        problem(UNSUPPORTED_PROTOCOL, "port", what)
    })?;
    Ok(Cluster { id: ClusterId::service(name, found.number, protocol), target: Target::Slices })
}

/// What a port with this `appProtocol` is spoken to in, or why nothing the gateway speaks will do (GEP-1911 of Gateway
/// API). Names of no known meaning leave HTTP/1.1, which is what the field's absence means. Never without TLS what is
/// declared to have it.
fn protocol(
    app_protocol: Option<&str>,
    speech: Speech,
    tls: Option<&api::BackendTls>,
) -> Result<Protocol, &'static str> {
    match (app_protocol, tls) {
        _ if speech == Speech::Clients => Ok(Protocol::Opaque),
        (Some("https" | "kubernetes.io/wss"), None) => Err("which begins with TLS: the backend needs tls"),
        (Some("kubernetes.io/h2c"), None) => Ok(Protocol::Http2),
        (Some("kubernetes.io/ws"), None) => Ok(Protocol::Http1),
        (Some("kubernetes.io/h2c" | "kubernetes.io/ws"), Some(_)) => {
            Err("which is spoken without TLS, and the backend has tls; https is what goes with it")
        }
        (Some("kubernetes.io/wss"), Some(tls)) => Ok(over_tls(tls)),
        // Standard ones that are not known yet.
        (Some(name), _) if name.starts_with("kubernetes.io/") => Err("which the gateway does not speak to backends"),
        (_, Some(tls)) => Ok(over_tls(tls)),
        (_, None) => Ok(Protocol::Http1),
    }
}

const fn over_tls(tls: &api::BackendTls) -> Protocol {
    match tls.protocol {
        BackendProtocol::Http1 => Protocol::Http1,
        BackendProtocol::Http2 => Protocol::Http2,
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

fn host_cluster(
    host: &str,
    backend: &api::BackendReference,
    speech: Speech,
    allowed: &HostBackends,
) -> Result<Cluster, Problem> {
    let BackendPort::Number(port) = backend.port else {
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
        Speech::Http => backend.tls.as_ref().map_or(Protocol::Http1, over_tls),
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
