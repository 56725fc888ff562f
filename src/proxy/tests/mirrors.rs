//! Copies of requests on the wire.

use super::filters::{by_regex, first_line, get, rewriting, set};
use super::harness::{self, Gateway, Origin, Reply, rule, selector};
use super::{OK, host_header};
use crate::ir::{self, Action, Filter};

fn mirroring(path: &str, origin: &Origin, mirrors: &[ir::ClusterId]) -> ir::Rule {
    let mut rule = rule(path, &[(origin, 1)]);
    let mirror =
        |cluster: &ir::ClusterId| Filter::Mirror(ir::Mirror { cluster: cluster.clone(), numerator: 1, denominator: 1 });
    rule.filters = mirrors.iter().map(mirror).collect();
    rule
}

async fn until_counted(gateway: &Gateway, outcome: &str, count: u64) {
    gateway.wait_for(|gateway| counted(gateway, outcome) == count).await;
}

/// Copies with this outcome, of all mirrors.
fn counted(gateway: &Gateway, outcome: &str) -> u64 {
    let label = format!("outcome=\"{outcome}\"}} ");
    let text = gateway.metrics();
    let lines = text.lines().filter(|line| line.starts_with("lockgate_mirrored_requests_total"));
    lines.filter_map(|line| line.split_once(&label)).map(|(_, count)| count.parse::<u64>().unwrap()).sum()
}

const LOUD: &str = "HTTP/1.1 500 Loud\r\ncontent-length: 4\r\nx-mirror: 1\r\n\r\nloud";

#[tokio::test]
async fn mirrors_get_the_request_as_it_is_forwarded_and_their_answers_go_nowhere() {
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let [first, second] = [Origin::start(Reply::always(LOUD)).await, Origin::start(Reply::always(LOUD)).await];
    let mut copied = mirroring("/", &origin, &[first.cluster_id(), second.cluster_id()]);
    copied.filters.insert(0, Filter::RequestHeaders(set("x-a", "rule")));
    copied.filters.insert(1, rewriting(by_regex("^/old", "/new")));
    if let Action::Forward(backends) = &mut copied.action {
        backends[0].filters = vec![Filter::RequestHeaders(set("x-a", "backend"))];
    }
    let gateway = Gateway::start(vec![selector(vec![copied])]).await;
    let mut client = gateway.connect().await;
    for request in [
        "GET /old/a?b=%2F HTTP/1.1\r\nhost: a.test\r\n\r\n",
        "POST /old HTTP/1.1\r\nhost: a.test\r\ncontent-length: 5\r\n\r\nhello",
        "PUT /old HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
    ] {
        let answer = client.exchange(request).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("x-mirror"), "{answer}");
    }
    until_counted(&gateway, "answered", 6).await;
    for mirror in [&first, &second] {
        mirror.wait_for_bodies(3).await;
        let mut seen: Vec<(String, String)> = mirror.requests().into_iter().zip(mirror.bodies()).collect();
        seen.sort();
        let lines: Vec<&str> = seen.iter().map(|(head, _)| first_line(head)).collect();
        assert_eq!(lines, ["GET /new/a?b=%2F HTTP/1.1", "POST /new HTTP/1.1", "PUT /new HTTP/1.1"]);
        assert_eq!(seen.iter().map(|(_, body)| &**body).collect::<Vec<_>>(), ["", "hello", "hello"]);
        for (head, _) in &seen {
            assert_eq!(host_header(head), Some("a.test"));
            assert!(head.contains("x-a: rule\r\n") && head.contains("x-forwarded-for: 127.0.0.1\r\n"), "{head}");
        }
        let ids = |requests: Vec<String>| {
            let id = |head: &str| head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap().to_owned();
            let mut ids: Vec<String> = requests.iter().map(|head| id(head)).collect();
            ids.sort();
            ids
        };
        assert_eq!(ids(mirror.requests()), ids(origin.requests()));
    }
}

