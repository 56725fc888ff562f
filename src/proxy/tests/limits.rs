//! What the gateway takes in at a time, and what it says to more.

use std::time::Duration;

use super::OK;
use super::harness::{Client, Gateway, Origin, Reply, rule, selector};
use crate::settings::Listener;
use crate::{api, ir};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

fn refused(gateway: &Gateway, reason: &str) -> u64 {
    gateway.metric(&format!("lockgate_requests_refused_total{{reason=\"{reason}\"}}"))
}

fn queued(gateway: &Gateway) -> u64 {
    gateway.metric("lockgate_queue_length")
}

/// A request that has been sent, and its answer is not read.
async fn sent(gateway: &Gateway, path: &str) -> Client {
    let mut client = gateway.connect().await;
    client.write(GET.replace("/ ", &format!("{path} "))).await;
    client
}

fn assert_refused(answer: &str, reason: &str) {
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    for line in ["retry-after: 1".to_owned(), format!("x-lockgate-reason: {reason}")] {
        assert!(answer.contains(&format!("{line}\r\n")), "{line} not in {answer}");
    }
}

#[tokio::test]
async fn one_connection_more_is_answered_whatever_it_asks() {
    let origin = Origin::start(Reply::always(OK)).await;
    let loopback = || "127.0.0.1:0".parse().unwrap();
    let gateway = Gateway::with(vec![selector(vec![rule("/", &[(&origin, 1)])])], |settings| {
        settings.limits.max_connections = 1;
        settings.listeners = vec![Listener::plain("http", loopback()), Listener::ending_tls("https", loopback())];
    })
    .await;
    let mut kept = gateway.connect().await;
    kept.exchange(GET).await;
    let upload = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 50000\r\n\r\n{}", "x".repeat(50_000));
    for request in ["", GET, &upload] {
        let mut other = gateway.connect().await;
        other.write(request).await;
        let answer = other.read_until("connection-limit\n").await;
        assert_refused(&answer, "connection-limit");
        assert!(answer.contains("connection: close\r\n") && answer.ends_with("\r\n\r\n503 connection-limit\n"));
        assert_eq!(other.rest().await, "", "a clean end, no reset");
    }
    let mut tls = gateway.connect_to(1).await;
    assert_eq!(tls.read_more().await, 0, "a word in the clear means nothing to who speaks TLS");
    assert_eq!(refused(&gateway, "connection-limit"), 4);
    assert!(kept.exchange(GET).await.ends_with("ok"));
    assert_eq!(origin.requests().len(), 2);
    drop(kept);
    gateway.wait_for(|gateway| gateway.metric("lockgate_connections{listener=\"http\"}") == 0).await;
    assert!(gateway.send(GET).await.ends_with("ok"));
}

#[tokio::test]
async fn only_few_are_told_at_a_time() {
    let gateway = Gateway::with(Vec::new(), |settings| settings.limits.max_connections = 1).await;
    let _kept = gateway.connect().await;
    gateway.wait_for(|gateway| gateway.metric("lockgate_connections{listener=\"http\"}") == 1).await;
    let mut others = Vec::new();
    for _ in 0..200 {
        others.push(gateway.connect().await);
    }
    let mut told = 0;
    for other in &mut others {
        told += usize::from(other.rest_or_reset().await.ends_with("503 connection-limit\n"));
    }
    // 64 a worker: those who are told stay for a while, for they do not hang up.
    assert!((64..=128).contains(&told), "{told}");
    assert_eq!(refused(&gateway, "connection-limit"), 200);
}

