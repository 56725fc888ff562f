//! Which certificate a connection gets, what it is good for, and what it may cost.

use super::*;
use crate::proxy::tests::harness::service_rule;

#[tokio::test]
async fn certificates_are_those_of_tcp_and_change_with_them() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let [exact, wide, new] = [&["a.test"][..], &["*.w.test"], &["a.test"]].map(|names| authority.issue(names));
    let passed = ir::Selector {
        tls: Some(Tls::Passthrough),
        rules: vec![Arc::new(service_rule("/", "db-tls"))],
        ..host("p", &["p.test"], &origin)
    };
    let mut gateway = Gateway::with(
        vec![
            host("exact", &["a.test"], &origin).with(&exact),
            host("wide", &["*.w.test"], &origin).with(&wide),
            host("none", &["none.w.test"], &origin),
            passed,
        ],
        with_http3,
    )
    .await;
    let client = client(&authority);
    let shown = async |gateway: &Gateway, host: &str| {
        let quic = client.quic(gateway, host).await.map_err(|error| error.to_string())?;
        let chain = quic.connection.peer_identity().unwrap().downcast::<Vec<CertificateDer<'static>>>().unwrap();
        Ok::<_, String>(chain[0].clone())
    };
    assert_eq!(shown(&gateway, "a.test").await.unwrap(), exact.chain);
    assert_eq!(shown(&gateway, "b.w.test").await.unwrap(), wide.chain);
    for host in ["none.w.test", "unknown.test", "p.test"] {
        let error = shown(&gateway, host).await.unwrap_err();
        assert!(error.contains("error 112"), "{host}: {error}");
    }
    ended(&gateway, "no-certificate", 3).await;
    let mut before = client.http3(&gateway, "a.test").await;
    assert_eq!(before.get("a.test", "/").await.head.status(), 200);
    gateway.serve(vec![host("exact", &["a.test"], &origin).with(&new)]).await;
    assert_eq!(shown(&gateway, "a.test").await.unwrap(), new.chain);
    assert_eq!(before.get("a.test", "/").await.head.status(), 200, "connections go on");
}

#[tokio::test]
async fn a_connection_is_good_for_the_hosts_of_its_certificate() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let [shared, other] = [&["a.test", "b.test"][..], &["c.test"]].map(|names| authority.issue(names));
    let selectors =
        vec![host("a", &["a.test", "b.test"], &origin).with(&shared), host("c", &["c.test"], &origin).with(&other)];
    let gateway = Gateway::with(selectors, with_http3).await;
    let mut connection = client(&authority).http3(&gateway, "a.test").await;
    for (host, status) in [("a.test", 200), ("b.test", 200), ("c.test", 421), ("d.test", 404), ("a.test", 200)] {
        assert_eq!(connection.get(host, "/").await.head.status().as_u16(), status, "{host}");
    }
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn a_clients_certificate_is_asked_for_and_told() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let (pair, own) = (authority.issue(&["a.test"]), authority.issue_to_client("me"));
    let asked = host("a", &["a.test"], &origin).with(&pair).asking(clients::asked(&authority, true));
    let gateway = Gateway::with(vec![asked], with_http3).await;
    let showing = speaking_h3(TlsClient::showing(&authority, &own));
    let mut connection = showing.http3(&gateway, "a.test").await;
    for _ in 0..2 {
        assert_eq!(connection.get("a.test", "/").await.head.status(), 200);
    }
    assert!(origin.requests().iter().all(|request| request.contains("client-cert: :")));
    // A client learns that it is refused after its own half of the handshake.
    let silent = client(&authority).quic(&gateway, "a.test").await;
    if let Ok(quic) = silent {
        quic.connection.closed().await;
    }
    ended(&gateway, "client-certificate", 1).await;
}

#[tokio::test]
async fn another_protocol_is_not_agreed_on() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (gateway, authority) = gateway(&origin).await;
    let mut other = TlsClient::new(&authority);
    other.config.alpn_protocols = vec![b"hq-interop".to_vec()];
    assert!(other.quic(&gateway, "a.test").await.is_err());
    ended(&gateway, "incompatible", 1).await;
}

#[tokio::test]
async fn who_resets_more_than_it_asks_for_is_sent_away() {
    let (origin, authority) = (Origin::start(Reply::never()).await, Authority::new("ca"));
    let selectors = vec![host("a", &["a.test"], &origin).with(&authority.issue(&["a.test"]))];
    let change = |settings: &mut Settings| {
        with_http3(settings);
        settings.limits.http2.max_resets = 20;
    };
    let gateway = Gateway::with(selectors, change).await;
    let mut client = client(&authority).http3(&gateway, "a.test").await;
    for _ in 0..2000 {
        let Ok(mut call) = client.send.send_request(request("GET", "a.test", "/", &[])).await else { break };
        call.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
        call.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
    }
    let closed = tokio::time::timeout(Duration::from_secs(20), client.quic.connection.closed()).await.unwrap();
    assert!(
        matches!(&closed, quinn::ConnectionError::ApplicationClosed(close) if close.error_code.into_inner() == 0x107)
    );
    assert_eq!(gateway.metric("lockgate_requests_refused_total{reason=\"flood\"}"), 1);
    gateway.wait_for(|gateway| gateway.lifecycle().in_flight() == 0).await;
}

#[tokio::test]
async fn connections_are_shared_among_workers_and_bounded() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let selectors = vec![host("a", &["a.test"], &origin).with(&authority.issue(&["a.test"]))];
    let change = |settings: &mut Settings| {
        with_http3(settings);
        settings.limits.max_connections = 6;
    };
    let gateway = Gateway::with(selectors, change).await;
    let client = client(&authority);
    let mut connections = Vec::new();
    for _ in 0..6 {
        let mut connection = client.http3(&gateway, "a.test").await;
        assert_eq!(connection.get("a.test", "/").await.head.status(), 200);
        connections.push(connection);
    }
    assert_eq!(gateway.loads(), [3, 3]);
    assert!(client.quic(&gateway, "a.test").await.is_err(), "one too many");
    drop(connections);
    gateway.wait_for(|gateway| gateway.metric("lockgate_connections{listener=\"https\"}") == 0).await;
}
