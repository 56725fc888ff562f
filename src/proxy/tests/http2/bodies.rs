//! Bodies and trailers, and what ends them early.

use std::time::Duration;

use h2::Reason;

use super::*;

/// Reads what has come of a body, and opens the windows again.
async fn read_some(stream: &mut RecvStream) -> Bytes {
    let data = stream.data().await.unwrap().unwrap();
    stream.flow_control().release_capacity(data.len()).unwrap();
    data
}

async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes, ends: bool) {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let capacity = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
        let piece = data.split_to(capacity.min(data.len()));
        stream.send_data(piece, ends && data.is_empty()).unwrap();
    }
}

#[tokio::test]
async fn bodies_stream_both_ways_before_they_are_complete() {
    let origin = Origin::start(Reply::echo()).await;
    let gateway = gateway(&origin).await;
    let mut client = Client::connect(&gateway).await;
    let (response, mut upload) = client.begin(request("POST", "/", &[]), false).await;
    let mut download = response.await.unwrap().into_body();
    for piece in ["first", "second", "third"] {
        upload.send_data(piece.into(), false).unwrap();
        assert_eq!(read_some(&mut download).await, piece);
    }
    upload.send_data(Bytes::new(), true).unwrap();
    while let Some(data) = download.data().await {
        assert_eq!(data.unwrap(), "");
    }
    assert!(download.is_end_stream());
}

#[tokio::test]
async fn large_bodies_arrive_whole_both_ways() {
    let origin = Origin::start(Reply::echo()).await;
    let gateway = gateway(&origin).await;
    let mut client = Client::connect(&gateway).await;
    let (response, mut upload) = client.begin(request("POST", "/", &[]), false).await;
    let sent: Bytes = (0..3_000_001_u32).map(|n| u8::try_from(n % 26).unwrap() + b'a').collect();
    let (answer, ()) =
        tokio::join!(async { whole(response.await.unwrap()).await.unwrap() }, send(&mut upload, sent.clone(), true));
    assert!(answer.body.as_bytes() == sent, "{} bytes", answer.body.len());
}

#[tokio::test]
async fn a_known_length_is_kept_and_an_unknown_one_is_chunked() {
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let gateway = gateway(&origin).await;
    let mut client = Client::connect(&gateway).await;
    for fields in [&[("content-length", "5")][..], &[]] {
        let (response, mut upload) = client.begin(request("PUT", "/", fields), false).await;
        upload.send_data("hello".into(), true).unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
    }
    client.send(request("POST", "/", &[])).await;
    let (known, unknown, none) = (&origin.requests()[0], &origin.requests()[1], &origin.requests()[2]);
    assert!(known.contains("content-length: 5\r\n") && !known.contains("transfer-encoding"), "{known}");
    assert!(unknown.contains("transfer-encoding: chunked\r\n") && !unknown.contains("content-length"), "{unknown}");
    assert!(!none.contains("transfer-encoding"), "{none}");
    assert_eq!(origin.bodies()[..2], ["hello", "5\r\nhello\r\n0\r\n\r\n"]);
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let origin = Origin::start(Reply::read_all_then(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\ngrpc-status: 10\r\ngrpc-message: a%20b\r\n\
         content-length: 7\r\n\r\n",
    ))
    .await;
    let gateway = gateway(&origin).await;
    let mut client = Client::connect(&gateway).await;
    let (response, mut upload) = client.begin(request("POST", "/", &[("trailer", "x-sum")]), false).await;
    upload.send_data("hi".into(), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "5".parse().unwrap());
    trailers.insert("host", "evil".parse().unwrap());
    upload.send_trailers(trailers).unwrap();
    let answer = whole(response.await.unwrap()).await.unwrap();
    assert_eq!(answer.body, "ok");
    let trailers = answer.trailers.unwrap();
    assert_eq!(trailers.len(), 2, "framing has no place in trailers: {trailers:?}");
    assert_eq!(
        (&trailers["grpc-status"], &trailers["grpc-message"]),
        (&"10".parse().unwrap(), &"a%20b".parse().unwrap())
    );
    assert_eq!(origin.bodies(), ["2\r\nhi\r\n0\r\nx-sum: 5\r\n\r\n"]);
}

