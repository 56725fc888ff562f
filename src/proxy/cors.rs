//! Requests of pages of other origins (<https://fetch.spec.whatwg.org/#http-cors-protocol>).

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};

use super::body::ResponseBody;
use crate::ir::{Allowed, Cors, Origins};

const PREFIX: &str = "access-control-";
const ANY: HeaderValue = HeaderValue::from_static("*");
const TRUE: HeaderValue = HeaderValue::from_static("true");
const ORIGIN: HeaderValue = HeaderValue::from_static("origin");
const ALL_ASKED: HeaderValue =
    HeaderValue::from_static("origin, access-control-request-method, access-control-request-headers");

/// What an answer says to pages of other origins.
#[derive(Debug)]
pub(super) struct Grant {
    /// The value of `access-control-allow-origin`, if the origin is let in.
    origin: Option<HeaderValue>,
    credentials: bool,
    expose: Option<HeaderValue>,
    /// Whether another origin would be told something else.
    varies: bool,
}

impl Grant {
    /// What the request's origin gets.
    pub(super) fn new(cors: &Cors, headers: &HeaderMap) -> Self {
        let varies = cors.credentials || cors.origins != Origins::All;
        let origin = if varies { admitted(cors, headers).cloned() } else { Some(ANY) };
        Self { origin, credentials: cors.credentials, expose: cors.expose.clone(), varies }
    }

    /// Puts it into an answer, in place of what a backend says.
    pub(super) fn apply(self, headers: &mut HeaderMap) {
        if headers.keys().any(is_cors) {
            let names: Vec<HeaderName> = headers.keys().filter(|name| is_cors(name)).cloned().collect();
            for name in names {
                headers.remove(name);
            }
        }
        if self.varies && !covers_origin(headers) {
            headers.append(header::VARY, ORIGIN);
        }
        let Some(origin) = self.origin else { return };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.credentials {
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        }
        if let Some(expose) = self.expose {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, expose);
        }
    }
}

fn is_cors(name: &HeaderName) -> bool {
    name.as_str().starts_with(PREFIX)
}

/// Whether `Vary` speaks of `Origin` already.
fn covers_origin(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::VARY).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).any(|name| name == "*" || name.eq_ignore_ascii_case("origin"))
}

/// The request's origin, if the filter lets it in. Two of them are none.
fn admitted<'a>(cors: &Cors, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(header::ORIGIN).iter();
    let origin = values.next().filter(|_| values.next().is_none())?;
    let admitted = match &cors.origins {
        Origins::All => true,
        Origins::Some(patterns) => {
            let text = origin.to_str().ok()?;
            patterns.iter().any(|pattern| pattern.matches(text))
        }
    };
    admitted.then_some(origin)
}

/// Whether the filter lets the request's origin in.
pub(super) fn allows(cors: &Cors, headers: &HeaderMap) -> bool {
    Grant::new(cors, headers).origin.is_some()
}

/// The answer to a preflight. An origin that is not let in gets one that says nothing.
pub(super) fn answer(cors: &Cors, asked: &Method, request: &HeaderMap) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let grant = Grant::new(cors, request);
    let is_admitted = grant.origin.is_some();
    Grant { expose: None, varies: false, ..grant }.apply(headers);
    headers.insert(header::VARY, ALL_ASKED);
    if !is_admitted {
        return response;
    }
    // `*` would leave out Authorization, and means nothing with credentials: what is asked for says the same.
    let methods = match &cors.methods {
        Allowed::None => None,
        Allowed::All => HeaderValue::from_str(asked.as_str()).ok(),
        Allowed::Listed(value) => Some(value.clone()),
    };
    let fields = match &cors.headers {
        Allowed::None => None,
        Allowed::All => asked_fields(request),
        Allowed::Listed(value) => Some(value.clone()),
    };
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, methods),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, fields),
        (header::ACCESS_CONTROL_MAX_AGE, Some(cors.max_age.into())),
    ] {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    }
    response
}

/// The names of header fields that a preflight asks for, if that is what its field holds.
fn asked_fields(request: &HeaderMap) -> Option<HeaderValue> {
    let mut names = Vec::new();
    for line in request.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        for name in line.to_str().ok()?.split(',') {
            names.push(name.trim().parse::<HeaderName>().ok()?);
        }
    }
    let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
    if names.is_empty() { None } else { HeaderValue::from_str(&names.join(", ")).ok() }
}

#[cfg(test)]
mod tests;
