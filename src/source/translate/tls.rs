//! Who ends the TLS connections to a Selector's hostnames, and with which certificate.

use std::sync::Arc;

use crate::api::reason::{
    CERTIFICATE_NOT_VALID_NOW, HOSTNAME_NOT_COVERED, INVALID_CA_CERTIFICATE_REF, INVALID_CERTIFICATE_REF, RESOLVED_REFS,
};
use crate::api::{ClientCertificateMode, ClientCertificates, SelectorSpec, TlsMode};
use crate::ir::{self, Certificate, Finding, Hostname, ObjectName, Termination, Tls, Validity};
use crate::source::secrets::Material;

use super::report::{Field, Report};
use super::{SelectorSubject, World};

/// An object with certificates that a Selector names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reference {
    /// A Secret.
    Secret(ObjectName),
    /// A `ConfigMap`.
    ConfigMap(ObjectName),
}

impl Reference {
    /// The object's name.
    pub const fn name(&self) -> &ObjectName {
        match self {
            Self::Secret(name) | Self::ConfigMap(name) => name,
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Secret(_) => "Secret",
            Self::ConfigMap(_) => "ConfigMap",
        }
    }
}

/// What a Selector names.
pub fn references(spec: &SelectorSpec, namespace: &str) -> Vec<Reference> {
    let Some(tls) = spec.tls.as_ref().filter(|tls| tls.mode == TlsMode::Terminate) else { return Vec::new() };
    let name = |name: &String| ObjectName::new(namespace, name.as_str());
    let certificate = tls.secret_name.as_ref().map(|secret| Reference::Secret(name(secret)));
    let authorities = tls.client_certificates.as_ref().and_then(|clients| authorities_of(clients, namespace));
    certificate.into_iter().chain(authorities.map(|(reference, _)| reference)).collect()
}

/// The object with the authorities, and the field that names it.
fn authorities_of(clients: &ClientCertificates, namespace: &str) -> Option<(Reference, &'static str)> {
    let name = |name: &String| ObjectName::new(namespace, name.as_str());
    if clients.mode == ClientCertificateMode::None {
        return None;
    }
    let secret = clients.ca_secret_name.as_ref().map(|secret| (Reference::Secret(name(secret)), "caSecretName"));
    secret.or_else(|| Some((Reference::ConfigMap(name(clients.ca_config_map_name.as_ref()?)), "caConfigMapName")))
}

/// What of an object's material is asked for, or why it is not to be had.
pub(super) fn material<'a, T>(
    reference: &Reference,
    world: &'a impl World,
    part: impl FnOnce(&'a Material) -> Option<&'a Result<T, String>>,
) -> Result<&'a T, String> {
    let (kind, name) = (reference.kind(), reference.name());
    let Some(material) = world.material(reference) else { return Err(format!("{kind} {name} does not exist")) };
    match part(material) {
        Some(Ok(found)) => Ok(found),
        Some(Err(reason)) if reason.starts_with("is ") || reason.starts_with("has ") => {
            Err(format!("{kind} {name} {reason}"))
        }
        Some(Err(reason)) => Err(format!("{kind} {name}: {reason}")),
        None => Err(format!(
            "the gateway may not read {kind} {name}; a RoleBinding in namespace {} is missing",
            name.namespace
        )),
    }
}

pub(super) fn certificate_in(material: &Material) -> Option<&Result<Arc<Certificate>, String>> {
    match material {
        Material::Denied => None,
        Material::Held { certificate, .. } => Some(certificate),
    }
}

pub(super) fn authorities_in(material: &Material) -> Option<&Result<Arc<ir::Authorities>, String>> {
    match material {
        Material::Denied => None,
        Material::Held { authorities, .. } => Some(authorities),
    }
}

/// The certificate of a Secret, or why it cannot be used.
pub fn default_certificate(secret: &ObjectName, world: &impl World) -> Result<Arc<Certificate>, String> {
    material(&Reference::Secret(secret.clone()), world, certificate_in).cloned()
}

