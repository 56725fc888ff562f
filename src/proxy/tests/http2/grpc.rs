//! Calls of gRPC: their own statuses, and those that the gateway gives.

mod deadlines;
mod streams;

use super::*;
use crate::proxy::tests::access::{LogFile, some};
use crate::proxy::tests::h2c::origin::{Call, Origin as Server};
use crate::proxy::tests::h2c::{self, SERVICE};
use crate::proxy::tests::harness::{refusing_address, service_rule};

/// A message of gRPC with this content, not compressed.
fn message(content: &str) -> Bytes {
    let length = u32::try_from(content.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), content.as_bytes()].concat().into()
}

/// The head of a call.
fn call(fields: &[(&str, &str)]) -> Request<()> {
    let of_grpc = [("content-type", "application/grpc"), ("te", "trailers")];
    request("POST", "/test.Service/Method", &[&of_grpc, fields].concat())
}

impl Client {
    /// A call with one message.
    async fn call(&mut self, fields: &[(&str, &str)]) -> Answer {
        let (response, mut messages) = self.begin(call(fields), false).await;
        messages.send_data(message("question"), true).unwrap();
        whole(response.await.unwrap()).await.unwrap()
    }
}

/// Waits until that many calls of the rule `/` have ended with a status.
async fn ended(gateway: &Gateway, status: &str, count: u64) {
    let rule = r#"selector="test/selector",route="test/route",rule="/""#;
    let name = format!("lockgate_grpc_responses_total{{{rule},grpc_status=\"{status}\"}}");
    gateway.wait_for(|gateway| gateway.metric(&name) == count).await;
}

