//! Answers and bodies that go on and on: every piece is passed on as it comes, and no more of them is held than is taken.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::harness::{Client, Gateway, selector, service_rule};
use crate::ir;

const PATIENCE: Duration = Duration::from_secs(20);

/// Writes until nothing has been taken for so long that nothing will be, or the stream is cut; gives how much was.
pub(super) async fn fill(stream: &TcpStream) -> usize {
    const QUIET: Duration = Duration::from_millis(300);
    let mut sent = 0;
    let chunk = vec![b'x'; 64 << 10];
    while tokio::time::timeout(QUIET, stream.writable()).await.is_ok() {
        match stream.try_write(&chunk) {
            Ok(written) => sent += written,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // Cut by who was not to take it all: so nothing more is taken either.
            Err(_) => return sent,
        }
        assert!(sent < 64 << 20, "it takes everything");
    }
    sent
}

/// A gateway, a request on its way, and the backend's side of it.
async fn asked(request: &str) -> (Gateway, Client, Client) {
    asked_by(service_rule("/", "s"), request).await
}

/// The same with another rule for the Service.
async fn asked_by(rule: ir::Rule, request: &str) -> (Gateway, Client, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = Gateway::start(vec![selector(vec![rule])]).await;
    gateway.endpoints("s", &[listener.local_addr().unwrap()]).await;
    let mut client = gateway.connect().await;
    client.write(request).await;
    let (stream, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.expect("nobody came").unwrap();
    let mut served = Client::new(stream);
    served.read_head().await;
    (gateway, client, served)
}

const GET: &str = "GET /events HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n";

const EVENTS: [&str; 6] = ["data: 1\n\n", "data: 2\r\rdata: 3\r\r", ": \r", "\n", "\r\n", "id: 4\ndata: end\n\n"];

#[tokio::test]
async fn each_write_of_a_chunked_answer_arrives_before_the_next_is_made() {
    for content_type in ["text/event-stream", "application/json", "application/octet-stream"] {
        let (_gateway, mut client, mut served) = asked(GET).await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n");
        served.write(head).await;
        let head = client.read_head().await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("transfer-encoding: chunked\r\n"), "{head}");
        for event in EVENTS {
            let chunk = format!("{:x}\r\n{event}\r\n", event.len());
            served.write(&chunk).await;
            let seen = client.read_exactly(chunk.len()).await;
            assert_eq!(String::from_utf8(seen).unwrap().to_lowercase(), chunk);
        }
        served.write("0\r\n\r\n").await;
        assert_eq!(client.read_exactly(5).await, b"0\r\n\r\n");
    }
}

#[tokio::test]
async fn each_write_of_an_answer_that_ends_with_its_connection_arrives_before_the_next_is_made() {
    let (_gateway, mut client, mut served) = asked(GET).await;
    served.write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
    client.read_head().await;
    for event in EVENTS {
        served.write(event).await;
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        let seen = client.read_exactly(chunk.len()).await;
        assert_eq!(String::from_utf8(seen).unwrap().to_lowercase(), chunk);
    }
    drop(served);
    assert_eq!(client.read_exactly(5).await, b"0\r\n\r\n");
}

#[tokio::test]
async fn each_write_of_an_answer_with_a_length_arrives_before_the_next_is_made() {
    let (_gateway, mut client, mut served) = asked(GET).await;
    let length: usize = EVENTS.iter().map(|event| event.len()).sum();
    served.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")).await;
    client.read_head().await;
    for event in EVENTS {
        served.write(event).await;
        assert_eq!(client.read_exactly(event.len()).await, event.as_bytes());
    }
}

#[tokio::test]
async fn each_write_of_a_request_arrives_before_the_next_is_made() {
    let (_gateway, mut client, mut served) =
        asked("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await;
    for event in EVENTS {
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        client.write(&chunk).await;
        assert_eq!(String::from_utf8(served.read_exactly(chunk.len()).await).unwrap().to_lowercase(), chunk);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_stalls_its_backend_and_then_gets_everything() {
    let (gateway, mut client, mut served) = asked(GET).await;
    served.write("HTTP/1.1 200 OK\r\n\r\n").await;
    client.read_head().await;
    let sent = fill(&served.stream).await;
    // Others are not held up by it.
    let other = gateway.send("GET /%2F HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(other.starts_with("HTTP/1.1 400 "), "{other}");
    drop(served);
    let mut body = 0;
    loop {
        let line = client.read_line().await;
        let size = usize::from_str_radix(line.trim(), 16).unwrap();
        let chunk = client.read_exactly(size + 2).await;
        assert!(chunk[..size].iter().all(|&byte| byte == b'x'));
        body += size;
        if size == 0 {
            break;
        }
    }
    assert_eq!(body, sent);
}

#[tokio::test]
async fn a_client_that_reads_nothing_for_too_long_is_cut() {
    let mut rule = service_rule("/", "s");
    rule.timeouts.idle = Duration::from_millis(400);
    let (gateway, client, mut served) = asked_by(rule, GET).await;
    served.write("HTTP/1.1 200 OK\r\n\r\n").await;
    fill(&served.stream).await;
    gateway.wait_for(|gateway| gateway.lifecycle().in_flight() == 0).await;
    served.rest_or_reset().await;
    let metrics = gateway.metrics();
    assert!(metrics.contains("lockgate_requests_refused_total{reason=\"idle-timeout\"} 1"), "{metrics}");
    drop(client);
}

#[tokio::test]
async fn a_backend_that_does_not_read_stalls_its_client() {
    let (_gateway, client, mut served) =
        asked("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000\r\n\r\n").await;
    let sent = fill(&client.stream).await;
    assert_eq!(served.read_exactly(sent).await.len(), sent);
}

#[tokio::test]
async fn an_upload_that_breaks_ends_an_answer_that_has_only_begun() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = Gateway::start(vec![selector(vec![service_rule("/", "s")])]).await;
    gateway.endpoints("s", &[listener.local_addr().unwrap()]).await;
    let mut client = gateway.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n").await;
    let (mut backend, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut head = [0; 1024];
    tokio::time::timeout(PATIENCE, backend.read(&mut head)).await.unwrap().unwrap();
    backend.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").await.unwrap();
    client.read_head().await;
    drop(client);
    let ended = tokio::time::timeout(PATIENCE, backend.read(&mut head)).await.expect("the backend waits for the rest");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}
