use std::net::{Ipv6Addr, TcpListener as StdListener};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::lifecycle::{DrainSettings, Holder, Ledger, Phase};
use crate::telemetry::logs::{self, LogSettings};
use crate::telemetry::metrics::Buckets;

/// Both ports, served, and what is behind them.
struct Ports {
    public: SocketAddr,
    operator: SocketAddr,
    parts: Parts,
}

/// Status, head and body of an answer.
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Ports {
    fn open() -> Self {
        let (lifecycle, _driver) = Lifecycle::new(1, DrainSettings::default());
        let (_subscriber, logs) = logs::build(&LogSettings::default(), std::io::sink()).expect("valid");
        let echo: Handler = Arc::new(|ask| match ask.query.as_str() {
            "bad" => Err("query: bad".to_owned()),
            _ if ask.accepts_text => Ok(Shown::Text("text".to_owned())),
            query => Ok(Shown::Json(json!({ "query": query, "body": ask.body.as_deref().map(<[u8]>::len) }))),
        });
        let page = |takes_body| Page { takes_body, handler: Arc::clone(&echo) };
        let parts = Parts {
            lifecycle,
            metrics: Metrics::new(1, Buckets::default()),
            logs: Arc::new(logs),
            pages: BTreeMap::from([("explain", page(true)), ("routes", page(false))]),
        };
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let admin = Admin::bind(loopback, loopback).expect("free ports");
        let (public, operator) = (admin.public_addr().expect("bound"), admin.operator_addr().expect("bound"));
        tokio::spawn(admin.serve(parts.clone()));
        Self { public, operator, parts }
    }

    async fn public(&self, method: &str, path: &str) -> Reply {
        send(self.public, &format!("{method} {path} HTTP/1.1\r\nhost: any\r\n\r\n")).await
    }

    async fn operator(&self, method: &str, path: &str, body: &str) -> Reply {
        self.operator_with(method, path, "host: localhost:8082\r\n", body).await
    }

    async fn operator_with(&self, method: &str, path: &str, head: &str, body: &str) -> Reply {
        let length = body.len();
        let request = format!("{method} {path} HTTP/1.1\r\n{head}content-length: {length}\r\n\r\n{body}");
        send(self.operator, &request).await
    }
}

async fn send(address: SocketAddr, request: &str) -> Reply {
    let mut stream = TcpStream::connect(address).await.expect("listening");
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.expect("UTF-8 until the end");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a whole head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}

#[tokio::test]
async fn probes_follow_the_lifecycle() {
    let ports = Ports::open();
    let latch = ports.parts.lifecycle.readiness().register("kube/routes");
    let ready = ports.public("GET", "/readyz").await;
    assert_eq!((ready.status, ready.body.as_str()), (503, "phase Starting\npending: kube/routes\n"));
    assert_eq!(ports.public("GET", "/livez").await.status, 200);
    latch.done();
    ports.parts.lifecycle.serving().expect("from Starting");
    let ready = ports.public("GET", "/readyz?verbose").await;
    assert_eq!((ready.status, ready.body.as_str()), (200, "ok\n"));
    assert!(ready.head.contains("cache-control: no-store"), "{}", ready.head);
    ports.parts.lifecycle.drain().expect("from Serving");
    assert_eq!(ports.public("GET", "/readyz").await.status, 503);
    assert_eq!(ports.public("GET", "/livez").await.status, 200);
}

