//! Handshakes that end in other ways.

use super::*;

#[tokio::test]
async fn a_broken_certificate_costs_its_hosts_alone() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let pair = authority.issue(&["a.test", "b.test"]);
    let mut broken = host("b", &["b.test"], &origin);
    broken.tls = Some(Tls::Terminate(Termination { certificate: Err("InvalidCertificateRef"), clients: None }));
    let mut gateway = start(vec![host("a", &["a.test"], &origin).with(&pair), broken.clone()]).await;
    // Not even the default certificate is given for it.
    gateway.default_certificate = Some(pair.certificate("default"));
    gateway.serve(vec![host("a", &["a.test"], &origin).with(&pair), broken]).await;
    let client = TlsClient::new(&authority);
    let error = client.connect(&gateway, "b.test").await.err().unwrap().to_string();
    assert!(error.contains("UnrecognisedName"), "{error}");
    ended(&gateway, "broken-certificate", 1).await;
    assert_eq!(status(&client.get(&gateway, "a.test", "a.test").await.unwrap()), "200");
    assert_eq!(status(&client.get(&gateway, "a.test", "b.test").await.unwrap()), "421");
    assert_eq!(status(&gateway.send("GET / HTTP/1.1\r\nhost: b.test\r\n\r\n").await), "200");
}

#[tokio::test]
async fn a_new_certificate_leaves_connections_alone() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let (old, new) = (authority.issue(&["a.test"]), authority.issue(&["a.test", "b.test"]));
    let hosts = ["a.test", "b.test"];
    let mut gateway = start(vec![host("a", &hosts, &origin).with(&old)]).await;
    let client = TlsClient::new(&authority);
    let mut connection = client.connect(&gateway, "a.test").await.unwrap();
    assert_eq!(status(&connection.get("a.test").await.unwrap()), "200");
    gateway.serve(vec![host("a", &hosts, &origin).with(&new)]).await;
    for host in hosts {
        assert_eq!(status(&connection.get(host).await.unwrap()), "200", "{host}");
    }
    assert_eq!(client.certificate(&gateway, "a.test").await.unwrap(), new.chain);
    // A Secret of another name is another certificate, for other hosts of the connection but not for its own.
    gateway.serve(vec![host("a", &["a.test"], &origin).with(&old), host("b", &["b.test"], &origin).with(&new)]).await;
    assert_eq!(status(&connection.get("a.test").await.unwrap()), "200");
    assert_eq!(status(&connection.get("b.test").await.unwrap()), "421");
}

#[tokio::test]
async fn what_is_no_tls_is_refused_and_counted() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let pair = authority.issue(&["a.test"]);
    let gateway = start(vec![host("a", &["a.test"], &origin).with(&pair)]).await;
    let mut client = gateway.connect_to(TLS).await;
    client.write("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    while client.read_more().await > 0 {}
    ended(&gateway, "malformed", 1).await;
    // Half of a first message, then nothing more.
    let mut client = gateway.connect_to(TLS).await;
    client.write([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).await;
    drop(client);
    ended(&gateway, "closed", 1).await;
    // One that says nothing is a probe.
    drop(gateway.connect_to(TLS).await);
    gateway.wait_for(|gateway| gateway.metric("lockgate_connections{listener=\"https\"}") == 0).await;
    assert_eq!(handshakes(&gateway, "closed", "-"), 1);
    // A client that does not trust the certificate says so.
    let stranger = TlsClient::new(&Authority::new("other"));
    assert!(stranger.connect(&gateway, "a.test").await.is_err());
    ended(&gateway, "client-refused", 1).await;
    assert_eq!(origin.requests().len(), 0);
}

#[tokio::test]
async fn a_handshake_has_the_time_of_a_head() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let pair = authority.issue(&["a.test"]);
    let change = |settings: &mut Settings| {
        listeners(settings);
        settings.timeouts.header = crate::api::Duration::from_millis(200);
    };
    let gateway = Gateway::with(vec![host("a", &["a.test"], &origin).with(&pair)], change).await;
    let mut slow = gateway.connect_to(TLS).await;
    slow.write([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).await;
    assert_eq!(slow.rest_or_reset().await, "");
    ended(&gateway, "timeout", 1).await;
    let mut silent = gateway.connect_to(TLS).await;
    assert_eq!(silent.rest_or_reset().await, "");
    assert_eq!(handshakes(&gateway, "timeout", "-"), 1);
}

#[tokio::test]
async fn the_settings_choose_versions_and_suites() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let pair = authority.issue(&["a.test"]);
    let selectors = || vec![host("a", &["a.test"], &origin).with(&pair)];
    let old = TlsClient::speaking(&authority, &[&version::TLS12]);
    let new = TlsClient::speaking(&authority, &[&version::TLS13]);

    let gateway = start(selectors()).await;
    for (client, version) in [(&old, "TLSv1.2"), (&new, "TLSv1.3")] {
        assert_eq!(status(&client.get(&gateway, "a.test", "a.test").await.unwrap()), "200");
        assert_eq!(handshakes(&gateway, "full", version), 1);
    }

    let change = |settings: &mut Settings| {
        listeners(settings);
        settings.tls.min_version = crate::settings::TlsVersion::V1_3;
        settings.tls.cipher_suites = vec!["TLS_AES_128_GCM_SHA256".to_owned()];
    };
    let gateway = Gateway::with(selectors(), change).await;
    assert!(old.connect(&gateway, "a.test").await.is_err());
    ended(&gateway, "incompatible", 1).await;
    let connection = new.connect(&gateway, "a.test").await.unwrap();
    let suite = connection.stream.get_ref().1.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
}

#[tokio::test]
async fn the_protocol_is_agreed_on() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let pair = authority.issue(&["a.test"]);
    let gateway = start(vec![host("a", &["a.test"], &origin).with(&pair)]).await;
    let mut client = TlsClient::new(&authority);
    client.config.alpn_protocols = vec![b"spdy/1".to_vec(), b"http/1.1".to_vec()];
    let mut connection = client.connect(&gateway, "a.test").await.unwrap();
    assert_eq!(connection.stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(status(&connection.get("a.test").await.unwrap()), "200");
    client.config.alpn_protocols = vec![b"spdy/1".to_vec()];
    let error = client.connect(&gateway, "a.test").await.err().unwrap().to_string();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
    ended(&gateway, "incompatible", 1).await;
}

#[tokio::test]
async fn a_drain_asks_tls_clients_to_leave_and_ends_cleanly() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let pair = authority.issue(&["a.test"]);
    let gateway = start(vec![host("a", &["a.test"], &origin).with(&pair)]).await;
    let client = TlsClient::new(&authority);
    let mut kept = client.connect(&gateway, "a.test").await.unwrap();
    assert!(!kept.get("a.test").await.unwrap().contains("connection: close"));
    gateway.terminate().await;
    gateway.wait_for(|gateway| gateway.lifecycle().phase() == crate::lifecycle::Phase::LameDuck).await;
    let answer = kept.get("a.test").await.unwrap();
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert_eq!(kept.read_more().await.unwrap(), 0, "the end is told");
    let mut new = client.connect(&gateway, "a.test").await.unwrap();
    assert_eq!(status(&new.get("a.test").await.unwrap()), "200");
}
