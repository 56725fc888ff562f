//! One request on one connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, TE};
use http::response::Parts;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::sleep;

use super::report::{Kind, Phase, Trouble};
use super::target::{Stream, Target};
use super::traffic::{Shape, Traffic};

/// The parts of an upload and the pause before each but the first: long enough for whatever happens to happen meanwhile.
const PARTS: usize = 5;
const PART: &[u8] = &[b'x'; 4096];
const PAUSE: Duration = Duration::from_millis(50);
/// A gRPC message without content: not compressed, no bytes.
const EMPTY_MESSAGE: &[u8] = &[0; 5];
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

pub(super) type Body = BoxBody<Bytes, Infallible>;

/// The sending end of a connection.
pub(super) enum Sender {
    H1(http1::SendRequest<Body>),
    H2(Streams),
}

/// The sending end of a connection of HTTP/2. The crate itself and not hyper, which tells of some requests that had been
/// begun as of others that had not.
#[derive(Clone)]
pub(super) struct Streams {
    sender: h2::client::SendRequest<Bytes>,
    /// It takes no more requests.
    closed: Arc<AtomicBool>,
}

/// An answer.
pub(super) enum Answer {
    H1(Response<Incoming>),
    H2(Response<h2::RecvStream>),
}

/// Why a request has no answer.
pub(super) enum Unanswered {
    /// It was certainly not begun, and can be sent on another connection.
    NotBegun(Trouble),
    /// It failed.
    Failed(Trouble),
}

impl Sender {
    /// Begins HTTP on a connection.
    pub(super) async fn new(stream: Box<dyn Stream>, h2: bool) -> Result<Self, Trouble> {
        if h2 {
            let begun = h2::client::handshake(stream).await;
            let (sender, connection) = begun.map_err(|error| Trouble::of_h2(Phase::Connect, &error))?;
            let closed = Arc::<AtomicBool>::default();
            let streams = Streams { sender, closed: Arc::clone(&closed) };
            tokio::spawn(async move {
                // Requests tell what is wrong with it.
                let _ = connection.await;
                closed.store(true, Ordering::Relaxed);
            });
            return Ok(Self::H2(streams));
        }
        let begun = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = begun.map_err(|error| Trouble::of_http(Phase::Connect, &error))?;
        tokio::spawn(connection);
        Ok(Self::H1(sender))
    }

    /// Whether it takes no more requests.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::H1(sender) => sender.is_closed(),
            Self::H2(streams) => streams.closed.load(Ordering::Relaxed),
        }
    }

    /// Another end of the same connection, where it carries many requests at a time.
    pub(super) fn share(&self) -> Option<Self> {
        match self {
            Self::H1(_) => None,
            Self::H2(streams) => Some(Self::H2(streams.clone())),
        }
    }

    /// Sends a request; `Ok` is its answer, of which the head has come.
    pub(super) async fn send(&mut self, request: Request<Body>) -> Result<Answer, Unanswered> {
        let sender = match self {
            Self::H1(sender) => sender,
            Self::H2(streams) => return streams.send(request).await.map(Answer::H2),
        };
        // The connection's task notices an end by the server only now.
        if let Err(error) = sender.ready().await {
            return Err(Unanswered::NotBegun(Trouble::of_http(Phase::Answer, &error)));
        }
        let answer = sender.try_send_request(request).await.map_err(|mut failed| {
            let was_begun = failed.take_message().is_none();
            let trouble = Trouble::of_http(Phase::Answer, failed.error());
            if was_begun { Unanswered::Failed(trouble) } else { Unanswered::NotBegun(trouble) }
        });
        answer.map(Answer::H1)
    }
}

impl Streams {
    async fn send(&mut self, request: Request<Body>) -> Result<Response<h2::RecvStream>, Unanswered> {
        let not_begun = |error: &h2::Error| {
            self.closed.store(true, Ordering::Relaxed);
            Unanswered::NotBegun(Trouble::of_h2(Phase::Answer, error))
        };
        let mut sender = self.sender.clone().ready().await.map_err(|error| not_begun(&error))?;
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let sent = sender.send_request(Request::from_parts(head, ()), body.is_empty());
        let (answer, mut stream) = sent.map_err(|error| not_begun(&error))?;
        let sent = if body.is_empty() { Ok(()) } else { stream.send_data(body, true) };
        let answered = match sent {
            Ok(()) => answer.await,
            Err(error) => Err(error),
        };
        answered.map_err(|error| {
            if is_refused(&error) {
                return not_begun(&error);
            }
            Unanswered::Failed(Trouble::of_h2(Phase::Answer, &error))
        })
    }
}