/// Trailers with a status and whatever else.
fn trailers(fields: &[(&'static str, &str)]) -> HeaderMap {
    fields.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
}

/// Asserts that the gateway itself ended the call, and how.
fn assert_ended(answer: &Answer, status: &str, reason: &str) {
    assert_eq!((answer.head.status.as_u16(), answer.field("content-type")), (200, Some("application/grpc")));
    assert_eq!((answer.field("grpc-status"), answer.field("grpc-message")), (Some(status), Some(reason)), "{answer:?}");
    assert_eq!(answer.field("x-lockgate-reason"), Some(reason));
    assert_eq!((&*answer.body, &answer.trailers), ("", &None));
    assert_eq!(answer.field("content-length"), None);
}

#[tokio::test]
async fn statuses_and_trailers_pass_as_they_are() {
    let fields = [
        ("grpc-status", "10"),
        ("grpc-message", "caf%C3%A9 100%25 %zz"),
        ("grpc-status-details-bin", "CAoSAWE="),
        ("x-own-bin", "AA"),
    ];
    let server = Server::start(None, move |mut call: Call| async move {
        assert_eq!(call.read().await.0, message("question"));
        if call.number == 1 {
            let not_found = [("content-type", "application/grpc"), ("grpc-status", "5"), ("grpc-message", "no%20cat")];
            drop(call.respond(200, &not_found, true));
            return;
        }
        let mut stream = call.begin(&[("content-type", "application/grpc+proto")]);
        for content in ["first", "second"] {
            stream.send_data(message(content), false).unwrap();
        }
        stream.send_trailers(trailers(&fields)).unwrap();
    })
    .await;
    let gateway = h2c::gateway(&server).await;
    let mut client = Client::connect(&gateway).await;
    let streamed = client.call(&[]).await;
    assert_eq!(streamed.body.as_bytes(), [message("first"), message("second")].concat());
    assert_eq!(streamed.trailers.unwrap(), trailers(&fields));
    assert_eq!(streamed.head.headers["content-type"], "application/grpc+proto");
    let none = client.call(&[]).await;
    assert_eq!((none.head.status.as_u16(), &*none.body, none.trailers.as_ref()), (200, "", None));
    assert_eq!((none.field("grpc-status"), none.field("grpc-message")), (Some("5"), Some("no%20cat")));
    assert_eq!(none.field("x-lockgate-reason"), None);
    assert!(server.heads().iter().all(|head| head.headers["te"] == "trailers"));
    ended(&gateway, "10", 1).await;
    ended(&gateway, "5", 1).await;
}

#[tokio::test]
async fn failures_of_the_gateway_are_statuses_of_grpc() {
    let server = Server::start(None, Call::never).await;
    let rules = || {
        let [mut late, mut slow, mut silent, mut small] =
            ["/late", "/slow", "/silent", "/small"].map(|path| service_rule(path, SERVICE));
        let moment = std::time::Duration::from_millis(20);
        (late.timeouts.request, slow.timeouts.backend_request, silent.timeouts.idle) = (moment, moment, moment);
        small.limits.max_body_bytes = Some(3);
        let mut broken = service_rule("/broken", SERVICE);
        broken.action = ir::Action::Invalid { reason: "test" };
        vec![
            late,
            slow,
            silent,
            small,
            broken,
            service_rule("/none", "none-h2c"),
            service_rule("/refusing", "refusing-h2c"),
        ]
    };
    let gateway = Gateway::start(vec![selector(rules())]).await;
    gateway.endpoints(SERVICE, &[server.address]).await;
    gateway.endpoints("refusing-h2c", &[refusing_address()]).await;
    let mut client = Client::connect(&gateway).await;
    for (path, status, reason) in [
        ("/late", "4", "request-timeout"),
        ("/slow", "4", "upstream-timeout"),
        ("/silent", "4", "idle-timeout"),
        ("/none", "14", "no-endpoints"),
        ("/refusing", "14", "connect-failed"),
        ("/elsewhere", "12", "no-route"),
        ("/broken", "2", "invalid-rule"),
        ("/small", "8", "body-too-large"),
        ("/%zz", "13", "bad-path"),
    ] {
        let of_grpc = [("content-type", "application/grpc+proto"), ("te", "trailers"), ("content-length", "4")];
        let (response, mut body) = client.begin(request("POST", path, &of_grpc), false).await;
        // It may have been refused before.
        let _ = body.send_data("1234".into(), true);
        let answer = whole(response.await.unwrap()).await.unwrap();
        assert_ended(&answer, status, reason);
    }
    let plain = client.get("/elsewhere").await;
    assert_eq!((plain.head.status.as_u16(), &*plain.body), (404, "404 no-route\n"));
}

#[tokio::test]
async fn calls_are_counted_by_their_status_and_other_requests_are_not() {
    let gateway = Gateway::start(vec![selector(vec![service_rule("/test.Service", "none-h2c")])]).await;
    let mut client = Client::connect(&gateway).await;
    client.get("/test.Service/Method").await;
    assert!(!gateway.metrics().contains("lockgate_grpc_responses_total{"));
    client.call(&[]).await;
    client.call(&[]).await;
    client.send(request("POST", "/elsewhere", &[("content-type", "application/grpc")])).await;
    let of = |rule: &str, status: &str| format!("lockgate_grpc_responses_total{{{rule},grpc_status=\"{status}\"}}");
    let own = of(r#"selector="test/selector",route="test/route",rule="/test.Service""#, "14");
    gateway.wait_for(|gateway| gateway.metric(&own) == 2).await;
    let unmatched = of(r#"selector="-",route="-",rule="-""#, "12");
    gateway.wait_for(|gateway| gateway.metric(&unmatched) == 1).await;
}

#[tokio::test]
async fn a_call_over_http1_fails_in_the_same_way() {
    let gateway = Gateway::start(vec![selector(vec![service_rule("/", "none-h2c")])]).await;
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        client
            .write("POST /S/M HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc\r\ncontent-length: 0\r\n\r\n")
            .await;
        let answer = client.read_head().await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        for line in
            ["content-type: application/grpc", "grpc-status: 14", "grpc-message: no-endpoints", "content-length: 0"]
        {
            assert!(answer.contains(&format!("\r\n{line}\r\n")), "{line} missing in {answer}");
        }
    }
    assert!(gateway.metrics().contains("lockgate_requests_refused_total{reason=\"no-endpoints\"} 2"));
}

#[tokio::test]
async fn the_access_log_tells_how_calls_ended() {
    let server = Server::start(None, |mut call: Call| async move {
        call.read().await;
        let mut stream = call.begin(&[("content-type", "application/grpc")]);
        stream.send_data(message("answer"), false).unwrap();
        stream.send_trailers(trailers(&[("grpc-status", "7")])).unwrap();
    })
    .await;
    let log = LogFile::new();
    let rules = vec![service_rule("/test.Service", SERVICE)];
    let gateway = Gateway::with(vec![selector(rules)], |settings| log.set(settings)).await;
    gateway.endpoints(SERVICE, &[server.address]).await;
    let mut client = Client::connect(&gateway).await;
    let fields = ["protocol", "host", "path", "status", "reason", "grpc_status", "bytes_in", "bytes_out", "attempts"];
    let length = message("answer").len();
    client.call(&[]).await;
    let expected = serde_json::json!([
        "HTTP/2",
        "a.example",
        "/test.Service/Method",
        200,
        null,
        "7",
        message("question").len(),
        length,
        1
    ]);
    assert_eq!(some(&log.lines(1).await[0], &fields), expected);
    client.send(request("POST", "/elsewhere", &[("content-type", "application/grpc")])).await;
    let expected = serde_json::json!(["HTTP/2", "a.example", "/elsewhere", 200, "no-route", "12", 0, 0, null]);
    assert_eq!(some(&log.lines(2).await[1], &fields), expected);
}
