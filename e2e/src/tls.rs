//! Certificates of tests, and clients that look at those of the gateway.

use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Whoever issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    trusting: Arc<ClientConfig>,
}

/// A certificate with its key.
#[derive(Debug)]
pub struct Pair {
    /// As clients see it.
    pub certificate: CertificateDer<'static>,
    pem: String,
    key: String,
}

impl Default for Authority {
    fn default() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let own = params.self_signed(&key).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(own.der().clone()).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
        Self { issuer: Issuer::new(params, key), trusting: Arc::new(builder.with_no_client_auth()) }
    }
}

impl Authority {
    /// A certificate for a host.
    pub fn issue(&self, host: &str) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![host.to_owned()]).expect("a valid name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Pair { certificate: certificate.der().clone(), pem: certificate.pem(), key: key.serialize_pem() }
    }

    /// The certificate that a client gets for a host, where it trusts this authority.
    pub async fn shown(&self, address: &str, host: &str) -> Result<CertificateDer<'static>> {
        let stream = TcpStream::connect(address).await.with_context(|| address.to_owned())?;
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(Arc::clone(&self.trusting)).connect(name, stream).await?;
        let chain = stream.get_ref().1.peer_certificates().context("no certificate")?;
        chain.first().cloned().context("an empty chain")
    }
}

impl Pair {
    /// The certificate in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A Secret with it.
    pub fn secret(&self, name: &str) -> String {
        let indented = |text: &str| text.lines().flat_map(|line| ["    ", line, "\n"]).collect::<String>();
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n{}  \
             tls.key: |\n{}",
            indented(&self.pem),
            indented(&self.key)
        )
    }
}
