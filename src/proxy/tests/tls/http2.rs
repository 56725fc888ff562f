//! HTTP/2 over TLS.

use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;

use super::super::h2c::SERVICE;
use super::super::h2c::origin::{Call, Origin as Server};
use super::super::harness::service_rule;
use super::*;

/// A connection on which HTTP/2 was agreed on.
async fn connect(client: &TlsClient, gateway: &Gateway, host: &str) -> SendRequest<Bytes> {
    let stream = client.connect(gateway, host).await.unwrap().stream;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (send, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move {
        // How it ended is seen by the requests on it.
        let _ = connection.await;
    });
    send
}

async fn get(connection: &mut SendRequest<Bytes>, host: &str) -> u16 {
    std::future::poll_fn(|cx| connection.poll_ready(cx)).await.unwrap();
    let request = Request::get(format!("https://{host}/")).body(()).unwrap();
    let (answer, _) = connection.send_request(request, true).unwrap();
    answer.await.unwrap().status().as_u16()
}

fn client(authority: &Authority) -> TlsClient {
    let mut client = TlsClient::new(authority);
    client.config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    client
}

#[tokio::test]
async fn it_is_agreed_on_and_requests_are_of_https() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let pair = authority.issue(&["a.test"]);
    let gateway = start(vec![host("a", &["a.test"], &origin).with(&pair)]).await;
    let mut connection = connect(&client(&authority), &gateway, "a.test").await;
    for _ in 0..3 {
        assert_eq!(get(&mut connection, "a.test").await, 200);
    }
    let seen = origin.requests().remove(0);
    for line in ["host: a.test\r\n", "x-forwarded-proto: https\r\n", "x-forwarded-port: 443\r\n"] {
        assert!(seen.contains(line), "{line} not in {seen}");
    }
}

#[tokio::test]
async fn a_connection_is_good_for_the_hosts_of_its_certificate() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let [shared, other] = [&["a.test", "b.test"][..], &["c.test"]].map(|names| authority.issue(names));
    let gateway = start(vec![
        host("a", &["a.test", "b.test"], &origin).with(&shared),
        host("c", &["c.test"], &origin).with(&other),
    ])
    .await;
    let mut connection = connect(&client(&authority), &gateway, "a.test").await;
    for (host, status) in [("a.test", 200), ("b.test", 200), ("c.test", 421), ("d.test", 404), ("a.test", 200)] {
        assert_eq!(get(&mut connection, host).await, status, "{host}");
    }
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn a_clients_certificate_is_told_for_each_stream() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let (pair, own) = (authority.issue(&["a.test"]), authority.issue_to_client("me"));
    let asked = host("a", &["a.test"], &origin).with(&pair).asking(clients::asked(&authority, true));
    let gateway = start(vec![asked]).await;
    let mut showing = TlsClient::showing(&authority, &own);
    showing.config.alpn_protocols = vec![b"h2".to_vec()];
    let mut connection = connect(&showing, &gateway, "a.test").await;
    for _ in 0..2 {
        assert_eq!(get(&mut connection, "a.test").await, 200);
    }
    assert!(origin.requests().iter().all(|request| request.contains("client-cert: :")));
}

#[tokio::test]
async fn a_drain_asks_to_leave_and_ends_cleanly() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let pair = authority.issue(&["a.test"]);
    let gateway = start(vec![host("a", &["a.test"], &origin).with(&pair)]).await;
    let mut connection = connect(&client(&authority), &gateway, "a.test").await;
    assert_eq!(get(&mut connection, "a.test").await, 200);
    gateway.lifecycle().drain().unwrap();
    let has_left = |_: &Gateway| {
        let mut context = Context::from_waker(Waker::noop());
        matches!(connection.clone().poll_ready(&mut context), Poll::Ready(Err(_)))
    };
    gateway.wait_for(has_left).await;
}

#[tokio::test]
async fn a_call_of_grpc_ends_with_its_own_status_or_that_of_the_gateway() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let server = Server::start(None, |mut call: Call| async move {
        call.read().await;
        let mut stream = call.begin(&[("content-type", "application/grpc")]);
        stream.send_data(Bytes::from_static(b"\0\0\0\0\x01a"), false).unwrap();
        let status = [("grpc-status", "10"), ("grpc-message", "a%20b")];
        let trailers = status.map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
        stream.send_trailers(trailers.into_iter().collect()).unwrap();
    })
    .await;
    let mut selector = host("a", &["a.test"], &origin).with(&authority.issue(&["a.test"]));
    selector.rules = vec![Arc::new(service_rule("/", SERVICE))];
    let gateway = start(vec![selector]).await;
    let mut connection = connect(&client(&authority), &gateway, "a.test").await;
    let mut call = async || {
        std::future::poll_fn(|cx| connection.poll_ready(cx)).await.unwrap();
        let request = Request::post("https://a.test/S/M").header("content-type", "application/grpc").body(()).unwrap();
        connection.send_request(request, true).unwrap().0.await.unwrap()
    };
    let refused = call().await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["grpc-status"]), (200, &"14".parse().unwrap()));
    assert!(refused.body().is_end_stream());
    gateway.endpoints(SERVICE, &[server.address]).await;
    let mut body = call().await.into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), &b"\0\0\0\0\x01a"[..]);
    assert!(body.data().await.is_none());
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(
        (&trailers["grpc-status"], &trailers["grpc-message"]),
        (&"10".parse().unwrap(), &"a%20b".parse().unwrap())
    );
}
