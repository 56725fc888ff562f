//! One request on one connection.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, TE};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::sleep;

use super::report::{Kind, Phase, Trouble, cause};
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
    H2(http2::SendRequest<Body>),
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
        let io = TokioIo::new(stream);
        let failed = |error: hyper::Error| Trouble::of_http(Phase::Connect, &error);
        if h2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.map_err(failed)?;
            tokio::spawn(connection);
            Ok(Self::H2(sender))
        } else {
            let (sender, connection) = http1::handshake(io).await.map_err(failed)?;
            tokio::spawn(connection);
            Ok(Self::H1(sender))
        }
    }

    /// Whether it takes no more requests.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::H1(sender) => sender.is_closed(),
            Self::H2(sender) => sender.is_closed(),
        }
    }

    /// Another end of the same connection, where it carries many requests at a time.
    pub(super) fn share(&self) -> Option<Self> {
        match self {
            Self::H1(_) => None,
            Self::H2(sender) => Some(Self::H2(sender.clone())),
        }
    }

    /// Sends a request; `Ok` is the head of its answer.
    pub(super) async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, Unanswered> {
        let result = match self {
            Self::H1(sender) => {
                // The connection's task notices an end by the server only now.
                if let Err(error) = sender.ready().await {
                    return Err(Unanswered::NotBegun(Trouble::of_http(Phase::Answer, &error)));
                }
                sender.try_send_request(request).await
            }
            Self::H2(sender) => {
                if let Err(error) = sender.ready().await {
                    return Err(Unanswered::NotBegun(Trouble::of_http(Phase::Answer, &error)));
                }
                sender.try_send_request(request).await
            }
        };
        result.map_err(|mut failed| {
            let was_begun = failed.take_message().is_none();
            let error = failed.into_error();
            let trouble = Trouble::of_http(Phase::Answer, &error);
            if was_begun && !is_refused(&error) { Unanswered::Failed(trouble) } else { Unanswered::NotBegun(trouble) }
        })
    }
}

/// Whether the server says that it did nothing with the request (RFC 9113, section 8.7).
fn is_refused(error: &hyper::Error) -> bool {
    cause::<h2::Error>(error).is_some_and(|error| {
        error.is_remote()
            && (error.reason() == Some(h2::Reason::REFUSED_STREAM)
                || (error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR)))
    })
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

/// Reads an answer to its end; gives its trailers.
pub(super) async fn read(mut body: Incoming) -> Result<HeaderMap, Trouble> {
    let mut trailers = HeaderMap::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Trouble::of_http(Phase::Body, &error))?;
        if let Ok(found) = frame.into_trailers() {
            trailers = found;
        }
    }
    Ok(trailers)
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
