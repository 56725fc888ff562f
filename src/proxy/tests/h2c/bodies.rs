//! Bodies and trailers, and answers without.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http::HeaderMap;
use tokio::io::AsyncWriteExt as _;

use super::super::harness::Client;
use super::origin::{Call, Origin};
use super::{GET, gateway, gateway_with};

const BLOCK: usize = 16 << 10;
const LARGE: usize = 64 << 20;

/// Sends blocks as fast as the peer takes them, `length` bytes in all, and counts those that it took.
async fn send(stream: &mut SendStream<Bytes>, length: usize, taken: &AtomicUsize) {
    let mut left = length;
    while left > 0 {
        stream.reserve_capacity(BLOCK.min(left));
        let Some(Ok(capacity)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
        let block = capacity.min(left);
        left -= block;
        if stream.send_data(Bytes::from(vec![b'x'; block]), left == 0).is_err() {
            return;
        }
        taken.fetch_add(block, Ordering::SeqCst);
    }
}

/// Waits until a number has not changed for a while.
async fn settled(number: &AtomicUsize) -> usize {
    let mut last = 0;
    let mut still = 0;
    while still < 20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = number.load(Ordering::SeqCst);
        still = if now == last && now > 0 { still + 1 } else { 0 };
        last = now;
    }
    last
}

