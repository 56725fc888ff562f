//! Connections that a backend ends.

use rustls::ServerConfig;
use rustls::crypto::hpke::Hpke as _;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::lifecycle::Phase;
use crate::proxy::tests::access::{LogFile, some};
use crate::proxy::tests::harness::{self, refusing_address, service_rule};

/// A backend that ends TLS itself, and sends back what it is sent.
struct Backend {
    address: std::net::SocketAddr,
}

impl Backend {
    async fn start(pair: &Pair) -> Self {
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = builder.with_single_cert(vec![pair.chain.clone()], pair.key()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut stream = acceptor.accept(socket).await?;
                    let mut bytes = [0; 1024];
                    loop {
                        let read = stream.read(&mut bytes).await?;
                        if read == 0 {
                            return stream.shutdown().await;
                        }
                        stream.write_all(&bytes[..read]).await?;
                    }
                });
            }
        });
        Self { address }
    }
}

/// A Selector that passes TLS of these hostnames on, with these rules.
fn passing(name: &str, hostnames: &[&str], rules: Vec<ir::Rule>) -> ir::Selector {
    let origin = ir::Origin { created: 0, object: ObjectName::new("test", name) };
    let mut hostnames: Vec<Hostname> = hostnames.iter().map(|host| Hostname::parse(host).unwrap()).collect();
    hostnames.sort();
    let listeners = vec!["https".into()];
    ir::Selector { origin, hostnames, listeners, tls: Some(Tls::Passthrough), ..selector(rules) }
}

#[tokio::test]
async fn its_backend_is_told_of_the_client_first() {
    use crate::proxy::proxy_protocol::{Header, parse};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut rule = service_rule("/", "db-tls");
    let ir::Action::Forward(backends) = &mut rule.action else { unreachable!() };
    let ir::BackendTarget::Cluster(id) = &mut backends[0].target else { unreachable!() };
    id.proxy_protocol = Some(ir::ProxyProtocol::V2);
    let id = id.clone();
    let gateway = start(vec![passing("p", &["p.test"], vec![rule])]).await;
    gateway.endpoints_of(id, &[listener.local_addr().unwrap()]).await;
    let socket = gateway.connect_to(TLS).await.stream;
    let addresses = Some((socket.local_addr().unwrap(), socket.peer_addr().unwrap()));
    let config = Arc::new(TlsClient::new(&Authority::new("ca")).config);
    let connecting = TlsConnector::from(config).connect(ServerName::try_from("p.test").unwrap(), socket);
    let reading = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        while bytes.len() < 100 {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
        }
        bytes
    };
    let (_, bytes) = tokio::join!(connecting, reading);
    let (header, length) = parse(&bytes).unwrap().unwrap();
    assert_eq!(header, Header { addresses, tls: false }, "its TLS is the backend's to see");
    assert_eq!(bytes[length..][..2], [22, 3], "then the client's first message");
}

fn passed(gateway: &Gateway, result: &str) -> u64 {
    let of_rule = r#"selector="test/p",route="test/route",rule="/""#;
    gateway.metric(&format!("lockgate_passthrough_connections_total{{{of_rule},result=\"{result}\"}}"))
}

async fn echoed(connection: &mut Secure, text: &str) {
    connection.stream.write_all(text.as_bytes()).await.unwrap();
    while connection.unread.len() < text.len() {
        assert!(connection.read_more().await.unwrap() > 0);
    }
    assert_eq!(String::from_utf8(std::mem::take(&mut connection.unread)).unwrap(), text);
}

