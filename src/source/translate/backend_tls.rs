//! TLS to backends.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls::pki_types::ServerName;

use crate::api::reason::{INVALID, INVALID_CA_CERTIFICATE_REF, INVALID_CERTIFICATE_REF};
use crate::api::{self, RouteSpec};
use crate::ir::{BackendTls, ObjectName};

use super::World;
use super::backends::{Problem, problem};
use super::tls::{Reference, authorities_in, certificate_in, material};

/// The objects with certificates that a Route names.
pub fn route_references(spec: &RouteSpec, namespace: &str) -> BTreeSet<Reference> {
    let of_backends = spec.rules.iter().flat_map(|rule| &rule.backends).filter_map(|backend| backend.tls.as_deref());
    let filters = spec.rules.iter().flat_map(|rule| &rule.filters);
    let of_mirrors = filters.filter_map(|filter| filter.request_mirror.as_ref()?.backend.tls.as_ref());
    let named = |tls: &api::BackendTls| {
        let authorities = authorities_of(tls, namespace).map(|(reference, _)| reference);
        [authorities, client_of(tls, namespace)]
    };
    of_backends.chain(of_mirrors).flat_map(named).flatten().collect()
}

/// The object with the authorities, and the field that names it.
fn authorities_of(tls: &api::BackendTls, namespace: &str) -> Option<(Reference, &'static str)> {
    let name = |name: &String| ObjectName::new(namespace, name.as_str());
    let secret = tls.ca_secret_name.as_ref().map(|secret| (Reference::Secret(name(secret)), "tls.caSecretName"));
    secret.or_else(|| Some((Reference::ConfigMap(name(tls.ca_config_map_name.as_ref()?)), "tls.caConfigMapName")))
}

/// The object with the gateway's own certificate.
fn client_of(tls: &api::BackendTls, namespace: &str) -> Option<Reference> {
    tls.secret_name.as_ref().map(|name| Reference::Secret(ObjectName::new(namespace, name.as_str())))
}

/// Resolves what a backend of a Route in `namespace` says of TLS. Without what it names nothing is sent: neither another
/// authority nor no certificate will do instead.
pub(super) fn resolve(
    tls: &api::BackendTls,
    usual_name: &str,
    namespace: &str,
    world: &impl World,
) -> Result<Arc<BackendTls>, Problem> {
    let hostname = tls.hostname.as_deref().unwrap_or(usual_name).to_ascii_lowercase();
    if ServerName::try_from(&*hostname).is_err() {
        return Err(problem(INVALID, "tls.hostname", format!("{hostname:?} is no host that a certificate can be for")));
    }
    // Who does not read them has nothing to say of them.
    let reads = world.settings().reads_secrets;
    let authorities = match authorities_of(tls, namespace).filter(|_| reads) {
        None => None,
        Some((reference, member)) => {
            let found = material(&reference, world, authorities_in).cloned();
            Some(found.map_err(|what| problem(INVALID_CA_CERTIFICATE_REF, member, what))?)
        }
    };
    let client = match client_of(tls, namespace).filter(|_| reads) {
        None => None,
        Some(reference) => {
            let found = material(&reference, world, certificate_in).cloned();
            Some(found.map_err(|what| problem(INVALID_CERTIFICATE_REF, "tls.secretName", what))?)
        }
    };
    Ok(Arc::new(BackendTls { hostname: hostname.into(), authorities, client }))
}
