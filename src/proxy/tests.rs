//! The data plane in-process: real sockets on loopback, origins that record raw bytes.

mod access;
mod backend_tls;
mod filters;
mod framing;
mod h2c;
mod harness;
mod http2;
mod idle;
mod limits;
mod mirrors;
mod preview;
mod proxy_protocol;
mod retries;
mod rolls;
mod streams;
mod tls;
mod traces;
mod upgrades;
mod workers;

use std::time::Duration;

use self::harness::{Gateway, Origin, Reply, rule, selector};
use crate::ir::{self, Action};
use crate::lifecycle::Phase;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn host_header(request: &str) -> Option<&str> {
    request.lines().find_map(|line| line.strip_prefix("host: "))
}

#[tokio::test]
async fn a_request_reaches_its_backend_and_the_answer_comes_back() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let answer = gateway.send("GET /a/b?x=%2F HTTP/1.1\r\nhost: A.example:8080\r\nx-own: 1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("x-request-id: ") && answer.ends_with("\r\n\r\nok"), "{answer}");
    let seen = origin.requests();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].starts_with("GET /a/b?x=%2F HTTP/1.1\r\n"), "{}", seen[0]);
    assert_eq!(host_header(&seen[0]), Some("A.example:8080"));
    for line in [
        "x-own: 1",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        "x-forwarded-host: A.example:8080",
        "x-forwarded-port: 8080",
    ] {
        assert!(seen[0].contains(line), "{line} missing in {}", seen[0]);
    }
}

#[tokio::test]
async fn connections_are_kept_on_both_sides() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let mut client = gateway.connect().await;
    for _ in 0..20 {
        let answer = client.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert!(answer.ends_with("ok"), "{answer}");
    }
    assert_eq!(origin.connections(), 1);
    assert_eq!(origin.requests().len(), 20);
}

#[tokio::test]
async fn hop_by_hop_fields_stay_on_their_hop() {
    let reply =
        "HTTP/1.1 200 OK\r\nkeep-alive: timeout=5\r\nconnection: x-hop\r\nx-hop: 1\r\ncontent-length: 0\r\n\r\n";
    let origin = Origin::start(Reply::always(reply)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let request =
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: x-drop\r\nx-drop: 1\r\nproxy-connection: x\r\nupgrade: h2c\r\n\r\n";
    let answer = gateway.send(request).await;
    for gone in ["keep-alive", "x-hop", "connection:"] {
        assert!(!answer.contains(gone), "{gone} in {answer}");
    }
    for gone in ["x-drop", "proxy-connection", "upgrade", "connection:"] {
        assert!(!origin.requests()[0].contains(gone), "{gone} in {}", origin.requests()[0]);
    }
}

#[tokio::test]
async fn what_nobody_serves_is_404_and_what_is_broken_500_or_503() {
    let origin = Origin::start(Reply::always(OK)).await;
    let mut broken = rule("/broken", &[]);
    broken.action = Action::Invalid { reason: "BackendNotFound" };
    let mut empty = rule("/empty", &[]);
    empty.action = Action::Forward(vec![harness::service_backend("none")]);
    let mut selector = selector(vec![rule("/ok", &[(&origin, 1)]), broken, empty]);
    selector.hostnames = vec![ir::Hostname::parse("a.example").unwrap()];
    let gateway = Gateway::start(vec![selector]).await;
    for (target, host, status, reason) in [
        ("/ok", "a.example", 200, None),
        ("/ok", "b.example", 404, Some("no-selector")),
        ("/other", "a.example", 404, Some("no-route")),
        ("/broken", "a.example", 500, Some("invalid-rule")),
        ("/empty", "a.example", 503, Some("no-endpoints")),
        ("/ok/%2e%2e/other", "a.example", 404, Some("no-route")),
        ("/ok/%2F", "a.example", 400, Some("bad-path")),
    ] {
        let answer = gateway.send(&format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target} {host}: {answer}");
        if let Some(reason) = reason {
            assert!(answer.contains(&format!("x-lockgate-reason: {reason}\r\n")), "{answer}");
        }
    }
}

#[tokio::test]
async fn heads_that_are_wrong_or_too_large_are_refused() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let long_uri = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(9000));
    let large_field = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "a".repeat(40_000));
    let many_fields = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: 1\r\n".repeat(200));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost:\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost : a\r\n\r\n", 400),
        ("CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n", 501),
        ("GET / HTTP/1.1\r\nhost: a\r\nexpect: magic\r\n\r\n", 417),
        (&long_uri, 414),
        (&large_field, 431),
        (&many_fields, 431),
    ] {
        let answer = gateway.send(request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.60}: {answer}");
    }
    assert_eq!(origin.requests().len(), 0, "nothing refused may reach a backend");
}

