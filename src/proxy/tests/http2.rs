//! Clients that speak HTTP/2: the `h2` crate's, and one of bare frames for what that one cannot be made to do.

mod bodies;
mod connect;
mod connections;
mod drain;
mod floods;
mod grpc;
mod malformed;
mod messages;
mod raw;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};

use super::harness::{Gateway, Origin, Reply, rule, selector};
use crate::ir;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A gateway before one origin of HTTP/1.1.
async fn gateway_with(origin: &Origin, change: impl FnOnce(&mut ir::Rule)) -> Gateway {
    let mut rule = rule("/", &[(origin, 1)]);
    change(&mut rule);
    Gateway::start(vec![selector(vec![rule])]).await
}

async fn gateway(origin: &Origin) -> Gateway {
    gateway_with(origin, |_| {}).await
}

/// An origin that always gives this answer, and a gateway before it.
async fn answering(reply: &'static str) -> (Origin, Gateway) {
    let origin = Origin::start(Reply::always(reply)).await;
    let gateway = gateway(&origin).await;
    (origin, gateway)
}

/// A connection of the `h2` crate.
#[derive(Clone)]
struct Client(SendRequest<Bytes>);

/// An answer, read whole.
#[derive(Debug)]
struct Answer {
    head: http::response::Parts,
    body: String,
    trailers: Option<HeaderMap>,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Client {
    async fn connect(gateway: &Gateway) -> Self {
        Self::with(gateway, &mut h2::client::Builder::new()).await
    }

    async fn with(gateway: &Gateway, builder: &mut h2::client::Builder) -> Self {
        let stream = gateway.connect().await.stream;
        stream.set_nodelay(true).unwrap();
        let (send, connection) = builder.handshake(stream).await.unwrap();
        tokio::spawn(async move {
            // How it ended is seen by the requests on it.
            let _ = connection.await;
        });
        Self(send)
    }

    /// Sends a head, and the rest if `ends` is false.
    async fn begin(&mut self, request: Request<()>, ends: bool) -> (ResponseFuture, SendStream<Bytes>) {
        std::future::poll_fn(|cx| self.0.poll_ready(cx)).await.unwrap();
        self.0.send_request(request, ends).unwrap()
    }

    /// Sends a request without a body and reads the answer's head.
    async fn head(&mut self, request: Request<()>) -> Response<RecvStream> {
        self.begin(request, true).await.0.await.unwrap()
    }

    /// Sends a request without a body.
    async fn send(&mut self, request: Request<()>) -> Answer {
        whole(self.head(request).await).await.unwrap()
    }

    async fn get(&mut self, path: &str) -> Answer {
        self.send(request("GET", path, &[])).await
    }

    /// Whether the connection takes no more requests.
    async fn ended(&mut self) -> bool {
        std::future::poll_fn(|cx| self.0.poll_ready(cx)).await.is_err()
    }
}

fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Request<()> {
    let mut builder = Request::builder().method(method).uri(format!("http://a.example{path}"));
    for (name, value) in fields {
        builder = builder.header(*name, *value);
    }
    builder.body(()).unwrap()
}

/// Reads an answer to its end.
async fn whole(response: Response<RecvStream>) -> Result<Answer, h2::Error> {
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    let trailers = stream.trailers().await?;
    Ok(Answer { head, body: String::from_utf8(body).unwrap(), trailers })
}