#[tokio::test]
async fn a_backend_has_one_limit_for_all_rules_that_name_it() {
    let origin = Origin::start(Reply::never()).await;
    let with = |path: &str, max: Option<u32>| {
        let mut rule = rule(path, &[(&origin, 1)]);
        rule.upstream.max_requests = max;
        rule.upstream.max_pending = 0;
        rule
    };
    let mut gateway =
        Gateway::start(vec![selector(vec![with("/a", Some(9)), with("/b", Some(2)), with("/c", None)])]).await;
    let held = [sent(&gateway, "/a").await, sent(&gateway, "/c").await];
    origin.wait_for_requests(2).await;
    for path in ["/a", "/b", "/c"] {
        assert_refused(&gateway.send(&GET.replace("/ ", &format!("{path} "))).await, "backend-limit");
    }
    assert_eq!(refused(&gateway, "backend-limit"), 3);
    // Another table, another limit, and what is in flight counts on.
    gateway.serve(vec![selector(vec![with("/a", Some(3)), with("/b", None)])]).await;
    let more = sent(&gateway, "/b").await;
    origin.wait_for_requests(3).await;
    assert_refused(&gateway.send(&GET.replace("/ ", "/a ")).await, "backend-limit");
    drop((held, more));
    gateway.wait_for(|gateway| gateway.lifecycle().in_flight() == 0).await;
    gateway.serve(vec![selector(vec![with("/a", None)])]).await;
    let unlimited = [sent(&gateway, "/a").await, sent(&gateway, "/a").await, sent(&gateway, "/a").await];
    origin.wait_for_requests(6).await;
    drop(unlimited);
}

#[tokio::test]
async fn the_gateway_has_one_for_all_that_go_to_backends() {
    let (slow, quick) = (Origin::start(Reply::never()).await, Origin::start(Reply::always(OK)).await);
    let mut direct = rule("/direct", &[]);
    direct.action = ir::Action::DirectResponse(ir::DirectResponse {
        status: http::StatusCode::OK,
        headers: Vec::new(),
        body: "mine".into(),
    });
    let rules = vec![rule("/slow", &[(&slow, 1)]), rule("/quick", &[(&quick, 1)]), direct];
    let gateway = Gateway::with(vec![selector(rules)], |settings| {
        (settings.limits.max_in_flight, settings.limits.max_queued) = (Some(1), 1);
        settings.limits.queue_timeout = api::Duration::from_secs(20);
    })
    .await;
    let first = sent(&gateway, "/slow").await;
    slow.wait_for_requests(1).await;
    let mut second = sent(&gateway, "/quick").await;
    gateway.wait_for(|gateway| queued(gateway) == 1).await;
    assert_refused(&gateway.send(&GET.replace("/ ", "/quick ")).await, "request-limit");
    assert!(gateway.send(&GET.replace("/ ", "/direct ")).await.ends_with("mine"));
    drop(first);
    assert!(second.read_until("ok").await.starts_with("HTTP/1.1 200 "), "its turn came");
    assert_eq!((queued(&gateway), gateway.metric("lockgate_queue_wait_seconds_count")), (0, 1));
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_makes_room_in_it() {
    let origin = Origin::start(Reply::never()).await;
    let mut limited = rule("/", &[(&origin, 1)]);
    limited.limits = ir::Limits { max_in_flight: Some(1), max_queued: 1, ..ir::Limits::default() };
    let gateway = Gateway::start(vec![selector(vec![limited])]).await;
    let first = sent(&gateway, "/").await;
    origin.wait_for_requests(1).await;
    let second = sent(&gateway, "/").await;
    gateway.wait_for(|gateway| queued(gateway) == 1).await;
    assert_refused(&gateway.send(GET).await, "rule-limit");
    drop(second);
    gateway.wait_for(|gateway| queued(gateway) == 0).await;
    let third = sent(&gateway, "/").await;
    gateway.wait_for(|gateway| queued(gateway) == 1).await;
    drop(first);
    origin.wait_for_requests(2).await;
    drop(third);
    gateway.wait_for(|gateway| gateway.lifecycle().in_flight() == 0).await;
}

#[tokio::test]
async fn the_oldest_is_refused_where_the_rule_says_so() {
    let origin = Origin::start(Reply::never()).await;
    let mut limited = rule("/", &[(&origin, 1)]);
    limited.limits =
        ir::Limits { max_in_flight: Some(1), max_queued: 1, rejects_oldest: true, ..ir::Limits::default() };
    let gateway = Gateway::start(vec![selector(vec![limited])]).await;
    let _first = sent(&gateway, "/").await;
    origin.wait_for_requests(1).await;
    let mut second = sent(&gateway, "/").await;
    gateway.wait_for(|gateway| queued(gateway) == 1).await;
    let _third = sent(&gateway, "/").await;
    assert_refused(&second.read_until("503 rule-limit\n").await, "rule-limit");
    assert_eq!(queued(&gateway), 1);
}

#[tokio::test]
async fn a_queue_has_its_time() {
    let origin = Origin::start(Reply::never()).await;
    let mut limited = rule("/", &[(&origin, 1)]);
    limited.limits = ir::Limits {
        max_in_flight: Some(1),
        max_queued: 1,
        queue_timeout: Duration::from_millis(50),
        ..ir::Limits::default()
    };
    let gateway = Gateway::start(vec![selector(vec![limited])]).await;
    let _first = sent(&gateway, "/").await;
    origin.wait_for_requests(1).await;
    assert_refused(&gateway.send(GET).await, "rule-limit");
    assert_eq!((queued(&gateway), gateway.metric("lockgate_queue_wait_seconds_count")), (0, 1));
}

#[tokio::test]
async fn a_connection_has_its_number_of_requests() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::with(vec![selector(vec![rule("/", &[(&origin, 1)])])], |settings| {
        settings.limits.max_requests_per_connection = Some(3);
    })
    .await;
    for _ in 0..2 {
        let mut client = gateway.connect().await;
        for served in 1..=3 {
            let answer = client.exchange(GET).await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"), "{answer}");
            assert_eq!(answer.contains("connection: close\r\n"), served == 3, "{served}: {answer}");
        }
        assert_eq!(client.rest().await, "", "a clean end, no reset");
    }
}

