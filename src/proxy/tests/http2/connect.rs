//! Extended CONNECT (RFC 8441): WebSocket over a stream.

use std::time::Duration;

use h2::ext::Protocol;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::super::h2c::SERVICE;
use super::super::h2c::origin::{Call, Origin as Server};
use super::super::harness::service_rule;
use super::*;
use crate::lifecycle::Phase;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway before a backend at `/`, which a test answers for, and direct answers at `/direct`.
async fn gateway() -> (TcpListener, Gateway) {
    let backend = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut direct = service_rule("/direct", "ws");
    direct.action = ir::Action::DirectResponse(ir::DirectResponse {
        status: http::StatusCode::OK,
        headers: Vec::new(),
        body: "here".into(),
    });
    let mut none = service_rule("/none", "ws");
    none.upgrades = Some(Vec::new());
    let gateway = Gateway::start(vec![selector(vec![service_rule("/", "ws"), direct, none])]).await;
    gateway.endpoints("ws", &[backend.local_addr().unwrap()]).await;
    (backend, gateway)
}

fn connect(path: &str, protocol: &'static str) -> Request<()> {
    let request = Request::builder().method("CONNECT").uri(format!("http://a.example{path}"));
    let request = request.extension(Protocol::from_static(protocol));
    request.header("sec-websocket-version", "13").header("sec-websocket-protocol", "chat").body(()).unwrap()
}

/// Takes a handshake and answers it with these lines; `{accept}` stands for what proves that it was read.
async fn answer(backend: &TcpListener, lines: &str) -> (TcpStream, String) {
    let (mut stream, _) = backend.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut head).await.unwrap() > 0);
    }
    let head = String::from_utf8(head).unwrap();
    let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap_or_default();
    let answer = lines.replace("{accept}", &derive_accept_key(key.as_bytes()));
    stream.write_all(answer.as_bytes()).await.unwrap();
    (stream, head)
}

const AGREED: &str = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                      sec-websocket-accept: {accept}\r\nsec-websocket-protocol: chat\r\n\r\n";

/// Both ends of a tunnel.
async fn tunnel(
    backend: &TcpListener,
    client: &mut Client,
) -> (TcpStream, String, http::response::Parts, RecvStream, SendStream<Bytes>) {
    let (response, send) = client.begin(connect("/chat?x", "websocket"), false).await;
    let (served, head) = answer(backend, AGREED).await;
    let (parts, receive) = response.await.unwrap().into_parts();
    (served, head, parts, receive, send)
}

async fn status(client: &mut Client, request: Request<()>) -> (u16, Option<String>) {
    let (response, _send) = client.begin(request, false).await;
    let head = response.await.unwrap();
    let reason = head.headers().get("x-lockgate-reason").map(|reason| reason.to_str().unwrap().to_owned());
    (head.status().as_u16(), reason)
}

