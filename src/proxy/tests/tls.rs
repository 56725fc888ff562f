//! Listeners that end TLS, at a client of its own kind.

mod clients;
mod handshakes;
mod http2;
mod http3;
mod passthrough;
mod sessions;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::OK;
use super::harness::{Gateway, Origin, Reply, rule, selector};
use crate::ir::{self, ClientCertificates, Hostname, ObjectName, Termination, Tls};
use crate::settings::{Listener, Settings};
use crate::source::secrets::tests::{Authority, Pair};

/// The listener that ends TLS; the first one is plain.
const TLS: usize = 1;

/// A plain listener and one that ends TLS.
fn listeners(settings: &mut Settings) {
    let loopback = || "127.0.0.1:0".parse().unwrap();
    settings.listeners = vec![Listener::plain("http", loopback()), Listener::ending_tls("https", loopback())];
}

/// A gateway with both.
async fn start(selectors: Vec<ir::Selector>) -> Gateway {
    Gateway::with(selectors, listeners).await
}

/// A Selector `name` of these hostnames, whose requests go to `origin`.
fn host(name: &str, hostnames: &[&str], origin: &Origin) -> ir::Selector {
    let plain = selector(vec![rule("/", &[(origin, 1)])]);
    let parse = |host: &&str| if *host == "*" { Hostname::Any } else { Hostname::parse(host).unwrap() };
    let mut hostnames: Vec<Hostname> = hostnames.iter().map(parse).collect();
    hostnames.sort();
    let origin = ir::Origin { created: 0, object: ObjectName::new("test", name) };
    ir::Selector { origin, hostnames, ..plain }
}

trait With {
    /// With this certificate, in a Secret of the Selector's name.
    fn with(self, pair: &Pair) -> Self;
    /// And a certificate asked of clients.
    fn asking(self, clients: ClientCertificates) -> Self;
}

impl With for ir::Selector {
    fn with(mut self, pair: &Pair) -> Self {
        let certificate = Ok(pair.certificate(&self.origin.object.name));
        self.tls = Some(Tls::Terminate(Termination { certificate, clients: None }));
        self
    }

    fn asking(mut self, clients: ClientCertificates) -> Self {
        if let Some(Tls::Terminate(termination)) = &mut self.tls {
            termination.clients = Some(clients);
        }
        self
    }
}

/// What a client of its kind is like.
struct TlsClient {
    config: ClientConfig,
}

impl TlsClient {
    /// One that trusts an authority.
    fn new(authority: &Authority) -> Self {
        Self::speaking(authority, &[&version::TLS13, &version::TLS12])
    }

    fn speaking(authority: &Authority, versions: &[&'static SupportedProtocolVersion]) -> Self {
        let builder = Self::builder(authority, versions);
        Self::of(builder.with_no_client_auth())
    }

    /// One that shows a certificate.
    fn showing(authority: &Authority, pair: &Pair) -> Self {
        let builder = Self::builder(authority, &[&version::TLS13, &version::TLS12]);
        Self::of(builder.with_client_auth_cert(vec![pair.chain.clone()], pair.key()).unwrap())
    }

    fn builder(
        authority: &Authority,
        versions: &[&'static SupportedProtocolVersion],
    ) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        builder.with_root_certificates(roots)
    }

    fn of(mut config: ClientConfig) -> Self {
        config.resumption = Resumption::in_memory_sessions(8);
        Self { config }
    }

    /// A connection on which the handshake is done on the client's side.
    async fn connect(&self, gateway: &Gateway, host: &str) -> io::Result<Secure> {
        let socket = gateway.connect_to(TLS).await.stream;
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let stream = TlsConnector::from(Arc::new(self.config.clone())).connect(name, socket).await?;
        Ok(Secure { stream, unread: Vec::new() })
    }

    /// One request on a connection of its own; an error where there is no connection.
    async fn get(&self, gateway: &Gateway, sni: &str, host: &str) -> io::Result<String> {
        self.connect(gateway, sni).await?.get(host).await
    }

    /// The certificate that the gateway shows for a host.
    async fn certificate(&self, gateway: &Gateway, host: &str) -> io::Result<CertificateDer<'static>> {
        let connection = self.connect(gateway, host).await?;
        let chain = connection.stream.get_ref().1.peer_certificates().unwrap();
        Ok(chain[0].clone())
    }
}

/// A client's TLS connection.
struct Secure {
    stream: TlsStream<TcpStream>,
    unread: Vec<u8>,
}