#[tokio::test]
async fn bodies_stream_both_ways_before_they_are_complete() {
    let origin = Origin::start(Reply::echo()).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let mut client = gateway.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await;
    for piece in ["first", "second"] {
        client.write(&format!("{:x}\r\n{piece}\r\n", piece.len())).await;
        let seen = client.read_until(piece).await;
        assert!(seen.ends_with(piece) || seen.contains(piece), "{seen}");
    }
    client.write("0\r\n\r\n").await;
    client.read_until("0\r\n\r\n").await;
}

#[tokio::test]
async fn bodies_over_the_limit_are_413_and_known_ones_reach_nobody() {
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let mut limited = rule("/", &[(&origin, 1)]);
    limited.limits.max_body_bytes = Some(10);
    let gateway = Gateway::start(vec![selector(vec![limited])]).await;
    let known = gateway.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\n\r\n01234567890").await;
    assert!(known.starts_with("HTTP/1.1 413 ") && known.contains("connection: close"), "{known}");
    assert_eq!(origin.requests().len(), 0);
    let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n";
    let unknown = gateway.send(chunked).await;
    assert!(unknown.starts_with("HTTP/1.1 413 "), "{unknown}");
    let fits = gateway.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n0123456789").await;
    assert!(fits.starts_with("HTTP/1.1 200 "), "{fits}");
}

#[tokio::test]
async fn timeouts_answer_504() {
    let origin = Origin::start(Reply::never()).await;
    let with = |path: &str, timeouts: ir::Timeouts| {
        let mut rule = rule(path, &[(&origin, 1)]);
        rule.timeouts = timeouts;
        rule
    };
    let short = Duration::from_millis(150);
    let gateway = Gateway::start(vec![selector(vec![
        with("/request", ir::Timeouts { request: short, ..ir::Timeouts::default() }),
        with("/attempt", ir::Timeouts { backend_request: short, ..ir::Timeouts::default() }),
        with("/idle", ir::Timeouts { idle: short, ..ir::Timeouts::default() }),
    ])])
    .await;
    for (path, reason) in [("/request", "request-timeout"), ("/attempt", "upstream-timeout"), ("/idle", "idle-timeout")]
    {
        let answer = gateway.send(&format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 504 "), "{path}: {answer}");
        assert!(answer.contains(reason), "{path}: {answer}");
    }
}

#[tokio::test]
async fn refused_connects_move_on_for_any_method() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![harness::service_rule("/", "two")])]).await;
    gateway.endpoints("two", &[harness::refusing_address(), origin.address]).await;
    for _ in 0..10 {
        let answer = gateway.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert_eq!(origin.requests().len(), 10);
    gateway.endpoints("two", &[]).await;
    let answer = gateway.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("no-endpoints"), "{answer}");
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_not_seen_by_clients() {
    // The origin answers once per connection and then closes it without saying so.
    let origin = Origin::start(Reply::once_then_close(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let mut client = gateway.connect().await;
    for n in 0..50 {
        let answer = client.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "request {n}: {answer}");
    }
}

#[tokio::test]
async fn a_post_that_was_begun_is_never_sent_twice() {
    let origin = Origin::start(Reply::close_without_answer()).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let answer = gateway.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("upstream-reset"), "{answer}");
    assert_eq!(origin.requests().len(), 1);
    let answer = gateway.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(origin.requests().len(), 3, "a safe method is sent once more");
}

#[tokio::test]
async fn a_rule_can_have_idempotent_requests_repeated_and_no_others() {
    let origin = Origin::start(Reply::close_without_answer()).await;
    let mut repeating = rule("/", &[(&origin, 1)]);
    repeating.retry =
        Some(ir::Retry { attempts: 2, on: vec![ir::RetryOn::Reset], backoff: Duration::ZERO, budget_percent: 20 });
    let gateway = Gateway::start(vec![selector(vec![repeating])]).await;
    for (method, sent) in [("POST", 1), ("DELETE", 3), ("GET", 4)] {
        let before = origin.requests().len();
        let answer = gateway.send(&format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert_eq!(origin.requests().len() - before, sent, "{method}");
    }
}

#[tokio::test]
async fn an_answer_cut_short_is_cut_for_the_client_too() {
    let origin =
        Origin::start(Reply::always("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")).await;
    origin.close_after_reply();
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let answer = gateway.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer.contains("hello") && !answer.contains("0\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn weights_are_kept() {
    let (heavy, light) = (Origin::start(Reply::always(OK)).await, Origin::start(Reply::always(OK)).await);
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&heavy, 9), (&light, 1)])])]).await;
    let mut client = gateway.connect().await;
    for _ in 0..100 {
        client.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    }
    assert_eq!((heavy.requests().len(), light.requests().len()), (90, 10));
}