/// The first message of a client that asks for a host.
fn hello(client: &TlsClient, host: &str) -> Vec<u8> {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut bytes = Vec::new();
    let mut connection = rustls::ClientConnection::new(Arc::new(client.config.clone()), name).unwrap();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

/// A backend that takes connections and is told what comes.
async fn raw() -> (TcpListener, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test]
async fn the_backend_ends_what_is_for_its_host() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let (own, wide) = (authority.issue(&["p.test"]), authority.issue(&["a.test"]));
    let backend = Backend::start(&own).await;
    let selectors = vec![
        passing("p", &["p.test"], vec![service_rule("/", "x-tls")]),
        host("wide", &["*.test"], &origin).with(&wide),
        // Of the same hostname: comes later, and is never asked.
        ir::Selector { priority: -1, ..host("later", &["p.test"], &origin).with(&wide) },
    ];
    let gateway = start(selectors).await;
    gateway.endpoints("x-tls", &[backend.address]).await;
    let client = TlsClient::new(&authority);
    let mut connection = client.connect(&gateway, "p.test").await.unwrap();
    assert_eq!(connection.stream.get_ref().1.peer_certificates().unwrap()[0], own.chain);
    echoed(&mut connection, "hello").await;
    assert_eq!((passed(&gateway, "passed"), gateway.metric("lockgate_tunnels")), (1, 1));
    assert_eq!(gateway.lifecycle().in_flight(), 1);
    let open = "lockgate_upstream_connections{cluster=\"test/x-tls:80\",state=\"active\"}";
    assert_eq!(gateway.metric(open), 1);
    let holders = gateway.lifecycle().holders();
    assert_eq!((&*holders[0].route, &*holders[0].protocol), ("test/route /", "tls"));
    assert!(holders[0].received + holders[0].sent > 500, "{holders:?}");
    drop(connection);
    gateway.wait_for(|g| g.lifecycle().in_flight() == 0 && g.metric(open) == 0).await;
    assert_eq!(handshakes(&gateway, "full", "TLSv1.3"), 0, "none of its own");

    // Requests that come over another host's connection are not for what the gateway cannot see into.
    let mut other = client.connect(&gateway, "a.test").await.unwrap();
    assert_eq!(status(&other.get("a.test").await.unwrap()), "200");
    let answer = other.get("p.test").await.unwrap();
    assert!(status(&answer) == "421" && answer.contains("x-lockgate-reason: misdirected"), "{answer}");
    // A listener without TLS knows nothing of it: the other Selector of the hostname serves there.
    assert_eq!(status(&gateway.send("GET / HTTP/1.1\r\nhost: p.test\r\n\r\n").await), "200");
}

#[tokio::test]
async fn a_first_message_gets_through_as_it_came() {
    let authority = Authority::new("ca");
    let client = TlsClient::new(&authority);
    let whole = hello(&client, "p.test");
    let record = |part: &[u8]| [&[22, 3, 1, 0, u8::try_from(part.len()).unwrap()], part].concat();
    let records: Vec<u8> = whole[5..].chunks(200).flat_map(record).collect();
    // A client of TLS 1.0 that knows no extension but the name: the gateway would not speak with it.
    let mut old = vec![22, 3, 1, 0, 66, 1, 0, 0, 62, 3, 1];
    old.extend([7; 32]);
    old.extend([0, 0, 2, 0, 0x2f, 1, 0, 0, 19, 0, 0, 0, 11, 0, 9, 0, 0, 6]);
    old.extend(b"p.test");
    old.extend([0xff, 1, 0, 0]);
    let length = old.len();
    (old[4], old[8]) = (u8::try_from(length - 5).unwrap(), u8::try_from(length - 9).unwrap());
    let (listener, address) = raw().await;
    let gateway = start(vec![passing("p", &["p.test"], vec![service_rule("/", "x-tls")])]).await;
    gateway.endpoints("x-tls", &[address]).await;
    for (bytes, segment) in
        [(&whole, usize::MAX), (&whole, 1), (&records, usize::MAX), (&records, 7), (&old, usize::MAX)]
    {
        let mut connection = gateway.connect_to(TLS).await;
        connection.stream.set_nodelay(true).unwrap();
        for part in bytes.chunks(segment.min(bytes.len())) {
            connection.write(part).await;
            tokio::task::yield_now().await;
        }
        connection.write("and more").await;
        let mut served = harness::Client::new(listener.accept().await.unwrap().0);
        let all = [bytes, &b"and more"[..]].concat();
        assert_eq!(served.read_exactly(all.len()).await, all, "in segments of {segment}");
        served.write("answer").await;
        assert_eq!(connection.read_exactly(6).await, b"answer");
    }
}

