//! Leaving: every connection is told in two steps, what was asked is answered.

use super::raw::{self, Raw};
use super::*;
use crate::lifecycle::Phase;

#[tokio::test]
async fn every_connection_is_told_to_leave_and_serves_what_was_on_its_way() {
    let (origin, gateway) = answering(OK).await;
    let mut client = Raw::connect(&gateway).await;
    client.write(&raw::get(1)).await;
    client.next(raw::DATA).await;
    gateway.lifecycle().drain().unwrap();
    let first = client.next(raw::GOAWAY).await;
    assert_eq!((first.number(0), first.number(4)), (u32::MAX >> 1, raw::NO_ERROR));
    let ping = client.next(raw::PING).await;
    client.write(&raw::get(3)).await;
    assert_eq!(client.next(raw::HEADERS).await.stream, 3);
    client.write(&raw::frame(raw::PING, raw::ACK, 0, &ping.payload)).await;
    let second = client.next(raw::GOAWAY).await;
    assert_eq!((second.number(0), second.number(4)), (3, raw::NO_ERROR));
    // What comes now is known to the client not to have been processed.
    client.write(&raw::get(5)).await;
    while let Some(frame) = client.frame().await {
        assert_ne!(frame.stream, 5);
    }
    assert_eq!(origin.requests().len(), 2);
    drop(client);
    gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
}

#[tokio::test]
async fn a_new_connection_is_served_and_told_while_the_gateway_still_serves() {
    let (_origin, gateway) = answering(OK).await;
    gateway.lifecycle().drain().unwrap();
    let mut client = Client::connect(&gateway).await;
    let answer = client.get("/").await;
    assert_eq!(answer.head.status, 200);
    assert_eq!(answer.field("connection"), None);
    assert!(client.ended().await);
}

#[tokio::test]
async fn a_drain_waits_for_streams_and_cuts_what_is_left() {
    let origin = Origin::start(Reply::never()).await;
    let gateway = gateway(&origin).await;
    let mut client = Client::connect(&gateway).await;
    let (response, _stream) = client.begin(request("GET", "/", &[]), true).await;
    origin.wait_for_requests(1).await;
    gateway.terminate().await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Draining).await;
    let holders = gateway.lifecycle().holders();
    assert_eq!(holders.iter().map(|h| (&*h.route, &*h.protocol)).collect::<Vec<_>>(), [("test/route /", "h2")]);
    assert!(holders[0].peer.starts_with("127.0.0.1:"), "{holders:?}");
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 1);
    response.await.unwrap_err();
}

#[tokio::test]
async fn a_drain_waits_until_a_slow_client_has_read_its_answer() {
    let large: &'static str = format!("HTTP/1.1 200 OK\r\ncontent-length: 3000\r\n\r\n{}", "x".repeat(3000)).leak();
    let (_origin, gateway) = answering(large).await;
    // A window of a thousand bytes.
    let mut client = Raw::with(&gateway, &[(4, 1000)]).await;
    client.write(&raw::get(1)).await;
    assert_eq!(client.next(raw::DATA).await.payload.len(), 1000);
    gateway.terminate().await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Draining).await;
    assert_eq!(gateway.lifecycle().in_flight(), 1);
    client.write(&raw::frame(raw::WINDOW_UPDATE, 0, 1, &5000_u32.to_be_bytes())).await;
    let rest = client.next(raw::DATA).await;
    assert_eq!((rest.payload.len(), rest.ends_stream()), (2000, true));
    drop(client);
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 0);
}

#[tokio::test]
async fn a_stream_that_comes_too_late_is_refused_with_503() {
    let origin = Origin::start(Reply::never()).await;
    let gateway = gateway(&origin).await;
    let mut client = Raw::connect(&gateway).await;
    client.write(&raw::get(1)).await;
    origin.wait_for_requests(1).await;
    gateway.terminate().await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Draining).await;
    // The client has not said that it knows of the GOAWAY.
    client.write(&raw::get(3)).await;
    let answer = client.next(raw::HEADERS).await;
    // A status that is not in the static table, as a literal of three digits: not 200, which is one byte.
    assert_eq!(answer.stream, 3);
    assert_ne!(answer.payload[0], 0x88);
    gateway.wait_for(|g| g.metrics().contains(r#"lockgate_requests_refused_total{reason="draining"} 1"#)).await;
    assert_eq!(origin.requests().len(), 1);
}
