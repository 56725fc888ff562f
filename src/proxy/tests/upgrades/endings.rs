//! How tunnels end.

use tokio::io::AsyncWriteExt as _;

use super::*;
use crate::lifecycle::Phase;

async fn until_gone(gateway: &Gateway) {
    gateway.wait_for(|g| g.lifecycle().in_flight() == 0 && tunnels(g) == 0).await;
}

#[tokio::test]
async fn each_side_may_say_its_last_before_the_other() {
    let backend = Backend::start().await;
    let gateway = before(&backend, service_rule("/", "ws")).await;
    let (client, served) = open(&gateway, &backend).await;
    let (other_client, other_served) = open(&gateway, &backend).await;
    for (mut first, mut second) in [(client, served), (other_served, other_client)] {
        first.write("bye").await;
        first.stream.shutdown().await.unwrap();
        assert_eq!(second.rest().await, "bye");
        second.write("still here").await;
        assert_eq!(first.read_exactly(10).await, b"still here");
        drop(second);
        assert_eq!(first.rest().await, "");
    }
    until_gone(&gateway).await;
    let metrics = gateway.metrics();
    for reason in ["client-gone", "upstream-reset", "idle-timeout"] {
        assert!(metrics.contains(&format!("lockgate_requests_refused_total{{reason=\"{reason}\"}} 0")), "{metrics}");
    }
}

#[tokio::test]
async fn who_breaks_ends_the_other_side() {
    let backend = Backend::start().await;
    let gateway = before(&backend, service_rule("/", "ws")).await;
    let (client, mut served) = open(&gateway, &backend).await;
    client.stream.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(served.rest_or_reset().await, "");
    let (mut client, served) = open(&gateway, &backend).await;
    served.stream.set_zero_linger().unwrap();
    drop(served);
    assert_eq!(client.rest_or_reset().await, "");
    drop(client);
    until_gone(&gateway).await;
    let metrics = gateway.metrics();
    for reason in ["client-gone", "upstream-reset"] {
        assert!(metrics.contains(&format!("lockgate_requests_refused_total{{reason=\"{reason}\"}} 1")), "{metrics}");
    }
}

#[tokio::test]
async fn what_a_backend_says_as_it_leaves_reaches_a_client_that_goes_on_talking() {
    let backend = Backend::start().await;
    let gateway = before(&backend, service_rule("/", "ws")).await;
    let (mut client, mut served) = open(&gateway, &backend).await;
    served.write("bye").await;
    drop(served);
    // Into the closed socket: a reset comes back, and must not reach the client before those words.
    for _ in 0..50 {
        client.write("more").await;
    }
    assert_eq!(client.rest().await, "bye");
    drop(client);
    until_gone(&gateway).await;
}

#[tokio::test]
async fn a_silent_tunnel_is_cut_after_its_own_time_and_not_after_that_of_requests() {
    let backend = Backend::start().await;
    let mut rule = service_rule("/", "ws");
    rule.timeouts.idle = Duration::from_millis(1);
    rule.timeouts.tunnel = Duration::from_millis(300);
    let gateway = before(&backend, rule).await;
    let (mut client, mut served) = open(&gateway, &backend).await;
    assert_eq!((client.rest().await, served.rest().await), (String::new(), String::new()));
    until_gone(&gateway).await;
    let metrics = gateway.metrics();
    assert!(metrics.contains("lockgate_requests_refused_total{reason=\"idle-timeout\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_drain_waits_for_tunnels_names_them_and_cuts_them_in_the_end() {
    let backend = Backend::start().await;
    let gateway = before(&backend, service_rule("/", "ws")).await;
    let (mut client, mut served) = open(&gateway, &backend).await;
    gateway.terminate().await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::LameDuck).await;
    // New ones are served for as long as requests are, and no word about closing gets into their handshake.
    let mut late = gateway.connect().await;
    late.write(ASK).await;
    let mut late_served = backend.agree().await;
    let head = late.read_head().await;
    assert!(head.starts_with("HTTP/1.1 101 ") && has(&head, "connection: upgrade"), "{head}");
    late_served.write("x").await;
    late.read_exactly(1).await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Draining).await;
    client.write("12345").await;
    served.read_exactly(5).await;
    served.write("67").await;
    client.read_exactly(2).await;
    let mut holders = gateway.lifecycle().holders();
    holders.sort_by_key(|holder| holder.received);
    let told = |at: usize| (&*holders[at].route, &*holders[at].protocol);
    assert_eq!((told(0), told(1)), (("test/route /", "websocket"), ("test/route /", "websocket")));
    // The head of the 101 counts.
    assert!(holders[1].received == 5 && holders[1].sent > 2, "{holders:?}");
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 2);
    assert_eq!(client.rest_or_reset().await + &served.rest_or_reset().await, "");
}

#[tokio::test]
async fn a_drain_ends_with_the_last_tunnel() {
    let backend = Backend::start().await;
    let gateway = before(&backend, service_rule("/", "ws")).await;
    let (client, served) = open(&gateway, &backend).await;
    gateway.terminate().await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Draining).await;
    drop((client, served));
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 0);
}
