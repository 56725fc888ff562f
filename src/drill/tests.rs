use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::*;

/// A server that treats every connection as told, the first being number 0.
async fn server<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream, usize) -> F + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, number));
        }
    });
    format!("http://{address}/")
}

/// Answers each request on a connection with these bytes, reading heads only.
async fn answer_with(mut stream: TcpStream, answer: &'static [u8]) {
    let mut read = Vec::new();
    let mut byte = [0];
    while let Ok(1..) = stream.read(&mut byte).await {
        read.push(byte[0]);
        if read.ends_with(b"\r\n\r\n") {
            read.clear();
            let _ = stream.write_all(answer).await;
        }
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

async fn ok(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    http_body_util::BodyExt::collect(request.into_body()).await.unwrap();
    Ok(Response::new(Full::from("ok")))
}

async fn drill(url: &str, traffic: &str, requests: u32) -> Report {
    drill_with(url, traffic, requests, |_| ()).await
}

/// So many requests at 200 a second.
async fn drill_with(url: &str, traffic: &str, requests: u32, change: impl FnOnce(&mut Plan)) -> Report {
    let mut plan = Plan {
        target: Target::new(url, None, HeaderMap::new(), &Trust::System).unwrap(),
        traffic: traffic.split(',').map(|text| text.parse().unwrap()).collect(),
        rate: 200.0,
        duration: Some(Duration::from_millis(5) * requests),
        timeout: Duration::from_secs(5),
        connections: 4,
        expect: None,
    };
    change(&mut plan);
    let (_stop, stopped) = watch::channel(false);
    run(plan, Arc::new(Log::default()), stopped).await
}

/// The kinds and phases of failures, each once.
fn told(report: &Report) -> Vec<String> {
    let mut told: Vec<String> = report.failures.iter().map(|f| format!("{} in {}", f.kind, f.phase)).collect();
    told.sort();
    told.dedup();
    told
}

#[tokio::test]
async fn a_good_server_has_no_failures_and_every_kind_its_share() {
    let url = server(|stream, _| async move {
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(ok)).await;
    })
    .await;
    let report = drill(&url, "keepalive*2,connection,upload=/u,stream=/s", 40).await;
    assert_eq!((report.offered, report.requests, report.failed), (40, 40, 0), "{report}");
    let lane = |name: &str| &report.traffic[name];
    assert_eq!((lane("keepalive").requests, lane("keepalive").connections), (16, 4), "{report}");
    assert_eq!((lane("connection").requests, lane("connection").connections), (8, 8), "{report}");
    assert_eq!((lane("upload=/u").requests, lane("stream=/s").requests), (8, 8), "{report}");
    // Each upload takes four pauses.
    assert!(lane("upload=/u").p50_ms >= 200.0 && lane("keepalive").p50_ms > 0.0, "{report}");
    assert_eq!(lane("keepalive").statuses[&200], 16);
}

#[tokio::test]
async fn http2_goes_over_few_connections() {
    let url = server(|stream, _| async move {
        let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service_fn(ok)).await;
    })
    .await;
    let report = drill(&url, "h2", 20).await;
    assert_eq!((report.requests, report.failed), (20, 0), "{report}");
    assert_eq!(report.traffic["h2"].connections, 4, "{report}");
    let report = drill(&url, "grpc", 4).await;
    assert_eq!(told(&report), ["status in body"], "{report}");
    assert_eq!(report.failures[0].detail, "no grpc-status");
}

#[tokio::test]
async fn a_server_that_has_its_connections_of_http2_leave_fails_and_repeats_no_request() {
    let executed = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&executed);
    let url = server(move |stream, _| {
        let executed = Arc::clone(&counted);
        async move {
            let service = service_fn(move |request| {
                let executed = Arc::clone(&executed);
                async move {
                    executed.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(7)).await;
                    ok(request).await
                }
            });
            let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => return,
                () = tokio::time::sleep(Duration::from_millis(23)) => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        }
    })
    .await;
    let report = drill(&url, "h2", 300).await;
    assert_eq!((report.requests, report.failed), (300, 0), "{report}");
    assert_eq!(executed.load(Ordering::Relaxed), 300, "{report}");
    assert!(report.traffic["h2"].connections > 10, "{report}");
}