#[tokio::test]
async fn a_connection_has_its_age() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::with(vec![selector(vec![rule("/", &[(&origin, 1)])])], |settings| {
        settings.limits.max_connection_age = Some("300ms".parse().unwrap());
    })
    .await;
    let begin = tokio::time::Instant::now();
    let mut client = gateway.connect().await;
    assert!(!client.exchange(GET).await.contains("connection: close\r\n"));
    while !client.exchange(GET).await.contains("connection: close\r\n") {
        assert!(begin.elapsed() < Duration::from_secs(10), "it was never asked to leave");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(begin.elapsed() >= Duration::from_millis(150), "{:?}", begin.elapsed());
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_sent_or_while_it_is() {
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let mut limited = rule("/", &[(&origin, 1)]);
    limited.limits.max_body_bytes = Some(10);
    let gateway = Gateway::with(vec![selector(vec![limited, rule("/own", &[(&origin, 1)])])], |settings| {
        settings.limits.max_body_bytes = Some(api::ByteSize::new(5));
    })
    .await;
    for (path, length) in [("/", 11), ("/own", 6)] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n");
        let mut waits = gateway.connect().await;
        waits.write(format!("{head}expect: 100-continue\r\n\r\n")).await;
        let answer = waits.read_until("413 body-too-large\n").await;
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("connection: close\r\n"), "{answer}");
        assert_eq!(waits.rest().await, "");
    }
    let mut sends = gateway.connect().await;
    sends.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\n").await;
    let answer = sends.read_until("413 body-too-large\n").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // It goes on all the same, and sees a clean end.
    sends.write("x".repeat(200_000)).await;
    assert_eq!(sends.rest().await, "");
    assert_eq!(origin.requests().len(), 0);
    assert_eq!(refused(&gateway, "body-too-large"), 3);
}
