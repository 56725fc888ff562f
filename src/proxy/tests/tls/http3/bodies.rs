//! Bodies both ways.

use super::raw::{MESSAGE_ERROR, frame, length, post, reset};
use super::*;

#[tokio::test]
async fn bodies_pass_whole_both_ways() {
    let (origin, authority) = (Origin::start(Reply::echo()).await, Authority::new("ca"));
    let gateway =
        Gateway::with(vec![host("a", &["a.test"], &origin).with(&authority.issue(&["a.test"]))], with_http3).await;
    let client = client(&authority).http3(&gateway, "a.test").await;
    let sent: Vec<u8> = (0..2_000_000_u32).map(|i| (i % 251) as u8).collect();
    let mut sender = client.send.clone();
    let call = sender.send_request(request("POST", "a.test", "/", &[])).await.unwrap();
    let (mut up, mut down) = call.split();
    let body = sent.clone();
    let sending = tokio::spawn(async move {
        for piece in body.chunks(10_000) {
            up.send_data(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        up.finish().await.unwrap();
    });
    assert_eq!(down.recv_response().await.unwrap().status(), 200);
    let mut received = Vec::new();
    while let Some(mut data) = down.recv_data().await.unwrap() {
        received.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    sending.await.unwrap();
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
}

#[tokio::test]
async fn a_body_of_known_length_is_sent_as_such_and_its_connection_is_used_again() {
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let (gateway, authority) = gateway(&origin).await;
    let mut client = client(&authority).http3(&gateway, "a.test").await;
    for _ in 0..3 {
        let mut call = client.begin(request("POST", "a.test", "/", &[("content-length", "5")])).await;
        call.send_data(Bytes::from_static(b"hello")).await.unwrap();
        call.finish().await.unwrap();
        assert_eq!(whole(&mut call).await.unwrap().body, b"ok");
    }
    assert_eq!(origin.bodies(), ["hello"; 3]);
    assert!(origin.requests()[0].contains("content-length: 5\r\n"));
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn trailers_pass_where_they_were_announced() {
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let (gateway, authority) = gateway(&origin).await;
    let mut client = client(&authority).http3(&gateway, "a.test").await;
    let mut call = client.begin(request("POST", "a.test", "/", &[("trailer", "x-sum")])).await;
    call.send_data(Bytes::from_static(b"hello")).await.unwrap();
    let trailers = [("x-sum", "7"), ("client-cert", "forged")];
    let trailers = trailers.map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
    call.send_trailers(trailers.into_iter().collect()).await.unwrap();
    call.finish().await.unwrap();
    assert_eq!(whole(&mut call).await.unwrap().body, b"ok");
    assert_eq!(origin.bodies(), ["5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n"]);
}

#[tokio::test]
async fn a_body_that_is_kept_back_is_asked_for() {
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let (gateway, authority) = gateway(&origin).await;
    let mut client = client(&authority).http3(&gateway, "a.test").await;
    let fields = [("expect", "100-continue"), ("content-length", "5")];
    let mut call = client.begin(request("POST", "a.test", "/", &fields)).await;
    assert_eq!(call.recv_response().await.unwrap().status(), 100);
    call.send_data(Bytes::from_static(b"hello")).await.unwrap();
    call.finish().await.unwrap();
    assert_eq!(whole(&mut call).await.unwrap().body, b"ok");
    assert!(!origin.requests()[0].contains("expect"));
}

#[tokio::test]
async fn half_a_body_is_never_taken_for_a_whole_one() {
    const INTERNAL_ERROR: u64 = 0x102;
    const FRAME_ERROR: u64 = 0x106;
    const EXCESSIVE_LOAD: u64 = 0x107;
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let (gateway, authority) = gateway(&origin).await;
    let quic = client(&authority).quic(&gateway, "a.test").await.unwrap();
    let data = |bytes: &[u8]| frame(0, bytes);
    assert_eq!(reset(&quic, &[post(&length("5")), data(b"hello")].concat(), true).await, None, "a good one");
    for (what, request) in [
        ("inside of a frame", [post(&[]), vec![0, 40, b'h', b'a']].concat()),
        ("inside of a head of a frame", [post(&[]), data(b"hello"), vec![0]].concat()),
        ("shorter than announced", [post(&length("6")), data(b"hello")].concat()),
        ("longer than announced", [post(&length("4")), data(b"hello")].concat()),
    ] {
        let before = origin.bodies().len();
        // What the gateway answers while the body breaks off is 400, or nothing where the answer was to come of it.
        let code = reset(&quic, &request, true).await;
        assert!(matches!(code, None | Some(MESSAGE_ERROR | INTERNAL_ERROR | FRAME_ERROR)), "{what}: {code:?}");
        assert_eq!(origin.bodies().len(), before, "{what}");
    }
    // Lengths are judged before anything has come of them.
    let endless = [&[1][..], &(0x8000_0000_u32 | 1 << 20).to_be_bytes()].concat();
    let code = reset(&quic, &endless, false).await;
    assert!(code.is_none() || code == Some(EXCESSIVE_LOAD), "{code:?}");
    gateway
        .wait_for(|gateway| gateway.metric("lockgate_requests_refused_total{reason=\"headers-too-large\"}") == 1)
        .await;
    assert_eq!(reset(&quic, &[post(&length("5")), data(b"again")].concat(), true).await, None, "others go on");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_reset() {
    let broken = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
    let origin = Origin::start(Reply::once_then_close(broken)).await;
    let (gateway, authority) = gateway(&origin).await;
    let mut client = client(&authority).http3(&gateway, "a.test").await;
    let error = client.send(request("GET", "a.test", "/", &[])).await.unwrap_err();
    assert!(format!("{error:?}").contains("H3_INTERNAL_ERROR"), "{error:?}");
    // The connection is as good as before.
    assert_eq!(client.get("b.test", "/").await.head.status(), 404);
}

#[tokio::test]
async fn a_request_is_cancelled_with_its_stream() {
    let origin = Origin::start(Reply::never()).await;
    let (gateway, authority) = gateway(&origin).await;
    let mut client = client(&authority).http3(&gateway, "a.test").await;
    let mut call = client.begin(request("GET", "a.test", "/", &[])).await;
    call.finish().await.unwrap();
    origin.wait_for_requests(1).await;
    assert_eq!(gateway.lifecycle().in_flight(), 1);
    call.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
    gateway.wait_for(|gateway| gateway.lifecycle().in_flight() == 0).await;
    assert_eq!(gateway.metric("lockgate_requests_refused_total{reason=\"client-gone\"}"), 1);
}