/// Resolves what a Selector says of TLS, and the finding on what it names.
pub fn resolve(subject: &SelectorSubject, hostnames: &[Hostname], world: &impl World) -> (Option<Tls>, Finding) {
    let mut report = Report::default();
    let tls = subject.spec.tls.as_ref().map(|tls| match tls.mode {
        TlsMode::Passthrough => Tls::Passthrough,
        TlsMode::Terminate => {
            let field = Field::SPEC.member("tls");
            let namespace = &*subject.origin.object.namespace;
            let secret = tls.secret_name.as_ref().map(|name| ObjectName::new(namespace, name.as_str()));
            let certificate = certificate(secret.as_ref(), hostnames, &field, world, &mut report);
            let clients = tls.client_certificates.as_ref();
            let clients =
                clients.and_then(|clients| client_certificates(clients, namespace, &field, world, &mut report));
            Tls::Terminate(Termination { certificate, clients })
        }
    });
    (tls, report.finding(RESOLVED_REFS))
}

fn certificate(
    secret: Option<&ObjectName>,
    hostnames: &[Hostname],
    field: &Field<'_>,
    world: &impl World,
    report: &mut Report,
) -> Result<Arc<Certificate>, &'static str> {
    let field = field.member("secretName");
    let settings = world.settings();
    let found = match secret {
        None => Err("is required with mode Terminate".to_owned()),
        Some(secret) if settings.reads_secrets => default_certificate(secret, world),
        // Nobody has looked: there is nothing to tell.
        Some(_) => return Err(INVALID_CERTIFICATE_REF),
    };
    let failed = "; TLS connections to the hostnames fail";
    let certificate = found.map_err(|what| {
        report.add(INVALID_CERTIFICATE_REF, &field, format!("{what}{failed}"));
        INVALID_CERTIFICATE_REF
    })?;
    let source = &certificate.source;
    match world.now().map_or(Validity::Valid, |now| certificate.validity(now)) {
        Validity::Valid => {}
        Validity::Early => {
            report.note(
                CERTIFICATE_NOT_VALID_NOW,
                &field,
                format!("the certificate of Secret {source} is not valid yet"),
            );
        }
        Validity::Expired => {
            report.note(CERTIFICATE_NOT_VALID_NOW, &field, format!("the certificate of Secret {source} has expired"));
        }
    }
    let uncovered: Vec<String> =
        hostnames.iter().filter(|hostname| !covers(&certificate, hostname)).map(ToString::to_string).collect();
    if !uncovered.is_empty() {
        let what = format!("the certificate of Secret {source} is not for {}", uncovered.join(", "));
        report.note(HOSTNAME_NOT_COVERED, &field, what);
    }
    Ok(certificate)
}

/// Whether clients that ask for the hostname take the certificate (RFC 9525, section 6.3). A wildcard of ours stands for
/// any number of labels, one of a certificate for one: for what lies deeper it is taken to be meant so.
fn covers(certificate: &Certificate, hostname: &Hostname) -> bool {
    let has = |wanted: &str| certificate.names.iter().any(|name| name == wanted);
    match hostname {
        Hostname::Any => true,
        Hostname::Wildcard(suffix) => has(&format!("*.{suffix}")),
        Hostname::Exact(name) => {
            has(name) || name.split_once('.').is_some_and(|(_, parent)| has(&format!("*.{parent}")))
        }
    }
}

fn client_certificates(
    clients: &ClientCertificates,
    namespace: &str,
    field: &Field<'_>,
    world: &impl World,
    report: &mut Report,
) -> Option<ir::ClientCertificates> {
    let field = field.member("clientCertificates");
    let required = match clients.mode {
        ClientCertificateMode::None => return None,
        ClientCertificateMode::Optional => false,
        ClientCertificateMode::Required => true,
    };
    let reads = world.settings().reads_secrets;
    let authorities = match authorities_of(clients, namespace) {
        Some(_) if !reads => Err(INVALID_CA_CERTIFICATE_REF),
        Some((reference, member)) => material(&reference, world, authorities_in).cloned().map_err(|what| {
            let what = format!("{what}; TLS connections to the hostnames fail");
            report.add(INVALID_CA_CERTIFICATE_REF, &field.member(member), what);
            INVALID_CA_CERTIFICATE_REF
        }),
        None => {
            report.add(INVALID_CA_CERTIFICATE_REF, &field, "caSecretName or caConfigMapName is required");
            Err(INVALID_CA_CERTIFICATE_REF)
        }
    };
    Some(ir::ClientCertificates { required, authorities })
}
