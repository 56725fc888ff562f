//! Gateways and backends that leave under their clients. The issues of other gateways are named beside the tests.

use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

use super::harness::refusing_address;
use super::*;
use crate::lifecycle::Phase;

/// An address of this machine that takes no connection and refuses none, as that of a pod that is gone.
fn silent_address() -> (SocketAddr, Vec<Socket>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut full = vec![listener];
    // Nobody accepts them: with its queue full the kernel ignores further ones.
    for _ in 0..2 {
        let waiting = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        waiting.set_nonblocking(true).unwrap();
        let _ = waiting.connect(&address.into());
        full.push(waiting);
    }
    (address, full)
}

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test]
async fn clients_of_a_pod_that_leaves_are_told_and_none_is_reset_or_refused() {
    // envoyproxy/gateway#4002
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let mut clients = Vec::new();
    for _ in 0..50 {
        let mut client = gateway.connect().await;
        assert!(!client.exchange(GET).await.contains("connection: close"));
        clients.push(client);
    }
    gateway.lifecycle().drain().unwrap();
    // Whoever does not know yet goes on, on connections that are there and on new ones.
    for mut kept in clients {
        for client in [&mut kept, &mut gateway.connect().await] {
            let answer = client.exchange(GET).await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close\r\n"), "{answer}");
            assert_eq!(client.rest().await, "", "a clean end, no reset");
        }
    }
    gateway.terminate().await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 0);
}

#[tokio::test]
async fn a_request_in_flight_when_the_drain_begins_is_answered_with_the_word_to_leave() {
    // hyperium/hyper#3720
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let mut client = gateway.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n").await;
    origin.wait_for_requests(1).await;
    gateway.lifecycle().drain().unwrap();
    // What follows on the same connection has been sent before its client could know.
    client.write(format!("hi{GET}")).await;
    let answer = client.exchange("").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close\r\n"), "{answer}");
    assert_eq!(client.rest().await, "", "a clean end, no reset");
    assert_eq!(origin.requests().len(), 1, "what is not answered was not begun");
}

#[tokio::test]
async fn a_client_that_nobody_could_tell_is_served_once_more_while_the_rest_drains() {
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let selectors = vec![selector(vec![rule("/", &[(&origin, 1)])])];
    let gateway = Gateway::draining_for(Duration::from_mins(1), selectors, |_| {}).await;
    // It keeps the gateway from being over.
    let mut holding = gateway.connect().await;
    holding.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n").await;
    origin.wait_for_requests(1).await;
    let mut kept = gateway.connect().await;
    kept.exchange(GET).await;
    // Its request is on its way all through the time in which answers ask to leave.
    kept.write("GET / HTTP/1.1\r\n").await;
    gateway.terminate().await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Draining).await;
    kept.write("host: a\r\n\r\n").await;
    let answer = kept.exchange("").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close\r\n"), "{answer}");
    assert_eq!(kept.rest().await, "", "a clean end, no reset");
    let late = gateway.send(GET).await;
    assert!(late.starts_with("HTTP/1.1 503 ") && late.contains("draining"), "{late}");
    holding.write("hi").await;
    assert!(holding.exchange("").await.starts_with("HTTP/1.1 200 "));
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 0);
}

#[tokio::test]
async fn an_endpoint_that_is_gone_before_its_slice_says_so_costs_few_retries_and_no_request() {
    // istio/istio#7665
    let [first, second] = [Origin::start(Reply::always(OK)).await, Origin::start(Reply::always(OK)).await];
    let gateway = Gateway::start(vec![selector(vec![harness::service_rule("/", "three")])]).await;
    gateway.endpoints("three", &[first.address, refusing_address(), second.address]).await;
    let mut client = gateway.connect().await;
    for request in 0..200 {
        let answer = client.exchange(GET).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "request {request}: {answer}");
    }
    let metrics = gateway.metrics();
    let name = r#"lockgate_upstream_retries_total{cluster="test/three:80",reason="connect-failure"} "#;
    let retries = metrics.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
    let retries = retries.unwrap_or_else(|| panic!("{metrics}"));
    assert!((1..=5).contains(&retries), "set aside after the first: {retries}");
}

#[tokio::test]
async fn nobody_waits_for_a_connection_to_an_endpoint_that_has_left() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (silent, _full) = silent_address();
    for service in ["left", "left-h2c"] {
        let mut patient = harness::service_rule("/", service);
        patient.timeouts.connect = Duration::from_mins(1);
        let gateway = Gateway::start(vec![selector(vec![patient])]).await;
        for (now, status) in [(&[origin.address][..], "200"), (&[], "503")] {
            // What is spoken over HTTP/2 has no origin here.
            let (now, status) = if service == "left" { (now, status) } else { (&[][..], "503") };
            gateway.endpoints(service, &[silent]).await;
            let mut client = gateway.connect().await;
            client.write(GET).await;
            gateway.wait_for(|g| g.lifecycle().in_flight() == 1).await;
            gateway.endpoints(service, now).await;
            let answer = client.exchange("").await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{service}: {answer}");
            assert!(status == "200" || answer.contains("no-endpoints"), "{service}: {answer}");
        }
    }
}
