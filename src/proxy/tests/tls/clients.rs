//! Certificates of clients.

use serde_json::json;

use super::*;
use crate::proxy::tests::access::{LogFile, some};

pub(super) fn asked(authority: &Authority, required: bool) -> ClientCertificates {
    ClientCertificates { required, authorities: Ok(authority.authorities("clients")) }
}

/// The lines of a request's head that tell of a client's certificate.
fn told(request: &str) -> Vec<String> {
    let alike = |line: &&str| line.to_lowercase().replace(['_', '.'], "-").contains("client-cert");
    request.lines().filter(alike).map(str::to_owned).collect()
}

const FORGED: &str = "GET / HTTP/1.1\r\nhost: a.test\r\nClient-Cert: :Zm9yZ2Vk:\r\nclient_cert: x\r\nClient.Cert: x\r\n\
                      Client-Cert-Chain: x\r\nX-Forwarded-Client-Cert: x\r\nX_Forwarded_Client_Cert: x\r\nconnection: client-cert\r\n\r\n";

/// `Client-Cert` of RFC 9440, section 2.1: the certificate as a Byte Sequence.
fn client_cert(pair: &Pair) -> String {
    use base64::Engine as _;
    format!("client-cert: :{}:", base64::engine::general_purpose::STANDARD.encode(&pair.chain))
}

#[tokio::test]
async fn who_has_to_show_a_certificate_is_told_to_backends() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (authority, issuer) = (Authority::new("ca"), Authority::new("clients"));
    let (pair, own, other) =
        (authority.issue(&["a.test"]), issuer.issue_to_client("me"), authority.issue_to_client("me"));
    let gateway = start(vec![host("a", &["a.test"], &origin).with(&pair).asking(asked(&issuer, true))]).await;

    let good = TlsClient::showing(&authority, &own);
    let mut connection = good.connect(&gateway, "a.test").await.unwrap();
    for _ in 0..2 {
        assert_eq!(status(&connection.send(FORGED).await.unwrap()), "200");
        assert_eq!(told(&origin.requests().pop().unwrap()), [client_cert(&own)]);
    }
    // With TLS 1.3 a client learns that it is refused from the first answer.
    for bad in
        [TlsClient::new(&authority), TlsClient::showing(&authority, &other), TlsClient::showing(&authority, &pair)]
    {
        assert!(bad.get(&gateway, "a.test", "a.test").await.is_err());
    }
    ended(&gateway, "client-certificate", 3).await;
    assert_eq!(origin.requests().len(), 2);
}

#[tokio::test]
async fn who_may_show_one_need_not() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (authority, issuer) = (Authority::new("ca"), Authority::new("clients"));
    let (pair, own, other) =
        (authority.issue(&["a.test"]), issuer.issue_to_client("me"), authority.issue_to_client("me"));
    let gateway = start(vec![host("a", &["a.test"], &origin).with(&pair).asking(asked(&issuer, false))]).await;
    let mut without = TlsClient::new(&authority).connect(&gateway, "a.test").await.unwrap();
    assert_eq!(status(&without.send(FORGED).await.unwrap()), "200");
    assert_eq!(told(&origin.requests().pop().unwrap()), [""; 0]);
    let mut with = TlsClient::showing(&authority, &own).connect(&gateway, "a.test").await.unwrap();
    assert_eq!(status(&with.send(FORGED).await.unwrap()), "200");
    assert_eq!(told(&origin.requests().pop().unwrap()), [client_cert(&own)]);
    assert!(TlsClient::showing(&authority, &other).get(&gateway, "a.test", "a.test").await.is_err());
    // Without TLS nobody can, and a claim is no certificate.
    assert_eq!(status(&gateway.send(FORGED).await), "200");
    assert_eq!(told(&origin.requests().pop().unwrap()), [""; 0]);
}

