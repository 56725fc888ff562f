//! Backends that are spoken to over TLS, at servers of their own kind.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::harness::{self, Gateway, selector, service_rule};
use crate::ir::{self, Action, BackendTarget, BackendTls, ClusterId, ObjectName, Protocol};
use crate::source::secrets::tests::{Authority, Pair};

/// A server that tells of the connection that a request came over, and changes to an echo when it is asked to.
struct Server {
    address: SocketAddr,
    handshakes: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// One that speaks either protocol.
    async fn start(pair: &Pair) -> Self {
        Self::with(pair, None, &[b"h2", b"http/1.1"]).await
    }

    /// One of these protocols, which asks for certificates of the authority.
    async fn with(pair: &Pair, clients: Option<&Authority>, protocols: &[&[u8]]) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.certificate.clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let mut config = builder.with_single_cert(vec![pair.chain.clone()], pair.key()).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (handshakes, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, told) = (Arc::clone(&handshakes), Arc::clone(&requests));
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (acceptor, done, told) = (acceptor.clone(), Arc::clone(&done), Arc::clone(&told));
                tokio::spawn(async move {
                    let stream = acceptor.accept(socket).await.ok()?;
                    done.fetch_add(1, Ordering::Relaxed);
                    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                        h2(stream, told).await
                    } else {
                        h1(stream, told).await
                    }
                });
            }
        });
        Self { address, handshakes, requests }
    }

    fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::Relaxed)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn told(stream: &TlsStream<TcpStream>) -> String {
    let session = stream.get_ref().1;
    let shown = session.peer_certificates().map_or(0, <[_]>::len);
    format!("name {}, {shown} certificates", session.server_name().unwrap_or("-"))
}

async fn h1(mut stream: TlsStream<TcpStream>, requests: Arc<AtomicUsize>) -> Option<()> {
    let body = format!("{}, http/1.1", told(&stream));
    let mut bytes = Vec::new();
    loop {
        let head = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head: Vec<u8> = bytes.drain(..head).collect();
        requests.fetch_add(1, Ordering::Relaxed);
        if String::from_utf8_lossy(&head).to_lowercase().contains("\r\nupgrade: echo\r\n") {
            let agreed = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: echo\r\nconnection: upgrade\r\n\r\nhello";
            stream.write_all(agreed).await.ok()?;
            let mut echoed = [0; 64];
            loop {
                let read = stream.read(&mut echoed).await.ok()?;
                if read == 0 {
                    return stream.shutdown().await.ok();
                }
                stream.write_all(&echoed[..read]).await.ok()?;
            }
        }
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}

async fn h2(stream: TlsStream<TcpStream>, requests: Arc<AtomicUsize>) -> Option<()> {
    let about = told(&stream);
    let service = service_fn(move |request: Request<Incoming>| {
        requests.fetch_add(1, Ordering::Relaxed);
        let body = format!("{about}, h2, scheme {}", request.uri().scheme_str().unwrap_or("-"));
        async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body)))) }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    server.serve_connection(TokioIo::new(stream), service).await.ok()
}

/// TLS to a backend that is for `hostname` and of the authority.
fn tls(hostname: &str, authority: &Authority) -> BackendTls {
    BackendTls { hostname: hostname.into(), authorities: Some(authority.authorities("ca")), client: None }
}

fn service(name: &str, protocol: Protocol, tls: &BackendTls) -> ClusterId {
    let plain = ClusterId::service(ObjectName::new("test", name), 80, protocol);
    ClusterId { tls: Some(Arc::new(tls.clone())), ..plain }
}

/// A server that does not know TLS and complains of whatever comes; and what that was.
async fn plain() -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let told: Arc<Mutex<Vec<u8>>> = Arc::default();
    let heard = Arc::clone(&told);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            socket.read_buf(&mut bytes).await.unwrap();
            heard.lock().extend(bytes);
            socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        }
    });
    (address, told)
}

/// A rule for a path to a Cluster.
fn to(path: &str, cluster: ClusterId) -> ir::Rule {
    let backend = ir::Backend { weight: 1, target: BackendTarget::Cluster(cluster), filters: Vec::new() };
    ir::Rule { action: Action::Forward(vec![backend]), ..service_rule(path, "x") }
}

/// A Cluster at one address.
fn at(server: SocketAddr, protocol: Protocol, tls: &BackendTls) -> ClusterId {
    let plain = ClusterId::host("127.0.0.1", server.port());
    ClusterId { protocol, tls: Some(Arc::new(tls.clone())), ..plain }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: a.test\r\n\r\n")
}

#[track_caller]
fn failed(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("x-lockgate-reason: upstream-tls\r\n"), "{answer}");
}

#[tokio::test]
async fn requests_go_over_tls_to_who_can_prove_it() {
    let authority = Authority::new("ca");
    let server = Server::start(&authority.issue(&["b.test"])).await;
    let own = tls("b.test", &authority);
    let rules = vec![
        to("/h1", at(server.address, Protocol::Http1, &own)),
        to("/h2", at(server.address, Protocol::Http2, &own)),
    ];
    let gateway = Gateway::start(vec![selector(rules)]).await;
    let mut client = gateway.connect().await;
    for (path, body) in
        [("/h1", "name b.test, 0 certificates, http/1.1"), ("/h2", "name b.test, 0 certificates, h2, scheme https")]
    {
        for _ in 0..3 {
            let answer = client.exchange(&get(path)).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(body), "{answer}");
        }
    }
    assert_eq!((server.handshakes(), server.requests()), (2, 6), "connections are kept, each for its protocol");
}

