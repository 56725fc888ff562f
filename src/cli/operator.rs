//! Questions to the operator port of a gateway that runs.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;

/// Where the port is.
pub(super) const PORT: &str = "127.0.0.1:8082";
/// For a gateway to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes of its answer.
const MAX_ANSWER: usize = 256 << 20;

/// What a gateway answers to a POST; an error where it refuses or cannot be asked.
pub(super) async fn post(address: SocketAddr, path: &str, body: Vec<u8>) -> anyhow::Result<Bytes> {
    ask(address, Method::POST, path, body).await
}

/// What a gateway answers to a GET.
pub(super) async fn get(address: SocketAddr, path: &str) -> anyhow::Result<Bytes> {
    ask(address, Method::GET, path, Vec::new()).await
}

async fn ask(address: SocketAddr, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<Bytes> {
    let asked = tokio::time::timeout(PATIENCE, exchange(address, method, path, body)).await;
    let (status, body) = asked
        .map_err(|_| anyhow!("did not answer in time"))
        .and_then(|result| result)
        .with_context(|| format!("the gateway at {address}"))?;
    if !status.is_success() {
        let told: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        bail!("the gateway at {address} answers {status}: {}", told["error"].as_str().unwrap_or("no reason given"));
    }
    Ok(body)
}

async fn exchange(
    address: SocketAddr,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let stream = tokio::net::TcpStream::connect(address).await.context("cannot be reached")?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The operator port takes no other name than loopback's: `port-forward` leads to it.
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let answered = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| anyhow!("the answer cannot be read: {error}"))?;
        anyhow::Ok((status, body.to_bytes()))
    };
    // The connection ends when the answer has been read; what is wrong with it shows there.
    tokio::pin!(answered);
    tokio::select! {
        answered = &mut answered => answered,
        ended = connection => {
            ended?;
            answered.await
        }
    }
}
