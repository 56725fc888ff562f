//! What is sent again, and how long anything may take. The issues of other gateways are named beside the tests.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Answers the first request of each connection; one that comes on a connection that is kept is read whole, and the
/// connection closed. Gives what came, each with the number of its connection.
async fn closing_when_used_again() -> (SocketAddr, Arc<Mutex<Vec<(usize, String)>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::<Mutex<Vec<(usize, String)>>>::default();
    let record = Arc::clone(&requests);
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            let record = Arc::clone(&record);
            tokio::spawn(async move {
                for turn in 0..2 {
                    let Some(request) = read_request(&mut stream).await else { return };
                    record.lock().push((number, request));
                    if turn == 0 {
                        stream.write_all(OK.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    (address, requests)
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&request);
        let end = if text.contains("content-length: 5") { "whole" } else { "\r\n\r\n" };
        if text.ends_with(end) {
            return Some(text.into_owned());
        }
    }
}

#[tokio::test]
async fn a_connection_that_closes_just_as_it_is_used_again_is_seen_by_post_alone() {
    // envoyproxy/envoy#1979, hyperium/hyper#3553
    for (method, body, is_seen) in
        [("GET", "", false), ("PUT", "whole", false), ("DELETE", "", false), ("POST", "whole", true)]
    {
        let (address, requests) = closing_when_used_again().await;
        let gateway = Gateway::start(vec![selector(vec![harness::service_rule("/", "s")])]).await;
        gateway.endpoints("s", &[address]).await;
        let mut client = gateway.connect().await;
        let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let sent = format!("{method} / HTTP/1.1\r\nhost: a\r\n{length}\r\n{body}");
        let mut failed = 0;
        for request in 0..20 {
            let answer = client.exchange(&sent).await;
            if answer.starts_with("HTTP/1.1 502 ") && answer.contains("upstream-reset") {
                failed += 1;
                continue;
            }
            assert!(answer.starts_with("HTTP/1.1 200 "), "{method} {request}: {answer}");
        }
        let came = requests.lock().clone();
        assert!(came.iter().all(|(_, text)| text.starts_with(method) && text.ends_with(body)), "{came:?}");
        if is_seen {
            assert_eq!((failed, came.len()), (10, 20), "every other one, and none twice");
        } else {
            assert_eq!((failed, came.len()), (0, 39), "each but the first came twice");
        }
    }
}

#[tokio::test]
async fn a_put_that_broke_on_a_new_connection_or_is_long_is_not_sent_again() {
    let origin = Origin::start(Reply::close_without_answer()).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)])])]).await;
    let answer = gateway.send("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("upstream-reset"), "{answer}");
    assert_eq!(origin.requests().len(), 1);
    let mut repeating = rule("/", &[(&origin, 1)]);
    repeating.retry =
        Some(ir::Retry { attempts: 2, on: vec![ir::RetryOn::Reset], backoff: Duration::ZERO, budget_percent: 20 });
    let gateway = Gateway::start(vec![selector(vec![repeating])]).await;
    for (length, times) in [(64 << 10, 3), ((64 << 10) + 1, 1)] {
        let before = origin.bodies().len();
        let answer = gateway
            .send(&format!("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{}", "x".repeat(length)))
            .await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        let came = origin.bodies().split_off(before);
        assert_eq!(came.len(), times, "of {length} bytes");
        assert!(came.iter().all(|body| body.len() == length), "whole each time");
    }
}

#[tokio::test]
async fn no_time_is_no_limit_and_a_short_one_never_ends_an_answer_as_if_it_were_whole() {
    // projectcontour/contour#6373
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let slow = Duration::from_millis(500);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                stream.read_buf(&mut request).await.unwrap();
                let streams = request.starts_with(b"GET /stream");
                if !streams {
                    tokio::time::sleep(slow).await;
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nbegin\r\n").await;
                if streams {
                    tokio::time::sleep(slow).await;
                }
                let _ = stream.write_all(b"3\r\nend\r\n0\r\n\r\n").await;
            });
        }
    });
    let with = |path: &str, request: Duration| {
        let mut rule = harness::service_rule(path, "s");
        rule.timeouts.request = request;
        rule
    };
    let short = Duration::from_millis(150);
    let gateway = Gateway::start(vec![selector(vec![
        with("/none", Duration::ZERO),
        with("/short", short),
        with("/stream", short),
        harness::service_rule("/usual", "s"),
    ])])
    .await;
    gateway.endpoints("s", &[address]).await;
    let get = async |path: &str| {
        let mut client = gateway.connect().await;
        client.write(format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")).await;
        client.rest_or_reset().await
    };
    for path in ["/none", "/usual", "/stream"] {
        let answer = get(path).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("3\r\nend\r\n0\r\n\r\n"), "{path}: {answer}");
    }
    let answer = get("/short").await;
    assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("request-timeout"), "{answer}");
}
