//! Connections to backends: when they begin, who shares them, when they end.

use std::time::Duration;

use h2::Reason;

use super::super::harness::{self, Gateway, Reply, refusing_address, selector, service_rule};
use super::origin::{Call, Origin};
use super::{GET, SERVICE, connections, gateway, gateway_with, retries};
use crate::ir;
use crate::lifecycle::Phase;

async fn answers(call: Call) {
    call.answer();
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_stream_and_no_other() {
    let origin =
        Origin::start(
            None,
            |call: Call| async move { if call.number == 0 { call.never().await } else { call.answer() } },
        )
        .await;
    let gateway = gateway(&origin).await;
    let mut leaving = gateway.connect().await;
    leaving.write(GET).await;
    origin.wait_for(|origin| origin.heads().len() == 1).await;
    drop(leaving);
    origin.wait_for(|origin| origin.cancelled() == [Reason::CANCEL]).await;
    for _ in 0..10 {
        assert!(gateway.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.contains("ok"));
    }
    assert!(origin.accepted() <= 2, "one for each worker");
    assert_eq!(origin.open(), origin.accepted());
}

#[tokio::test]
async fn a_backend_that_does_not_speak_http2_is_one_that_cannot_be_connected_to() {
    let http1 = harness::Origin::start(Reply::always("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")).await;
    let gateway = Gateway::start(vec![selector(vec![service_rule("/", SERVICE)])]).await;
    gateway.endpoints(SERVICE, &[http1.address]).await;
    let answer = gateway.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("connect-failed"), "{answer}");
    assert!(http1.requests().iter().all(|request| !request.contains("POST")), "{:?}", http1.requests());

    // Nor one that says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut rule = service_rule("/", SERVICE);
    rule.timeouts.connect = Duration::from_millis(50);
    let gateway = Gateway::start(vec![selector(vec![rule])]).await;
    gateway.endpoints(SERVICE, &[silent.local_addr().unwrap()]).await;
    let answer = gateway.send(GET).await;
    assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("connect-timeout"), "{answer}");
}

#[tokio::test]
async fn another_endpoint_takes_what_one_cannot() {
    let origin = Origin::start(None, answers).await;
    let gateway = Gateway::start(vec![selector(vec![service_rule("/", SERVICE)])]).await;
    gateway.endpoints(SERVICE, &[refusing_address(), origin.address]).await;
    let post = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    super::all_succeed(&gateway, 20, post).await;
    assert!(retries(&gateway, "connect-failure") >= 1);
}

#[tokio::test]
async fn connections_end_when_they_are_not_used() {
    let origin = Origin::start(None, answers).await;
    let gateway = gateway_with(&[&origin], |rule| rule.upstream.idle_timeout = Duration::from_millis(1)).await;
    super::all_succeed(&gateway, 10, GET).await;
    origin.wait_for(|origin| origin.open() == 0).await;
    gateway.wait_for(|gateway| connections(gateway, "idle") + connections(gateway, "active") == 0).await;
}

