//! What tunnels hold and what they are counted as while they live.

use std::sync::Arc;

use super::*;

#[tokio::test]
async fn a_tunnel_is_counted_at_its_101_and_as_open_while_it_lives() {
    let backend = Backend::start().await;
    let gateway = before(&backend, service_rule("/", "ws")).await;
    let (client, served) = open(&gateway, &backend).await;
    let of_rule = r#"selector="test/selector",route="test/route",rule="/""#;
    let counted = format!("lockgate_http_requests_total{{{of_rule},method=\"GET\",code=\"101\"}} 1");
    let timed = format!("lockgate_http_request_duration_seconds_count{{{of_rule}}} 1");
    gateway.wait_for(|g| g.metrics().contains(&counted) && g.metrics().contains(&timed)).await;
    assert_eq!((tunnels(&gateway), gateway.lifecycle().in_flight()), (1, 1));
    let connections = |g: &Gateway, state: &str| g.metrics().contains(&format!("state=\"{state}\"}} 1\n"));
    assert!(connections(&gateway, "active") && !connections(&gateway, "idle"), "{}", gateway.metrics());
    drop((client, served));
    gateway.wait_for(|g| tunnels(g) == 0 && g.lifecycle().in_flight() == 0).await;
    gateway.wait_for(|g| !connections(g, "active") && !connections(g, "idle")).await;
    assert!(gateway.metrics().contains(&timed), "once is enough");
}

#[tokio::test]
async fn a_tunnel_keeps_its_place_among_the_rule_s_requests_and_the_endpoint_s_connections() {
    let backend = Backend::start().await;
    let mut limited = service_rule("/rule", "ws");
    limited.limits = ir::Limits { max_in_flight: Some(1), ..ir::Limits::default() };
    let mut narrow = service_rule("/pool", "ws");
    narrow.upstream.max_connections = 1;
    narrow.upstream.max_pending = 0;
    let gateway = Gateway::start(vec![selector(vec![limited, narrow])]).await;
    gateway.endpoints("ws", &[backend.address()]).await;
    for (path, reason) in [("/rule", "rule-limit"), ("/pool", "backend-limit")] {
        let mut client = gateway.connect().await;
        client.write(ASK.replace("/chat", path)).await;
        let served = backend.agree().await;
        client.read_head().await;
        let refused = gateway.send(&format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")).await;
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains(reason), "{path}: {refused}");
        drop((client, served));
        gateway.wait_for(|g| tunnels(g) == 0 && g.lifecycle().in_flight() == 0).await;
        let mut client = gateway.connect().await;
        client.write(ASK.replace("/chat", path)).await;
        let served = backend.agree().await;
        drop((client, served));
        gateway.wait_for(|g| tunnels(g) == 0 && g.lifecycle().in_flight() == 0).await;
    }
}

#[tokio::test]
async fn tunnels_outlive_tables_and_endpoints_and_do_not_keep_old_tables() {
    let backend = Backend::start().await;
    let mut gateway = before(&backend, service_rule("/", "ws")).await;
    let mut pairs = Vec::new();
    for _ in 0..4 {
        pairs.push(open(&gateway, &backend).await);
    }
    let old = Arc::downgrade(&gateway.published().load());
    // Without the rule, then without the endpoint, then without the backend.
    let other = harness::rule("/other", &[]);
    gateway.endpoints("ws", &[harness::refusing_address()]).await;
    gateway.serve(vec![selector(vec![service_rule("/new", "ws"), other.clone()])]).await;
    gateway.endpoints("ws", &[]).await;
    gateway.serve(vec![selector(vec![other])]).await;
    for (client, served) in &mut pairs {
        client.write("up").await;
        assert_eq!(served.read_exactly(2).await, b"up");
        served.write("down").await;
        assert_eq!(client.read_exactly(4).await, b"down");
    }
    assert_eq!(tunnels(&gateway), 4);
    gateway.wait_for(|_| old.strong_count() == 0).await;
}

#[tokio::test]
async fn a_slow_reader_holds_the_other_side_back_within_bounds() {
    let backend = Backend::start().await;
    let gateway = before(&backend, service_rule("/", "ws")).await;
    let (mut client, mut served) = open(&gateway, &backend).await;
    let sent = streams::fill(&served.stream).await;
    // Both sockets' buffers are the kernel's; what is between them is one buffer of ours.
    client.write("the other way is free").await;
    served.read_exactly(21).await;
    assert_eq!(client.read_exactly(sent).await.len(), sent);
}
