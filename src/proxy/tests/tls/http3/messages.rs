//! Requests and their answers.

use super::*;
use crate::proxy::tests::h2c::SERVICE;
use crate::proxy::tests::h2c::origin::{Call as Served, Origin as Server};
use crate::proxy::tests::harness::service_rule;

#[tokio::test]
async fn requests_are_those_of_https() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (gateway, authority) = gateway(&origin).await;
    let mut client = client(&authority).http3(&gateway, "a.test").await;
    for _ in 0..3 {
        let answer = client.get("a.test", "/x?y").await;
        assert_eq!((answer.head.status().as_u16(), &answer.body[..]), (200, &b"ok"[..]));
        assert!(answer.trailers.is_none() && answer.field("date").is_some() && answer.field("x-request-id").is_some());
    }
    let seen = origin.requests().remove(0);
    assert!(seen.starts_with("GET /x?y HTTP/1.1\r\n"), "{seen}");
    for line in ["host: a.test\r\n", "x-forwarded-proto: https\r\n", "x-forwarded-for: 127.0.0.1\r\n"] {
        assert!(seen.contains(line), "{line} not in {seen}");
    }
    // Without a body there is none for the backend either.
    assert!(!seen.contains("transfer-encoding") && !seen.contains("content-length"), "{seen}");
    assert_eq!(gateway.metric("lockgate_connections{listener=\"https\"}"), 1);
    assert_eq!(handshakes(&gateway, "full", "TLSv1.3"), 1);
    let of_rule = "selector=\"test/a\",route=\"test/route\",rule=\"/\"";
    let counted = format!("lockgate_http_requests_total{{{of_rule},method=\"GET\",code=\"200\"}}");
    gateway.wait_for(|gateway| gateway.metric(&counted) == 3).await;
}

#[tokio::test]
async fn clients_are_told_over_tcp_that_there_is_http3() {
    const THERE: &str = "HTTP/1.1 200 OK\r\nalt-svc: h3=\":1\"\r\ncontent-length: 2\r\n\r\nok";
    let origin = Origin::start(Reply::always(THERE)).await;
    let (gateway, authority) = gateway(&origin).await;
    let own = "alt-svc: h3=\":443\"; ma=86400\r\n";
    let mut over_tcp = TlsClient::new(&authority).connect(&gateway, "a.test").await.unwrap();
    let answer = over_tcp.get("a.test").await.unwrap();
    assert!(answer.contains(own) && !answer.contains(":1\""), "{answer}");
    assert!(!gateway.send("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await.contains(own));
    let mut over_quic = client(&authority).http3(&gateway, "a.test").await;
    assert_eq!(over_quic.get("a.test", "/").await.field("alt-svc"), Some("h3=\":1\""));
    gateway.lifecycle().drain().unwrap();
    assert!(!over_tcp.get("a.test").await.unwrap().contains(own), "who leaves invites nobody");
}

#[tokio::test]
async fn failures_are_answers() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (gateway, authority) = gateway(&origin).await;
    let mut client = client(&authority).http3(&gateway, "a.test").await;
    let many: Vec<(String, &str)> = (0..101).map(|number| (format!("x-{number}"), "1")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&name[..], *value)).collect();
    for (request, status, reason) in [
        (request("GET", "b.test", "/", &[]), 404, Some("no-selector")),
        (request("GET", "a.test", "/%zz", &[]), 400, Some("bad-path")),
        (request("CONNECT", "a.test", "/", &[]), 501, Some("not-implemented")),
        (request("GET", "a.test", "/", &many), 431, Some("headers-too-large")),
        (request("GET", "a.test", "/", &[]), 200, None),
    ] {
        let answer = client.send(request).await.unwrap();
        assert_eq!(answer.head.status().as_u16(), status);
        assert_eq!(answer.field("x-lockgate-reason"), reason);
        assert_eq!(answer.field("connection"), None);
    }
    let long = raw::post(&raw::field("x-long", &"x".repeat(40_000)));
    assert_eq!(raw::reset(&client.quic, &long, true).await, None, "it is an answer");
    assert_eq!(gateway.metric("lockgate_requests_refused_total{reason=\"headers-too-large\"}"), 2);
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn malformed_requests_end_their_stream_alone() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (gateway, authority) = gateway(&origin).await;
    let mut client = client(&authority).http3(&gateway, "a.test").await;
    let twice = [raw::length("1"), raw::length("1")].concat();
    for (what, fields) in [
        ("of a connection", raw::field("connection", "close")),
        ("of a message of HTTP/1.1", raw::field("transfer-encoding", "chunked")),
        ("te", raw::field("te", "gzip")),
        ("a length that is none", raw::length("+1")),
        ("two lengths", twice),
        ("another host", raw::field("host", "b.test")),
        ("a value with a space", raw::field("x", " a")),
        ("a value with a line's end", raw::field("x", "a\r\nb")),
        ("a name in upper case", raw::field("X", "a")),
        ("an unknown pseudo-field", raw::field(":x", "a")),
    ] {
        let code = raw::reset(&client.quic, &raw::post(&fields), true).await;
        assert_eq!(code, Some(raw::MESSAGE_ERROR), "{what}");
    }
    assert_eq!(client.get("a.test", "/").await.head.status(), 200);
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn a_call_of_grpc_ends_with_its_own_status_or_that_of_the_gateway() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let server = Server::start(None, |mut call: Served| async move {
        assert_eq!(call.read().await.0, b"\0\0\0\0\x01q");
        let mut stream = call.begin(&[("content-type", "application/grpc")]);
        stream.send_data(Bytes::from_static(b"\0\0\0\0\x01a"), false).unwrap();
        let status = [("grpc-status", "10"), ("grpc-message", "a%20b")];
        let trailers = status.map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
        stream.send_trailers(trailers.into_iter().collect()).unwrap();
    })
    .await;
    let mut selector = host("a", &["a.test"], &origin).with(&authority.issue(&["a.test"]));
    selector.rules = vec![Arc::new(service_rule("/", SERVICE))];
    let gateway = Gateway::with(vec![selector], with_http3).await;
    let mut client = client(&authority).http3(&gateway, "a.test").await;
    let mut call = async || {
        let fields = [("content-type", "application/grpc"), ("te", "trailers")];
        let mut call = client.begin(request("POST", "a.test", "/S/M", &fields)).await;
        call.send_data(Bytes::from_static(b"\0\0\0\0\x01q")).await.unwrap();
        call.finish().await.unwrap();
        whole(&mut call).await.unwrap()
    };
    let refused = call().await;
    assert_eq!((refused.head.status().as_u16(), refused.field("grpc-status")), (200, Some("14")));
    gateway.endpoints(SERVICE, &[server.address]).await;
    let answer = call().await;
    assert_eq!(answer.body, b"\0\0\0\0\x01a");
    let trailers = answer.trailers.unwrap();
    assert_eq!(
        (&trailers["grpc-status"], &trailers["grpc-message"]),
        (&"10".parse().unwrap(), &"a%20b".parse().unwrap())
    );
}
