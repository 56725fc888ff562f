//! What is told of a request is what becomes of it.

use super::harness::*;
use crate::ir::{self, Action, Filter, PathRewrite, Redirect};
use crate::proxy::preview::{self, Head, HeadLimits, Refused, Taken};
use crate::routing::{ListenerIndex, Now, Request};

/// The head of a request as the proxy gets it.
fn parts(method: &str, target: &str, headers: &[(&str, &str)]) -> http::request::Parts {
    let mut request = http::Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// The request that is looked up.
fn request<'a>(parts: &'a http::request::Parts, head: &'a Head) -> Request<'a> {
    Request {
        method: &parts.method,
        host: &head.host,
        path: &head.path,
        query: parts.uri.query(),
        headers: &parts.headers,
        client_ip: [127, 0, 0, 1].into(),
        now: Now::At(std::time::SystemTime::UNIX_EPOCH),
    }
}

/// What is told: the refusal, or where the request goes.
fn told(gateway: &Gateway, parts: &http::request::Parts) -> Result<String, Refused> {
    let head: Head = preview::judge(parts, &HeadLimits::from(&crate::settings::Limits::default()))?;
    let snapshot = gateway.published().load();
    let found = snapshot.table.find(ListenerIndex(0), &request(parts, &head))?;
    let taken = Taken { parts, head: &head, scheme: "http", matched: found.matched_prefix_len(), max_path: 8 << 10 };
    match &found.rule.action {
        Action::Redirect(redirect) => preview::redirect(found.rule, redirect, taken),
        _ => preview::upstream(found.rule, taken).map(|(target, host)| format!("{target} {host}")),
    }
}

fn text(method: &str, target: &str, headers: &[(&str, &str)]) -> String {
    let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} {target} HTTP/1.1\r\n{}connection: close\r\n\r\n", headers.concat())
}