#[tokio::test]
async fn a_mirror_in_trouble_is_not_felt() {
    let origin = Origin::start(Reply::read_all_then(OK)).await;
    let silent = Origin::start(Reply::never()).await;
    // Nothing is ever read from what the kernel accepts here.
    let unread = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = harness::refusing_address();
    let host = |address: std::net::SocketAddr| ir::ClusterId::host("127.0.0.1", address.port());
    let nowhere = ir::ClusterId::service(ir::ObjectName::new("test", "none"), 80, ir::Protocol::Http1);
    let mirrors = [silent.cluster_id(), host(unread.local_addr().unwrap()), host(refusing), nowhere];
    let mut copied = mirroring("/", &origin, &mirrors);
    copied.upstream.max_connections = 1;
    let gateway = Gateway::start(vec![selector(vec![copied])]).await;
    let mut client = gateway.connect().await;
    let body = "x".repeat(100_000);
    let post = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    for _ in 0..20 {
        assert!(client.exchange(&get("/")).await.starts_with("HTTP/1.1 200 "));
        assert!(client.exchange(&post).await.starts_with("HTTP/1.1 200 "));
    }
    until_counted(&gateway, "failed", 40).await;
    until_counted(&gateway, "no-endpoints", 40).await;
    silent.wait_for_requests(20).await;
    // More copies than there may be: they are dropped, and requests go on.
    for _ in 0..200 {
        assert!(client.exchange(&get("/")).await.starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(origin.requests().len(), 240);
    // The last answer may have come before the gateway knows that it is written; copies hold no drain.
    gateway.wait_for(|gateway| gateway.lifecycle().in_flight() == 0).await;
    assert!(counted(&gateway, "overloaded") > 0, "{}", gateway.metrics());
}

#[tokio::test]
async fn a_rule_may_mirror_to_its_own_backend_without_taking_its_connections() {
    let origin = Origin::start(Reply::always(OK)).await;
    let mut copied = mirroring("/", &origin, &[origin.cluster_id()]);
    copied.upstream.max_connections = 1;
    copied.upstream.max_pending = 0;
    let gateway = Gateway::start(vec![selector(vec![copied])]).await;
    let mut client = gateway.connect().await;
    for _ in 0..20 {
        let answer = client.exchange(&get("/")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    until_counted(&gateway, "answered", 20).await;
    assert_eq!(origin.requests().len(), 40);
}

#[tokio::test]
async fn bodies_that_break_off_or_are_too_long_are_not_mirrored() {
    let (origin, mirror) = (Origin::start(Reply::read_all_then(OK)).await, Origin::start(Reply::always(OK)).await);
    let gateway = Gateway::start(vec![selector(vec![mirroring("/", &origin, &[mirror.cluster_id()])])]).await;
    let body = "x".repeat((256 << 10) + 1);
    let known = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let chunk = "x".repeat(1 << 16);
    let chunk = format!("{:x}\r\n{chunk}\r\n", chunk.len());
    let chunked =
        format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(5));
    for request in [known, chunked] {
        assert!(gateway.send(&request).await.starts_with("HTTP/1.1 200 "));
    }
    until_counted(&gateway, "body-too-large", 2).await;
    let mut client = gateway.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf").await;
    origin.wait_for_requests(3).await;
    drop(client);
    until_counted(&gateway, "incomplete", 1).await;
    assert_eq!(mirror.requests().len(), 0);
}

#[tokio::test]
async fn a_share_of_nothing_mirrors_nothing() {
    let (origin, mirror) = (Origin::start(Reply::always(OK)).await, Origin::start(Reply::always(OK)).await);
    let mut copied = rule("/", &[(&origin, 1)]);
    copied.filters = vec![Filter::Mirror(ir::Mirror { cluster: mirror.cluster_id(), numerator: 0, denominator: 100 })];
    let gateway = Gateway::start(vec![selector(vec![copied])]).await;
    gateway.send(&get("/")).await;
    assert!(!gateway.metrics().contains("lockgate_mirrored_requests_total"));
    assert_eq!(mirror.connections(), 0);
}