/// Whether the server says that it did nothing with the request (RFC 9113, section 8.7). Of GOAWAY only those requests
/// are told that are behind its last.
fn is_refused(error: &h2::Error) -> bool {
    let leaves = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    error.is_remote() && (error.reason() == Some(h2::Reason::REFUSED_STREAM) || leaves)
}

/// The request of a kind of traffic.
pub(super) fn request(target: &Target, traffic: &Traffic) -> Result<Request<Body>, Trouble> {
    let head = target.head(traffic.path.as_deref(), traffic.shape.is_h2());
    let (head, body) = match traffic.shape {
        Shape::Keepalive | Shape::Stream | Shape::H2 | Shape::Websocket => (head, Empty::new().boxed()),
        Shape::Connection => (head.header(CONNECTION, "close"), Empty::new().boxed()),
        Shape::Upload => {
            let length = PARTS * PART.len();
            (head.method(Method::POST).header(CONTENT_LENGTH, length), BodyExt::boxed(StreamBody::new(parts())))
        }
        Shape::Grpc => {
            let head = head.method(Method::POST).header(CONTENT_TYPE, "application/grpc").header(TE, "trailers");
            (head, Full::from(EMPTY_MESSAGE).boxed())
        }
    };
    head.body(body).map_err(|error| Trouble { phase: Phase::Queue, kind: Kind::Invalid, detail: error.to_string() })
}

fn parts() -> impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Sync {
    stream::unfold(0, |sent| async move {
        if sent == PARTS {
            return None;
        }
        if sent > 0 {
            sleep(PAUSE).await;
        }
        Some((Ok(Frame::data(Bytes::from_static(PART))), sent + 1))
    })
}

impl Answer {
    /// Reads it to its end; gives its head and its trailers.
    pub(super) async fn read(self) -> Result<(Parts, HeaderMap), Trouble> {
        match self {
            Self::H1(answer) => {
                let (head, mut body) = answer.into_parts();
                let mut trailers = HeaderMap::new();
                while let Some(frame) = body.frame().await {
                    let frame = frame.map_err(|error| Trouble::of_http(Phase::Body, &error))?;
                    if let Ok(found) = frame.into_trailers() {
                        trailers = found;
                    }
                }
                Ok((head, trailers))
            }
            Self::H2(answer) => {
                let (head, mut body) = answer.into_parts();
                let failed = |error: h2::Error| Trouble::of_h2(Phase::Body, &error);
                while let Some(data) = body.data().await {
                    let read = data.map_err(failed)?.len();
                    body.flow_control().release_capacity(read).map_err(failed)?;
                }
                Ok((head, body.trailers().await.map_err(failed)?.unwrap_or_default()))
            }
        }
    }
}

/// Whether an answer is the right one for its kind of traffic: its status, and what gRPC says of a call.
pub(super) fn judge(
    shape: Shape,
    status: u16,
    expect: Option<u16>,
    headers: &HeaderMap,
    trailers: &HeaderMap,
) -> Result<u16, Trouble> {
    let wrong = |detail: String| Err(Trouble { phase: Phase::Body, kind: Kind::Status, detail });
    let reason = headers.get("x-lockgate-reason").and_then(|reason| reason.to_str().ok());
    if expect.map_or(status >= 500, |expected| status != expected) {
        let reason = reason.map_or_else(String::new, |reason| format!(" {reason}"));
        return wrong(format!("{status}{reason}"));
    }
    if shape == Shape::Grpc {
        let found = trailers.get(GRPC_STATUS).or_else(|| headers.get(GRPC_STATUS));
        match found.map(|code| String::from_utf8_lossy(code.as_bytes()).into_owned()) {
            Some(code) if code == "0" => {}
            Some(code) => return wrong(format!("grpc-status {code}")),
            None => return wrong("no grpc-status".to_owned()),
        }
    }
    Ok(status)
}