#[tokio::test]
async fn a_trusted_proxy_cannot_tell_of_certificates_either() {
    let origin = Origin::start(Reply::always(OK)).await;
    let change = |settings: &mut Settings| settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    let gateway = Gateway::with(vec![host("a", &["a.test"], &origin)], change).await;
    assert_eq!(status(&gateway.send(FORGED).await), "200");
    assert_eq!(told(&origin.requests()[0]), [""; 0]);
}

#[tokio::test]
async fn a_host_that_asks_is_reached_over_its_own_connections_alone() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (authority, issuer, second) = (Authority::new("ca"), Authority::new("clients"), Authority::new("more"));
    // One certificate for all: only what is asked of clients tells the hosts apart.
    let pair = authority.issue(&["open.test", "asks.test", "other.test", "may.test"]);
    let own = issuer.issue_to_client("me");
    let on_one_secret = |name: &str, clients: Option<ClientCertificates>| {
        let certificate = Ok(pair.certificate("shared"));
        let tls = Some(Tls::Terminate(Termination { certificate, clients }));
        ir::Selector { tls, ..host(name, &[name], &origin) }
    };
    let gateway = start(vec![
        on_one_secret("open.test", None),
        on_one_secret("asks.test", Some(asked(&issuer, true))),
        on_one_secret("other.test", Some(asked(&second, true))),
        on_one_secret("may.test", Some(asked(&issuer, false))),
    ])
    .await;
    let client = TlsClient::showing(&authority, &own);
    for (sni, expected) in [
        ("open.test", ["200", "421", "421", "421"]),
        ("asks.test", ["200", "200", "421", "421"]),
        ("may.test", ["200", "421", "421", "200"]),
    ] {
        for (host, expected) in ["open.test", "asks.test", "other.test", "may.test"].into_iter().zip(expected) {
            let answer = client.get(&gateway, sni, host).await.unwrap();
            assert_eq!(status(&answer), expected, "{host} on a connection for {sni}");
        }
    }
    // What is not asked for is not told.
    let before = origin.requests().len();
    client.get(&gateway, "asks.test", "open.test").await.unwrap();
    assert_eq!(told(&origin.requests()[before]), [""; 0]);
    // Without TLS nobody shows anything, and nobody learns what paths there are.
    for path in ["/", "/none"] {
        let answer = gateway.send(&format!("GET {path} HTTP/1.1\r\nhost: asks.test\r\n\r\n")).await;
        assert_eq!(status(&answer), "421");
    }
    assert_eq!(status(&gateway.send("GET / HTTP/1.1\r\nhost: may.test\r\n\r\n").await), "200");
}

#[tokio::test]
async fn paths_of_a_host_that_asks_are_not_told_to_others() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (authority, issuer) = (Authority::new("ca"), Authority::new("clients"));
    let pair = authority.issue(&["open.test", "asks.test"]);
    let mut asks = host("asks", &["asks.test"], &origin).with(&pair).asking(asked(&issuer, true));
    asks.rules = vec![Arc::new(rule("/there", &[(&origin, 1)]))];
    let gateway = start(vec![host("open", &["open.test"], &origin).with(&pair), asks]).await;
    let mut connection = TlsClient::new(&authority).connect(&gateway, "open.test").await.unwrap();
    for path in ["/there", "/absent"] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: asks.test\r\n\r\n");
        assert_eq!(status(&connection.send(&request).await.unwrap()), "421", "{path}");
        assert_eq!(status(&gateway.send(&request).await), "421", "{path} without TLS");
    }
}