impl Secure {
    /// Sends a request for `/` and reads its answer, which has a known length.
    async fn get(&mut self, host: &str) -> io::Result<String> {
        self.send(&format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n")).await
    }

    async fn send(&mut self, request: &str) -> io::Result<String> {
        self.stream.write_all(request.as_bytes()).await?;
        loop {
            let text = String::from_utf8_lossy(&self.unread).into_owned();
            if let Some(head) = text.find("\r\n\r\n") {
                let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
                if text.len() >= head + 4 + length {
                    return Ok(String::from_utf8(self.unread.drain(..head + 4 + length).collect()).unwrap());
                }
            }
            if self.read_more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads what there is; 0 at the end that the gateway told of, an error at one that it did not.
    async fn read_more(&mut self) -> io::Result<usize> {
        tokio::time::timeout(Duration::from_secs(20), self.stream.read_buf(&mut self.unread)).await.unwrap()
    }
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

fn handshakes(gateway: &Gateway, result: &str, version: &str) -> u64 {
    gateway.metric(&format!("lockgate_tls_handshakes_total{{result=\"{result}\",version=\"{version}\"}}"))
}

/// Waits for handshakes that ended so.
async fn ended(gateway: &Gateway, result: &str, count: u64) {
    gateway.wait_for(|gateway| handshakes(gateway, result, "-") == count).await;
}

#[tokio::test]
async fn the_certificate_is_that_of_the_most_specific_hostname() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let any = authority.issue(&["any.test", "deep.b.w.test", "z.test"]);
    let names = ["a.test", "*.w.test", "x.w.test", "*.x.w.test", "default.test"];
    let [exact, wide, inner, deep, default] = names.map(|name| authority.issue(&[name, "elsewhere.test"]));
    let mut gateway = start(vec![
        host("exact", &["a.test"], &origin).with(&exact),
        // The first Selector of a hostname that says anything decides, in the order in which they are asked.
        ir::Selector { priority: 2, ..host("silent", &["a.test"], &origin) },
        ir::Selector { priority: -1, ..host("late", &["a.test"], &origin).with(&any) },
        host("wide", &["*.w.test"], &origin).with(&wide),
        host("inner", &["x.w.test"], &origin).with(&inner),
        host("deep", &["*.x.w.test"], &origin).with(&deep),
        host("none", &["none.test"], &origin),
        ir::Selector { listeners: vec!["http".into()], ..host("elsewhere", &["elsewhere.test"], &origin).with(&exact) },
    ])
    .await;
    let client = TlsClient::new(&authority);
    for (name, expected) in [("a.test", &exact), ("A.Test", &exact), ("b.w.test", &wide), ("x.w.test", &inner)] {
        assert_eq!(client.certificate(&gateway, name).await.unwrap(), expected.chain, "{name}");
    }
    assert_eq!(client.certificate(&gateway, "y.x.w.test").await.unwrap(), deep.chain);
    for name in ["none.test", "elsewhere.test", "unknown.test"] {
        let error = client.certificate(&gateway, name).await.unwrap_err().to_string();
        assert!(error.contains("UnrecognisedName"), "{name}: {error}");
    }
    ended(&gateway, "no-certificate", 3).await;
    assert_eq!(handshakes(&gateway, "full", "TLSv1.3"), 5);

    // A default certificate is for all that have none, a Selector of any host for those that have no Selector either.
    gateway.default_certificate = Some(default.certificate("default"));
    let own = |pair| host("any", &["*"], &origin).with(pair);
    gateway
        .serve(vec![host("exact", &["a.test"], &origin).with(&exact), host("none", &["default.test"], &origin)])
        .await;
    assert_eq!(client.certificate(&gateway, "default.test").await.unwrap(), default.chain);
    assert_eq!(client.certificate(&gateway, "elsewhere.test").await.unwrap(), default.chain);
    gateway.serve(vec![own(&any), host("none", &["default.test"], &origin)]).await;
    assert_eq!(client.certificate(&gateway, "z.test").await.unwrap(), any.chain);
    assert_eq!(client.certificate(&gateway, "default.test").await.unwrap(), default.chain);
}

#[tokio::test]
async fn requests_over_tls_are_https_ones() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let pair = authority.issue(&["a.test"]);
    let gateway = start(vec![host("a", &["a.test"], &origin).with(&pair)]).await;
    let mut connection = TlsClient::new(&authority).connect(&gateway, "a.test").await.unwrap();
    for (host, port) in [("a.test", "443"), ("a.test:8443", "8443")] {
        let answer = connection.get(host).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("ok"), "{answer}");
        let seen = origin.requests().pop().unwrap();
        for line in ["x-forwarded-proto: https\r\n", &format!("x-forwarded-port: {port}\r\n")] {
            assert!(seen.contains(line), "{line} missing in {seen}");
        }
    }
    assert_eq!(gateway.metric("lockgate_connections{listener=\"https\"}"), 1);
    // The same host without TLS.
    let plain = gateway.send("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    assert_eq!(status(&plain), "200");
    assert!(origin.requests().pop().unwrap().contains("x-forwarded-proto: http\r\n"));
}

#[tokio::test]
async fn a_backend_that_is_told_of_clients_hears_of_their_tls() {
    use crate::proxy::proxy_protocol::{Header, parse};
    let backend = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let mut selector = host("a", &["a.test"], &origin).with(&authority.issue(&["a.test"]));
    let mut rule = rule("/", &[(&origin, 1)]);
    let ir::Action::Forward(backends) = &mut rule.action else { unreachable!() };
    let ir::BackendTarget::Cluster(id) = &mut backends[0].target else { unreachable!() };
    let address = backend.local_addr().unwrap();
    *id = ir::ClusterId::host(address.ip().to_string(), address.port());
    id.proxy_protocol = Some(ir::ProxyProtocol::V2);
    selector.rules = vec![Arc::new(rule)];
    let gateway = start(vec![selector]).await;
    let mut connection = TlsClient::new(&authority).connect(&gateway, "a.test").await.unwrap();
    let ends = connection.stream.get_ref().0;
    let addresses = Some((ends.local_addr().unwrap(), ends.peer_addr().unwrap()));
    let serving = async {
        let (mut stream, _) = backend.accept().await.unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") || bytes.len() < 100 {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
        }
        stream.write_all(OK.as_bytes()).await.unwrap();
        bytes
    };
    let (answer, bytes) = tokio::join!(connection.get("a.test"), serving);
    assert_eq!(status(&answer.unwrap()), "200");
    let (header, length) = parse(&bytes).unwrap().unwrap();
    assert_eq!(header, Header { addresses, tls: true });
    assert!(bytes[length..].starts_with(b"GET / HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_connection_is_for_hosts_of_its_certificate_alone() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let (one, two) = (authority.issue(&["a.test", "b.test", "any.test"]), authority.issue(&["c.test"]));
    let both = host("one", &["a.test", "b.test"], &origin).with(&one);
    let gateway =
        start(vec![both, host("two", &["c.test"], &origin).with(&two), host("n", &["n.test"], &origin)]).await;
    let mut connection = TlsClient::new(&authority).connect(&gateway, "a.test").await.unwrap();
    for (host, expected) in
        [("a.test", "200"), ("B.test:443", "200"), ("c.test", "421"), ("n.test", "421"), ("x.test", "404")]
    {
        let answer = connection.get(host).await.unwrap();
        assert_eq!(status(&answer), expected, "{host}");
        assert_eq!(answer.contains("x-lockgate-reason: misdirected"), expected == "421", "{answer}");
        assert!(!answer.contains("connection: close"), "the connection is good for others: {answer}");
    }
    assert_eq!(gateway.metric("lockgate_requests_refused_total{reason=\"misdirected\"}"), 2);
    assert_eq!(origin.requests().len(), 2);
}

#[tokio::test]
async fn a_listener_sends_plain_requests_to_https() {
    let origin = Origin::start(Reply::always(OK)).await;
    let change = |settings: &mut Settings| {
        settings.listeners[0].https_redirect = Some(8443);
        settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    };
    let gateway = Gateway::with(vec![host("a", &["a.test"], &origin)], change).await;
    let post = "POST /x/../a%7Eb?c=%2F HTTP/1.1\r\nhost: a.test:8080\r\ncontent-length: 2\r\n\r\nhi";
    let answer = gateway.send(post).await;
    assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
    assert!(answer.contains("location: https://a.test:8443/a~b?c=%2F\r\n"), "{answer}");
    for (request, expected) in [
        ("GET / HTTP/1.0\r\n\r\n", "400"),
        ("GET /%zz HTTP/1.1\r\nhost: a.test\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nhost: a.test\r\nx-forwarded-proto: http\r\n\r\n", "308"),
        // A load balancer in front has ended TLS: to redirect would never end.
        ("GET / HTTP/1.1\r\nhost: a.test\r\nx-forwarded-proto: https\r\n\r\n", "200"),
    ] {
        assert_eq!(status(&gateway.send(request).await), expected, "{request}");
    }

    let gateway = Gateway::with(vec![host("a", &["a.test"], &origin)], |settings| {
        settings.listeners[0].https_redirect = Some(443);
    })
    .await;
    let claim = gateway.send("GET / HTTP/1.1\r\nhost: a.test\r\nx-forwarded-proto: https\r\n\r\n").await;
    assert!(claim.contains("location: https://a.test/\r\n"), "{claim}");
}

#[tokio::test]
async fn a_tunnel_goes_through_tls() {
    const ASK: &str = "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    const AGREE: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                           sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello";
    let backend = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = Authority::new("ca");
    let pair = authority.issue(&["a.test"]);
    let origin = Origin::start(Reply::never()).await;
    let mut selector = host("a", &["a.test"], &origin).with(&pair);
    selector.rules = vec![Arc::new(super::harness::service_rule("/", "ws"))];
    let gateway = start(vec![selector]).await;
    gateway.endpoints("ws", &[backend.local_addr().unwrap()]).await;
    let mut connection = TlsClient::new(&authority).connect(&gateway, "a.test").await.unwrap();
    connection.stream.write_all(ASK.as_bytes()).await.unwrap();
    let mut served = backend.accept().await.unwrap().0;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(served.read_buf(&mut head).await.unwrap() > 0);
    }
    served.write_all(AGREE).await.unwrap();
    while !connection.unread.ends_with(b"\r\n\r\nhello") {
        assert!(connection.read_more().await.unwrap() > 0);
    }
    connection.stream.write_all(b"and back").await.unwrap();
    let mut back = [0; 8];
    served.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"and back");
    drop(served);
    assert_eq!(connection.read_more().await.unwrap(), 0, "the end is told");
}
