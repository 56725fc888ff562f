//! Backends that speak HTTP/2, seen from clients of HTTP/1.1.

mod bodies;
mod connections;
mod frames;
pub(super) mod origin;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use h2::Reason;
use tokio::sync::Semaphore;

use self::origin::{Call, Origin};
use super::harness::{Gateway, selector, service_rule};
use crate::ir;

/// The Service of these origins.
pub(super) const SERVICE: &str = "s-h2c";
const GET: &str = "GET /a?b HTTP/1.1\r\nhost: a.example:81\r\n\r\n";

/// A gateway before these origins.
pub(super) async fn gateway_with(origins: &[&Origin], change: impl FnOnce(&mut ir::Rule)) -> Gateway {
    let mut rule = service_rule("/", SERVICE);
    change(&mut rule);
    let gateway = Gateway::start(vec![selector(vec![rule])]).await;
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    gateway.endpoints(SERVICE, &addresses).await;
    gateway
}

pub(super) async fn gateway(origin: &Origin) -> Gateway {
    gateway_with(&[origin], |_| {}).await
}

/// Sends that many requests at once; all must be answered with 200.
async fn all_succeed(gateway: &Gateway, count: usize, request: &str) {
    for answer in join_all((0..count).map(|_| gateway.send(request))).await {
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

fn metric(gateway: &Gateway, line: &str) -> usize {
    let text = gateway.metrics();
    let value = text.lines().find_map(|l| l.strip_prefix(line));
    value.unwrap_or_else(|| panic!("no {line} in {text}")).trim().parse().unwrap()
}

fn connections(gateway: &Gateway, state: &str) -> usize {
    metric(gateway, &format!("lockgate_upstream_connections{{cluster=\"test/{SERVICE}:80\",state=\"{state}\"}}"))
}

fn retries(gateway: &Gateway, reason: &str) -> usize {
    metric(gateway, &format!("lockgate_upstream_retries_total{{cluster=\"test/{SERVICE}:80\",reason=\"{reason}\"}}"))
}

#[tokio::test]
async fn a_request_and_its_answer_change_their_form_and_nothing_else() {
    let origin = Origin::start(None, |mut call: Call| async move {
        let (body, _) = call.read().await;
        assert_eq!(body, b"hello");
        let mut stream =
            call.begin(&[("content-length", "2"), ("x-own", "1"), ("set-cookie", "a"), ("set-cookie", "b")]);
        stream.send_data(Bytes::from_static(b"ok"), true).unwrap();
    })
    .await;
    let gateway = gateway(&origin).await;
    let request = "POST /a%2Db?x=%20 HTTP/1.1\r\nhost: A.example:81\r\ncontent-length: 5\r\ncookie: a=1\r\ncookie: b=2\r\n\r\nhello";
    let answer = gateway.send(request).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok"), "{answer}");
    for line in ["content-length: 2", "x-own: 1", "set-cookie: a\r\nset-cookie: b"] {
        assert!(answer.contains(line), "{line} missing in {answer}");
    }
    let head = origin.heads().remove(0);
    assert_eq!((&*head.method, &*head.uri), ("POST", "http://A.example:81/a-b?x=%20"));
    assert_eq!(head.headers["content-length"], "5");
    assert_eq!(head.headers["x-forwarded-host"], "A.example:81");
    assert_eq!(head.headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1", "b=2"]);
    assert!(!head.headers.contains_key("host"));
}

#[tokio::test]
async fn nobody_is_asked_to_go_on_in_another_protocol() {
    let origin = Origin::start(None, |call: Call| async move { call.answer() }).await;
    let gateway = gateway(&origin).await;
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        let answer =
            client.exchange("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("connection:"), "{answer}");
    }
    assert!(origin.heads().iter().all(|head| !head.headers.contains_key("upgrade")));
}

#[tokio::test]
async fn requests_share_connections() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let origin = Origin::start(None, move |call: Call| {
        let held = Arc::clone(&held);
        async move {
            let _pass = held.acquire().await.unwrap();
            call.answer();
        }
    })
    .await;
    let gateway = gateway(&origin).await;
    let ((), ()) =
        tokio::join!(all_succeed(&gateway, 100, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"), async {
            origin.wait_for(|origin| origin.heads().len() == 100).await;
            assert!(origin.accepted() <= 2, "{} connections of two workers", origin.accepted());
            assert!(connections(&gateway, "active") >= 1);
            gate.add_permits(100);
        });
    gateway.wait_for(|gateway| connections(gateway, "active") == 0).await;
    assert_eq!(connections(&gateway, "idle"), origin.accepted());
    assert_eq!(retries(&gateway, "refused"), 0);
}

#[tokio::test]
async fn more_requests_than_streams_are_more_connections() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let origin = Origin::start(Some(10), move |call: Call| {
        let held = Arc::clone(&held);
        async move {
            let _pass = held.acquire().await.unwrap();
            call.answer();
        }
    })
    .await;
    let gateway = gateway(&origin).await;
    let ((), ()) =
        tokio::join!(all_succeed(&gateway, 100, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"), async {
            origin.wait_for(|origin| origin.heads().len() == 100).await;
            assert!((10..=11).contains(&origin.accepted()), "{} connections", origin.accepted());
            gate.add_permits(100);
        });
    assert_eq!(retries(&gateway, "refused"), 0, "the limit was respected");
}

#[tokio::test]
async fn at_the_most_connections_requests_wait_for_streams() {
    for max_connections in [1, 2] {
        let origin = Origin::start(Some(3), |call: Call| async move { call.answer() }).await;
        let gateway = gateway_with(&[&origin], |rule| {
            rule.upstream.max_connections = max_connections;
            rule.upstream.acquire_timeout = Duration::from_secs(20);
        })
        .await;
        all_succeed(&gateway, 60, "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(origin.heads().len(), 60);
        assert!(origin.open() <= max_connections as usize);
    }
}

#[tokio::test]
async fn what_finds_no_stream_in_time_is_refused() {
    let origin = Origin::start(Some(1), Call::never).await;
    let gateway = gateway_with(&[&origin], |rule| {
        rule.upstream.max_connections = 1;
        rule.upstream.max_pending = 1;
        rule.upstream.acquire_timeout = Duration::from_millis(50);
    })
    .await;
    let mut first = gateway.connect().await;
    first.write(GET).await;
    origin.wait_for(|origin| origin.heads().len() == 1).await;
    let answers = join_all((0..4).map(|_| gateway.send(GET))).await;
    let of = |reason| answers.iter().filter(|a| a.contains(&format!("x-lockgate-reason: {reason}\r\n"))).count();
    assert!(of("pool-timeout") >= 1 && of("pool-timeout") + of("backend-limit") == 4, "{answers:?}");
    assert_eq!(origin.heads().len(), 1);
}

#[tokio::test]
async fn a_backend_that_leaves_gracefully_costs_no_request() {
    let origin = Origin::start(None, |call: Call| async move {
        // Leaves in the middle of everything, again and again.
        if call.number % 17 == 16 {
            call.leave();
        }
        tokio::task::yield_now().await;
        call.answer();
    })
    .await;
    let gateway = gateway(&origin).await;
    let client = || async {
        let mut client = gateway.connect().await;
        for turn in 0..40 {
            let request = match turn % 2 {
                0 => "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
                _ => "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
            };
            let answer = client.exchange(request).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
    };
    join_all((0..10).map(|_| client())).await;
    assert_eq!(origin.heads().len(), 400, "each was processed once");
    assert!(origin.accepted() > 4, "{} connections", origin.accepted());
}

#[tokio::test]
async fn what_is_refused_unprocessed_is_sent_again_whatever_its_method() {
    let origin = Origin::start(None, |mut call: Call| async move {
        if call.number.is_multiple_of(2) {
            return call.reset(Reason::REFUSED_STREAM);
        }
        assert_eq!(call.read().await.0, b"hello");
        call.answer();
    })
    .await;
    let gateway = gateway(&origin).await;
    let mut client = gateway.connect().await;
    // Nothing of the body has been sent when the refusal comes.
    client.write("POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n").await;
    origin.wait_for(|origin| origin.heads().len() == 2).await;
    client.write("hello").await;
    let answer = client.read_until("ok").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(retries(&gateway, "refused"), 1);
    assert_eq!(origin.accepted(), 1);
}

#[tokio::test]
async fn who_refuses_for_ever_is_not_asked_for_ever() {
    let origin = Origin::start(None, |call: Call| async move { call.reset(Reason::REFUSED_STREAM) }).await;
    let gateway = gateway(&origin).await;
    let answer = gateway.send("DELETE / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("upstream-reset"), "{answer}");
    assert_eq!(origin.heads().len(), 3);
}

#[tokio::test]
async fn other_resets_follow_the_rules_of_broken_connections() {
    let origin = Origin::start(None, |call: Call| async move {
        if call.number < 3 { call.reset(Reason::INTERNAL_ERROR) } else { call.answer() }
    })
    .await;
    let gateway = gateway(&origin).await;
    // May have been acted on: not sent twice.
    let answer = gateway.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("upstream-reset"), "{answer}");
    assert_eq!(origin.heads().len(), 1);
    // Safe: once more, and no more.
    let answer = gateway.send(GET).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(origin.heads().len(), 3);
    assert_eq!(origin.open(), origin.accepted(), "resets of streams leave connections alone");
}

#[tokio::test]
async fn an_answer_that_breaks_off_never_looks_whole() {
    for reason in [Reason::INTERNAL_ERROR, Reason::NO_ERROR, Reason::CANCEL] {
        let read = Arc::new(Semaphore::new(0));
        let has_read = Arc::clone(&read);
        let origin = Origin::start(None, move |call: Call| {
            let has_read = Arc::clone(&has_read);
            async move {
                let mut stream = call.begin(&[]);
                stream.send_data(Bytes::from_static(b"half"), false).unwrap();
                let _pass = has_read.acquire().await.unwrap();
                stream.send_reset(reason);
            }
        })
        .await;
        let gateway = gateway(&origin).await;
        let mut client = gateway.connect().await;
        client.write(GET).await;
        let begun = client.read_until("half").await;
        assert!(begun.starts_with("HTTP/1.1 200 "), "{begun}");
        read.add_permits(1);
        let rest = client.rest_or_reset().await;
        assert!(!rest.contains("0\r\n\r\n"), "{reason:?}: {rest}");
    }
}

#[tokio::test]
async fn an_answer_before_the_end_of_its_request_is_whole() {
    let origin = Origin::start(None, |call: Call| async move {
        // The stream's end; and as nobody reads on, RST_STREAM with NO_ERROR (RFC 9113, section 8.1).
        let mut stream = call.begin(&[]);
        stream.send_data(Bytes::from_static(b"too much"), true).unwrap();
    })
    .await;
    let gateway = gateway(&origin).await;
    let mut client = gateway.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n\r\nfirst").await;
    let answer = client.read_until("0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("8\r\ntoo much\r\n0\r\n\r\n"), "{answer}");
    // What is left of the request is read and dropped, and the connection goes on.
    client.write([&"x".repeat(45), GET].concat()).await;
    assert!(client.read_until("too much").await.starts_with("HTTP/1.1 200 "));
}
