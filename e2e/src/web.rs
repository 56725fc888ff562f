//! An HTTP client that hides nothing: no retry, no redirect, one connection at a time.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an exchange may take before it counts as failed.
const LIMIT: Duration = Duration::from_secs(20);

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its whole body.
    pub body: Bytes,
}

impl Answer {
    /// The body of a demo backend, or `null`.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The name of the demo backend that answered, or nothing.
    pub fn backend(&self) -> Option<String> {
        self.json()["name"].as_str().map(str::to_owned)
    }

    /// Whether the server asks to leave the connection.
    pub fn closes(&self) -> bool {
        self.headers.get(header::CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        write!(f, "{} {}", self.status.as_u16(), body.trim().chars().take(300).collect::<String>())
    }
}

/// The step of an exchange that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Connecting.
    Connect,
    /// From the request's first byte to the answer's head.
    Head,
    /// The answer's body.
    Body,
    /// No step ended in time.
    Time,
}

/// An exchange without an answer.
#[derive(Debug)]
pub struct Failure {
    /// Where it failed.
    pub step: Step,
    /// Why.
    pub error: anyhow::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:#}", self.step, self.error)
    }
}

impl std::error::Error for Failure {}

/// A connection that is kept as long as the server keeps it.
#[derive(Debug)]
pub struct Client {
    address: String,
    keep: bool,
    connection: Option<SendRequest<Full<Bytes>>>,
    /// Connections made so far.
    pub connections: u64,
}

impl Client {
    /// A client of `HOST:PORT` that reuses its connection.
    pub fn new(address: &str) -> Self {
        Self { address: address.into(), keep: true, connection: None, connections: 0 }
    }

    /// A client that makes a connection for every request.
    pub fn one_shot(address: &str) -> Self {
        Self { keep: false, ..Self::new(address) }
    }

    /// Sends one request and reads its answer to the end.
    pub async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        if !self.keep {
            request.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        }
        let answer = match timeout(LIMIT, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(Failure { step: Step::Time, error: elapsed.into() }),
        };
        if !self.keep || answer.as_ref().map_or(true, Answer::closes) {
            self.connection = None;
        }
        answer
    }

    /// GET of a path at a host.
    pub async fn get(&mut self, host: &str, path: &str) -> Result<Answer, Failure> {
        self.send(get(host, path)).await
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let at = |step| move |error| Failure { step, error };
        let mut connection = match self.kept().await {
            Some(kept) => kept,
            None => self.connect().await.map_err(at(Step::Connect))?,
        };
        let response = connection.send_request(request).await.map_err(|error| at(Step::Head)(error.into()))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| at(Step::Body)(error.into()))?.to_bytes();
        self.connection = Some(connection);
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    /// The connection of the last exchange, unless the server has closed it meanwhile, which no client takes for a failure.
    async fn kept(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        let mut kept = self.connection.take()?;
        kept.ready().await.is_ok().then_some(kept)
    }

    async fn connect(&mut self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(&self.address).await.with_context(|| self.address.clone())?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Its errors are those of the exchange.
        tokio::spawn(async { connection.await.ok() });
        self.connections += 1;
        Ok(sender)
    }
}

/// A GET request.
pub fn get(host: &str, path: &str) -> Request<Full<Bytes>> {
    request("GET", host, path, &[], "")
}

/// A request of any kind.
pub fn request(method: &str, host: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Full<Bytes>> {
    let mut builder = Request::builder().method(method).uri(path).header(header::HOST, host);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(Full::from(body.to_owned())).expect("a valid request")
}
