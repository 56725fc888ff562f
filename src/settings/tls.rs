//! Settings of TLS on listeners.

use std::path::PathBuf;

use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS on listeners that end it.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tls {
    /// The lowest version that clients may speak.
    pub min_version: TlsVersion,
    /// Names of the cipher suites that may be used, as IANA has them, such as `TLS_AES_128_GCM_SHA256`; the first one that
    /// the client has wins. Empty is every suite there is, all of them with forward secrecy, and the client's order.
    pub cipher_suites: Vec<String>,
    /// Give clients tickets to resume a session with. Never given where client certificates are asked for.
    pub session_tickets: bool,
    /// The certificate of hosts that have none of their own. Without one their handshakes fail.
    pub default_certificate: DefaultCertificate,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    #[serde(rename = "TLSv1.2")]
    V1_2,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "TLSv1.3")]
    V1_3,
}

/// Where the default certificate comes from: a Secret or two files.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DefaultCertificate {
    /// A Secret of type `kubernetes.io/tls`, as `namespace/name`.
    pub secret: Option<String>,
    /// A PEM file with the certificate and those of its issuers. Read again when it changes.
    pub certificate_file: Option<PathBuf>,
    /// A PEM file with its private key.
    pub key_file: Option<PathBuf>,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            min_version: TlsVersion::default(),
            cipher_suites: Vec::new(),
            session_tickets: true,
            default_certificate: DefaultCertificate::default(),
        }
    }
}

impl DefaultCertificate {
    /// Namespace and name of the Secret.
    pub fn secret(&self) -> Option<(&str, &str)> {
        self.secret.as_deref()?.split_once('/')
    }

    /// The files of the certificate and its key.
    pub fn files(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.certificate_file.as_ref().zip(self.key_file.as_ref())
    }
}

/// The name of a suite in IANA's registry.
fn iana(suite: SupportedCipherSuite) -> Option<String> {
    let name = suite.suite().as_str()?;
    Some(name.replacen("TLS13_", "TLS_", 1))
}

impl Tls {
    /// The suites that may be used, in their order; the error names one that there is not.
    pub fn suites(&self) -> Result<Vec<SupportedCipherSuite>, String> {
        let all = aws_lc_rs::ALL_CIPHER_SUITES;
        if self.cipher_suites.is_empty() {
            return Ok(all.to_vec());
        }
        let named = |name: &String| {
            let found = all.iter().copied().find(|suite| iana(*suite).as_ref() == Some(name));
            found.ok_or_else(|| {
                let known: Vec<String> = all.iter().copied().filter_map(iana).collect();
                format!("{name:?} is none of {}", known.join(", "))
            })
        };
        self.cipher_suites.iter().map(named).collect()
    }

    /// Whether there is a suite of TLS 1.3, or the suites are wrong anyway.
    pub(super) fn speaks_13(&self) -> bool {
        self.suites().map_or(true, |suites| suites.iter().any(|suite| suite.tls13().is_some()))
    }

    /// What cannot work, each as `field: reason`.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        match self.suites() {
            Err(reason) => problems.push(format!("tls.cipherSuites: {reason}")),
            Ok(suites) => {
                let usable =
                    |suite: &SupportedCipherSuite| self.min_version == TlsVersion::V1_2 || suite.tls13().is_some();
                if !suites.iter().any(usable) {
                    problems.push("tls.cipherSuites: none of them is one of TLS 1.3, the lowest version".to_owned());
                }
            }
        }
        let DefaultCertificate { secret, certificate_file, key_file } = &self.default_certificate;
        let is_name = |text: &String| {
            let parts: Vec<&str> = text.split('/').collect();
            parts.len() == 2 && parts.iter().all(|part| !part.is_empty())
        };
        if secret.as_ref().is_some_and(|secret| !is_name(secret)) {
            problems.push("tls.defaultCertificate.secret: must be namespace/name".to_owned());
        }
        if certificate_file.is_some() != key_file.is_some() {
            problems.push("tls.defaultCertificate: certificateFile and keyFile go together".to_owned());
        }
        if secret.is_some() && certificate_file.is_some() {
            problems.push("tls.defaultCertificate: a Secret or files, not both".to_owned());
        }
        problems
    }
}