/// Writes until nothing more is taken for a while; gives how much was.
async fn write_while_taken(client: &mut Client, bytes: &[u8]) -> usize {
    let mut written = 0;
    let still = Duration::from_millis(300);
    while let Ok(Ok(more @ 1..)) = tokio::time::timeout(still, client.stream.write(&bytes[written..])).await {
        written += more;
    }
    written
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_its_own_answer_only() {
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    let origin = Origin::start(None, move |call: Call| {
        let counter = Arc::clone(&counter);
        async move {
            match call.number {
                0..8 => {
                    let mut stream = call.begin(&[]);
                    send(&mut stream, LARGE, &counter).await;
                }
                _ => call.answer(),
            }
        }
    })
    .await;
    let gateway = gateway(&origin).await;
    let mut slow: Vec<Client> = Vec::new();
    for number in 0..8 {
        let mut client = gateway.connect().await;
        client.write(GET).await;
        origin.wait_for(|origin| origin.heads().len() > number).await;
        slow.push(client);
    }
    // Windows, and buffers of sockets, which the kernel lets grow to some megabytes.
    let held = settled(&taken).await;
    assert!(held < 8 * (8 << 20), "{held} bytes are held for eight clients that do not read");
    for _ in 0..10 {
        let answer = gateway.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
        assert!(answer.contains("ok"), "{answer}");
    }
    assert!(origin.accepted() <= 2);
    // They get all of it when they do.
    let mut client = slow.remove(0);
    drop(slow);
    let mut read = 0;
    while read < LARGE {
        let more = client.read_more().await;
        assert!(more > 0, "closed after {read} bytes");
        read += more;
    }
}

#[tokio::test]
async fn a_backend_that_does_not_read_holds_up_its_own_request_only() {
    let origin = Origin::start(None, |mut call: Call| async move {
        if call.number > 0 {
            return call.answer();
        }
        // Takes what its window lets in, and reads when it is told to.
        while call.body.flow_control().used_capacity() < 60_000 {
            tokio::task::yield_now().await;
        }
        std::future::pending::<()>().await;
    })
    .await;
    let gateway = gateway(&origin).await;
    let mut client = gateway.connect().await;
    client.write(&format!("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {LARGE}\r\n\r\n")).await;
    let written = write_while_taken(&mut client, &vec![b'x'; LARGE]).await;
    assert!(written < 16 << 20, "{written} bytes are held for a backend that does not read");
    let answer = gateway.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert!(answer.contains("ok"), "{answer}");
    // Its client leaves: the stream is cancelled and nothing else.
    drop(client);
    let answer = gateway.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert!(answer.contains("ok") && origin.accepted() <= 2, "{answer}");
}

#[tokio::test]
async fn large_bodies_arrive_whole_both_ways() {
    let origin = Origin::start(None, |mut call: Call| async move {
        let (body, _) = call.read().await;
        let mut stream = call.begin(&[]);
        send(&mut stream, body.len(), &AtomicUsize::new(0)).await;
    })
    .await;
    let gateway = gateway(&origin).await;
    let mut client = gateway.connect().await;
    let length = 3_000_001;
    client.write(&format!("PUT / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")).await;
    client.write(&"x".repeat(length)).await;
    let answer = client.rest().await;
    assert!(answer.ends_with("\r\n0\r\n\r\n"));
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(body.bytes().filter(|byte| *byte == b'x').count(), length);
}

#[tokio::test]
async fn a_body_that_is_wrong_cancels_its_stream() {
    let origin = Origin::start(None, Call::never).await;
    let gateway = gateway_with(&[&origin], |rule| rule.limits.max_body_bytes = Some(8)).await;
    let cases = [("9\r\n123456789\r\n", "413 "), ("5\r\n12345\r\nnonsense\r\n", "400 ")];
    for (number, (chunks, status)) in cases.into_iter().enumerate() {
        let mut client = gateway.connect().await;
        client.write("PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await;
        origin.wait_for(|origin| origin.heads().len() > number).await;
        client.write(chunks).await;
        let answer = client.rest_or_reset().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    origin.wait_for(|origin| origin.cancelled() == [Reason::CANCEL, Reason::CANCEL]).await;
    assert_eq!(origin.open(), origin.accepted());
}

#[tokio::test]
async fn interim_answers_are_not_the_answer() {
    let origin = Origin::start(None, |mut call: Call| async move {
        call.interim(103);
        call.answer();
    })
    .await;
    let answer = gateway(&origin).await.send(GET).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"), "{answer}");
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let origin = Origin::start(None, |mut call: Call| async move {
        let (_, trailers) = call.read().await;
        let trailers = trailers.unwrap();
        assert_eq!(trailers.keys().collect::<Vec<_>>(), ["x-sum"], "framing and identity have no place in trailers");
        let mut stream = call.begin(&[("content-type", "application/grpc")]);
        stream.send_data(Bytes::from_static(b"message"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "10".parse().unwrap());
        trailers.insert("grpc-message", "a%20b".parse().unwrap());
        stream.send_trailers(trailers).unwrap();
    })
    .await;
    let gateway = gateway(&origin).await;
    let mut client = gateway.connect().await;
    let head =
        "POST /S/M HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: te, close\r\ntransfer-encoding: chunked\r\n";
    client.write(&format!("{head}trailer: x-sum, client-cert\r\n\r\n1\r\na\r\n0\r\nx-sum: 5\r\ncontent-length: 7\r\nclient-cert: x\r\n\r\n")).await;
    let answer = client.rest().await;
    assert!(answer.contains("\r\n\r\n7\r\nmessage\r\n0\r\n"), "{answer}");
    let (_, trailers) = answer.split_once("\r\n0\r\n").unwrap();
    assert!(trailers.contains("grpc-status: 10\r\n") && trailers.contains("grpc-message: a%20b\r\n"), "{answer}");
    assert_eq!(origin.heads()[0].headers["te"], "trailers");
}

#[tokio::test]
async fn answers_without_a_body_end_at_once() {
    let origin = Origin::start(None, |call: Call| async move {
        match call.number {
            // As some servers do, with an end of its own.
            0 => drop(call.begin(&[("content-length", "5")]).send_data(Bytes::new(), true)),
            1 => drop(call.respond(204, &[], true)),
            2 => drop(call.respond(304, &[("etag", "\"a\"")], true)),
            _ => drop(call.respond(200, &[("grpc-status", "5")], true)),
        }
    })
    .await;
    let gateway = gateway(&origin).await;
    let mut client = gateway.connect().await;
    for (method, status, line) in [
        ("HEAD", "200", "content-length: 5"),
        ("GET", "204", ""),
        ("GET", "304", "etag"),
        ("GET", "200", "grpc-status: 5"),
    ] {
        client.write(&format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n")).await;
        let head = client.read_until("\r\n\r\n").await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")) && head.contains(line), "{head}");
        assert!(head.ends_with("\r\n\r\n"), "{head}");
    }
    assert_eq!(origin.accepted(), 1);
}
