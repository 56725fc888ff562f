//! An API server for tests: the test takes each request in its turn and says what the answer is.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tower_service::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>;

/// The requests of a client.
pub(super) struct Server(mpsc::UnboundedReceiver<Call>);

/// One request, to be answered.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) body: Value,
    answer: oneshot::Sender<Answer>,
}

#[derive(Clone)]
struct Transport(mpsc::UnboundedSender<Call>);

/// A client and the server it talks to.
pub(super) fn pair() -> (Client, Server) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Client::new(Transport(sender), "default"), Server(receiver))
}

impl Service<Request<Body>> for Transport {
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Answer>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let calls = self.0.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let (answer, answered) = oneshot::channel();
            calls.send(Call {
                method: parts.method,
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                body: serde_json::from_slice(&body).unwrap_or(Value::Null),
                answer,
            })?;
            answered.await?
        })
    }
}

impl Server {
    /// The next request, however long it takes.
    pub(super) async fn next(&mut self) -> Call {
        self.0.recv().await.expect("the client is gone")
    }

    /// The next request, which must be a list.
    pub(super) async fn list(&mut self) -> Call {
        let call = self.next().await;
        assert!(!call.is_watch(), "not a list: {call:?}");
        call
    }

    /// The next request, which must be a watch from a position.
    pub(super) async fn watch(&mut self, version: &str) -> Call {
        let call = self.next().await;
        assert!(call.is_watch(), "not a watch: {call:?}");
        assert!(call.query.contains(&format!("resourceVersion={version}")), "{}", call.query);
        call
    }

    /// That no request comes for a while.
    pub(super) async fn silent_for(&mut self, time: Duration) {
        let call = tokio::time::timeout(time, self.0.recv()).await;
        assert!(call.is_err(), "unexpected: {call:?}");
    }
}

impl Call {
    pub(super) fn is_watch(&self) -> bool {
        self.query.contains("watch=true")
    }

    /// Whether nobody waits for the answer any more.
    pub(super) fn is_given_up(&self) -> bool {
        self.answer.is_closed()
    }

    fn respond(self, status: StatusCode, body: UnsyncBoxBody<Bytes, BoxError>) {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        // The client may have given up.
        let _ = self.answer.send(Ok(response));
    }

    pub(super) fn json(self, code: u16, body: &Value) {
        let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
        self.respond(StatusCode::from_u16(code).unwrap(), body);
    }

    /// Fails with a Status.
    pub(super) fn fail(self, code: u16, reason: &str, retry_after: u32) {
        self.json(code, &failure(code, reason, retry_after));
    }

    /// The connection breaks.
    pub(super) fn refuse(self) {
        let _ = self.answer.send(Err("connection refused".into()));
    }

    /// Answers a list in one page.
    pub(super) fn items(self, version: &str, items: &[Value]) {
        self.page(version, "", items);
    }

    pub(super) fn page(self, version: &str, next: &str, items: &[Value]) {
        let list = json!({
            "apiVersion": "v1", "kind": "List",
            "metadata": {"resourceVersion": version, "continue": next},
            "items": items,
        });
        self.json(200, &list);
    }

    /// Answers a watch.
    pub(super) fn stream(self) -> Watch {
        let (sender, receiver) = mpsc::unbounded_channel::<Value>();
        let frames = futures::stream::unfold(receiver, |mut receiver| async {
            let event = receiver.recv().await?;
            Some((Ok(Frame::data(Bytes::from(format!("{event}\n")))), receiver))
        });
        self.respond(StatusCode::OK, StreamBody::new(frames).boxed_unsync());
        Watch(sender)
    }
}

/// An open watch; dropping it ends it.
pub(super) struct Watch(mpsc::UnboundedSender<Value>);

impl Watch {
    pub(super) fn send(&self, event: &str, object: &Value) {
        self.0.send(json!({"type": event, "object": object})).expect("the watch is read");
    }

    pub(super) fn bookmark(&self, version: &str) {
        let metadata = json!({"resourceVersion": version});
        self.send("BOOKMARK", &json!({"apiVersion": "v1", "kind": "X", "metadata": metadata}));
    }
}

/// The body of a failure.
pub(super) fn failure(code: u16, reason: &str, retry_after: u32) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": format!("{reason} for a test"),
        "details": {"retryAfterSeconds": retry_after},
    })
}