#[tokio::test]
async fn a_body_that_the_client_keeps_back_is_asked_for() {
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let gateway = gateway(&origin).await;
    let mut client = Client::connect(&gateway).await;
    let fields = [("expect", "100-continue"), ("content-length", "5")];
    let (mut response, mut upload) = client.begin(request("PUT", "/", &fields), false).await;
    let interim = std::future::poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
    assert_eq!(interim.status(), 100);
    upload.send_data("hello".into(), true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    assert!(!origin.requests()[0].contains("expect"));

    // Not where the answer is known without it.
    let gateway = Gateway::start(vec![selector(vec![rule("/other", &[(&origin, 1)])])]).await;
    let (mut response, _upload) = Client::connect(&gateway).await.begin(request("PUT", "/", &fields), false).await;
    assert!(std::future::poll_fn(|cx| response.poll_informational(cx)).await.is_none());
    assert_eq!(response.await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_client_that_cancels_frees_its_backend_at_once_and_nothing_else() {
    let origin = Origin::start(Reply::never()).await;
    let gateway = gateway(&origin).await;
    let mut client = Client::connect(&gateway).await;
    let (first, mut stream) = client.begin(request("GET", "/", &[]), true).await;
    let (second, other) = client.begin(request("GET", "/", &[]), true).await;
    origin.wait_for_requests(2).await;
    stream.send_reset(Reason::CANCEL);
    drop(first);
    gateway.wait_for(|g| g.metrics().contains(r#"state="active"} 1"#)).await;
    gateway.wait_for(|g| g.metrics().contains(r#"lockgate_requests_refused_total{reason="client-gone"} 1"#)).await;
    assert_eq!(gateway.lifecycle().in_flight(), 1);
    // The connection goes, and with it the other.
    drop((client, second, other));
    gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
    gateway.wait_for(|g| g.metrics().contains(r#"state="active"} 0"#)).await;
}

#[tokio::test]
async fn a_client_that_cancels_in_the_middle_of_an_answer_frees_its_backend() {
    let (_origin, gateway) = answering("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await;
    let mut client = Client::connect(&gateway).await;
    let mut download = client.head(request("GET", "/", &[])).await.into_body();
    assert_eq!(read_some(&mut download).await, "half");
    drop(download);
    gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
    gateway.wait_for(|g| g.metrics().contains(r#"state="active"} 0"#)).await;
    assert!(gateway.metrics().contains(r#"lockgate_requests_refused_total{reason="client-gone"} 1"#));
}

#[tokio::test]
async fn an_answer_that_breaks_off_never_looks_whole() {
    for reply in [
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello",
    ] {
        let (origin, gateway) = answering(reply).await;
        origin.close_after_reply();
        let mut client = Client::connect(&gateway).await;
        let response = client.head(request("GET", "/", &[])).await;
        let error = whole(response).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{error}");
        assert!(!client.ended().await, "the connection stays");
        assert!(gateway.metrics().contains(r#"lockgate_requests_refused_total{reason="upstream-reset"} 1"#));
    }
}

#[tokio::test]
async fn a_stream_without_a_byte_for_too_long_ends_and_no_other() {
    let origin = Origin::start(Reply::never()).await;
    let other = Origin::start(Reply::always(OK)).await;
    let mut silent = rule("/silent", &[(&origin, 1)]);
    silent.timeouts.idle = Duration::from_millis(150);
    let gateway = Gateway::start(vec![selector(vec![silent, rule("/ok", &[(&other, 1)])])]).await;
    let mut client = Client::connect(&gateway).await;
    let answer = client.get("/silent").await;
    assert_eq!((answer.head.status.as_u16(), answer.field("x-lockgate-reason")), (504, Some("idle-timeout")));
    assert_eq!(client.get("/ok").await.head.status, 200);
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_its_own_answer_only() {
    const LARGE: usize = 200_000;
    let large: &'static str = format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n{}", "x".repeat(LARGE)).leak();
    let slow = Origin::start(Reply::always(large)).await;
    let quick = Origin::start(Reply::always(OK)).await;
    let mut stalled = rule("/large", &[(&slow, 1)]);
    stalled.timeouts.idle = Duration::from_millis(300);
    let gateway = Gateway::start(vec![selector(vec![stalled, rule("/", &[(&quick, 1)])])]).await;
    let mut builder = h2::client::Builder::new();
    builder.initial_connection_window_size(1 << 20);
    let mut client = Client::with(&gateway, &mut builder).await;
    let held = client.head(request("GET", "/large", &[])).await;
    for _ in 0..5 {
        assert_eq!(client.get("/").await.body, "ok");
    }
    // It gets all of it when it reads in time, and is cut off when it does not.
    assert_eq!(whole(client.head(request("GET", "/large", &[])).await).await.unwrap().body.len(), LARGE);
    gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
    let error = whole(held).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::CANCEL));
    assert!(!client.ended().await);
}

#[tokio::test]
async fn an_upload_waits_for_its_backend_and_holds_up_no_other() {
    // Reads the head and then nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let id = ir::ClusterId::host("127.0.0.1", listener.local_addr().unwrap().port());
    let quick = Origin::start(Reply::always(OK)).await;
    let mut stalled = rule("/stalled", &[(&quick, 1)]);
    let ir::Action::Forward(backends) = &mut stalled.action else { unreachable!() };
    backends[0].target = ir::BackendTarget::Cluster(id);
    let gateway = Gateway::start(vec![selector(vec![stalled, rule("/", &[(&quick, 1)])])]).await;
    let mut client = Client::connect(&gateway).await;
    let mut uploads = Vec::new();
    for _ in 0..4 {
        let (response, mut upload) = client.begin(request("PUT", "/stalled", &[]), false).await;
        let sending = tokio::spawn(async move {
            send(&mut upload, Bytes::from(vec![b'x'; 64 << 20]), true).await;
        });
        uploads.push((response, sending));
    }
    let backend = listener.accept().await.unwrap();
    for _ in 0..5 {
        assert_eq!(client.get("/").await.body, "ok");
    }
    assert!(uploads.iter().all(|(_, sending)| !sending.is_finished()), "the windows hold them back");
    drop(backend);
}
