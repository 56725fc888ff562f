//! Secrets and `ConfigMaps`, reduced to the certificates in them. Pure.
//!
//! Nothing that is told of a Secret shows what is in it.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::ir::{Authorities, Certificate, CertificateSource, ObjectName};

/// The type of Secrets with a certificate.
const TLS_TYPE: &str = "kubernetes.io/tls";
const CERTIFICATE_KEY: &str = "tls.crt";
const PRIVATE_KEY_KEY: &str = "tls.key";
const AUTHORITIES_KEY: &str = "ca.crt";

/// The certificates of a Secret or a `ConfigMap`.
#[derive(Clone, Debug, PartialEq)]
pub enum Material {
    /// The gateway may not read it.
    Denied,
    /// What is in it.
    Held {
        /// A certificate with its key, or why there is none.
        certificate: Result<Arc<Certificate>, String>,
        /// Authorities for certificates of clients, or why there are none.
        authorities: Result<Arc<Authorities>, String>,
    },
}

impl From<&Secret> for Material {
    fn from(secret: &Secret) -> Self {
        let name = name_of(&secret.metadata);
        // What is written as a string wins (core/v1, Secret.stringData).
        let value = |key: &str| -> Option<&[u8]> {
            let text = secret.string_data.as_ref().and_then(|data| data.get(key)).map(String::as_bytes);
            text.or_else(|| secret.data.as_ref()?.get(key).map(|ByteString(bytes)| &**bytes))
        };
        let certificate = match secret.type_.as_deref() {
            Some(TLS_TYPE) => of_pair(&name, value(CERTIFICATE_KEY), value(PRIVATE_KEY_KEY)),
            other => Err(format!("is of type {}, not {TLS_TYPE}", other.unwrap_or("Opaque"))),
        };
        Self::Held { certificate, authorities: of_authorities(&name, value(AUTHORITIES_KEY)) }
    }
}

impl From<&ConfigMap> for Material {
    fn from(map: &ConfigMap) -> Self {
        let text = map.data.as_ref().and_then(|data| data.get(AUTHORITIES_KEY)).map(String::as_bytes);
        let bytes = || map.binary_data.as_ref()?.get(AUTHORITIES_KEY).map(|ByteString(bytes)| &**bytes);
        Self::Held {
            certificate: Err("is a ConfigMap, which no private key belongs into".to_owned()),
            authorities: of_authorities(&name_of(&map.metadata), text.or_else(bytes)),
        }
    }
}

fn name_of(metadata: &ObjectMeta) -> ObjectName {
    ObjectName::new(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

fn of_pair(name: &ObjectName, certificate: Option<&[u8]>, key: Option<&[u8]>) -> Result<Arc<Certificate>, String> {
    let certificate = certificate.ok_or_else(|| format!("has no key {CERTIFICATE_KEY}"))?;
    let key = key.ok_or_else(|| format!("has no key {PRIVATE_KEY_KEY}"))?;
    let source = CertificateSource::Secret(name.clone());
    certificate_of(source, (CERTIFICATE_KEY, certificate), (PRIVATE_KEY_KEY, key)).map(Arc::new)
}

/// Puts a certificate together of PEM texts, each with what it is called.
pub fn certificate_of(
    source: CertificateSource,
    (what, chain): (&str, &[u8]),
    (key_what, key): (&str, &[u8]),
) -> Result<Certificate, String> {
    let chain = certificates(chain).map_err(|reason| format!("{what} {reason}"))?;
    // The error of a key that does not parse may show a piece of it.
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
        pem::Error::NoItemsFound => format!("{key_what} holds no private key in PEM"),
        _ => format!("{key_what} is no readable PEM"),
    })?;
    let leaf = chain.first().ok_or_else(|| format!("{what} holds no certificate in PEM"))?;
    let unreadable = || format!("{what}: the first certificate is no readable X.509");
    let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| unreadable())?;
    let validity = parsed.validity();
    let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let names = names(&parsed);
    CertifiedKey::from_der(chain.clone(), key.clone_key(), &aws_lc_rs::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => format!("the private key in {key_what} is not that of the certificate"),
        rustls::Error::InvalidCertificate(_) => unreadable(),
        _ => format!("the private key in {key_what} is of no kind that can be used: RSA, ECDSA (P-256, P-384, P-521) or Ed25519"),
    })?;
    Ok(Certificate { source, chain, key, names, not_before, not_after })
}

/// The hosts that a certificate is for (RFC 6125, section 6.4: only subject alternative names count).
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
            Ok(bytes) => Some(Ipv4Addr::from(bytes).to_string()),
            Err(_) => Some(format!("[{}]", Ipv6Addr::from(<[u8; 16]>::try_from(*bytes).ok()?))),
        },
        _ => None,
    };
    alternatives.value.general_names.iter().filter_map(name).collect()
}

fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match all {
        Ok(all) if all.is_empty() => Err("holds no certificate in PEM".to_owned()),
        Ok(all) => Ok(all),
        Err(_) => Err("is no readable PEM".to_owned()),
    }
}

fn of_authorities(name: &ObjectName, text: Option<&[u8]>) -> Result<Arc<Authorities>, String> {
    let text = text.ok_or_else(|| format!("has no key {AUTHORITIES_KEY}"))?;
    let certificates = certificates(text).map_err(|reason| format!("{AUTHORITIES_KEY} {reason}"))?;
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates.iter().enumerate() {
        let wrong = |error| format!("{AUTHORITIES_KEY}: certificate {index} cannot be an authority: {error}");
        roots.add(certificate.clone()).map_err(wrong)?;
    }
    Ok(Arc::new(Authorities { source: name.clone(), certificates }))
}

#[cfg(test)]
pub(crate) mod tests;
