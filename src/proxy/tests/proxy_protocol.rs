//! Listeners on which a load balancer speaks first.

mod told;

use super::harness::{Gateway, Origin, Reply, rule, selector};
use crate::settings::Settings;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 6.6.6.6\r\n\r\n";

async fn start(origin: &Origin, trusted: &str) -> Gateway {
    let change = |settings: &mut Settings| {
        settings.listeners[0].proxy_protocol = true;
        settings.trusted_proxies = vec![trusted.parse().unwrap()];
    };
    Gateway::with(vec![selector(vec![rule("/", &[(origin, 1)])])], change).await
}

fn refused(gateway: &Gateway, reason: &str) -> Option<u64> {
    let name = format!("lockgate_requests_refused_total{{reason=\"{reason}\"}} ");
    gateway.metrics().lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
}

#[tokio::test]
async fn a_connection_without_a_good_header_is_closed_and_counted() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = start(&origin, "127.0.0.0/8").await;
    let malformed: [&[u8]; 4] = [
        REQUEST.as_bytes(),
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\0",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
    ];
    for (count, bytes) in (1..).zip(malformed) {
        let mut client = gateway.connect().await;
        client.write(bytes).await;
        assert_eq!(client.rest_or_reset().await, "", "{}", bytes.escape_ascii());
        gateway.wait_for(|gateway| refused(gateway, "proxy-header") == Some(count)).await;
    }
    // One that says nothing is a probe.
    drop(gateway.connect().await);
    gateway.wait_for(|gateway| gateway.metrics().contains("lockgate_connections{listener=\"http\"} 0")).await;
    assert_eq!((refused(&gateway, "proxy-header"), refused(&gateway, "header-timeout")), (Some(4), Some(0)));
    assert_eq!(origin.requests().len(), 0);
}

#[tokio::test]
async fn only_trusted_sources_say_who_their_clients_are() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = start(&origin, "10.0.0.0/8").await;
    let mut client = gateway.connect().await;
    client.write("PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n").await;
    assert_eq!(client.rest_or_reset().await, "");
    gateway.wait_for(|gateway| refused(gateway, "proxy-untrusted") == Some(1)).await;
    assert_eq!(origin.requests().len(), 0);
}

#[tokio::test]
async fn every_request_of_the_connection_has_the_client_that_was_told() {
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = start(&origin, "127.0.0.0/8").await;
    for (header, expected) in [
        ("PROXY TCP4 203.0.113.7 192.0.2.1 56324 8080\r\n", ["x-forwarded-for: 203.0.113.7\r\n", "port: 8080\r\n"]),
        // A proxy before the load balancer is believed like one before the gateway.
        (
            "PROXY TCP4 127.1.2.3 192.0.2.1 56324 8080\r\n",
            ["x-forwarded-for: 6.6.6.6, 127.1.2.3\r\n", "port: 8080\r\n"],
        ),
        // Nobody is told of: the load balancer's own address, and no belief in what it may have passed on.
        ("PROXY UNKNOWN\r\n", ["x-forwarded-for: 127.0.0.1\r\n", "port: 80\r\n"]),
        ("\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", ["x-forwarded-for: 127.0.0.1\r\n", "port: 80\r\n"]),
    ] {
        let before = origin.requests().len();
        let mut client = gateway.connect().await;
        client.write(header).await;
        for _ in 0..2 {
            let answer = client.exchange(REQUEST).await;
            assert!(answer.ends_with("ok"), "{answer}");
        }
        for request in &origin.requests()[before..] {
            for line in expected {
                assert!(request.contains(line), "{line} missing in {request}");
            }
        }
        assert_eq!(origin.requests().len(), before + 2);
    }
}