#[tokio::test]
async fn connections_end_with_their_lifetime_and_their_last_stream() {
    let origin =
        Origin::start(
            None,
            |call: Call| async move { if call.number == 0 { call.never().await } else { call.answer() } },
        )
        .await;
    let gateway = gateway_with(&[&origin], |rule| rule.upstream.max_lifetime = Duration::from_millis(1)).await;
    let mut held = gateway.connect().await;
    held.write(GET).await;
    origin.wait_for(|origin| origin.heads().len() == 1).await;
    // Once its time is over, others get one of their own.
    let mut client = gateway.connect().await;
    while !origin.heads().iter().skip(1).any(|head| head.connection >= 2) {
        assert!(client.exchange("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(origin.cancelled(), []);
    drop(held);
    origin.wait_for(|origin| origin.cancelled() == [Reason::CANCEL]).await;
}

#[tokio::test]
async fn an_endpoint_that_leaves_finishes_what_it_has() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let held = std::sync::Arc::clone(&gate);
    let origin = Origin::start(None, move |call: Call| {
        let held = std::sync::Arc::clone(&held);
        async move {
            let _pass = held.acquire().await.unwrap();
            call.answer();
        }
    })
    .await;
    let other = Origin::start(None, answers).await;
    let gateway = gateway(&origin).await;
    let mut client = gateway.connect().await;
    client.write(GET).await;
    origin.wait_for(|origin| origin.heads().len() == 1).await;
    gateway.endpoints(SERVICE, &[other.address]).await;
    super::all_succeed(&gateway, 10, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert_eq!((origin.heads().len(), other.heads().len()), (1, 10));
    gate.add_permits(1);
    assert!(client.read_until("ok").await.starts_with("HTTP/1.1 200 "));
    origin.wait_for(|origin| origin.open() == 0).await;
}

#[tokio::test]
async fn a_connection_that_breaks_fails_its_streams_by_the_rules() {
    // Takes requests and closes without a word: safe ones are sent once more, others are not.
    let origin = Origin::start(None, |call: Call| async move {
        match call.number {
            0 | 1 => call.abort().await,
            _ => call.answer(),
        }
    })
    .await;
    let gateway = gateway(&origin).await;
    let answer = gateway.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("upstream-reset"), "{answer}");
    assert_eq!(origin.heads().len(), 1);
    let answer = gateway.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(origin.heads().len(), 3);
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_cancels_its_stream_and_no_other() {
    let origin =
        Origin::start(
            None,
            |call: Call| async move { if call.number == 0 { call.never().await } else { call.answer() } },
        )
        .await;
    let gateway = gateway_with(&[&origin], |rule| rule.timeouts.backend_request = Duration::from_millis(50)).await;
    let mut client = gateway.connect().await;
    let answer = client.exchange(GET).await;
    assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("upstream-timeout"), "{answer}");
    origin.wait_for(|origin| origin.cancelled() == [Reason::CANCEL]).await;
    assert!(client.exchange(GET).await.starts_with("HTTP/1.1 200 "));
    assert_eq!((origin.accepted(), origin.open()), (1, 1));
}

#[tokio::test]
async fn copies_for_mirrors_are_sent_in_the_protocol_of_the_mirror() {
    let origin = Origin::start(None, |mut call: Call| async move {
        assert_eq!(call.read().await.0, b"hello");
        call.answer();
    })
    .await;
    let http1 = harness::Origin::start(Reply::read_all_then("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")).await;
    let mut rule = harness::rule("/", &[(&http1, 1)]);
    let ir::BackendTarget::Cluster(cluster) = harness::service_backend(SERVICE).target else { unreachable!() };
    rule.filters = vec![ir::Filter::Mirror(ir::Mirror { cluster, numerator: 1, denominator: 1 })];
    let gateway = Gateway::start(vec![selector(vec![rule])]).await;
    gateway.endpoints(SERVICE, &[origin.address]).await;
    for number in 1..4 {
        let answer = gateway.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        origin.wait_for(|origin| origin.heads().len() == number).await;
    }
    let answered = "lockgate_mirrored_requests_total{cluster=\"test/s-h2c:80\",outcome=\"answered\"}";
    gateway.wait_for(|gateway| super::metric(gateway, answered) == 3).await;
    assert_eq!(origin.heads()[0].uri, "http://a/");
    assert_eq!(http1.requests().len(), 3);
}

#[tokio::test]
async fn a_drain_waits_for_what_a_backend_has_in_flight() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let held = std::sync::Arc::clone(&gate);
    let origin = Origin::start(None, move |call: Call| {
        let held = std::sync::Arc::clone(&held);
        async move {
            let _pass = held.acquire().await.unwrap();
            call.answer();
        }
    })
    .await;
    let gateway = gateway(&origin).await;
    let mut client = gateway.connect().await;
    client.write(GET).await;
    origin.wait_for(|origin| origin.heads().len() == 1).await;
    gateway.terminate().await;
    gateway.wait_for(|gateway| gateway.lifecycle().phase() == Phase::Draining).await;
    assert_eq!(gateway.lifecycle().in_flight(), 1);
    gate.add_permits(1);
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close"), "{answer}");
    gateway.wait_for(|gateway| gateway.lifecycle().in_flight() == 0).await;
}
