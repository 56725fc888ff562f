//! The collector that spans are posted to.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http::uri::Scheme;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use prost::Message as _;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::otlp::Response;
use super::{Settings, Span, message};

/// How long one message may take, connection and answer included.
const REQUEST: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;
/// TLS with the collector cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {0}")]
pub struct TlsError(String);

/// Why a message was not taken.
pub(super) struct Refused {
    pub(super) reason: String,
    /// Whether the same may be taken later.
    pub(super) may_repeat: bool,
}

pub(super) struct Collector {
    settings: Settings,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// The connection of the last message.
    open: Option<SendRequest<Full<Bytes>>>,
}

impl Collector {
    pub(super) fn new(settings: Settings) -> Result<Self, TlsError> {
        let tls = match settings.endpoint.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => Some(tls(host(&settings.endpoint))?),
            _ => None,
        };
        Ok(Self { settings, tls, open: None })
    }

    pub(super) fn endpoint(&self) -> &Uri {
        &self.settings.endpoint
    }

    pub(super) fn encode(&self, spans: Vec<Span>) -> Bytes {
        message::request(spans, &self.settings.instance).encode_to_vec().into()
    }

    /// Posts a message. Gives how many of its spans the collector does not want.
    pub(super) async fn send(&mut self, message: Bytes) -> Result<u64, Refused> {
        let fate = tokio::time::timeout(REQUEST, self.exchange(message)).await;
        let again = |reason: String| Refused { reason, may_repeat: true };
        let (status, answer) = match fate {
            Ok(Ok(answer)) => answer,
            Ok(Err(reason)) => return Err(again(reason)),
            Err(_) => return Err(again(format!("no answer within {REQUEST:?}"))),
        };
        if !status.is_success() {
            // Those that OTLP has repeated (OTLP 1.9, "Retryable Response Codes").
            let may_repeat = matches!(status.as_u16(), 429 | 502 | 503 | 504);
            return Err(Refused { reason: format!("it answers {status}"), may_repeat });
        }
        // Whoever answers something else has taken all of them.
        let partial = Response::decode(answer).ok().and_then(|answer| answer.partial_success);
        let rejected = partial.map_or(0, |partial| partial.rejected_spans);
        Ok(u64::try_from(rejected).unwrap_or(0))
    }

    async fn exchange(&mut self, message: Bytes) -> Result<(StatusCode, Bytes), String> {
        let is_open = match &mut self.open {
            Some(open) => open.ready().await.is_ok(),
            None => false,
        };
        if !is_open {
            self.open = None;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        let answer = open.send_request(self.request(message)?).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await.map_err(|error| error.to_string())?;
        self.open = Some(open);
        Ok((status, body.to_bytes()))
    }

    fn request(&self, message: Bytes) -> Result<Request<Full<Bytes>>, String> {
        let url = &self.settings.endpoint;
        let target = url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let mut request = Request::new(Full::new(message));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = target.parse().map_err(|_| "its path is none".to_owned())?;
        let headers = request.headers_mut();
        headers.extend(self.settings.headers.clone());
        let authority = url.authority().map_or("", http::uri::Authority::as_str);
        headers.insert(HOST, HeaderValue::from_str(authority).map_err(|error| error.to_string())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("lockgate/", env!("CARGO_PKG_VERSION"))));
        Ok(request)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let url = &self.settings.endpoint;
        let port = url.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let stream = TcpStream::connect((host(url), port)).await.map_err(|error| error.to_string())?;
        match &self.tls {
            None => open(stream).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await.map_err(|error| format!("TLS: {error}"))?;
                open(stream).await
            }
        }
    }
}

/// The host of a URL; of an IPv6 address without its brackets.
fn host(url: &Uri) -> &str {
    url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

async fn open(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, String> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // How it ended is told to whoever waits for an answer.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

fn tls(host: &str) -> Result<(TlsConnector, ServerName<'static>), TlsError> {
    let wrong = |error: &dyn std::fmt::Display| TlsError(error.to_string());
    let name = ServerName::try_from(host.to_owned()).map_err(|error| wrong(&error))?;
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| wrong(&error))?;
    let config = builder.with_platform_verifier().map_err(|error| wrong(&error))?.with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), name))
}
