//! What operates or reveals.

use std::sync::Arc;

use http::header::ACCEPT;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::server::{Answer, method_not_allowed, text, typed};
use super::{Ask, Page, Parts, Shown, guard, page};
use crate::lifecycle::Holder;

/// The operator port.
#[derive(Clone)]
pub(super) struct Operator(Arc<Parts>);

/// Of a body; a list of log directives is far below.
const MAX_BODY: usize = 4096;
/// Of what holds a drain, so many are told one by one.
const MAX_HOLDERS: usize = 100;
/// Of a question to a page: room for the head of a request.
const MAX_QUESTION: usize = 256 << 10;

// === impl Operator ===

impl Operator {
    pub(super) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    pub(super) async fn answer(self, request: Request<Incoming>) -> Answer {
        if let Err(reason) = guard::from_here(request.method(), request.headers()) {
            return error(StatusCode::FORBIDDEN, reason);
        }
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        match (path.as_str(), request.method()) {
            ("drain", &Method::GET | &Method::HEAD) => self.phase().await,
            ("drain", &Method::POST) => self.drain(&query).await,
            ("drain", _) => method_not_allowed("GET, HEAD, POST"),
            ("loglevel", &Method::GET | &Method::HEAD) => self.log_level(),
            ("loglevel", &Method::PUT) => self.set_log_level(request.into_body()).await,
            ("loglevel", _) => method_not_allowed("GET, HEAD, PUT"),
            ("", &Method::GET | &Method::HEAD) if page::is_wanted(request.headers()) => page::html(),
            ("", &Method::GET | &Method::HEAD) => self.index(),
            (page::STYLE, &Method::GET | &Method::HEAD) => page::style(),
            (page::SCRIPT, &Method::GET | &Method::HEAD) => page::script(),
            ("" | page::STYLE | page::SCRIPT, _) => method_not_allowed("GET, HEAD"),
            (name, method) => match self.0.pages.get(name) {
                None => error(StatusCode::NOT_FOUND, "no such page, / lists all"),
                Some(page) => match *method {
                    Method::GET | Method::HEAD => show(page, ask(&request, query)).await,
                    Method::POST if page.takes_body => {
                        let mut ask = ask(&request, query);
                        match Limited::new(request.into_body(), MAX_QUESTION).collect().await {
                            Ok(body) => ask.body = Some(body.to_bytes()),
                            Err(_) => return unreadable(MAX_QUESTION),
                        }
                        show(page, ask).await
                    }
                    _ if page.takes_body => method_not_allowed("GET, HEAD, POST"),
                    _ => method_not_allowed("GET, HEAD"),
                },
            },
        }
    }

    fn index(&self) -> Answer {
        let pages = self.0.pages.iter().flat_map(|(name, page)| {
            let methods: &[&str] = if page.takes_body { &["GET", "POST"] } else { &["GET"] };
            methods.iter().map(move |method| format!("{method} /{name}"))
        });
        let own = ["GET /drain", "POST /drain", "POST /drain?cancel", "GET /loglevel", "PUT /loglevel"];
        json(StatusCode::OK, &own.map(str::to_owned).into_iter().chain(pages).collect())
    }

    /// The phase, and what holds a drain: the oldest first, at most [`MAX_HOLDERS`].
    async fn phase(&self) -> Answer {
        let lifecycle = Arc::clone(&self.0.lifecycle);
        // Workers are asked, and may take a while.
        let asked = tokio::task::spawn_blocking(move || {
            let mut holders = lifecycle.holders();
            holders.sort_by_key(|holder| std::cmp::Reverse(holder.age));
            json!({
                "phase": lifecycle.phase().as_str(),
                "inFlight": lifecycle.in_flight(),
                "pending": lifecycle.readiness().pending(),
                "holders": holders.iter().take(MAX_HOLDERS).map(told).collect::<Vec<_>>(),
            })
        });
        match asked.await {
            Ok(phase) => json(StatusCode::OK, &phase),
            Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "the state could not be told"),
        }
    }

    async fn drain(&self, query: &str) -> Answer {
        let lifecycle = &self.0.lifecycle;
        let result = match query {
            "" => lifecycle.drain(),
            "cancel" => lifecycle.cancel_drain(),
            // A mistyped cancel must not begin a drain.
            other => return error(StatusCode::BAD_REQUEST, format!("query {other:?}: only cancel is known")),
        };
        match result {
            Ok(()) => self.phase().await,
            Err(invalid) => error(StatusCode::CONFLICT, invalid.to_string()),
        }
    }

    fn log_level(&self) -> Answer {
        json(StatusCode::OK, &json!({ "level": self.0.logs.level() }))
    }

    async fn set_log_level(&self, body: Incoming) -> Answer {
        let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
            return unreadable(MAX_BODY);
        };
        let body = body.to_bytes();
        let Ok(level) = std::str::from_utf8(&body) else {
            return error(StatusCode::BAD_REQUEST, "the level is not UTF-8");
        };
        match self.0.logs.set_level(level.trim()) {
            Ok(()) => self.log_level(),
            Err(failure) => error(StatusCode::BAD_REQUEST, failure.to_string()),
        }
    }
}

fn told(holder: &Holder) -> Value {
    json!({
        "route": holder.route,
        "protocol": holder.protocol,
        "peer": holder.peer,
        "ageSeconds": holder.age.as_secs_f64(),
        "received": holder.received,
        "sent": holder.sent,
    })
}

fn ask(request: &Request<Incoming>, query: String) -> Ask {
    let accepts = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accepts_text = accepts.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/plain"));
    Ask { query, accepts_text, body: None }
}

async fn show(page: &Page, ask: Ask) -> Answer {
    let handler = Arc::clone(&page.handler);
    match tokio::task::spawn_blocking(move || handler(&ask)).await {
        Ok(Ok(Shown::Json(value))) => json(StatusCode::OK, &value),
        Ok(Ok(Shown::Text(shown))) => text(StatusCode::OK, shown),
        Ok(Err(reason)) => error(StatusCode::BAD_REQUEST, reason),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made"),
    }
}

fn json(status: StatusCode, value: &Value) -> Answer {
    typed(status, "application/json", format!("{value:#}\n"))
}

fn unreadable(most: usize) -> Answer {
    error(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is not readable or above {most} bytes"))
}

fn error(status: StatusCode, reason: impl Into<String>) -> Answer {
    json(status, &json!({ "error": reason.into() }))
}