#[tokio::test]
async fn another_selector_of_the_hostname_is_no_way_round() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (authority, issuer) = (Authority::new("ca"), Authority::new("clients"));
    let (pair, own) = (authority.issue(&["a.test"]), issuer.issue_to_client("me"));
    let asks = host("asks", &["a.test"], &origin).with(&pair).asking(asked(&issuer, true));
    // The first Selector asks for nothing, so connections show nothing, and the second one is not to be had.
    let mut first = ir::Selector { priority: 1, ..host("first", &["a.test"], &origin).with(&pair) };
    first.conditions.conditions = vec![path_is("/open")];
    let gateway = start(vec![first, asks.clone()]).await;
    let client = TlsClient::showing(&authority, &own);
    let mut connection = client.connect(&gateway, "a.test").await.unwrap();
    assert_eq!(status(&connection.send("GET /open HTTP/1.1\r\nhost: a.test\r\n\r\n").await.unwrap()), "200");
    assert_eq!(status(&connection.get("a.test").await.unwrap()), "421");
    // A Selector that says nothing has what the hostname has.
    let mut silent = ir::Selector { priority: 1, ..host("silent", &["a.test"], &origin) };
    silent.conditions.conditions = vec![path_is("/open")];
    let gateway = start(vec![silent, asks]).await;
    let before = origin.requests().len();
    let mut connection = client.connect(&gateway, "a.test").await.unwrap();
    assert_eq!(status(&connection.send("GET /open HTTP/1.1\r\nhost: a.test\r\n\r\n").await.unwrap()), "200");
    assert_eq!(told(&origin.requests()[before]), [client_cert(&own)]);
    assert!(TlsClient::new(&authority).get(&gateway, "a.test", "a.test").await.is_err());
}

fn path_is(path: &str) -> ir::Condition {
    let predicate = ir::Predicate::Text(vec![ir::StringTest::Exact(path.into())]);
    ir::Condition { source: ir::Source::Path, predicate, negate: false }
}

#[tokio::test]
async fn other_authorities_hold_for_live_connections_too() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (authority, old, new) = (Authority::new("ca"), Authority::new("old"), Authority::new("new"));
    let (pair, own) = (authority.issue(&["a.test"]), old.issue_to_client("me"));
    let asking = |of: &Authority| host("a", &["a.test"], &origin).with(&pair).asking(asked(of, true));
    let mut gateway = start(vec![asking(&old)]).await;
    let client = TlsClient::showing(&authority, &own);
    let mut connection = client.connect(&gateway, "a.test").await.unwrap();
    assert_eq!(status(&connection.get("a.test").await.unwrap()), "200");
    gateway.serve(vec![asking(&new)]).await;
    assert_eq!(status(&connection.get("a.test").await.unwrap()), "421");
    assert!(client.get(&gateway, "a.test", "a.test").await.is_err());
    let broken = ClientCertificates { required: true, authorities: Err("InvalidCACertificateRef") };
    gateway.serve(vec![host("a", &["a.test"], &origin).with(&pair).asking(broken)]).await;
    assert_eq!(status(&connection.get("a.test").await.unwrap()), "421");
    assert!(client.connect(&gateway, "a.test").await.is_err());
    ended(&gateway, "broken-certificate", 1).await;
    // What asks for nothing any more is open to all.
    gateway.serve(vec![host("a", &["a.test"], &origin).with(&pair)]).await;
    assert_eq!(status(&connection.get("a.test").await.unwrap()), "200");
}

#[tokio::test]
async fn the_access_log_tells_who_has_shown_a_certificate() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (authority, issuer) = (Authority::new("ca"), Authority::new("clients"));
    let (pair, own) = (authority.issue(&["a.test"]), issuer.issue_to_client("me"));
    let selectors = vec![host("a", &["a.test"], &origin).with(&pair).asking(asked(&issuer, false))];
    let log = LogFile::new();
    let gateway = Gateway::with(selectors, |settings| {
        listeners(settings);
        log.set(settings);
    })
    .await;
    let fields = ["listener", "scheme", "tls_version", "client_names", "status"];
    TlsClient::new(&authority).get(&gateway, "a.test", "a.test").await.unwrap();
    assert_eq!(some(&log.lines(1).await[0], &fields), json!(["https", "https", "TLSv1.3", null, 200]));
    TlsClient::showing(&authority, &own).get(&gateway, "a.test", "a.test").await.unwrap();
    assert_eq!(some(&log.lines(2).await[1], &fields), json!(["https", "https", "TLSv1.3", "DNS:me", 200]));
}
