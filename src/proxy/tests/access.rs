//! The access log: what is told of requests and of what became of them.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::OK;
use super::harness::{Client, Gateway, Origin, Reply, refusing_address, rule, selector, service_backend, service_rule};
use crate::ir::{self, Action};
use crate::settings::{AccessFormat, AccessOutput, Settings};

/// A file that a gateway logs into.
pub(super) struct LogFile {
    dir: TempDir,
}

impl LogFile {
    pub(super) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("access.log")
    }

    /// Has it written.
    pub(super) fn set(&self, settings: &mut Settings) {
        settings.access_log.enabled = true;
        settings.access_log.output = AccessOutput::File(self.path());
    }

    pub(super) async fn text(&self, lines: usize) -> String {
        let read = || std::fs::read_to_string(self.path()).unwrap();
        let wait = async {
            while read().lines().count() < lines {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.expect("the lines never came");
        let text = read();
        assert_eq!(text.lines().count(), lines, "{text}");
        text
    }

    /// The first lines, of which there are to be no more.
    pub(super) async fn lines(&self, count: usize) -> Vec<Map<String, Value>> {
        self.text(count).await.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// These fields of a line.
pub(super) fn some(line: &Map<String, Value>, fields: &[&str]) -> Value {
    fields.iter().map(|field| line.get(*field).cloned().unwrap_or_default()).collect()
}

/// A gateway that logs.
async fn logging(selectors: Vec<ir::Selector>, change: impl FnOnce(&mut Settings)) -> (LogFile, Gateway) {
    let log = LogFile::new();
    let gateway = Gateway::with(selectors, |settings| {
        log.set(settings);
        change(settings);
    })
    .await;
    (log, gateway)
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[tokio::test]
async fn a_line_tells_of_a_request_its_way_and_its_answer() {
    let reply =
        "HTTP/1.1 201 Created\r\ncontent-length: 5\r\nx-kind: \"a\"\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\r\nhello";
    let origin = Origin::start(Reply::always(reply)).await;
    let (log, gateway) = logging(vec![selector(vec![rule("/api", &[(&origin, 1)])])], |settings| {
        settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        settings.access_log.request_headers = names(&["X-Tenant", "authorization", "x-none"]);
        settings.access_log.response_headers = names(&["x-kind", "set-cookie", "x-request-id"]);
    })
    .await;
    let request = format!(
        "POST /api/%E2%9C%93?q=%22x%22&token=s3cret HTTP/1.1\r\nhost: Shop.example:8080\r\nuser-agent: agent \\ \"x\"\r\n\
         referer: https://a.test/?token=s3cret\r\nx-forwarded-for: 10.0.0.7, 203.0.113.9\r\nx-request-id: id-1\r\n\
         traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\nx-tenant: a\r\nx-tenant: b\r\nauthorization: Bearer s3cret\r\n\
         content-length: 7\r\n\r\nthebody"
    );
    let mut client = gateway.connect().await;
    let before = jiff::Timestamp::now();
    assert!(client.exchange(&request).await.starts_with("HTTP/1.1 201 "));
    assert!(client.exchange(&request).await.starts_with("HTTP/1.1 201 "));
    let text = log.text(2).await;
    assert!(!text.contains("s3cret"), "{text}");
    let lines = log.lines(2).await;
    let cluster = format!("127.0.0.1:{}", origin.address.port());
    for (line, is_reused) in lines.iter().zip([false, true]) {
        let mut line = line.clone();
        let time: jiff::Timestamp = line.remove("time").unwrap().as_str().unwrap().parse().unwrap();
        assert!((time - before).get_milliseconds().abs() < 20_000);
        let mut millis = |name: &str| line.remove(name).unwrap().as_f64().unwrap();
        let (first, upstream, all) = (millis("first_byte_ms"), millis("upstream_ms"), millis("duration_ms"));
        assert!(upstream <= first && first <= all && all < 20_000.0, "{upstream} {first} {all}");
        let expected = json!({
            "request_id": "id-1",
            "trace_id": TRACE,
            "listener": "http",
            "client_ip": "203.0.113.9",
            "scheme": "http",
            "protocol": "HTTP/1.1",
            "method": "POST",
            "host": "Shop.example:8080",
            "path": "/api/%E2%9C%93",
            "query": "q=%22x%22&token=redacted",
            "user_agent": "agent \\ \"x\"",
            "referer": "https://a.test/?token=redacted",
            "request_headers": {"x-tenant": "a, b", "authorization": "redacted"},
            "response_headers": {"x-kind": "\"a\"", "set-cookie": "redacted", "x-request-id": "id-1"},
            "status": 201,
            "selector": "test/selector",
            "route": "test/route",
            "rule": "/api",
            "rule_index": 0,
            "cluster": cluster,
            "endpoint": cluster,
            "attempts": 1,
            "upstream_reused": is_reused,
            "bytes_in": 7,
            "bytes_out": 5,
        });
        assert_eq!(Value::from(line), expected);
    }
}

#[tokio::test]
async fn text_is_told_field_by_field() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (log, gateway) = logging(vec![selector(vec![rule("/", &[(&origin, 1)])])], |settings| {
        use crate::settings::AccessField as Field;
        settings.access_log.format = AccessFormat::Text;
        settings.access_log.fields =
            vec![Field::Status, Field::Method, Field::Path, Field::Query, Field::UserAgent, Field::RequestHeaders];
        settings.access_log.request_headers = vec!["x-a".to_owned()];
    })
    .await;
    // One connection: each worker writes its own lines in order.
    let mut client = gateway.connect().await;
    // The worst that can be said in a field.
    client.exchange("GET /x?a=1 HTTP/1.1\r\nhost: a\r\nuser-agent: a\" status=500\t\u{85}\r\nx-a: \tb\r\n\r\n").await;
    client.exchange("GET /y HTTP/1.1\r\nhost: a\r\nuser-agent: curl/8\r\n\r\n").await;
    let expected = [
        r#"method=GET path=/x query="a=1" user_agent="a\" status=500\t\u{85}" request_headers.x-a=b status=200"#,
        "method=GET path=/y user_agent=curl/8 status=200",
    ];
    let text = log.text(2).await;
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn what_the_gateway_answers_itself_is_told_with_its_reason() {
    let origin = Origin::start(Reply::always(OK)).await;
    let mut empty = rule("/empty", &[]);
    empty.action = Action::Forward(vec![service_backend("none")]);
    let mut small = rule("/small", &[(&origin, 1)]);
    small.limits.max_body_bytes = Some(1);
    let mut selector = selector(vec![rule("/ok", &[(&origin, 1)]), empty, small]);
    selector.hostnames = vec![ir::Hostname::parse("a.test").unwrap()];
    let (log, gateway) = logging(vec![selector], |_| {}).await;
    let requests = [
        ("GET /ok HTTP/1.1\r\nhost: b.test\r\n\r\n", json!(["GET", "b.test", "/ok", 404, "no-selector", null, 16])),
        ("GET /x HTTP/1.1\r\nhost: a.test\r\n\r\n", json!(["GET", "a.test", "/x", 404, "no-route", null, 13])),
        ("GET /%2F HTTP/1.1\r\nhost: a.test\r\n\r\n", json!(["GET", "a.test", "/%2F", 400, "bad-path", null, 13])),
        (
            "GET /empty HTTP/1.1\r\nhost: a.test\r\n\r\n",
            json!(["GET", "a.test", "/empty", 503, "no-endpoints", "/empty", 17]),
        ),
        (
            "PUT /small HTTP/1.1\r\nhost: a.test\r\ncontent-length: 2\r\n\r\nxx",
            json!(["PUT", "a.test", "/small", 413, "body-too-large", "/small", 19]),
        ),
        // Of what cannot be read nothing is told.
        ("GET /ok HTTP/1.1\nhost: a.test\r\n\r\n", json!([null, null, null, 400, "bad-request", null, 16])),
    ];
    for (count, (request, expected)) in requests.iter().enumerate() {
        gateway.send(request).await;
        let lines = log.lines(count + 1).await;
        let fields = ["method", "host", "path", "status", "reason", "rule", "bytes_out"];
        assert_eq!(some(&lines[count], &fields), *expected, "{request}");
    }
}

#[tokio::test]
async fn what_never_became_a_request_is_told() {
    let (log, gateway) = logging(vec![selector(Vec::new())], |settings| {
        settings.timeouts.header = "100ms".parse().unwrap();
    })
    .await;
    let mut slow = gateway.connect().await;
    slow.write("GET / HT").await;
    slow.rest().await;
    let lines = log.lines(1).await;
    let expected =
        json!({"time": lines[0]["time"], "listener": "http", "client_ip": "127.0.0.1", "reason": "header-timeout"});
    assert_eq!(Value::from(lines[0].clone()), expected);
    assert_eq!(gateway.metric("lockgate_requests_refused_total{reason=\"header-timeout\"}"), 1);
}

#[tokio::test]
async fn answers_that_break_off_are_told_by_whose_fault() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    let broken = Origin::start(Reply::once_then_close(cut)).await;
    let endless = Origin::start(Reply::echo()).await;
    let silent = Origin::start(Reply::never()).await;
    let rules = [("/broken", &broken), ("/endless", &endless), ("/silent", &silent)];
    let rules = rules.map(|(path, origin)| rule(path, &[(origin, 1)])).into();
    let (log, gateway) = logging(vec![selector(rules)], |_| {}).await;
    let fields = ["status", "reason", "bytes_in", "bytes_out"];
    gateway.send("GET /broken HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(some(&log.lines(1).await[0], &fields), json!([200, "upstream-reset", 0, 4]));

    let mut client = gateway.connect().await;
    client.write("POST /endless HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n").await;
    client.read_until("abc").await;
    drop(client);
    assert_eq!(some(&log.lines(2).await[1], &fields), json!([200, "client-gone", 3, 3]));

    let mut client = gateway.connect().await;
    client.write("GET /silent HTTP/1.1\r\nhost: a\r\n\r\n").await;
    silent.wait_for_requests(1).await;
    drop(client);
    assert_eq!(some(&log.lines(3).await[2], &fields), json!([499, "client-gone", 0, 0]));
}

#[tokio::test]
async fn tries_are_counted_and_the_last_endpoint_told() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (log, gateway) = logging(vec![selector(vec![service_rule("/", "s")])], |_| {}).await;
    let refusing = refusing_address();
    gateway.endpoints("s", &[refusing]).await;
    gateway.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let fields = ["status", "reason", "cluster", "endpoint", "attempts", "upstream_reused", "upstream_ms"];
    let expected = json!([502, "connect-failed", "test/s:80", refusing.to_string(), 1, null, null]);
    assert_eq!(some(&log.lines(1).await[0], &fields), expected);

    // The first one is set aside, so that a few requests are needed until one is sent there.
    gateway.endpoints("s", &[refusing, origin.address]).await;
    let mut seen = 1;
    loop {
        gateway.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        seen += 1;
        let lines = log.lines(seen).await;
        let last = &lines[seen - 1];
        assert_eq!(some(last, &["status", "endpoint"]), json!([200, origin.address.to_string()]));
        if last["attempts"] == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
const AGREED: &str = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n";

/// A gateway, both ends of a tunnel through it, and its backend, which does nothing more.
async fn tunnel() -> (LogFile, Gateway, (Client, Client), TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (log, gateway) = logging(vec![selector(vec![service_rule("/chat", "ws")])], |_| {}).await;
    gateway.endpoints("ws", &[listener.local_addr().unwrap()]).await;
    let mut client = gateway.connect().await;
    client.write(UPGRADE).await;
    let mut served = Client::new(listener.accept().await.unwrap().0);
    served.read_head().await;
    served.write(AGREED).await;
    client.read_head().await;
    client.write("to the backend").await;
    assert_eq!(served.read_exactly(14).await, b"to the backend");
    served.write("back").await;
    assert_eq!(client.read_exactly(4).await, b"back");
    (log, gateway, (client, served), listener)
}

const OF_TUNNEL: [&str; 7] = ["status", "upgrade", "route", "cluster", "reason", "bytes_in", "bytes_out"];

#[tokio::test]
async fn a_tunnel_is_told_when_it_has_ended() {
    let (log, _gateway, (mut client, mut served), _listener) = tunnel().await;
    assert_eq!(log.text(0).await, "");
    client.stream.shutdown().await.unwrap();
    assert_eq!(served.rest().await, "");
    drop(served);
    let lines = log.lines(1).await;
    let expected = json!([101, "websocket", "test/route", "test/ws:80", null, 14, 4]);
    assert_eq!(some(&lines[0], &OF_TUNNEL), expected);
    assert!(lines[0]["duration_ms"].as_f64().unwrap() > 0.0);
}

#[tokio::test]
async fn what_a_drain_cuts_is_told() {
    let (log, gateway, _ends, _listener) = tunnel().await;
    let mut waiting = gateway.connect().await;
    waiting.write(UPGRADE).await;
    gateway.wait_for(|gateway| gateway.lifecycle().in_flight() == 2).await;
    drop(gateway);
    let mut lines = log.lines(2).await;
    lines.sort_by_key(|line| line["status"].as_u64());
    let expected = json!([101, "websocket", "test/route", "test/ws:80", "aborted", 14, 4]);
    assert_eq!(some(&lines[0], &OF_TUNNEL), expected);
    assert_eq!(some(&lines[1], &["status", "reason", "route"]), json!([499, "aborted", "test/route"]));
}

#[tokio::test]
async fn trace_context_is_passed_on_as_it_is() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (_log, gateway) = logging(vec![selector(vec![rule("/", &[(&origin, 1)])])], |_| {}).await;
    let lines = format!(
        "traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\ntracestate: rojo=00f067aa0ba902b7,congo=t61rcWkgMzE\r\ntracestate: a=b\r\n"
    );
    gateway.send(&format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}\r\n")).await;
    let seen = &origin.requests()[0];
    for line in lines.lines() {
        assert!(seen.lines().any(|seen| seen == line), "{line} missing in {seen}");
    }
    assert_eq!(seen.matches("traceparent").count() + seen.matches("tracestate").count(), 3);
}
