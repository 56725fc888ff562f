//! TLS: certificates, and what is asked of clients.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Serialize;

use super::ObjectName;

/// Who ends the TLS connections to a Selector's hostnames.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Tls {
    /// The gateway.
    Terminate(Termination),
    /// The backend: the gateway passes the bytes on.
    Passthrough,
}

impl Tls {
    /// How the gateway ends them, if it does.
    pub const fn termination(&self) -> Option<&Termination> {
        match self {
            Self::Terminate(termination) => Some(termination),
            Self::Passthrough => None,
        }
    }
}

/// How the gateway ends TLS connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Termination {
    /// The certificate, or the reason in the verdict why there is none: handshakes fail then.
    pub certificate: Result<Arc<Certificate>, &'static str>,
    /// What is asked of clients, if anything is.
    pub clients: Option<ClientCertificates>,
}

/// Certificates of clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct ClientCertificates {
    /// Whether a client without one is refused.
    pub required: bool,
    /// Who may have issued them, or the reason in the verdict why that is not known: handshakes fail then.
    pub authorities: Result<Arc<Authorities>, &'static str>,
}

/// TLS that backends are spoken to over. Two that differ in anything are never spoken to over the same connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendTls {
    /// The host that is asked for and that the backend's certificate must be for: a DNS name, or an IP address.
    pub hostname: Arc<str>,
    /// Who may have issued the backend's certificate; `None` for those that the system trusts.
    pub authorities: Option<Arc<Authorities>>,
    /// The certificate that is shown where the backend asks for one.
    pub client: Option<Arc<Certificate>>,
}

/// Where a certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum CertificateSource {
    /// A Secret.
    Secret(ObjectName),
    /// Files named by the settings.
    Files,
}

impl fmt::Display for CertificateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(name) => name.fmt(f),
            Self::Files => f.write_str("files"),
        }
    }
}

/// A certificate chain with its private key, which belong together. Never printed nor serialised.
#[derive(PartialEq, Eq)]
pub struct Certificate {
    /// Where it comes from.
    pub source: CertificateSource,
    /// The gateway's own certificate first, then those of its issuers.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key.
    pub key: PrivateKeyDer<'static>,
    /// The hosts it is for, as subject alternative names have them.
    pub names: Vec<String>,
    /// When it begins to be valid, in seconds since the epoch.
    pub not_before: i64,
    /// When it ends to be valid, in seconds since the epoch.
    pub not_after: i64,
}

/// Whether a certificate may be used at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// It is not valid yet.
    Early,
    /// It is valid.
    Valid,
    /// It has expired.
    Expired,
}

impl Certificate {
    /// Whether it is valid at a time in seconds since the epoch (RFC 5280, section 4.1.2.5: both ends included).
    pub const fn validity(&self, now: i64) -> Validity {
        if now < self.not_before {
            Validity::Early
        } else if now > self.not_after {
            Validity::Expired
        } else {
            Validity::Valid
        }
    }
}

impl Ord for Certificate {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.source.cmp(&other.source).then_with(|| ders(&self.chain).cmp(ders(&other.chain)));
        order.then_with(|| self.key.secret_der().cmp(other.key.secret_der()))
    }
}

impl PartialOrd for Certificate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn ders<'a>(certificates: &'a [CertificateDer<'_>]) -> impl Iterator<Item = &'a [u8]> {
    certificates.iter().map(AsRef::as_ref)
}

impl Hash for Certificate {
    // A few bytes tell most of them apart; there may be thousands to look up whenever a table is made.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.source.hash(state);
        self.not_after.hash(state);
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("source", &self.source)
            .field("names", &self.names)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl Serialize for Certificate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.source)
    }
}

/// Certificates of those who may issue certificates.
#[derive(PartialEq, Eq)]
pub struct Authorities {
    /// Where they come from: a Secret or a `ConfigMap`.
    pub source: ObjectName,
    /// The certificates, at least one.
    pub certificates: Vec<CertificateDer<'static>>,
}

impl Ord for Authorities {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.source.cmp(&other.source);
        order.then_with(|| ders(&self.certificates).cmp(ders(&other.certificates)))
    }
}

impl PartialOrd for Authorities {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Authorities {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.source.hash(state);
        self.certificates.len().hash(state);
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities")
            .field("source", &self.source)
            .field("certificates", &self.certificates.len())
            .finish()
    }
}

impl Serialize for Authorities {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.source)
    }
}