#[tokio::test]
async fn hidden_names_and_none_are_those_that_are_seen() {
    let authority = Authority::new("ca");
    let pair = authority.issue(&["p.test"]);
    let backend = Backend::start(&pair).await;
    let any = ir::Selector { hostnames: vec![Hostname::Any], ..passing("p", &[], vec![service_rule("/", "x-tls")]) };
    let mut gateway = start(vec![passing("p", &["p.test"], vec![service_rule("/", "x-tls")])]).await;
    gateway.endpoints("x-tls", &[backend.address]).await;
    let mut client = TlsClient::new(&authority);
    client.config.enable_sni = false;
    let error = client.connect(&gateway, "p.test").await.err().unwrap().to_string();
    assert!(error.contains("UnrecognisedName"), "{error}");
    gateway.serve(vec![any]).await;
    echoed(&mut client.connect(&gateway, "p.test").await.unwrap(), "no name").await;

    // The outer name of an encrypted first message is the only one to be seen (here it is a decoy).
    let suite = aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_128;
    let (key, _) = suite.generate_key_pair().unwrap();
    let mode = rustls::client::EchMode::Grease(rustls::client::EchGreaseConfig::new(suite, key));
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.clone()).unwrap();
    let config = builder.with_ech(mode).unwrap().with_root_certificates(roots).with_no_client_auth();
    echoed(&mut TlsClient::of(config).connect(&gateway, "p.test").await.unwrap(), "greased").await;
}

#[tokio::test]
async fn what_is_no_first_message_reaches_no_backend() {
    let (listener, address) = raw().await;
    let change = |settings: &mut Settings| {
        listeners(settings);
        settings.timeouts.header = crate::api::Duration::from_millis(300);
    };
    let any = ir::Selector { hostnames: vec![Hostname::Any], ..passing("p", &[], vec![service_rule("/", "x-tls")]) };
    let gateway = Gateway::with(vec![any], change).await;
    gateway.endpoints("x-tls", &[address]).await;
    let mut plain = gateway.connect_to(TLS).await;
    plain.write("GET / HTTP/1.1\r\nhost: p.test\r\n\r\n").await;
    plain.gone().await;
    ended(&gateway, "malformed", 1).await;
    // A message that says it is longer than any may be.
    let mut huge = gateway.connect_to(TLS).await;
    let record = [&[22, 3, 1, 0x3f, 0xff, 1, 0xff, 0xff, 0xff][..], &[0; 0x3fff - 4]].concat();
    for _ in 0..8 {
        if huge.stream.write_all(&record).await.is_err() {
            break;
        }
    }
    huge.gone().await;
    ended(&gateway, "malformed", 2).await;
    // One that drips in.
    let authority = Authority::new("ca");
    let bytes = hello(&TlsClient::new(&authority), "p.test");
    let mut slow = gateway.connect_to(TLS).await;
    slow.write(&bytes[..20]).await;
    slow.gone().await;
    ended(&gateway, "timeout", 1).await;
    assert!(futures::FutureExt::now_or_never(listener.accept()).is_none(), "a backend was connected to");
}

#[tokio::test]
async fn another_endpoint_is_tried_and_none_is_an_alert() {
    let authority = Authority::new("ca");
    let pair = authority.issue(&["p.test"]);
    let backend = Backend::start(&pair).await;
    let client = TlsClient::new(&authority);
    let mut gateway = start(vec![passing("p", &["p.test"], vec![service_rule("/", "x-tls")])]).await;
    gateway.endpoints("x-tls", &[refusing_address(), backend.address]).await;
    for _ in 0..4 {
        echoed(&mut client.connect(&gateway, "p.test").await.unwrap(), "served").await;
    }
    gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
    assert_eq!(passed(&gateway, "passed"), 4);

    let refused = async |gateway: &Gateway, reason: &str| {
        let error = client.connect(gateway, "p.test").await.err().unwrap().to_string();
        assert!(error.contains("InternalError"), "{reason}: {error}");
        let counted = format!("lockgate_requests_refused_total{{reason=\"{reason}\"}}");
        gateway.wait_for(|g| g.metric(&counted) == 1 && g.lifecycle().in_flight() == 0).await;
    };
    gateway.endpoints("x-tls", &[refusing_address()]).await;
    refused(&gateway, "connect-failed").await;
    gateway.endpoints("x-tls", &[]).await;
    refused(&gateway, "no-endpoints").await;
    assert_eq!((passed(&gateway, "connect-failed"), passed(&gateway, "no-endpoints")), (1, 1));
    let mut broken = service_rule("/", "x-tls");
    broken.action = ir::Action::Invalid { reason: "UnsupportedValue" };
    gateway.serve(vec![passing("p", &["p.test"], vec![broken])]).await;
    refused(&gateway, "invalid-rule").await;
    gateway.serve(vec![passing("p", &["p.test"], Vec::new())]).await;
    refused(&gateway, "no-route").await;
}

