//! Backends that are told of clients in front of their bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::harness::{Client, Gateway, selector, service_rule};
use super::OK;
use crate::ir::{self, Action, BackendTarget, ClusterId, ProxyProtocol};
use crate::proxy::proxy_protocol::{Header, parse};
use crate::settings::Settings;

/// What came on each connection: what it began with, and how many requests followed.
type Seen = Arc<Mutex<Vec<(Header, usize)>>>;

/// A backend that reads a header first, then answers each request.
struct Backend {
    address: SocketAddr,
    seen: Seen,
}

impl Backend {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Seen::default();
        let noting = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&noting)));
            }
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<(Header, usize)> {
        self.seen.lock().clone()
    }
}

async fn header_of(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Header> {
    loop {
        if let Some((header, length)) = parse(bytes).unwrap() {
            bytes.drain(..length);
            return Some(header);
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}

async fn serve(mut stream: TcpStream, seen: Seen) -> Option<()> {
    let mut bytes = Vec::new();
    let header = header_of(&mut stream, &mut bytes).await?;
    let own = {
        let mut seen = seen.lock();
        seen.push((header, 0));
        seen.len() - 1
    };
    loop {
        while !bytes.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        bytes.clear();
        seen.lock()[own].1 += 1;
        stream.write_all(OK.as_bytes()).await.ok()?;
    }
}

/// A rule to the Cluster of a Service that is told.
fn telling(version: ProxyProtocol) -> (ir::Rule, ClusterId) {
    let mut rule = service_rule("/", "told");
    let Action::Forward(backends) = &mut rule.action else { unreachable!() };
    let BackendTarget::Cluster(id) = &mut backends[0].target else { unreachable!() };
    id.proxy_protocol = Some(version);
    let id = id.clone();
    (rule, id)
}

async fn gateway(version: ProxyProtocol, backend: &Backend, change: impl FnOnce(&mut Settings)) -> Gateway {
    gateway_with(version, backend, change, |_| {}).await
}

async fn gateway_with(
    version: ProxyProtocol,
    backend: &Backend,
    change: impl FnOnce(&mut Settings),
    of_rule: impl FnOnce(&mut ir::Rule),
) -> Gateway {
    let (mut rule, id) = telling(version);
    of_rule(&mut rule);
    let gateway = Gateway::with(vec![selector(vec![rule])], change).await;
    gateway.endpoints_of(id, &[backend.address]).await;
    gateway
}

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

fn ends(client: &Client) -> (SocketAddr, SocketAddr) {
    (client.stream.local_addr().unwrap(), client.stream.peer_addr().unwrap())
}

#[tokio::test]
async fn every_connection_is_for_one_client_and_says_whom() {
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        let backend = Backend::start().await;
        let gateway = gateway(version, &backend, |_| {}).await;
        let mut clients = [gateway.connect().await, gateway.connect().await];
        for client in [0, 1, 0, 0, 1] {
            assert!(clients[client].exchange(REQUEST).await.starts_with("HTTP/1.1 200 "));
        }
        let mut seen = backend.seen();
        seen.sort_by_key(|(_, requests)| *requests);
        let told = |client: &Client| Header { addresses: Some(ends(client)), tls: false };
        assert_eq!(seen, [(told(&clients[1]), 2), (told(&clients[0]), 3)]);
    }
}

#[tokio::test]
async fn what_a_load_balancer_has_told_is_told_on() {
    let backend = Backend::start().await;
    let gateway = gateway(ProxyProtocol::V2, &backend, |settings| {
        settings.listeners[0].proxy_protocol = true;
        settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    let mut own = gateway.connect().await;
    let balancers = ends(&own);
    for (client, header) in [
        (&mut own, "PROXY UNKNOWN\r\n"),
        (&mut gateway.connect().await, "PROXY TCP6 2001:db8::7 2001:db8::1 56324 443\r\n"),
    ] {
        client.write(header).await;
        assert!(client.exchange(REQUEST).await.starts_with("HTTP/1.1 200 "));
    }
    let v6 = ("[2001:db8::7]:56324".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap());
    let told: Vec<_> = backend.seen().into_iter().map(|(header, _)| header.addresses).collect();
    assert_eq!(told, [Some(balancers), Some(v6)]);
}

#[tokio::test]
async fn connections_of_others_make_room() {
    let backend = Backend::start().await;
    let one_at_a_time = |rule: &mut ir::Rule| rule.upstream.max_connections = 1;
    let gateway = gateway_with(ProxyProtocol::V1, &backend, |_| {}, one_at_a_time).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = gateway.connect().await;
        assert!(client.exchange(REQUEST).await.starts_with("HTTP/1.1 200 "));
        clients.push(client);
    }
    for client in &mut clients {
        assert!(client.exchange(REQUEST).await.starts_with("HTTP/1.1 200 "));
    }
    assert!(backend.seen().len() >= 7, "{:?}", backend.seen());
}

#[tokio::test]
async fn what_one_client_leaves_is_not_for_the_next() {
    let backend = Backend::start().await;
    let gateway = gateway(ProxyProtocol::V1, &backend, |_| {}).await;
    for _ in 0..3 {
        assert!(gateway.send(REQUEST).await.starts_with("HTTP/1.1 200 "));
    }
    let told: Vec<_> = backend.seen().into_iter().map(|(header, _)| header.addresses.unwrap().0).collect();
    assert_eq!(told.len(), 3, "each client has a connection of its own: {told:?}");
    assert!(told[0] != told[1] && told[1] != told[2]);
}
