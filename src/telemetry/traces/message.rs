//! Spans in OTLP's messages.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::otlp::{
    AnyOf, AnyValue, KeyValue, Request, Resource, ResourceSpans, Scope, ScopeSpans, Span as Message, SpanKind, Status,
    StatusCode,
};
use super::{Span, Value};

/// The span is one of those that are recorded (W3C Trace Context, section 3.2.2.5).
const SAMPLED: u32 = 0x01;
/// It is known whether the parent is another process's.
const HAS_IS_REMOTE: u32 = 0x100;
/// It is.
const IS_REMOTE: u32 = 0x200;

/// One message with all of these.
pub(super) fn request(spans: Vec<Span>, instance: &str) -> Request {
    let version = env!("CARGO_PKG_VERSION");
    let resource = Resource {
        attributes: [("service.name", "lockgate"), ("service.version", version), ("service.instance.id", instance)]
            .into_iter()
            .map(|(name, value)| attribute(name, Value::Text(value.to_owned())))
            .collect(),
    };
    let scope = Scope { name: "lockgate".to_owned(), version: version.to_owned() };
    let scoped = ScopeSpans { scope: Some(scope), spans: spans.into_iter().map(span).collect() };
    Request { resource_spans: vec![ResourceSpans { resource: Some(resource), scope_spans: vec![scoped] }] }
}

fn span(span: Span) -> Message {
    let code = if span.is_error { StatusCode::Error } else { StatusCode::Unset };
    Message {
        trace_id: span.trace.to_vec(),
        span_id: span.id.to_vec(),
        trace_state: span.state,
        parent_span_id: span.parent.map(|id| id.to_vec()).unwrap_or_default(),
        flags: SAMPLED | HAS_IS_REMOTE | if span.parent.is_some() { IS_REMOTE } else { 0 },
        name: span.name,
        kind: SpanKind::Server.into(),
        start_time_unix_nano: nanos(span.started),
        end_time_unix_nano: nanos(span.started + span.duration),
        attributes: span.attributes.into_iter().map(|(name, value)| attribute(name, value)).collect(),
        status: Some(Status { code: code.into() }),
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn attribute(name: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => AnyOf::Text(text),
        Value::Number(number) => AnyOf::Number(number),
    };
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}
