//! Connections: how they begin, how many streams they have, how they end without a drain.

use std::time::Duration;

use h2::Reason;

use super::raw::{self, Raw};
use super::*;
use crate::api;

async fn gateway_and(origin: &Origin, change: impl FnOnce(&mut crate::settings::Settings)) -> Gateway {
    Gateway::with(vec![selector(vec![rule("/", &[(origin, 1)])])], change).await
}

#[tokio::test]
async fn both_protocols_share_a_listener() {
    let (origin, gateway) = answering(OK).await;
    let mut client = Client::connect(&gateway).await;
    for _ in 0..10 {
        assert_eq!(client.get("/").await.body, "ok");
        assert!(gateway.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.ends_with("ok"));
    }
    assert_eq!(origin.requests().len(), 20);
    assert!(gateway.send("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn a_preface_in_pieces_is_one() {
    let (_origin, gateway) = answering(OK).await;
    let mut client = Raw::silent(&gateway).await;
    for byte in [raw::PREFACE, &raw::frame(raw::SETTINGS, 0, 0, &[]), &raw::get(1)].concat() {
        client.write(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.next(raw::HEADERS).await.stream, 1);
}

#[tokio::test]
async fn requests_of_one_connection_do_not_wait_for_each_other() {
    let slow = Origin::start(Reply::never()).await;
    let quick = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/slow", &[(&slow, 1)]), rule("/", &[(&quick, 1)])])]).await;
    let mut client = Client::connect(&gateway).await;
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(client.begin(request("GET", "/slow", &[]), true).await);
    }
    slow.wait_for_requests(20).await;
    for _ in 0..10 {
        assert_eq!(client.get("/").await.body, "ok");
    }
    assert_eq!(gateway.lifecycle().in_flight(), 20);
    let holders = gateway.lifecycle().holders();
    assert!(holders.iter().all(|holder| holder.protocol == "h2" && holder.route == "test/route /slow"));
    assert_eq!(holders.len(), 20);
}

#[tokio::test]
async fn streams_over_the_limit_are_refused_and_the_others_served() {
    let origin = Origin::start(Reply::never()).await;
    let gateway = gateway_and(&origin, |settings| settings.limits.http2.max_concurrent_streams = 3).await;
    let mut client = Raw::connect(&gateway).await;
    let settings = client.frame().await.unwrap();
    assert_eq!(settings.kind, raw::SETTINGS);
    assert!(settings.payload.windows(6).any(|setting| setting == [0, 3, 0, 0, 0, 3]), "{settings:?}");
    client.write(&(0..5).flat_map(|n| raw::get(2 * n + 1)).collect::<Vec<u8>>()).await;
    for stream in [7, 9] {
        let refusal = client.next(raw::RST_STREAM).await;
        assert_eq!((refusal.stream, refusal.number(0)), (stream, 7));
    }
    origin.wait_for_requests(3).await;
    assert_eq!(gateway.lifecycle().in_flight(), 3);
}

#[tokio::test]
async fn a_connection_without_a_request_for_too_long_is_asked_to_leave_and_closed() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = gateway_and(&origin, |s| s.timeouts.keep_alive = api::Duration::from_millis(200)).await;
    let mut client = Raw::connect(&gateway).await;
    client.write(&raw::get(1)).await;
    let first = client.next(raw::GOAWAY).await;
    assert_eq!((first.number(0), first.number(4)), (u32::MAX >> 1, raw::NO_ERROR));
    let ping = client.next(raw::PING).await;
    // A request that was on its way is served.
    client.write(&raw::get(3)).await;
    assert_eq!(client.next(raw::HEADERS).await.stream, 3);
    client.write(&raw::frame(raw::PING, raw::ACK, 0, &ping.payload)).await;
    let (last, code) = client.goaway().await.unwrap();
    assert_eq!((last, code), (3, raw::NO_ERROR));
    drop(client);
    gateway.wait_for(|g| g.metrics().contains(r#"lockgate_connections{listener="http"} 0"#)).await;
}

#[tokio::test]
async fn a_long_stream_keeps_its_connection() {
    let origin = Origin::start(Reply::never()).await;
    let gateway = gateway_and(&origin, |s| s.timeouts.keep_alive = api::Duration::from_millis(100)).await;
    let mut client = Client::connect(&gateway).await;
    let (mut response, _stream) = client.begin(request("GET", "/", &[]), true).await;
    origin.wait_for_requests(1).await;
    tokio::time::timeout(Duration::from_millis(600), &mut response).await.unwrap_err();
    assert_eq!(gateway.lifecycle().in_flight(), 1);
}

#[tokio::test]
async fn who_begins_and_does_not_go_on_is_closed_in_time() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = gateway_and(&origin, |s| s.timeouts.header = api::Duration::from_millis(200)).await;
    let half_head = [raw::PREFACE, &raw::frame(raw::SETTINGS, 0, 0, &[]), &raw::get(1)[..14]].concat();
    let block = raw::block(&raw::GET);
    let no_end =
        [raw::PREFACE, &raw::frame(raw::SETTINGS, 0, 0, &[]), &raw::frame(raw::HEADERS, 0, 1, &block)].concat();
    for begin in [&b""[..], &raw::PREFACE[..10], &half_head, &no_end] {
        let mut client = Raw::silent(&gateway).await;
        client.write(begin).await;
        while client.frame().await.is_some() {}
    }
    assert!(gateway.metrics().contains(r#"lockgate_requests_refused_total{reason="header-timeout"} 3"#));
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn a_broken_frame_ends_the_connection_with_its_reason() {
    let (origin, gateway) = answering(OK).await;
    let mut client = Raw::connect(&gateway).await;
    // DATA before any request (RFC 9113, section 5.1).
    client.write(&raw::frame(raw::DATA, 0, 1, b"x")).await;
    assert_eq!(client.goaway().await.unwrap().1, raw::PROTOCOL_ERROR);
    gateway.wait_for(|g| g.metrics().contains(r#"lockgate_requests_refused_total{reason="bad-request"} 1"#)).await;
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn a_backend_that_left_is_one_streams_failure() {
    let origin = Origin::start(Reply::close_without_answer()).await;
    let gateway = gateway(&origin).await;
    let mut client = Client::connect(&gateway).await;
    let answer = client.send(request("POST", "/", &[])).await;
    assert_eq!((answer.head.status.as_u16(), answer.field("x-lockgate-reason")), (502, Some("upstream-reset")));
    let (response, mut stream) = client.begin(request("GET", "/", &[]), true).await;
    stream.send_reset(Reason::CANCEL);
    response.await.unwrap_err();
    assert!(!client.ended().await);
}

#[tokio::test]
async fn a_connection_that_has_had_its_requests_or_its_time_is_told_to_leave_and_serves_what_was_on_its_way() {
    type Change = fn(&mut crate::settings::Settings);
    let by_number: Change = |settings| settings.limits.max_requests_per_connection = Some(2);
    let by_age: Change = |settings| settings.limits.max_connection_age = Some("200ms".parse().unwrap());
    for (change, asked) in [(by_number, 2_u32), (by_age, 1)] {
        let origin = Origin::start(Reply::always(OK)).await;
        let gateway = gateway_and(&origin, change).await;
        let mut client = Raw::connect(&gateway).await;
        for number in 0..asked {
            client.write(&raw::get(1 + 2 * number)).await;
        }
        let first = client.next(raw::GOAWAY).await;
        assert_eq!((first.number(0), first.number(4)), (u32::MAX >> 1, raw::NO_ERROR));
        let ping = client.next(raw::PING).await;
        client.write(&raw::get(7)).await;
        while client.next(raw::HEADERS).await.stream != 7 {}
        client.write(&raw::frame(raw::PING, raw::ACK, 0, &ping.payload)).await;
        let second = client.next(raw::GOAWAY).await;
        assert_eq!((second.number(0), second.number(4)), (7, raw::NO_ERROR));
        while client.frame().await.is_some() {}
        assert_eq!(origin.requests().len(), asked as usize + 1);
    }
}