#[tokio::test]
async fn refusals_are_foretold() {
    let origin = Origin::start(Reply::always("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/a", &[(&origin, 1)])])]).await;
    let long = format!("/a?{}", "x".repeat(9000));
    let host = ("host", "x.test");
    for (method, target, headers) in [
        ("GET", "/b", vec![host]),
        ("GET", "/a%2Fb", vec![host]),
        ("GET", "/a%5Cb", vec![host]),
        ("GET", "/%zz", vec![host]),
        ("GET", "/a%00", vec![host]),
        ("GET", long.as_str(), vec![host]),
        ("GET", "/a", vec![]),
        ("GET", "/a", vec![("host", "")]),
        ("GET", "/a", vec![host, host]),
        ("GET", "/a", vec![("host", "a..b")]),
        ("GET", "/a", vec![("host", "x.test:port")]),
        ("GET", "http://u@x.test/a", vec![host]),
        ("GET", "/a", vec![host, ("expect", "more")]),
        ("OPTIONS", "*", vec![host]),
    ] {
        let refused = told(&gateway, &parts(method, target, &headers)).expect_err(target);
        let answer = gateway.send(&text(method, target, &headers)).await;
        let status = format!("HTTP/1.1 {} ", refused.status());
        let reason = format!("x-lockgate-reason: {}\r\n", refused.reason);
        assert!(answer.starts_with(&status) && answer.contains(&reason), "{target} {headers:?}: {refused:?}\n{answer}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn heads_that_cannot_be_read_are_foretold() {
    let gateway = Gateway::start(vec![selector(vec![rule("/a", &[])])]).await;
    let large = "x".repeat(40_000);
    let host = ("host", "x.test");
    let mut many = vec![host];
    many.resize(101, ("x-a", "1"));
    for headers in [
        vec![host, ("content-length", "x")],
        vec![host, ("content-length", "+1")],
        vec![host, ("content-length", "1"), ("content-length", "2")],
        vec![host, ("transfer-encoding", "gzip")],
        vec![host, ("x-large", large.as_str())],
        many,
    ] {
        let refused = told(&gateway, &parts("POST", "/a", &headers)).expect_err("refused");
        let answer = gateway.send(&text("POST", "/a", &headers)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {} ", refused.status())), "{refused:?}\n{answer}");
    }
}

#[tokio::test]
async fn targets_and_locations_are_foretold() {
    let origin = Origin::start(Reply::always("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")).await;
    let mut rewritten = rule("/old", &[(&origin, 1)]);
    rewritten.filters =
        vec![Filter::Rewrite { hostname: Some("inner.test".into()), path: Some(PathRewrite::Prefix("/new".into())) }];
    let mut redirected = rule("/go", &[]);
    redirected.action = Action::Redirect(Redirect {
        scheme: Some("https".into()),
        hostname: None,
        port: None,
        path: Some(PathRewrite::Full("/there".into())),
        status: http::StatusCode::FOUND,
    });
    let mut changed = ir::Rule { index: 3, name: "/changed".into(), ..redirected.clone() };
    changed.matches[0].path = ir::PathMatch::Prefix("/changed".into());
    changed.filters = vec![Filter::ResponseHeaders(ir::HeaderEdit {
        set: vec![(http::header::LOCATION, http::HeaderValue::from_static("https://elsewhere.test/"))],
        ..ir::HeaderEdit::default()
    })];
    let rules = vec![rule("/a", &[(&origin, 1)]), rewritten, redirected, changed];
    let gateway = Gateway::start(vec![selector(rules)]).await;
    for target in ["/a/%7Eb/../c?q=%2F", "/old/x?y", "/old"] {
        let headers = [("host", "X.test:80")];
        let told = told(&gateway, &parts("GET", target, &headers)).unwrap();
        let (told_target, told_host) = told.split_once(' ').unwrap();
        gateway.send(&text("GET", target, &headers)).await;
        let sent = origin.requests().pop().unwrap();
        assert!(sent.starts_with(&format!("GET {told_target} HTTP/1.1\r\n")), "{told}\n{sent}");
        assert!(sent.contains(&format!("host: {told_host}\r\n")), "{told}\n{sent}");
    }
    let headers = [("host", "x.test:8080")];
    for target in ["/go?q", "/changed"] {
        let told = told(&gateway, &parts("GET", target, &headers)).unwrap();
        let answer = gateway.send(&text("GET", target, &headers)).await;
        assert!(answer.contains(&format!("location: {told}\r\n")), "{told}\n{answer}");
    }
}

#[tokio::test]
async fn what_becomes_of_upgrades_is_foretold() {
    let origin = Origin::start(Reply::always("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")).await;
    let [mut none, mut own] = ["/none", "/own"].map(|path| rule(path, &[(&origin, 1)]));
    none.upgrades = Some(Vec::new());
    own.upgrades = Some(vec!["tcp".into(), "spdy/3.1".into()]);
    let gateway = Gateway::start(vec![selector(vec![rule("/", &[(&origin, 1)]), none, own])]).await;
    let usual = ["websocket".into()];
    let (host, meant) = (("host", "x.test"), ("connection", "Upgrade"));
    for (target, fields) in [
        ("/", vec![host, meant, ("upgrade", "websocket")]),
        ("/", vec![host, meant, ("upgrade", "h2c, WebSocket")]),
        ("/", vec![host, ("upgrade", "websocket")]),
        ("/", vec![host, meant, ("upgrade", "h2c")]),
        ("/", vec![host, meant]),
        ("/none", vec![host, meant, ("upgrade", "websocket")]),
        ("/own", vec![host, meant, ("upgrade", "SPDY/3.1, websocket, tcp")]),
    ] {
        let parts = parts("GET", target, &fields);
        let head = preview::judge(&parts, &HeadLimits::from(&crate::settings::Limits::default())).unwrap();
        let snapshot = gateway.published().load();
        let rule = snapshot.table.find(ListenerIndex(0), &request(&parts, &head)).unwrap().rule;
        let told = preview::upgrade(rule, &parts, &usual);
        assert_eq!(told.is_some(), fields.iter().any(|(name, _)| *name == "upgrade"));
        let asked_for = told.map(|upgrade| upgrade.asked_for.join(", ")).filter(|list| !list.is_empty());
        let before = origin.requests().len();
        let lines: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        gateway.send(&format!("GET {target} HTTP/1.1\r\n{}\r\n", lines.concat())).await;
        let head = origin.requests().remove(before);
        let sent = head.lines().find_map(|line| line.strip_prefix("upgrade: "));
        assert_eq!(sent, asked_for.as_deref(), "{target} {fields:?}");
    }
}

#[tokio::test]
async fn refusals_of_grpc_are_foretold() {
    let origin = Origin::start(Reply::always("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")).await;
    let gateway = Gateway::start(vec![selector(vec![rule("/a", &[(&origin, 1)])])]).await;
    let host = ("host", "x.test");
    for (method, target, content_type) in [
        ("POST", "/b", "application/grpc"),
        ("POST", "/%zz", "application/grpc+proto"),
        ("POST", "/b", "application/grpc-web"),
        ("POST", "/b", "text/plain"),
        ("GET", "/b", "application/grpc"),
    ] {
        let headers = [host, ("content-type", content_type)];
        let parts = parts(method, target, &headers);
        let refused = told(&gateway, &parts).expect_err(target);
        let answer = gateway.send(&text(method, target, &headers)).await;
        let expected = if preview::is_grpc(&parts) {
            format!("grpc-status: {}\r\n", preview::grpc_status(refused.reason))
        } else {
            format!("HTTP/1.1 {} ", refused.status())
        };
        assert!(answer.contains(&expected), "{method} {target} {content_type}: {answer}");
        assert_eq!(answer.contains("grpc-status"), answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}