#[tokio::test]
async fn limits_are_those_of_requests() {
    let authority = Authority::new("ca");
    let backend = Backend::start(&authority.issue(&["p.test"])).await;
    let mut limited = service_rule("/", "x-tls");
    limited.limits = ir::Limits { max_in_flight: Some(1), ..ir::Limits::default() };
    let mut narrow = service_rule("/", "x-tls");
    narrow.upstream = ir::UpstreamLimits { max_connections: 1, max_pending: 0, ..narrow.upstream };
    let client = TlsClient::new(&authority);
    let mut gateway = start(vec![]).await;
    for rule in [limited, narrow] {
        gateway.serve(vec![passing("p", &["p.test"], vec![rule])]).await;
        gateway.endpoints("x-tls", &[backend.address]).await;
        let mut first = client.connect(&gateway, "p.test").await.unwrap();
        echoed(&mut first, "x").await;
        assert!(client.connect(&gateway, "p.test").await.is_err());
        drop(first);
        gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
        echoed(&mut client.connect(&gateway, "p.test").await.unwrap(), "x").await;
        gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
    }
    assert_eq!([passed(&gateway, "rule-limit"), passed(&gateway, "backend-limit")], [1, 1]);
}

#[tokio::test]
async fn silence_and_drains_end_it_like_tunnels() {
    let authority = Authority::new("ca");
    let backend = Backend::start(&authority.issue(&["p.test"])).await;
    let client = TlsClient::new(&authority);
    let mut short = service_rule("/", "x-tls");
    short.timeouts.tunnel = Duration::from_millis(300);
    let mut gateway = start(vec![passing("p", &["p.test"], vec![short])]).await;
    gateway.endpoints("x-tls", &[backend.address]).await;
    let mut silent = client.connect(&gateway, "p.test").await.unwrap();
    assert!(silent.read_more().await.is_err(), "cut without the backend's goodbye");
    gateway.wait_for(|g| g.metric("lockgate_requests_refused_total{reason=\"idle-timeout\"}") == 1).await;

    gateway.serve(vec![passing("p", &["p.test"], vec![service_rule("/", "x-tls")])]).await;
    let mut kept = client.connect(&gateway, "p.test").await.unwrap();
    gateway.terminate().await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::LameDuck).await;
    let mut late = client.connect(&gateway, "p.test").await.unwrap();
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Draining).await;
    assert!(client.connect(&gateway, "p.test").await.is_err());
    assert_eq!(passed(&gateway, "draining"), 1);
    echoed(&mut kept, "still here").await;
    echoed(&mut late, "me too").await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 2);
}

#[tokio::test]
async fn what_is_passed_through_is_logged_when_it_has_ended() {
    let authority = Authority::new("ca");
    let backend = Backend::start(&authority.issue(&["p.test"])).await;
    let selectors =
        vec![passing("p", &["p.test"], vec![service_rule("/", "x-tls")]), passing("q", &["q.test"], Vec::new())];
    let log = LogFile::new();
    let gateway = Gateway::with(selectors, |settings| {
        listeners(settings);
        log.set(settings);
    })
    .await;
    gateway.endpoints("x-tls", &[backend.address]).await;
    let client = TlsClient::new(&authority);
    let mut connection = client.connect(&gateway, "p.test").await.unwrap();
    echoed(&mut connection, "hello").await;
    assert_eq!(log.text(0).await, "");
    connection.stream.shutdown().await.unwrap();
    drop(connection);
    let line = &log.lines(1).await[0];
    let fields = ["listener", "client_ip", "protocol", "host", "selector", "route", "cluster", "endpoint", "status"];
    let endpoint = backend.address.to_string();
    let expected =
        json!(["https", "127.0.0.1", "TLS", "p.test", "test/p", "test/route", "test/x-tls:80", endpoint, null]);
    assert_eq!(some(line, &fields), expected);
    assert!(line["bytes_in"].as_u64().unwrap() > 200 && line["bytes_out"].as_u64().unwrap() > 500, "{line:?}");

    assert!(client.connect(&gateway, "q.test").await.is_err());
    let fields = ["protocol", "host", "reason", "bytes_in"];
    assert_eq!(some(&log.lines(2).await[1], &fields), json!(["TLS", "q.test", "no-route", 0]));
}
