//! Connections of HTTP/1.1 between two requests. With more of them than may stay ready for the next one, those that come
//! last give up what they need for it at once.

use tokio::sync::{Mutex, MutexGuard};

use super::OK;
use super::harness::{Client, Gateway, Origin, Reply, rule, selector};
use crate::api;
use crate::settings::Settings;

/// More than two workers keep ready.
const MANY: usize = 160;

/// Each test takes hundreds of descriptors.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

struct Idle {
    gateway: Gateway,
    origin: Origin,
    clients: Vec<Client>,
    _only: MutexGuard<'static, ()>,
}

async fn idle(change: impl FnOnce(&mut Settings)) -> Idle {
    let only = ONE_AT_A_TIME.lock().await;
    let origin = Origin::start(Reply::always(OK)).await;
    let gateway = Gateway::with(vec![selector(vec![rule("/", &[(&origin, 1)])])], change).await;
    let mut clients = Vec::new();
    for _ in 0..MANY {
        let mut client = gateway.connect().await;
        assert!(client.exchange(REQUEST).await.ends_with("\r\n\r\nok"));
        clients.push(client);
    }
    Idle { gateway, origin, clients, _only: only }
}

#[tokio::test]
async fn many_idle_connections_serve_on() {
    let mut idle = idle(|_| {}).await;
    for client in &mut idle.clients {
        // Two at once, the second in two pieces.
        client.write([REQUEST, &REQUEST[..10]].concat()).await;
        assert!(client.exchange("").await.ends_with("\r\n\r\nok"));
        assert!(client.exchange(&REQUEST[10..]).await.ends_with("\r\n\r\nok"));
        // A body in another piece than its head, and then another request.
        client.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n").await;
        assert!(client.exchange("hello").await.ends_with("\r\n\r\nok"));
        assert!(client.exchange(REQUEST).await.ends_with("\r\n\r\nok"));
    }
    assert_eq!(idle.origin.requests().len(), 5 * MANY);
}

#[tokio::test]
async fn many_idle_connections_end_when_their_time_is_over() {
    let mut idle = idle(|s| s.timeouts.keep_alive = api::Duration::from_millis(500)).await;
    for client in &mut idle.clients {
        assert_eq!(client.rest().await, "");
    }
}

#[tokio::test]
async fn many_idle_connections_end_with_the_drain() {
    let mut idle = idle(|_| {}).await;
    idle.gateway.terminate().await;
    for client in &mut idle.clients {
        assert_eq!(client.rest().await, "");
    }
}

#[tokio::test]
async fn many_idle_connections_that_send_no_request_are_told() {
    let mut idle = idle(|_| {}).await;
    for client in &mut idle.clients {
        client.write("\0\r\n\r\n").await;
        assert!(client.rest().await.starts_with("HTTP/1.1 400 "));
    }
}