#[tokio::test]
async fn failures_are_told_apart() {
    let status =
        server(|s, _| answer_with(s, b"HTTP/1.1 503 X\r\nx-lockgate-reason: draining\r\ncontent-length: 0\r\n\r\n"))
            .await;
    let report = drill(&status, "keepalive", 4).await;
    assert_eq!((told(&report), report.failed), (vec!["status in body".to_owned()], 4), "{report}");
    assert_eq!(report.failures[0].detail, "503 draining");

    let truncated = server(|mut stream, _| async move {
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
    })
    .await;
    assert_eq!(told(&drill(&truncated, "stream", 4).await), ["truncated in body"]);

    let closed = server(|mut stream, _| async move {
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).await;
    })
    .await;
    assert_eq!(told(&drill(&closed, "keepalive,connection", 4).await), ["closed in answer"]);

    let reset = server(|mut stream, _| async move {
        let mut byte = [0];
        let _ = stream.read(&mut byte).await;
        // Closed with bytes that were not read.
        drop(stream);
    })
    .await;
    assert_eq!(told(&drill(&reset, "connection", 4).await), ["reset in answer"]);

    let nonsense = server(|s, _| answer_with(s, b"NONSENSE\r\n\r\n")).await;
    assert_eq!(told(&drill(&nonsense, "connection", 4).await), ["invalid in answer"]);

    let silent = server(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let report = drill_with(&silent, "keepalive", 4, |plan| plan.timeout = Duration::from_millis(100)).await;
    assert_eq!(told(&report), ["timeout in answer"], "{report}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    assert_eq!(told(&drill(&nobody, "keepalive,h2,websocket", 4).await), ["refused in connect"]);
}

#[tokio::test]
async fn the_wrong_status_is_a_failure_where_one_is_expected() {
    let url = server(|s, _| answer_with(s, b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n")).await;
    assert_eq!(drill(&url, "keepalive", 4).await.failed, 0);
    assert_eq!(drill_with(&url, "keepalive", 4, |plan| plan.expect = Some(200)).await.failed, 4);
    assert_eq!(drill_with(&url, "keepalive", 4, |plan| plan.expect = Some(404)).await.failed, 0);
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_fails_no_request() {
    // Closes after each answer without having said so.
    let url = server(|mut stream, _| async move {
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).await;
        let _ = stream.write_all(OK).await;
    })
    .await;
    let report = drill_with(&url, "keepalive", 20, |plan| plan.connections = 1).await;
    assert_eq!((report.requests, report.failed), (20, 0), "{report}");
    assert_eq!(report.traffic["keepalive"].connections, 20, "{report}");
}

#[tokio::test]
async fn websockets_are_held_and_missed() {
    let url = server(|stream, number| async move {
        let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
        // The first one leaves without a word after a message, the others echo.
        let mut echoed = 0;
        while let Some(Ok(message)) = futures::StreamExt::next(&mut socket).await {
            echoed += 1;
            if message.is_text() && (number > 0 || echoed == 1) {
                let _ = futures::SinkExt::send(&mut socket, message).await;
            } else {
                return;
            }
        }
    })
    .await;
    let report = drill_with(&url, "websocket*2", 0, |plan| plan.duration = Some(Duration::from_millis(3500))).await;
    let lane = &report.traffic["websocket"];
    assert_eq!((told(&report), report.failed, lane.connections), (vec!["closed in held".to_owned()], 1, 3), "{report}");
    assert!(lane.statuses[&101] >= 4, "{report}");
}

#[tokio::test]
async fn a_drill_ends_when_told_to() {
    let url = server(|s, _| answer_with(s, OK)).await;
    let plan = Plan {
        target: Target::new(&url, None, HeaderMap::new(), &Trust::System).unwrap(),
        traffic: vec!["keepalive".parse().unwrap()],
        rate: 100.0,
        duration: None,
        timeout: Duration::from_secs(5),
        connections: 1,
        expect: None,
    };
    let (stop, stopped) = watch::channel(false);
    let log = Arc::new(Log::default());
    let running = tokio::spawn(run(plan, Arc::clone(&log), stopped));
    while log.report(Duration::ZERO).requests < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send_replace(true);
    let report = running.await.unwrap();
    assert!(report.requests >= 3 && report.requests == report.offered && report.failed == 0, "{report}");
    assert!(log.progress().contains(" 0 failed"), "{}", log.progress());
}

#[test]
fn targets_are_read() {
    let read =
        |url: &str, connect| Target::new(url, connect, HeaderMap::new(), &Trust::Anybody).map_err(|e| e.to_string());
    assert_eq!(format!("{:?}", read("http://a.test:81/x?y", None).unwrap()), "Target(a.test:81/x?y)");
    assert_eq!(format!("{:?}", read("https://a.test", Some("[::1]:8443")).unwrap()), "Target(a.test/)");
    for bad in ["", "/x", "a.test", "ftp://a.test/", "http://"] {
        assert!(read(bad, None).is_err(), "{bad}");
    }
    assert_eq!(read("http://a.test/", Some("b.test")).unwrap_err(), "\"b.test\" is not of the form HOST:PORT");
}