#[tokio::test]
async fn lame_duck_asks_to_leave_and_draining_refuses() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let mut kept = gateway.connect().await;
    kept.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    gateway.lifecycle().drain().unwrap();
    let answer = kept.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close\r\n"), "{answer}");
    assert_eq!(kept.rest().await, "", "a clean end, no reset");
    let fresh = gateway.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(fresh.starts_with("HTTP/1.1 200 ") && fresh.contains("connection: close\r\n"), "{fresh}");
}

#[tokio::test]
async fn metrics_name_the_rule() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    gateway.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    gateway.send("BREW / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    gateway.send("GET /%2F HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let text = gateway.metrics();
    for line in [
        r#"lockgate_http_requests_total{selector="test/selector",route="test/route",rule="/",method="GET",code="200"} 1"#,
        r#"lockgate_http_requests_total{selector="test/selector",route="test/route",rule="/",method="OTHER",code="200"} 1"#,
        r#"lockgate_http_requests_total{selector="-",route="-",rule="-",method="GET",code="400"} 1"#,
        r#"lockgate_requests_refused_total{reason="bad-path"} 1"#,
    ] {
        assert!(text.contains(line), "{line} not in\n{text}");
    }
}

#[tokio::test]
async fn a_limit_of_requests_in_flight_refuses_fast() {
    let origin = Origin::start(Reply::never()).await;
    let mut limited = rule("/", &[(&origin, 1)]);
    limited.limits = ir::Limits { max_in_flight: Some(1), ..ir::Limits::default() };
    let gateway = Gateway::start(vec![selector(vec![limited])]).await;
    let mut first = gateway.connect().await;
    first.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    origin.wait_for_requests(1).await;
    let answer = gateway.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1"), "{answer}");
    drop(first);
    gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
}

#[tokio::test]
async fn redirects_and_direct_answers_need_no_backend() {
    let mut redirect = rule("/old", &[]);
    redirect.action = Action::Redirect(ir::Redirect {
        scheme: Some("https".into()),
        hostname: None,
        port: None,
        path: Some(ir::PathRewrite::Prefix("/new".into())),
        status: http::StatusCode::MOVED_PERMANENTLY,
    });
    let mut direct = rule("/direct", &[]);
    direct.action = Action::DirectResponse(ir::DirectResponse {
        status: http::StatusCode::IM_A_TEAPOT,
        headers: vec![(http::HeaderName::from_static("x-tea"), http::HeaderValue::from_static("green"))],
        body: "short and stout".into(),
    });
    let gateway = Gateway::start(vec![selector(vec![redirect, direct])]).await;
    let answer = gateway.send("GET /old/x?q=1 HTTP/1.1\r\nhost: a.example:8080\r\n\r\n").await;
    assert!(
        answer.starts_with("HTTP/1.1 301 ") && answer.contains("location: https://a.example/new/x?q=1\r\n"),
        "{answer}"
    );
    let answer = gateway.send("GET /direct HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 418 ") && answer.contains("x-tea: green"), "{answer}");
    assert!(answer.ends_with("short and stout"), "{answer}");
}

#[tokio::test]
async fn what_holds_a_drain_is_named() {
    let origin = Origin::start(Reply::never()).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/slow", &[(&origin, 1)])])]).await;
    let mut client = gateway.connect().await;
    client.write("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
    origin.wait_for_requests(1).await;
    gateway.terminate().await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Draining).await;
    let holders = gateway.lifecycle().holders();
    assert_eq!(holders.iter().map(|h| h.route.as_str()).collect::<Vec<_>>(), ["test/route /slow"]);
    assert_eq!(holders[0].peer, client.address().to_string());
    assert_eq!((holders[0].received, holders[0].sent), (0, 0), "nothing but the head that began it");
    let refused = gateway.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("draining"), "{refused}");
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 1);
    assert_eq!(client.rest_or_reset().await, "", "cut, never a made-up end");
}

