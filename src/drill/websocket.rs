//! Sockets that are held: a message each second has to come back.

use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use http::HeaderMap;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::Plan;
use super::report::{Kind, Log, Phase, Trouble};
use super::target::Stream;
use super::traffic::Traffic;

/// Time between two messages.
const PERIOD: Duration = Duration::from_secs(1);
/// Before another one is opened in place of one that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// Holds a WebSocket until `ended`; another one in its place whenever it fails.
pub(super) async fn hold(
    plan: Arc<Plan>,
    traffic: Traffic,
    number: u32,
    log: Arc<Log>,
    mut ended: watch::Receiver<bool>,
) {
    while !*ended.borrow() {
        let due = Instant::now();
        tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => return,
            trouble = one(&plan, &traffic, number, &log) => log.ended(&traffic, due, Err(trouble)),
        }
        sleep(PAUSE).await;
    }
}

/// Opens one and exchanges messages on it until that fails.
async fn one(plan: &Plan, traffic: &Traffic, number: u32, log: &Log) -> Trouble {
    let due = Instant::now();
    let mut socket = match timeout(plan.timeout, open(plan, traffic, log)).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(trouble)) => return trouble,
        Err(_) => return slow(Phase::Handshake),
    };
    log.ended(traffic, due, Ok(101));
    for message in 0_u64.. {
        sleep(PERIOD).await;
        let due = Instant::now();
        match timeout(plan.timeout, echo(&mut socket, format!("{number} {message}"))).await {
            Ok(Ok(())) => log.ended(traffic, due, Ok(101)),
            Ok(Err(trouble)) => return trouble,
            Err(_) => return slow(Phase::Held),
        }
    }
    slow(Phase::Held)
}

async fn open(plan: &Plan, traffic: &Traffic, log: &Log) -> Result<WebSocketStream<Box<dyn Stream>>, Trouble> {
    let (url, headers) = plan.target.websocket(traffic.path.as_deref());
    let mut request = url.into_client_request().map_err(|error| of(Phase::Handshake, &error))?;
    merge(request.headers_mut(), headers);
    let stream = plan.target.open(false).await?;
    log.connected(traffic);
    let (socket, _) = client_async(request, stream).await.map_err(|error| of(Phase::Handshake, &error))?;
    Ok(socket)
}

fn merge(into: &mut HeaderMap, headers: &HeaderMap) {
    for (name, value) in headers {
        into.append(name, value.clone());
    }
}

/// Sends a message and waits for it to come back.
async fn echo(socket: &mut WebSocketStream<Box<dyn Stream>>, text: String) -> Result<(), Trouble> {
    socket.send(Message::text(text.clone())).await.map_err(|error| of(Phase::Held, &error))?;
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(came))) if came.as_str() == text => return Ok(()),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(frame))) => {
                let detail =
                    frame.map_or_else(|| "closed by the server".to_owned(), |f| format!("{} {}", f.code, f.reason));
                return Err(Trouble { phase: Phase::Held, kind: Kind::Closed, detail });
            }
            Some(Ok(other)) => {
                let detail = format!("{text:?} was sent and {other:?} came");
                return Err(Trouble { phase: Phase::Held, kind: Kind::Invalid, detail });
            }
            Some(Err(error)) => return Err(of(Phase::Held, &error)),
            None => return Err(of(Phase::Held, &Error::ConnectionClosed)),
        }
    }
}

fn of(phase: Phase, error: &Error) -> Trouble {
    let kind = match error {
        Error::Io(error) => return Trouble::of_io(phase, error),
        Error::Http(_) => Kind::Status,
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake | ProtocolError::HandshakeIncomplete) => {
            Kind::Closed
        }
        _ => Kind::Invalid,
    };
    Trouble { phase, kind, detail: error.to_string() }
}

fn slow(phase: Phase) -> Trouble {
    Trouble { phase, kind: Kind::Timeout, detail: "nothing came in time".to_owned() }
}
