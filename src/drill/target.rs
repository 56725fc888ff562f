//! Where the traffic goes, and how connections to there are made.

use std::io;
use std::sync::Arc;

use http::header::{HOST, HeaderMap};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::report::{Kind, Phase, Trouble};

/// What HTTP is spoken over.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Whose certificates are good.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Those that the system trusts.
    System,
    /// Those of these authorities.
    Roots(RootCertStore),
    /// Any.
    Anybody,
}

/// A server to send to.
#[derive(Clone)]
pub struct Target {
    authority: Authority,
    path: PathAndQuery,
    connect: Option<(String, u16)>,
    tls: Option<Tls>,
    headers: HeaderMap,
}

#[derive(Clone)]
struct Tls {
    name: ServerName<'static>,
    h1: TlsConnector,
    h2: TlsConnector,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({}{})", self.authority, self.path)
    }
}

/// Why there is no such target.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTarget {
    /// The URL cannot be read.
    #[error("{0:?} is not a URL: {1}")]
    Url(String, http::uri::InvalidUri),
    /// The URL lacks something.
    #[error("the URL {0:?} {1}")]
    Lacks(String, &'static str),
    /// The address to connect to cannot be read.
    #[error("{0:?} is not of the form HOST:PORT")]
    Connect(String),
    /// There is no way to do TLS.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl Target {
    /// A target of its URL. `connect` is a host and port to connect to instead of the URL's; a `Host` among `headers`
    /// replaces the URL's.
    pub fn new(url: &str, connect: Option<&str>, mut headers: HeaderMap, trust: &Trust) -> Result<Self, InvalidTarget> {
        let uri: Uri = url.parse().map_err(|error| InvalidTarget::Url(url.to_owned(), error))?;
        let lacks = |what| InvalidTarget::Lacks(url.to_owned(), what);
        let authority = uri.authority().cloned().ok_or_else(|| lacks("has no host: http://HOST[:PORT]/PATH"))?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(lacks("begins with neither http:// nor https://")),
        };
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let connect = match connect {
            Some(text) => {
                let invalid = || InvalidTarget::Connect(text.to_owned());
                let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
                Some((bare(host).to_owned(), port.parse().map_err(|_| invalid())?))
            }
            None => None,
        };
        let named = headers.remove(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
        let authority_sent = named.unwrap_or_else(|| authority.clone());
        let tls = if is_tls {
            let name = ServerName::try_from(bare(authority_sent.host()).to_owned());
            Some(Tls::new(name.map_err(|_| lacks("has a host that no certificate can have"))?, trust)?)
        } else {
            None
        };
        let connect = connect
            .or_else(|| Some((bare(authority.host()).to_owned(), authority.port_u16().unwrap_or(usual(is_tls)))));
        Ok(Self { authority: authority_sent, path, connect, tls, headers })
    }

    /// A request's head: of a path of its own, or the URL's; with its authority in the target for HTTP/2.
    pub(super) fn head(&self, path: Option<&str>, h2: bool) -> http::request::Builder {
        let path = path.unwrap_or(self.path.as_str());
        let mut request = http::Request::builder();
        if h2 {
            let scheme = if self.tls.is_some() { "https" } else { "http" };
            request = request.uri(format!("{scheme}://{}{path}", self.authority));
        } else {
            request = request.uri(path).header(HOST, self.authority.as_str());
        }
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
        }
        request
    }

    /// The URL of a WebSocket.
    pub(super) fn websocket(&self, path: Option<&str>) -> (String, &HeaderMap<HeaderValue>) {
        let scheme = if self.tls.is_some() { "wss" } else { "ws" };
        (format!("{scheme}://{}{}", self.authority, path.unwrap_or(self.path.as_str())), &self.headers)
    }

    /// A new connection.
    pub(super) async fn open(&self, h2: bool) -> Result<Box<dyn Stream>, Trouble> {
        let (host, port) = self.connect.clone().unwrap_or_default();
        let stream = TcpStream::connect((host, port)).await.map_err(|error| Trouble {
            phase: Phase::Connect,
            kind: match error.kind() {
                io::ErrorKind::ConnectionRefused => Kind::Refused,
                io::ErrorKind::ConnectionReset => Kind::Reset,
                io::ErrorKind::TimedOut => Kind::Timeout,
                _ => Kind::Unreachable,
            },
            detail: error.to_string(),
        })?;
        // A small request must not wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let connector = if h2 { &tls.h2 } else { &tls.h1 };
        let stream = connector.connect(tls.name.clone(), stream).await;
        let stream = stream.map_err(|error| Trouble::of_io(Phase::Handshake, &error))?;
        if h2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            let detail = "the server does not choose h2".to_owned();
            return Err(Trouble { phase: Phase::Handshake, kind: Kind::Invalid, detail });
        }
        Ok(Box::new(stream))
    }
}

impl Tls {
    fn new(name: ServerName<'static>, trust: &Trust) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let config = match trust {
            Trust::System => builder.with_platform_verifier()?.with_no_client_auth(),
            Trust::Roots(roots) => builder.with_root_certificates(roots.clone()).with_no_client_auth(),
            Trust::Anybody => {
                let verifier = Arc::new(Anybody(provider));
                builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
            }
        };
        let with = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            TlsConnector::from(Arc::new(config))
        };
        Ok(Self { name, h1: with(b"http/1.1"), h2: with(b"h2") })
    }
}

/// Takes any certificate: what is asked is whether requests get through, not whom they reach.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A host without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

const fn usual(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}
