//! A small HTTP/1 server with bounds.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

pub(super) type Answer = Response<Full<Bytes>>;

/// Connections at a time. One more closes the oldest: whoever opens many and says nothing must not lock the kubelet out.
const MAX_CONNECTIONS: usize = 64;
/// For the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// For a whole connection, which carries one request.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// Room for a head; the smallest that hyper allows.
const MAX_HEAD: usize = 8192;
/// After an error of the listener itself, such as no free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until it is dropped.
pub(super) async fn serve<F, A>(listener: TcpListener, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let mut oldest = VecDeque::<AbortHandle>::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => {
                oldest.retain(|task| !task.is_finished());
                continue;
            }
        };
        match accepted {
            Ok((stream, _)) => {
                while oldest.len() >= MAX_CONNECTIONS {
                    oldest.pop_front().iter().for_each(AbortHandle::abort);
                }
                oldest.push_back(tasks.spawn(connection(stream, answer.clone())));
            }
            Err(error) if of_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "admin: cannot accept");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The client was gone before it was accepted.
fn of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

async fn connection<F, A>(stream: TcpStream, answer: F)
where
    F: Fn(Request<Incoming>) -> A,
    A: Future<Output = Answer>,
{
    let service = service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // What goes wrong with a client of these ports is that client's business.
    let _ = timeout(CONNECTION_LIMIT, connection).await;
}

/// An answer of a text.
pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    let mut text = text.into();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    typed(status, "text/plain; charset=utf-8", text)
}

/// An answer of a type.
pub(super) fn typed(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// 405 with what is allowed instead.
pub(super) fn method_not_allowed(allow: &'static str) -> Answer {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, format!("only {allow}"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    answer
}

/// 404.
pub(super) fn not_found() -> Answer {
    text(StatusCode::NOT_FOUND, "not found")
}
