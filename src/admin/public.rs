//! `/livez`, `/readyz`, `/metrics`, and nothing else.

use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use tokio::sync::Semaphore;

use super::Parts;
use super::server::{Answer, method_not_allowed, not_found, text, typed};
use crate::lifecycle::{Health, Lifecycle};
use crate::telemetry::metrics::{CONTENT_TYPE, Metrics};

/// The public port.
#[derive(Clone)]
pub(super) struct Public {
    lifecycle: Arc<Lifecycle>,
    metrics: Arc<Metrics>,
    /// A scrape of many rules takes megabytes: one is made at a time.
    scrapes: Arc<Semaphore>,
}

// === impl Public ===

impl Public {
    pub(super) fn new(parts: &Parts) -> Self {
        let (lifecycle, metrics) = (Arc::clone(&parts.lifecycle), Arc::clone(&parts.metrics));
        Self { lifecycle, metrics, scrapes: Arc::new(Semaphore::new(1)) }
    }

    pub(super) async fn answer(self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path();
        if !matches!(path, "/livez" | "/readyz" | "/metrics") {
            return not_found();
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return method_not_allowed("GET, HEAD");
        }
        match path {
            "/livez" => health(self.lifecycle.live()),
            "/readyz" => health(self.lifecycle.ready()),
            _ => self.scrape().await,
        }
    }

    async fn scrape(self) -> Answer {
        let Ok(_one) = self.scrapes.acquire().await else { return failed() };
        match tokio::task::spawn_blocking(move || self.metrics.render()).await {
            Ok(metrics) => typed(StatusCode::OK, CONTENT_TYPE, metrics),
            Err(_) => failed(),
        }
    }
}

fn failed() -> Answer {
    text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be collected")
}

fn health(health: Health) -> Answer {
    text(if health.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, health.text)
}
