//! Listeners of HTTP/3, at the `h3` crate's client over quinn, and at bare QUIC streams for what that one does not do.

mod bodies;
mod connections;
mod drain;
mod messages;
mod raw;

use std::future::poll_fn;

use bytes::{Buf as _, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::{ConnectionError, StreamError};
use http::{HeaderMap, Request, Response};
use quinn::Endpoint;
use quinn::crypto::rustls::QuicClientConfig;
use tokio::task::JoinHandle;

use super::*;

/// A plain listener, and one that ends TLS and has HTTP/3.
fn with_http3(settings: &mut Settings) {
    listeners(settings);
    settings.listeners[TLS].http3 = Some(443);
}

/// A gateway with both, before one origin at `a.test`, and who has issued its certificate.
async fn gateway(origin: &Origin) -> (Gateway, Authority) {
    let authority = Authority::new("ca");
    let pair = authority.issue(&["a.test"]);
    (Gateway::with(vec![host("a", &["a.test"], origin).with(&pair)], with_http3).await, authority)
}

/// A QUIC connection, and what it is made from.
struct Quic {
    connection: quinn::Connection,
    // Dropped, it would end the connection.
    _endpoint: Endpoint,
}

/// A connection of HTTP/3.
struct Http3 {
    send: SendRequest<h3_quinn::OpenStreams, Bytes>,
    /// How it ends.
    ended: JoinHandle<ConnectionError>,
    quic: Quic,
}

/// A request under way.
type Call = RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

/// An answer, read whole.
#[derive(Debug)]
struct Answer {
    head: Response<()>,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.head.headers().get(name).map(|value| value.to_str().unwrap())
    }
}

/// A client of HTTP/3 that is like one of TLS.
fn client(authority: &Authority) -> TlsClient {
    speaking_h3(TlsClient::new(authority))
}

fn speaking_h3(mut client: TlsClient) -> TlsClient {
    client.config.alpn_protocols = vec![b"h3".to_vec()];
    client
}

impl TlsClient {
    async fn quic(&self, gateway: &Gateway, host: &str) -> Result<Quic, quinn::ConnectionError> {
        let config = QuicClientConfig::try_from(self.config.clone()).unwrap();
        let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(config)));
        let connection = endpoint.connect(gateway.address(TLS), host).unwrap().await?;
        Ok(Quic { connection, _endpoint: endpoint })
    }

    async fn http3(&self, gateway: &Gateway, host: &str) -> Http3 {
        let quic = self.quic(gateway, host).await.unwrap();
        let connection = h3_quinn::Connection::new(quic.connection.clone());
        let (mut driver, send) = h3::client::new(connection).await.unwrap();
        let ended = tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
        Http3 { send, ended, quic }
    }
}

fn request(method: &str, host: &str, path: &str, fields: &[(&str, &str)]) -> Request<()> {
    let mut builder = Request::builder().method(method).uri(format!("https://{host}{path}"));
    for (name, value) in fields {
        builder = builder.header(*name, *value);
    }
    builder.body(()).unwrap()
}

impl Http3 {
    /// Sends a head, and the rest if there is more.
    async fn begin(&mut self, request: Request<()>) -> Call {
        self.send.send_request(request).await.unwrap()
    }

    /// Sends a request without a body.
    async fn send(&mut self, request: Request<()>) -> Result<Answer, StreamError> {
        let mut call = self.send.send_request(request).await?;
        call.finish().await?;
        whole(&mut call).await
    }

    async fn get(&mut self, host: &str, path: &str) -> Answer {
        self.send(request("GET", host, path, &[])).await.unwrap()
    }
}

/// Reads an answer to its end.
async fn whole(call: &mut Call) -> Result<Answer, StreamError> {
    let head = call.recv_response().await?;
    let mut body = Vec::new();
    while let Some(mut data) = call.recv_data().await? {
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    Ok(Answer { head, body, trailers: call.recv_trailers().await? })
}
