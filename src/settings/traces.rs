//! Settings of traces.

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Traces: a span for each sampled request, sent to a collector.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Traces {
    /// The URL of a collector that takes OTLP over HTTP, such as `http://collector:4318`; without a path `/v1/traces` is put
    /// behind it. Absent or empty is none: no spans, and trace contexts of clients go to backends as they are.
    pub endpoint: Option<String>,
    /// Header fields that go to the collector, each as `name: value`, such as those that log in there.
    pub headers: Vec<String>,
    /// The share of traces that are sampled, from 0 to 1, of those that begin here.
    pub share: f64,
    /// Sample whatever a client's `traceparent` says is sampled, and nothing else of such traces. Without it their share is
    /// `share` too.
    pub follow_parent: bool,
    /// Spans that may wait for the collector. What is over is dropped, and counted.
    pub queue: usize,
}

/// More would be memory that nobody expects to be taken.
const MAX_QUEUE: usize = 1 << 20;

impl Default for Traces {
    fn default() -> Self {
        Self { endpoint: None, headers: Vec::new(), share: 0.1, follow_parent: true, queue: 4096 }
    }
}

impl Traces {
    /// The whole URL that spans are posted to, if they are; fails with what is no such URL.
    pub fn collector(&self) -> Result<Option<Uri>, &str> {
        let url = self.endpoint.as_deref().filter(|url| !url.is_empty());
        url.map(|url| endpoint(url).ok_or(url)).transpose()
    }

    /// The fields that go to the collector; fails with the one that is none.
    pub fn fields(&self) -> Result<HeaderMap, &str> {
        let field = |text: &str| -> Option<(HeaderName, HeaderValue)> {
            let (name, value) = text.split_once(':')?;
            let mut value = HeaderValue::from_str(value.trim()).ok()?;
            value.set_sensitive(true);
            Some((name.trim().parse().ok()?, value))
        };
        self.headers.iter().map(|text| field(text).ok_or(text.as_str())).collect()
    }

    /// What no gateway can run with, as `field: reason`.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(url) = self.collector() {
            problems.push(format!("traces.endpoint: {url:?} is no URL such as http://collector:4318"));
        }
        if let Err(text) = self.fields() {
            let name = text.split(':').next().unwrap_or_default();
            problems.push(format!("traces.headers: {name:?} does not begin a `name: value`"));
        }
        if !(0.0..=1.0).contains(&self.share) {
            problems.push("traces.share: from 0 to 1".to_owned());
        }
        if !(1..=MAX_QUEUE).contains(&self.queue) {
            problems.push(format!("traces.queue: from 1 to {MAX_QUEUE}"));
        }
        problems
    }
}

/// The whole URL of an endpoint that may lack its path, as the environment variables of OpenTelemetry have it.
fn endpoint(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let is_http = url.scheme().is_some_and(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    let is_plain = url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if !(is_http && has_host && is_plain) {
        return None;
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() {
        return Some(url);
    }
    let mut parts = url.into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static("/v1/traces"));
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_a_path_gets_that_of_otlp() {
        let urls = [
            ("http://collector:4318", "http://collector:4318/v1/traces"),
            ("https://collector/", "https://collector/v1/traces"),
            ("http://[::1]:4318/otlp/traces?a=b", "http://[::1]:4318/otlp/traces?a=b"),
        ];
        for (given, whole) in urls {
            assert_eq!(endpoint(given).unwrap().to_string(), whole);
        }
        for wrong in ["", "collector:4318", "grpc://collector:4317", "/v1/traces", "http://user:word@collector"] {
            assert!(endpoint(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn fields_are_names_with_values_and_values_are_not_told() {
        let traces = |headers: &[&str]| Traces {
            headers: headers.iter().map(|h| (*h).to_owned()).collect(),
            ..Traces::default()
        };
        assert_eq!(traces(&["x-tenant: a:b"]).fields().unwrap()["x-tenant"], "a:b");
        let problems = traces(&["authorization: a\u{0}hunter2"]).problems();
        assert!(problems.len() == 1 && !problems[0].contains("hunter2"), "{problems:?}");
    }
}