#[tokio::test]
async fn a_stream_becomes_a_tunnel_to_a_backend_that_is_upgraded() {
    let (backend, gateway) = gateway().await;
    let mut client = Client::connect(&gateway).await;
    client.get("/direct").await;
    assert!(client.0.is_extended_connect_protocol_enabled());
    let (mut served, head, parts, mut receive, mut send) = tunnel(&backend, &mut client).await;
    assert!(head.starts_with("GET /chat?x HTTP/1.1\r\n"), "{head}");
    for line in ["host: a.example", "upgrade: websocket", "connection: upgrade", "sec-websocket-version: 13"] {
        assert!(head.contains(&format!("{line}\r\n")), "{line} not in {head}");
    }
    for absent in ["transfer-encoding", "content-length", ":protocol"] {
        assert!(!head.contains(absent), "{absent} in {head}");
    }
    assert_eq!(parts.status, 200);
    assert_eq!(parts.headers["sec-websocket-protocol"], "chat");
    for absent in ["upgrade", "connection", "sec-websocket-accept", "content-length"] {
        assert!(!parts.headers.contains_key(absent), "{absent}");
    }
    let of_rule = "selector=\"test/selector\",route=\"test/route\",rule=\"/\"";
    let counted = format!("lockgate_http_requests_total{{{of_rule},method=\"GET\",code=\"200\"}}");
    assert_eq!((gateway.metric(&counted), gateway.metric("lockgate_tunnels")), (1, 1));
    assert_eq!(gateway.lifecycle().in_flight(), 1);
    // More than all windows together, and read only when all of it was to be sent.
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    let echo = tokio::spawn(async move {
        let (mut read, mut write) = served.split();
        tokio::io::copy(&mut read, &mut write).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let expected = bytes.clone();
    let upload = tokio::spawn(async move {
        let mut left = Bytes::from(bytes);
        while !left.is_empty() {
            send.reserve_capacity(left.len());
            while send.capacity() == 0 {
                std::future::poll_fn(|cx| send.poll_capacity(cx)).await.unwrap().unwrap();
            }
            let piece = left.split_to(send.capacity().min(left.len()));
            send.send_data(piece, left.is_empty()).unwrap();
        }
    });
    let mut received = Vec::new();
    while let Some(data) = tokio::time::timeout(PATIENCE, receive.data()).await.unwrap() {
        let data = data.unwrap();
        receive.flow_control().release_capacity(data.len()).unwrap();
        received.extend_from_slice(&data);
    }
    upload.await.unwrap();
    echo.await.unwrap();
    assert!(received == expected, "{} bytes", received.len());
    gateway.wait_for(|gateway| gateway.metric("lockgate_tunnels") == 0 && gateway.lifecycle().in_flight() == 0).await;
    assert_eq!(client.get("/direct").await.body, "here", "the connection goes on");
}

#[tokio::test]
async fn what_is_no_agreement_is_no_success() {
    let (backend, gateway) = gateway().await;
    let mut client = Client::connect(&gateway).await;
    let unproven = AGREED.replace("{accept}", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let nothing = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\r\n";
    let plain = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let refusal = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";
    for (lines, expected) in [
        (&unproven[..], (502, Some("upstream-invalid".to_owned()))),
        (nothing, (502, Some("upstream-invalid".to_owned()))),
        (plain, (502, Some("upstream-invalid".to_owned()))),
        (refusal, (403, None)),
    ] {
        let asked = status(&mut client, connect("/", "websocket"));
        let (told, _served) = tokio::join!(asked, answer(&backend, lines));
        assert_eq!(told, expected, "{lines}");
    }
    assert_eq!(gateway.metric("lockgate_tunnels"), 0);
    gateway.wait_for(|gateway| gateway.lifecycle().in_flight() == 0).await;
}

#[tokio::test]
async fn what_is_not_allowed_or_cannot_be_is_not_implemented() {
    let (_backend, gateway) = gateway().await;
    let mut client = Client::connect(&gateway).await;
    let refused = (501, Some("not-implemented".to_owned()));
    for (path, protocol) in [("/", "connect-udp"), ("/", "h2c"), ("/none", "websocket"), ("/direct", "websocket")] {
        assert_eq!(status(&mut client, connect(path, protocol)).await, refused, "{path} {protocol}");
    }
    let plain = Request::builder().method("CONNECT").uri("a.example:80").body(()).unwrap();
    assert_eq!(status(&mut client, plain).await, refused);

    let server = Server::start(None, |call: Call| async move { call.answer() }).await;
    let gateway = Gateway::start(vec![selector(vec![service_rule("/", SERVICE)])]).await;
    gateway.endpoints(SERVICE, &[server.address]).await;
    let mut client = Client::connect(&gateway).await;
    assert_eq!(status(&mut client, connect("/", "websocket")).await, refused, "a backend of HTTP/2");
}

#[tokio::test]
async fn each_side_ends_the_other() {
    let (backend, gateway) = gateway().await;
    let mut client = Client::connect(&gateway).await;
    let (mut served, _, _, mut receive, mut send) = tunnel(&backend, &mut client).await;
    served.write_all(b"bye").await.unwrap();
    served.shutdown().await.unwrap();
    assert_eq!(receive.data().await.unwrap().unwrap(), &b"bye"[..]);
    while let Some(end) = receive.data().await {
        assert_eq!(end.unwrap(), "", "an end in order");
    }
    send.send_data(Bytes::from_static(b"too"), true).unwrap();
    let mut rest = Vec::new();
    served.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"too");

    let (mut served, _, _, _receive, mut send) = tunnel(&backend, &mut client).await;
    send.send_reset(h2::Reason::CANCEL);
    let read = tokio::time::timeout(PATIENCE, served.read(&mut [0; 8])).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    gateway.wait_for(|gateway| gateway.metric("lockgate_tunnels") == 0).await;
    assert_eq!(gateway.metric("lockgate_requests_refused_total{reason=\"client-gone\"}"), 1);
}

#[tokio::test]
async fn a_drain_waits_for_it_and_cuts_it_in_the_end() {
    let (backend, gateway) = gateway().await;
    let mut client = Client::connect(&gateway).await;
    let (mut served, _, _, mut receive, mut send) = tunnel(&backend, &mut client).await;
    gateway.terminate().await;
    gateway.wait_for(|gateway| gateway.lifecycle().phase() == Phase::Draining).await;
    let holders = gateway.lifecycle().holders();
    let named: Vec<_> = holders.iter().map(|holder| (&*holder.route, &*holder.protocol)).collect();
    assert_eq!(named, [("test/route /", "websocket")]);
    send.send_data(Bytes::from_static(b"still here"), false).unwrap();
    let mut read = [0; 10];
    served.read_exact(&mut read).await.unwrap();
    served.write_all(&read).await.unwrap();
    assert_eq!(receive.data().await.unwrap().unwrap(), &b"still here"[..]);
    gateway.wait_for(|gateway| gateway.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 1);
}