#[tokio::test]
async fn nothing_is_sent_to_who_cannot() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let expired = Server::start(&authority.issue_expired(&["b.test"])).await;
    let server = Server::start(&authority.issue(&["b.test", "127.0.0.1"])).await;
    let old = Server::with(&authority.issue(&["b.test"]), None, &[b"http/1.1"]).await;
    let (plain, told) = plain().await;
    let own = tls("b.test", &authority);
    let by_system = BackendTls { authorities: None, ..own.clone() };
    let cases = [
        ("/name", at(server.address, Protocol::Http1, &tls("c.test", &authority))),
        ("/authority", at(server.address, Protocol::Http1, &tls("b.test", &other))),
        ("/system", at(server.address, Protocol::Http1, &by_system)),
        ("/expired", at(expired.address, Protocol::Http1, &own)),
        ("/h2", at(old.address, Protocol::Http2, &own)),
        ("/plain", at(plain, Protocol::Http1, &own)),
    ];
    let mut rules: Vec<ir::Rule> = cases.iter().map(|(path, cluster)| to(path, cluster.clone())).collect();
    rules.push(to("/address", at(server.address, Protocol::Http1, &tls("127.0.0.1", &authority))));
    let gateway = Gateway::start(vec![selector(rules)]).await;
    for (path, _) in &cases {
        failed(&gateway.send(&get(path)).await);
        // What no safe method is does not make it plain either.
        failed(&gateway.send(&format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi")).await);
    }
    assert_eq!((server.requests(), expired.requests(), old.requests()), (0, 0, 0));
    let told = told.lock().clone();
    assert!(!told.is_empty() && !String::from_utf8_lossy(&told).contains("HTTP/1.1"), "{told:?}");
    // An address is proved by itself, and is no name to ask for.
    let answer = gateway.send(&get("/address")).await;
    assert!(answer.ends_with("name -, 0 certificates, http/1.1"), "{answer}");
}

#[tokio::test]
async fn the_gateway_shows_its_certificate_to_who_asks() {
    let (authority, clients) = (Authority::new("ca"), Authority::new("clients"));
    let server = Server::with(&authority.issue(&["b.test"]), Some(&clients), &[b"h2", b"http/1.1"]).await;
    let bare = tls("b.test", &authority);
    let shown = BackendTls { client: Some(clients.issue_to_client("gateway").certificate("client")), ..bare.clone() };
    let rules = vec![
        to("/shown", at(server.address, Protocol::Http1, &shown)),
        to("/h2", at(server.address, Protocol::Http2, &shown)),
        to("/bare", at(server.address, Protocol::Http1, &bare)),
    ];
    let gateway = Gateway::start(vec![selector(rules)]).await;
    for path in ["/shown", "/h2"] {
        let answer = gateway.send(&get(path)).await;
        assert!(answer.contains("name b.test, 1 certificates"), "{answer}");
    }
    let answer = gateway.send(&get("/bare")).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn other_terms_are_other_connections() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let server = Server::start(&authority.issue(&["b.test"])).await;
    let with = |tls: &BackendTls| vec![selector(vec![to("/", at(server.address, Protocol::Http1, tls))])];
    let mut gateway = Gateway::start(with(&tls("b.test", &authority))).await;
    assert!(gateway.send(&get("/")).await.starts_with("HTTP/1.1 200 "));
    // An idle connection is there, and is not for who would not trust it.
    gateway.serve(with(&tls("b.test", &other))).await;
    failed(&gateway.send(&get("/")).await);
    gateway.serve(with(&tls("b.test", &authority))).await;
    assert!(gateway.send(&get("/")).await.starts_with("HTTP/1.1 200 "));
    assert_eq!((server.requests(), server.handshakes()), (2, 2));
}

#[tokio::test]
async fn another_endpoint_is_tried_where_one_fails() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let (good, bad) =
        (Server::start(&authority.issue(&["b.test"])).await, Server::start(&other.issue(&["b.test"])).await);
    let cluster = service("b", Protocol::Http1, &tls("b.test", &authority));
    let gateway = Gateway::start(vec![selector(vec![to("/", cluster.clone())])]).await;
    gateway.endpoints_of(cluster, &[bad.address, good.address]).await;
    for _ in 0..6 {
        let answer = gateway.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert_eq!((good.requests(), bad.requests()), (6, 0));
}

#[tokio::test]
async fn a_tunnel_goes_over_tls() {
    let authority = Authority::new("ca");
    let server = Server::start(&authority.issue(&["b.test"])).await;
    let mut rule = to("/", at(server.address, Protocol::Http1, &tls("b.test", &authority)));
    rule.upgrades = Some(vec!["echo".into()]);
    let gateway = Gateway::start(vec![selector(vec![rule])]).await;
    let mut client: harness::Client = gateway.connect().await;
    client.write("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n").await;
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(client.read_exactly(5).await, b"hello");
    client.write("there and back").await;
    assert_eq!(client.read_exactly(14).await, b"there and back");
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.rest().await, "");
}