#[tokio::test]
async fn metrics_are_shown() {
    let ports = Ports::open();
    ports.parts.metrics.unmatched().record(0, &http::Method::GET, 404, Duration::ZERO);
    let metrics = ports.public("GET", "/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    assert!(metrics.body.contains("lockgate_http_requests_total{"), "{}", metrics.body);
    let head = ports.public("HEAD", "/metrics").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[tokio::test]
async fn the_public_port_changes_and_reveals_nothing() {
    let ports = Ports::open();
    ports.parts.lifecycle.serving().expect("from Starting");
    for path in ["/", "/drain", "/loglevel", "/routes", "/metrics/", "/livez/../drain", "//livez"] {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            assert_eq!(ports.public(method, path).await.status, 404, "{method} {path}");
        }
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "FOO"] {
        let reply = ports.public(method, "/readyz").await;
        assert_eq!(reply.status, 405, "{method}");
        assert!(reply.head.contains("allow: GET, HEAD"), "{}", reply.head);
    }
    assert_eq!(ports.parts.lifecycle.phase(), Phase::Serving);
}

#[tokio::test]
async fn a_drain_is_begun_and_cancelled_by_post_alone() {
    let ports = Ports::open();
    let lifecycle = &ports.parts.lifecycle;
    assert_eq!(ports.operator("POST", "/drain", "").await.status, 409, "not while starting");
    lifecycle.serving().expect("from Starting");
    for (method, path, status) in
        [("GET", "/drain", 200), ("HEAD", "/drain", 200), ("PUT", "/drain", 405), ("POST", "/drain?cancle", 400)]
    {
        assert_eq!(ports.operator(method, path, "").await.status, status, "{method} {path}");
        assert_eq!(lifecycle.phase(), Phase::Serving, "{method} {path}");
    }
    assert_eq!(ports.operator("POST", "/drain?cancel", "").await.status, 409, "nothing to cancel");
    let reply = ports.operator("POST", "/drain", "").await;
    assert_eq!(reply.status, 200);
    let body: Value = serde_json::from_str(&reply.body).expect("JSON");
    assert_eq!(body, json!({ "phase": "LameDuck", "inFlight": 0, "pending": [], "holders": [] }));
    assert_eq!(ports.operator("GET", "/drain?cancel", "").await.status, 200);
    assert_eq!(lifecycle.phase(), Phase::LameDuck, "a GET changes nothing");
    assert_eq!(ports.operator("POST", "/drain?cancel", "").await.status, 200);
    assert_eq!(lifecycle.phase(), Phase::Serving);
}

#[tokio::test]
async fn what_holds_a_drain_is_told_the_oldest_first() {
    struct Held;
    impl Ledger for Held {
        fn holders(&self) -> Vec<Holder> {
            let held = |route: &str, seconds| Holder {
                route: route.to_owned(),
                protocol: "websocket".into(),
                peer: "192.0.2.7:1234".to_owned(),
                age: Duration::from_secs(seconds),
                received: 7,
                sent: 9,
            };
            vec![held("a/young r", 1), held("a/old r", 3)]
        }
    }
    let ports = Ports::open();
    ports.parts.lifecycle.set_ledger(Arc::new(Held));
    let body: Value = serde_json::from_str(&ports.operator("GET", "/drain", "").await.body).expect("JSON");
    let holder = |route, age| {
        let peer = "192.0.2.7:1234";
        json!({"route": route, "protocol": "websocket", "peer": peer, "ageSeconds": age, "received": 7, "sent": 9})
    };
    assert_eq!(body["holders"], json!([holder("a/old r", 3.0), holder("a/young r", 1.0)]));
}

#[tokio::test]
async fn the_log_level_is_shown_and_changed() {
    let (subscriber, logs) = logs::build(&LogSettings::default(), std::io::sink()).expect("valid");
    let mut ports = Ports::open();
    ports.parts.logs = Arc::new(logs);
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let admin = Admin::bind(loopback, loopback).expect("free ports");
    ports.operator = admin.operator_addr().expect("bound");
    tokio::spawn(admin.serve(ports.parts.clone()));
    assert!(ports.operator("GET", "/loglevel", "").await.body.contains(r#""level": "info""#));
    let reply = ports.operator("PUT", "/loglevel", "warn,lockgate=debug\n").await;
    assert_eq!(reply.status, 200);
    assert!(reply.body.contains("lockgate=debug"), "{}", reply.body);
    let reply = ports.operator("PUT", "/loglevel", "loud").await;
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains(r#"log level \"loud\""#), "{}", reply.body);
    assert_eq!(ports.operator("PUT", "/loglevel", &"x".repeat(5000)).await.status, 413);
    assert_eq!(ports.operator("POST", "/loglevel", "debug").await.status, 405);
    assert!(ports.parts.logs.level().contains("lockgate=debug"));
    drop(subscriber);
}

#[tokio::test]
async fn pages_answer_get_with_their_query() {
    let ports = Ports::open();
    let reply = ports.operator("GET", "/routes?host=a", "").await;
    assert_eq!(reply.status, 200);
    let shown: Value = serde_json::from_str(&reply.body).expect("JSON");
    assert_eq!(shown, json!({ "query": "host=a", "body": null }));
    assert_eq!(ports.operator("GET", "/routes?bad", "").await.status, 400);
    assert_eq!(ports.operator("POST", "/routes", "").await.status, 405);
    assert_eq!(ports.operator("GET", "/nothing", "").await.status, 404);
    let index: Value = serde_json::from_str(&ports.operator("GET", "/", "").await.body).expect("JSON");
    for page in ["GET /routes", "GET /explain", "POST /explain"] {
        assert!(index.as_array().is_some_and(|pages| pages.contains(&json!(page))), "{index}");
    }
    let head = "host: localhost\r\naccept: application/x, text/plain;q=0.5\r\n";
    let reply = ports.operator_with("GET", "/routes", head, "").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "text\n"));
}

#[tokio::test]
async fn pages_that_take_a_body_take_a_bounded_one() {
    let ports = Ports::open();
    let reply = ports.operator("POST", "/explain", "question").await;
    let shown: Value = serde_json::from_str(&reply.body).expect("JSON");
    assert_eq!((reply.status, shown), (200, json!({ "query": "", "body": 8 })));
    let head = "host: localhost\r\ncontent-length: 300000\r\n";
    let request = format!("POST /explain HTTP/1.1\r\n{head}\r\n");
    let reply = send(ports.operator, &(request + &"x".repeat(300_000))).await;
    assert_eq!(reply.status, 413);
    assert_eq!(ports.operator("PUT", "/explain", "").await.status, 405);
}

#[tokio::test]
async fn a_browser_on_a_foreign_page_is_refused() {
    let ports = Ports::open();
    ports.parts.lifecycle.serving().expect("from Starting");
    let refused = [
        "host: rebound.example:8082\r\n",
        "host: localhost.example\r\n",
        "host: localhost@evil.example\r\n",
        "host: \r\n",
        "host: localhost\r\nhost: localhost\r\n",
        "host: localhost:8082\r\norigin: http://evil.example\r\n",
        "host: localhost:8082\r\norigin: http://localhost:3000\r\n",
        "host: localhost:8082\r\norigin: null\r\n",
        "host: localhost:8082\r\norigin: http://localhost:8082\r\norigin: http://evil.example\r\n",
        "",
    ];
    for head in refused {
        let reply = ports.operator_with("POST", "/drain", head, "").await;
        assert_eq!(reply.status, 403, "{head:?}");
        assert_eq!(ports.parts.lifecycle.phase(), Phase::Serving, "{head:?}");
    }
    for head in ["host: localhost\r\n", "host: 127.0.0.1:9\r\n", "host: [::1]:8082\r\norigin: http://[::1]:8082\r\n"] {
        let reply = ports.operator_with("POST", "/drain", head, "").await;
        assert_eq!(reply.status, 200, "{head:?}");
    }
}

#[tokio::test]
async fn what_a_browser_does_for_another_site_is_refused() {
    let ports = Ports::open();
    let told = |site: &str, mode: &str, dest: &str| {
        format!(
            "host: localhost:8082\r\nsec-fetch-site: {site}\r\nsec-fetch-mode: {mode}\r\nsec-fetch-dest: {dest}\r\n"
        )
    };
    let cases = [
        ("GET", told("same-origin", "cors", "empty"), 200),
        ("GET", told("none", "navigate", "document"), 200),
        // A link, followed by a person.
        ("GET", told("cross-site", "navigate", "document"), 200),
        ("GET", told("cross-site", "no-cors", "image"), 403),
        ("GET", told("cross-site", "navigate", "iframe"), 403),
        // Another port of localhost.
        ("GET", told("same-site", "no-cors", "script"), 403),
        ("POST", told("cross-site", "navigate", "document"), 403),
        ("GET", told("none", "navigate", "document") + "sec-fetch-site: cross-site\r\n", 200),
        ("GET", told("none", "cors", "empty") + "sec-fetch-site: cross-site\r\n", 403),
    ];
    for (method, head, status) in cases {
        assert_eq!(ports.operator_with(method, "/drain", &head, "").await.status, status, "{method} {head}");
    }
}

#[tokio::test]
async fn a_browser_gets_the_page_and_a_program_the_list() {
    let ports = Ports::open();
    let browser = "host: localhost:8082\r\naccept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    let page = ports.operator_with("GET", "/", browser, "").await;
    assert_eq!(page.status, 200);
    for guard in [
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';",
        "frame-ancestors 'none'; require-trusted-types-for 'script'",
        "x-frame-options: DENY",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
        "vary: accept",
    ] {
        assert!(page.head.contains(guard), "{guard} in {}", page.head);
    }
    for (path, media_type) in [("/page.css", "text/css"), ("/page.js", "text/javascript")] {
        assert!(page.body.contains(&format!("\"{path}\"")), "{path}");
        let part = ports.operator("GET", path, "").await;
        assert_eq!(part.status, 200, "{path}");
        assert!(part.head.contains(&format!("content-type: {media_type}; charset=utf-8")), "{}", part.head);
        assert_eq!(ports.operator("POST", path, "").await.status, 405);
    }
    // The policy lets nothing else in, so nothing else may be asked for.
    for outside in ["http:", "https:", "<style", "onclick=", "style="] {
        assert!(!page.body.replace("placeholder=\"http:", "").contains(outside), "{outside}");
    }
    assert!(ports.operator("GET", "/", "").await.head.contains("content-type: application/json"));
    assert_eq!(ports.public("GET", "/page.js").await.status, 404);
}

#[tokio::test]
async fn silent_connections_lock_nobody_out() {
    let ports = Ports::open();
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(ports.public).await.expect("listening"));
    }
    assert_eq!(ports.public("GET", "/livez").await.status, 200);
}

#[tokio::test]
async fn a_port_in_use_is_an_error_that_names_it() {
    let taken = StdListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound");
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let error = Admin::bind(address, free).map(|_| ()).expect_err("taken");
    assert_eq!(error.to_string(), format!("cannot listen on {address}"));
    assert!(std::error::Error::source(&error).is_some_and(|cause| cause.to_string().contains("in use")));
}

#[tokio::test]
async fn the_operator_port_stays_on_loopback() {
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let error = Admin::bind(free, SocketAddr::from(([0, 0, 0, 0], 0))).map(|_| ()).expect_err("reachable");
    assert_eq!(error.to_string(), "the operator port must be on a loopback address, 0.0.0.0:0 is not");
}

#[tokio::test]
async fn an_unspecified_address_takes_ipv4_too() {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let admin = Admin::bind(any, SocketAddr::from(([127, 0, 0, 1], 0))).expect("free ports");
    let port = admin.public_addr().expect("bound").port();
    TcpStream::connect(("127.0.0.1", port)).await.expect("listening on IPv4");
}
