//! `/ws`: every message comes back.

use std::convert::Infallible;

use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use super::{Answer, text};

/// Answers a request for `/ws`, and echoes from then on until either side closes or the server ends; `open` is held as
/// long. `None` for other paths.
pub(super) fn accept(
    request: &mut Request<Incoming>,
    closed: &watch::Receiver<()>,
    open: &mpsc::Sender<Infallible>,
) -> Option<Answer> {
    if request.uri().path() != "/ws" {
        return None;
    }
    let asks = |name, value: &str| {
        let values = request.headers().get_all(name).iter().filter_map(|v| v.to_str().ok());
        values.flat_map(|v| v.split(',')).any(|token| token.trim().eq_ignore_ascii_case(value))
    };
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY);
    let asked = request.method() == Method::GET && asks(header::UPGRADE, "websocket");
    let Some(key) = key.filter(|_| asked) else {
        let mut answer = text(StatusCode::UPGRADE_REQUIRED, "/ws takes WebSockets alone\n");
        answer.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        return Some(answer);
    };
    if !asks(header::SEC_WEBSOCKET_VERSION, "13") {
        let mut answer = text(StatusCode::UPGRADE_REQUIRED, "/ws speaks version 13 alone\n");
        answer.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Some(answer);
    }
    let Ok(accepted) = HeaderValue::try_from(derive_accept_key(key.as_bytes())) else {
        return Some(text(StatusCode::BAD_REQUEST, "the key cannot be used\n"));
    };
    let (upgrade, closed, open) = (hyper::upgrade::on(request), closed.clone(), open.clone());
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => echo(upgraded, closed).await,
            Err(error) => tracing::debug!(%error, "no WebSocket came of an upgrade"),
        }
        drop(open);
    });
    let mut answer = Answer::new(Either::Left(Full::default()));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
    Some(answer)
}

async fn echo(upgraded: Upgraded, mut closed: watch::Receiver<()>) {
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
    let result = loop {
        tokio::select! {
            message = socket.next() => match message {
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                    if let Err(error) = socket.send(message).await {
                        break Err(error);
                    }
                }
                // Pings and the client's close are answered as the socket is read.
                Some(Ok(_)) => {}
                Some(Err(error)) => break Err(error),
                None => break Ok(()),
            },
            _ = closed.changed() => {
                let leave = CloseFrame { code: CloseCode::Away, reason: "the server ends".into() };
                break socket.close(Some(leave)).await;
            }
        }
    };
    match result {
        Ok(()) | Err(Error::ConnectionClosed) => {}
        Err(error) => tracing::debug!(%error, "WebSocket ended"),
    }
}
