//! The gateway's side of TLS to endpoints.

use std::io;
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::ir::{self, Protocol};

/// Why there is no TLS with an endpoint that was connected to.
#[derive(Debug, thiserror::Error)]
#[error("no TLS: {0}")]
pub struct TlsFailed(io::Error);

impl TlsFailed {
    fn error(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), Self(error))
    }

    /// Whether this is what an error says.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Self>)
    }
}

/// How a Cluster's endpoints are connected to over TLS.
pub struct ClientTls(Result<Ready, String>);

struct Ready {
    connector: TlsConnector,
    name: ServerName<'static>,
    /// Whether the endpoint has to agree on HTTP/2.
    needs_h2: bool,
}

/// Makes [`ClientTls`], with what all of them share.
pub(super) struct TlsClients {
    provider: Arc<CryptoProvider>,
    /// Who the system trusts: read once, when first asked for.
    system: OnceLock<Result<Arc<Verifier>, rustls::Error>>,
}

impl TlsClients {
    pub(super) fn new() -> Self {
        Self { provider: Arc::new(aws_lc_rs::default_provider()), system: OnceLock::new() }
    }

    /// What a Cluster's connections are made with. Sessions are resumed within the Cluster alone.
    pub(super) fn get(&self, id: &ir::ClusterId) -> Option<ClientTls> {
        let tls = id.tls.as_ref()?;
        let ready = self.ready(tls, id.protocol == Protocol::Http2);
        if let Err(error) = &ready {
            tracing::error!(%error, cluster = %id, "TLS to the backend cannot be set up");
        }
        Some(ClientTls(ready.map_err(|error| error.to_string())))
    }

    fn ready(&self, tls: &ir::BackendTls, needs_h2: bool) -> Result<Ready, rustls::Error> {
        let invalid = |error: &dyn std::fmt::Display| rustls::Error::General(error.to_string());
        let name = ServerName::try_from(tls.hostname.to_string()).map_err(|error| invalid(&error))?;
        let verifier: Arc<dyn ServerCertVerifier> = match &tls.authorities {
            None => self.system()?,
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for certificate in &authorities.certificates {
                    roots.add(certificate.clone())?;
                }
                let provider = Arc::clone(&self.provider);
                let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.build().map_err(|error| invalid(&error))?
            }
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider));
        let builder = builder.with_safe_default_protocol_versions()?;
        // Called dangerous for whatever could be put there: these verify.
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match &tls.client {
            None => builder.with_no_client_auth(),
            Some(client) => builder.with_client_auth_cert(client.chain.clone(), client.key.clone_key())?,
        };
        config.alpn_protocols = vec![if needs_h2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        Ok(Ready { connector: TlsConnector::from(Arc::new(config)), name, needs_h2 })
    }

    fn system(&self) -> Result<Arc<Verifier>, rustls::Error> {
        self.system.get_or_init(|| Verifier::new(Arc::clone(&self.provider)).map(Arc::new)).clone()
    }
}

impl ClientTls {
    /// Does the handshake. Fails with [`TlsFailed`] inside the error.
    pub(super) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.handshake(stream).await.map_err(TlsFailed::error)
    }

    async fn handshake(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let ready = self.0.as_ref().map_err(|error| io::Error::other(error.clone()))?;
        let stream = ready.connector.connect(ready.name.clone(), stream).await?;
        if ready.needs_h2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(io::Error::other("the endpoint does not agree on HTTP/2"));
        }
        Ok(stream)
    }
}
