//! A client for one watch: sees every sign of life on it, bookmarks too, and gives up when there is none.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame};
use kube::Client;
use kube::client::Body;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};
use tower_service::Service;
use tracing::{debug, info};

use super::health::Pulse;
use super::{Failure, label};
use crate::source::index::Kind;

/// How long the API server may take to begin an answer, and to go on with a list.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a watch may be silent: longer than the minute between bookmarks, so that only a dead connection, or an API
/// server that sends no bookmarks, is silent for so long. The watch then resumes where it was.
const SILENCE: Duration = Duration::from_secs(100);
/// A watch that ends sooner than this after it began is not begun again at once.
const SHORTEST: Duration = Duration::from_secs(1);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The requests of one watch.
pub(super) struct Tap {
    client: Client,
    pulse: Arc<Pulse>,
    kind: Kind,
}

impl Tap {
    /// A client whose requests count as signs of life of a watch.
    pub(super) fn client(client: &Client, kind: Kind, pulse: Arc<Pulse>) -> Client {
        let namespace = client.default_namespace().to_owned();
        Client::new(Self { client: client.clone(), pulse, kind }, namespace)
    }
}

impl Service<Request<Body>> for Tap {
    type Response = Response<Watchdog>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let watch = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
        // A watch that the API server ends at once, again and again, must not become a busy loop.
        let pause = if watch { SHORTEST.saturating_sub(self.pulse.since_begun()) } else { Duration::ZERO };
        let (client, pulse, kind) = (self.client.clone(), Arc::clone(&self.pulse), self.kind);
        Box::pin(async move {
            tokio::time::sleep(pause).await;
            let Ok(answer) = tokio::time::timeout(ANSWER, client.send(request)).await else {
                return Err(Failure::Timeout.into());
            };
            let answer = answer?;
            let granted = answer.status().is_success();
            if granted {
                pulse.beat();
                pulse.begun(watch);
                if watch && !pulse.set_healthy(true) {
                    info!(source = label(kind), "the watch works");
                }
            }
            let limit = if watch { SILENCE } else { ANSWER };
            let pulse = granted.then_some(pulse);
            Ok(answer.map(|body| Watchdog { body, limit, silence: tokio::time::sleep(limit), pulse, done: false }))
        })
    }
}

pin_project! {
    /// A body that ends when nothing came on it for too long.
    pub(super) struct Watchdog {
        #[pin]
        body: Body,
        #[pin]
        silence: Sleep,
        limit: Duration,
        // None for the body of a refusal, which is no sign of life.
        pulse: Option<Arc<Pulse>>,
        done: bool,
    }
}

impl HttpBody for Watchdog {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        if *this.done {
            return Poll::Ready(None);
        }
        match this.body.poll_frame(cx) {
            Poll::Ready(frame) => {
                if matches!(frame, Some(Ok(_))) {
                    if let Some(pulse) = this.pulse {
                        pulse.beat();
                    }
                    this.silence.as_mut().reset(Instant::now() + *this.limit);
                }
                Poll::Ready(frame.map(|result| result.map_err(Into::into)))
            }
            Poll::Pending => {
                ready!(this.silence.as_mut().poll(cx));
                debug!("nothing came for {:?}; the connection is given up", this.limit);
                *this.done = true;
                // The watcher resumes a watch that ends; a list cut short does not decode and is begun again.
                Poll::Ready(None)
            }
        }
    }
}
