//! Spans of requests, at a collector, and the context that backends see.

use std::net::SocketAddr;

use super::OK;
use super::harness::{Gateway, Origin, Reply, refusing_address, rule, selector, service_rule};
use crate::settings::Settings;
use crate::telemetry::traces::testing::{Receiver, Span, attribute};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn to(collector: SocketAddr, share: f64) -> impl FnOnce(&mut Settings) {
    move |settings| {
        settings.traces.endpoint = Some(format!("http://{collector}"));
        settings.traces.share = share;
    }
}

/// A field of the request that a backend saw.
fn seen<'a>(request: &'a str, field: &str) -> Vec<&'a str> {
    request.lines().filter_map(|line| line.strip_prefix(field)?.strip_prefix(": ")).collect()
}

fn attributes(span: &Span, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| attribute(span, name)).collect()
}

#[tokio::test]
async fn a_span_tells_of_a_request_and_the_backend_is_asked_by_it() {
    let (mut receiver, collector) = Receiver::start().await;
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::with(vec![selector(vec![rule("/api", &[(&origin, 1)])])], to(collector, 0.0)).await;
    let request = format!(
        "GET /api/a?q=1&token=s3cret HTTP/1.1\r\nhost: Shop.example:8080\r\nuser-agent: agent\r\n\
         traceparent: 00-{TRACE}-{PARENT}-01\r\ntracestate: vendor=1\r\n\r\n"
    );
    assert!(gateway.connect().await.exchange(&request).await.starts_with("HTTP/1.1 200 "));
    let span = receiver.take("200 OK").await.spans.remove(0);
    assert_eq!((hexadecimal(&span.trace_id), hexadecimal(&span.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
    assert_eq!((span.name.as_str(), span.trace_state.as_str()), ("GET test/route", "vendor=1"));
    let names = [
        "http.request.method",
        "http.response.status_code",
        "url.scheme",
        "url.path",
        "url.query",
        "server.address",
        "server.port",
        "network.protocol.version",
        "user_agent.original",
        "client.address",
        "lockgate.route",
        "lockgate.rule",
        "error.type",
    ];
    let told = [
        "GET",
        "200",
        "http",
        "/api/a",
        "q=1&token=redacted",
        "shop.example",
        "8080",
        "1.1",
        "agent",
        "127.0.0.1",
        "test/route",
        "/api",
        "",
    ];
    assert_eq!(attributes(&span, &names), told);
    assert_eq!(span.status.as_ref().unwrap().code, 0);
    assert!(span.end_time_unix_nano > span.start_time_unix_nano);
    let asked = &origin.requests()[0];
    assert_eq!(seen(asked, "traceparent"), [format!("00-{TRACE}-{}-01", hexadecimal(&span.span_id))]);
    assert_eq!(seen(asked, "tracestate"), ["vendor=1"]);
}

#[tokio::test]
async fn what_fails_is_told_as_an_error_and_a_method_of_nobody_is_not_a_name() {
    let (mut receiver, collector) = Receiver::start().await;
    let gateway = Gateway::with(vec![selector(vec![service_rule("/", "gone")])], to(collector, 1.0)).await;
    gateway.endpoints("gone", &[refusing_address()]).await;
    let answer = gateway.send("BREW /a HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
    let span = receiver.take("200 OK").await.spans.remove(0);
    assert_eq!(span.status.as_ref().unwrap().code, 2);
    assert_eq!((span.name.as_str(), span.parent_span_id.len()), ("HTTP test/route", 0));
    let names = ["http.request.method", "http.request.method_original", "error.type", "lockgate.reason"];
    assert_eq!(attributes(&span, &names), ["_OTHER", "BREW", "connect-failed", "connect-failed"]);
}

#[tokio::test]
async fn whoever_is_not_sampled_has_no_span_and_backends_learn_that() {
    let (mut receiver, collector) = Receiver::start().await;
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::with(vec![selector(vec![rule("/", &[(&origin, 1)])])], to(collector, 0.0)).await;
    let mut client = gateway.connect().await;
    // Of a trace elsewhere, not sampled: it goes on as it is.
    let theirs = format!("traceparent: 00-{TRACE}-{PARENT}-00");
    client.exchange(&format!("GET /1 HTTP/1.1\r\nhost: a\r\n{theirs}\r\ntracestate: v=1\r\n\r\n")).await;
    // Of none: a new one, not sampled either.
    client.exchange("GET /2 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    // Not as the standard has it: a new one, and what belongs to the other goes.
    client.exchange("GET /3 HTTP/1.1\r\nhost: a\r\ntraceparent: 00-1-2-01\r\ntracestate: v=1\r\n\r\n").await;
    // The one that is sampled comes alone.
    client.exchange(&format!("GET /4 HTTP/1.1\r\nhost: a\r\ntraceparent: 00-{TRACE}-{PARENT}-01\r\n\r\n")).await;
    let spans = receiver.take("200 OK").await.spans;
    assert_eq!(spans.iter().map(|span| attribute(span, "url.path")).collect::<Vec<_>>(), ["/4"]);
    let requests = origin.requests();
    assert_eq!(
        (seen(&requests[0], "traceparent"), seen(&requests[0], "tracestate")),
        (vec![&theirs[13..]], vec!["v=1"])
    );
    for request in &requests[1..3] {
        let field = seen(request, "traceparent");
        assert!(field.len() == 1 && field[0].len() == 55 && field[0].ends_with("-00"), "{request}");
        assert!(!field[0].contains(TRACE) && seen(request, "tracestate").is_empty(), "{request}");
    }
}

#[tokio::test]
async fn a_share_is_a_share_of_traces_where_parents_are_not_followed() {
    let (mut receiver, collector) = Receiver::start().await;
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::with(vec![selector(vec![rule("/", &[(&origin, 1)])])], |settings| {
        to(collector, 0.5)(settings);
        settings.traces.follow_parent = false;
    })
    .await;
    let mut client = gateway.connect().await;
    for (number, trace) in ["4bf92f3577b34da67000000000000001", "4bf92f3577b34da6f000000000000001"].iter().enumerate() {
        client
            .exchange(&format!("GET /{number} HTTP/1.1\r\nhost: a\r\ntraceparent: 00-{trace}-{PARENT}-01\r\n\r\n"))
            .await;
    }
    let spans = receiver.take("200 OK").await.spans;
    assert_eq!(spans.iter().map(|span| attribute(span, "url.path")).collect::<Vec<_>>(), ["/0"]);
    assert_eq!(hexadecimal(&spans[0].parent_span_id), PARENT);
}

#[tokio::test]
async fn without_a_collector_contexts_go_through_untouched() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let mut client = gateway.connect().await;
    client.exchange("GET /1 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    client.exchange("GET /2 HTTP/1.1\r\nhost: a\r\ntraceparent: anything\r\ntracestate: v=1\r\n\r\n").await;
    let requests = origin.requests();
    assert_eq!(seen(&requests[0], "traceparent"), [""; 0]);
    assert_eq!((seen(&requests[1], "traceparent"), seen(&requests[1], "tracestate")), (vec!["anything"], vec!["v=1"]));
}