#[tokio::test]
async fn what_has_been_carried_is_told_of_who_holds_a_drain() {
    let origin = Origin::start(Reply::echo()).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let mut client = gateway.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await;
    origin.wait_for_requests(1).await;
    let piece = "3\r\nabc\r\n";
    client.write(piece).await;
    let answer = client.read_until(piece).await;
    let holders = gateway.lifecycle().holders();
    assert_eq!((holders.len(), gateway.lifecycle().in_flight()), (1, 1));
    assert_eq!((holders[0].received, holders[0].sent), (piece.len() as u64, answer.len() as u64));
}

#[tokio::test]
async fn who_holds_a_drain_with_the_end_of_an_answer_is_named() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    gateway.lifecycle().drain().unwrap();
    let mut client = gateway.connect().await;
    client.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    // The client has not closed its side, and is given a moment to do it.
    let holders = gateway.lifecycle().holders();
    assert_eq!((holders.len(), gateway.lifecycle().in_flight()), (1, 1));
    assert_eq!((&*holders[0].route, holders[0].peer.clone()), ("test/route /", client.address().to_string()));
    drop(client);
    gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
    assert_eq!(gateway.lifecycle().holders(), []);
}

#[tokio::test]
async fn an_answer_to_head_keeps_its_length_and_has_no_body() {
    let origin = Origin::start(Reply::always("HTTP/1.1 200 OK\r\ncontent-length: 2048\r\n\r\n")).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let mut client = gateway.connect().await;
    for _ in 0..3 {
        client.write("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let answer = client.read_until("\r\n\r\n").await;
        assert!(answer.contains("content-length: 2048\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    }
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn a_switch_of_protocols_that_nobody_asked_for_is_502() {
    let origin = Origin::start(Reply::always("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\nGET /evil")).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let answer = gateway.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("upstream-invalid"), "{answer}");
}

#[tokio::test]
async fn an_absolute_target_decides_the_host() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let answer = gateway.send("GET http://b.example/x?y HTTP/1.1\r\nhost: a.example\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let seen = origin.requests().remove(0);
    assert!(seen.starts_with("GET /x?y HTTP/1.1\r\n"), "{seen}");
    assert_eq!(host_header(&seen), Some("b.example"));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::start(Reply::always(OK)).await;
    let mut direct = rule("/direct", &[]);
    direct.action = Action::DirectResponse(ir::DirectResponse {
        status: http::StatusCode::ACCEPTED,
        headers: Vec::new(),
        body: "direct".into(),
    });
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)]), direct])]).await;
    let mut client = gateway.connect().await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
    let first = client.exchange(&format!("{}{}{}", get("/"), get("/direct"), get("/"))).await;
    let (second, third) = (client.exchange("").await, client.exchange("").await);
    assert!(first.ends_with("ok") && second.ends_with("direct") && third.ends_with("ok"), "{first}{second}{third}");
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_backend_connection() {
    let origin = Origin::start(Reply::never()).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let mut client = gateway.connect().await;
    client.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    origin.wait_for_requests(1).await;
    drop(client);
    gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
    gateway.wait_for(|g| g.metrics().contains(r#"lockgate_requests_refused_total{reason="client-gone"} 1"#)).await;
    gateway.wait_for(|g| g.metrics().contains(r#"state="active"} 0"#)).await;
}

#[tokio::test]
async fn a_malformed_chunk_is_the_clients_fault() {
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let answer = gateway.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n") && answer.contains("bad-request"), "{answer}");
    assert!(answer.contains("x-request-id: "), "{answer}");
}

#[tokio::test]
async fn an_answer_with_two_lengths_is_502() {
    let reply = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    let origin = Origin::start(Reply::always(reply)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let answer = gateway.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("upstream-invalid"), "{answer}");
}

#[tokio::test]
async fn http_1_0_need_not_name_a_host() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let answer = gateway.send("GET / HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") || answer.starts_with("HTTP/1.0 200 "), "{answer}");
}

#[tokio::test]
async fn forwarded_is_sent_where_that_is_set() {
    let origin = Origin::start(Reply::always(OK)).await;
    let selectors = || vec![selector(vec![rule("/", &[(&origin, 1)])])];
    let request = "GET / HTTP/1.1\r\nhost: a\r\nforwarded: for=1.1.1.1\r\n\r\n";
    Gateway::start(selectors()).await.send(request).await;
    Gateway::with(selectors(), |settings| settings.headers.forwarded = true).await.send(request).await;
    let seen = origin.requests();
    assert!(!seen[0].contains("\nforwarded:"), "{seen:?}");
    assert!(seen[1].contains("\nforwarded: for=127.0.0.1;host=\"a\";proto=http\r\n"), "{seen:?}");
}
