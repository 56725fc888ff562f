//! Leaving.

use super::*;
use crate::lifecycle::Phase;

#[tokio::test]
async fn a_connection_is_asked_to_leave_and_what_it_asks_meanwhile_is_served() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (gateway, authority) = gateway(&origin).await;
    let client = client(&authority);
    let mut old = client.http3(&gateway, "a.test").await;
    let mut unused = client.http3(&gateway, "a.test").await;
    assert_eq!(old.get("a.test", "/").await.head.status(), 200);
    gateway.lifecycle().drain().unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), old.ended).await.unwrap().unwrap();
    assert!(ended.is_h3_no_error(), "{ended}");
    // While the gateway still serves, so does every connection that has not asked for anything yet, and a new one.
    let mut new = client.http3(&gateway, "a.test").await;
    for connection in [&mut unused, &mut new] {
        assert_eq!(connection.get("a.test", "/").await.head.status(), 200);
    }
    for connection in [unused, new] {
        let ended = tokio::time::timeout(Duration::from_secs(20), connection.ended).await.unwrap().unwrap();
        assert!(ended.is_h3_no_error(), "{ended}");
    }
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn an_open_stream_ends_in_order_before_its_connection() {
    let origin = Origin::start(Reply::echo()).await;
    let (gateway, authority) = gateway(&origin).await;
    let mut client = client(&authority).http3(&gateway, "a.test").await;
    let mut call = client.begin(request("POST", "a.test", "/", &[])).await;
    call.send_data(Bytes::from_static(b"one")).await.unwrap();
    assert_eq!(call.recv_response().await.unwrap().status(), 200);
    gateway.terminate().await;
    gateway.wait_for(|gateway| gateway.lifecycle().phase() == Phase::Draining).await;
    let holders = gateway.lifecycle().holders();
    assert_eq!(holders.iter().map(|h| (&*h.route, &*h.protocol)).collect::<Vec<_>>(), [("test/route /", "h3")]);
    call.send_data(Bytes::from_static(b"two")).await.unwrap();
    call.finish().await.unwrap();
    let mut body = Vec::new();
    while let Some(mut data) = call.recv_data().await.unwrap() {
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    assert_eq!(body, b"onetwo");
    gateway.wait_for(|gateway| gateway.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 0);
    let ended = client.ended.await.unwrap();
    assert!(ended.is_h3_no_error(), "{ended}");
}

#[tokio::test]
async fn what_is_left_is_cut_and_its_socket_closed() {
    let origin = Origin::start(Reply::never()).await;
    let (gateway, authority) = gateway(&origin).await;
    let mut client = client(&authority).http3(&gateway, "a.test").await;
    let mut call = client.begin(request("GET", "a.test", "/", &[])).await;
    call.finish().await.unwrap();
    origin.wait_for_requests(1).await;
    gateway.terminate().await;
    gateway.wait_for(|gateway| gateway.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 1);
    let address = gateway.address(TLS);
    gateway.join().await;
    std::net::UdpSocket::bind(address).expect("nobody listens any more");
}
