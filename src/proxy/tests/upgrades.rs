//! Connections that change to another protocol, byte by byte on both sides.

mod endings;
mod lives;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;

use super::OK;
use super::filters::{by_regex, rewriting, set};
use super::harness::{self, Client, Gateway, Origin, Reply, selector, service_rule};
use super::streams;
use crate::ir::{self, Filter};

const PATIENCE: Duration = Duration::from_secs(20);

const ASK: &str = "GET /chat HTTP/1.1\r\nhost: a.test\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-protocol: chat, superchat\r\nsec-websocket-extensions: permessage-deflate\r\n\r\n";

const AGREE: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n\
                     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: chat\r\n\r\n";

/// A backend whose connections a test takes and serves by hand.
struct Backend(TcpListener);

impl Backend {
    async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// The next connection, and the head of its first request.
    async fn next(&self) -> (Client, String) {
        let (stream, _) = tokio::time::timeout(PATIENCE, self.0.accept()).await.expect("nobody came").unwrap();
        let mut connection = Client::new(stream);
        let head = connection.read_head().await;
        (connection, head)
    }

    /// The next connection, agreed with.
    async fn agree(&self) -> Client {
        let (mut connection, _) = self.next().await;
        connection.write(AGREE).await;
        connection
    }
}

/// A gateway with this rule for one backend, which has to be given `/` and the Service `ws`.
async fn before(backend: &Backend, rule: ir::Rule) -> Gateway {
    let gateway = Gateway::start(vec![selector(vec![rule])]).await;
    gateway.endpoints("ws", &[backend.address()]).await;
    gateway
}

/// Both ends of a tunnel through a gateway.
async fn open(gateway: &Gateway, backend: &Backend) -> (Client, Client) {
    let mut client = gateway.connect().await;
    client.write(ASK).await;
    let served = backend.agree().await;
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    (client, served)
}

/// Open tunnels.
fn tunnels(gateway: &Gateway) -> usize {
    let text = gateway.metrics();
    let line = text.lines().find_map(|line| line.strip_prefix("lockgate_tunnels "));
    line.and_then(|count| count.parse().ok()).unwrap()
}

fn has(head: &str, line: &str) -> bool {
    head.lines().any(|l| l.eq_ignore_ascii_case(line))
}

fn lacks(head: &str, name: &str) -> bool {
    head.lines().all(|l| !l.to_ascii_lowercase().starts_with(name))
}

#[tokio::test]
async fn a_handshake_goes_through_and_no_byte_around_it_is_lost() {
    let backend = Backend::start().await;
    let gateway = before(&backend, service_rule("/", "ws")).await;
    let mut client = gateway.connect().await;
    // Sent ahead, in the very segment of the head.
    client.write(format!("{ASK}early")).await;
    let (mut served, head) = backend.next().await;
    assert!(head.starts_with("GET /chat HTTP/1.1\r\n"), "{head}");
    for line in [
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-version: 13",
        "sec-websocket-protocol: chat, superchat",
        "sec-websocket-extensions: permessage-deflate",
        "x-forwarded-for: 127.0.0.1",
        "host: a.test",
    ] {
        assert!(has(&head, line), "{line} is not in {head}");
    }
    assert!(
        lacks(&head, "keep-alive") && lacks(&head, "content-length") && lacks(&head, "transfer-encoding"),
        "{head}"
    );
    client.write(" later").await;
    // The backend, too, may begin in the segment of its answer.
    served.write(format!("{AGREE}hello")).await;
    let answer = client.read_head().await;
    assert!(answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{answer}");
    for line in [
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        "sec-websocket-protocol: chat",
    ] {
        assert!(has(&answer, line), "{line} is not in {answer}");
    }
    assert!(lacks(&answer, "content-length") && lacks(&answer, "transfer-encoding"), "{answer}");
    assert_eq!(client.read_exactly(5).await, b"hello");
    assert_eq!(served.read_exactly(11).await, b"early later");
    for n in 0..100_u8 {
        client.write([n; 100]).await;
        assert_eq!(served.read_exactly(100).await, [n; 100]);
        served.write([n; 3]).await;
        assert_eq!(client.read_exactly(3).await, [n; 3]);
    }
}

#[tokio::test]
async fn nothing_of_the_tunnel_reaches_a_backend_before_its_101_and_nothing_at_all_without() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
        "HTTP/1.1 426 Upgrade Required\r\nupgrade: websocket\r\nconnection: upgrade\r\ncontent-length: 2\r\n\r\nno",
        "HTTP/1.1 403 Forbidden\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
    ] {
        let backend = Backend::start().await;
        let gateway = before(&backend, service_rule("/", "ws")).await;
        let mut client = gateway.connect().await;
        client.write(format!("{ASK}GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n")).await;
        let (mut served, head) = backend.next().await;
        assert!(!head.contains("smuggled"), "{head}");
        served.write(answer).await;
        let whole = client.rest().await;
        assert!(whole.starts_with(&answer[..12]) && whole.contains("connection: close\r\n"), "{whole}");
        assert!(whole.contains("no") && !whole.contains("upgrade: "), "{whole}");
        drop(gateway);
        assert_eq!(served.rest_or_reset().await, "", "the backend has seen one request and nothing else");
    }
}

#[tokio::test]
async fn a_failure_in_place_of_a_tunnel_ends_the_connection_too() {
    let gateway = Gateway::start(vec![selector(vec![service_rule("/", "ws")])]).await;
    gateway.endpoints("ws", &[harness::refusing_address()]).await;
    let mut client = gateway.connect().await;
    client.write(format!("{ASK}GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n")).await;
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("connection: close\r\n"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

#[tokio::test]
async fn a_101_to_something_else_is_502() {
    for lines in ["", "upgrade: h2c\r\n", "upgrade: websocket, foo\r\n", "upgrade: \r\n"] {
        let backend = Backend::start().await;
        let gateway = before(&backend, service_rule("/", "ws")).await;
        let mut client = gateway.connect().await;
        client.write(ASK).await;
        let (mut served, _) = backend.next().await;
        served.write(format!("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n{lines}\r\nbytes")).await;
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("upstream-invalid"), "{lines:?}: {answer}");
        assert_eq!(served.rest_or_reset().await, "", "nothing more, and the end");
    }
}

#[tokio::test]
async fn what_is_not_allowed_goes_on_as_plain_http_on_a_connection_that_is_kept() {
    let origin = Origin::start(Reply::always(OK)).await;
    let mut none = harness::rule("/none", &[(&origin, 1)]);
    none.upgrades = Some(Vec::new());
    let gateway = Gateway::start(vec![selector(vec![harness::rule("/", &[(&origin, 1)]), none])]).await;
    let mut client = gateway.connect().await;
    for (path, fields) in [
        ("/", "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"),
        ("/", "connection: upgrade\r\nupgrade: TLS/1.0, HTTP/2.0\r\n"),
        ("/", "connection: upgrade\r\nupgrade: tcp\r\n"),
        ("/", "upgrade: websocket\r\n"),
        ("/", "connection: x\r\nupgrade: websocket\r\n"),
        ("/none", "connection: upgrade\r\nupgrade: websocket\r\n"),
    ] {
        let before = origin.requests().len();
        let answer = client.exchange(&format!("GET {path} HTTP/1.1\r\nhost: a\r\n{fields}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && lacks(&answer, "connection"), "{fields}: {answer}");
        let head = origin.requests().remove(before);
        assert!(lacks(&head, "upgrade") && lacks(&head, "connection") && lacks(&head, "http2-settings"), "{head}");
    }
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn of_several_protocols_those_that_are_allowed_are_asked_for() {
    let backend = Backend::start().await;
    let mut rule = service_rule("/", "ws");
    rule.upgrades = Some(vec!["SPDY/3.1".into(), "tcp".into()]);
    let gateway = before(&backend, rule).await;
    let mut client = gateway.connect().await;
    client
        .write("POST /exec HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: h2c, SPDY/3.1, websocket, tcp\r\ncontent-length: 0\r\n\r\n")
        .await;
    let (mut served, head) = backend.next().await;
    assert!(head.starts_with("POST /exec ") && has(&head, "upgrade: SPDY/3.1, tcp"), "{head}");
    served.write("HTTP/1.1 101 UPGRADED\r\nconnection: Upgrade\r\nupgrade: tcp\r\ncontent-length: 5\r\n\r\n").await;
    let answer = client.read_head().await;
    assert!(has(&answer, "upgrade: tcp") && lacks(&answer, "content-length"), "{answer}");
    client.write("raw").await;
    assert_eq!(served.read_exactly(3).await, b"raw");
}

#[tokio::test]
async fn a_request_with_a_body_may_ask_and_its_body_comes_first() {
    let backend = Backend::start().await;
    let mut rule = service_rule("/", "ws");
    rule.upgrades = Some(vec!["tcp".into()]);
    let gateway = before(&backend, rule).await;
    let mut client = gateway.connect().await;
    client
        .write("POST / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: tcp\r\ncontent-length: 8\r\n\r\n{a")
        .await;
    let (mut served, _) = backend.next().await;
    assert_eq!(served.read_exactly(2).await, b"{a");
    // Agreed before the body is whole: the tunnel begins after it all the same.
    served.write("HTTP/1.1 101 UPGRADED\r\nconnection: Upgrade\r\nupgrade: tcp\r\n\r\nearly").await;
    client.write(":true}tunnel").await;
    assert_eq!(served.read_exactly(12).await, b":true}tunnel");
    client.read_head().await;
    assert_eq!(client.read_exactly(5).await, b"early");
}

#[tokio::test]
async fn rules_do_to_handshakes_what_they_do_to_requests() {
    let backend = Backend::start().await;
    let mirror = Origin::start(Reply::always(OK)).await;
    let mut rule = service_rule("/", "ws");
    let copy = ir::Mirror { cluster: mirror.cluster_id(), numerator: 1, denominator: 1 };
    rule.filters = vec![
        Filter::RequestHeaders(ir::HeaderEdit {
            set: vec![
                (http::header::UPGRADE, "h2c".parse().unwrap()),
                ("x-own".parse().unwrap(), "1".parse().unwrap()),
            ],
            remove: vec![http::header::CONNECTION],
            ..ir::HeaderEdit::default()
        }),
        rewriting(by_regex("^/ws", "")),
        Filter::Mirror(copy),
        Filter::ResponseHeaders(set("x-answer", "1")),
    ];
    let gateway = before(&backend, rule).await;
    let mut client = gateway.connect().await;
    client.write(ASK.replace("/chat", "/ws/chat/TOM?token=a%2Fb&x=")).await;
    let (mut served, head) = backend.next().await;
    assert!(head.starts_with("GET /chat/TOM?token=a%2Fb&x= HTTP/1.1\r\n"), "{head}");
    assert!(has(&head, "x-own: 1") && has(&head, "upgrade: websocket") && has(&head, "connection: upgrade"), "{head}");
    served.write(AGREE).await;
    let answer = client.read_head().await;
    assert!(has(&answer, "x-answer: 1") && has(&answer, "upgrade: websocket"), "{answer}");
    client.write("x").await;
    served.read_exactly(1).await;
    assert_eq!(mirror.requests().len(), 0, "a mirror would see a handshake without its tunnel");
}

#[tokio::test]
async fn an_endpoint_that_refuses_is_passed_over() {
    let backend = Backend::start().await;
    let gateway = Gateway::start(vec![selector(vec![service_rule("/", "ws")])]).await;
    gateway.endpoints("ws", &[harness::refusing_address(), backend.address()]).await;
    for _ in 0..4 {
        open(&gateway, &backend).await;
    }
}

#[tokio::test]
async fn a_kept_connection_is_used_and_one_that_ended_meanwhile_is_replaced() {
    let backend = Backend::start().await;
    let gateway = before(&backend, service_rule("/", "ws")).await;
    let mut client = gateway.connect().await;
    client.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let (mut served, _) = backend.next().await;
    served.write(OK).await;
    client.read_until("ok").await;
    // On the same client connection, and the same one to the backend.
    client.write(ASK).await;
    let head = served.read_head().await;
    assert!(has(&head, "upgrade: websocket"), "{head}");
    // It breaks instead of answering: the handshake is safe to repeat.
    drop(served);
    let mut served = backend.agree().await;
    client.read_head().await;
    client.write("x").await;
    assert_eq!(served.read_exactly(1).await, b"x");
}
