//! Filters on the wire.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, StatusCode};

use super::harness::{self, Gateway, Origin, Reply, rule, selector};
use super::{OK, host_header};
use crate::ir::{self, Action, Filter};

fn field(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static(name), HeaderValue::from_static(value))
}

pub(super) fn set(name: &'static str, value: &'static str) -> ir::HeaderEdit {
    ir::HeaderEdit { set: vec![field(name, value)], ..ir::HeaderEdit::default() }
}

fn add(name: &'static str, value: &'static str) -> ir::HeaderEdit {
    ir::HeaderEdit { add: vec![field(name, value)], ..ir::HeaderEdit::default() }
}

pub(super) fn rewriting(path: ir::PathRewrite) -> Filter {
    Filter::Rewrite { hostname: None, path: Some(path) }
}

pub(super) fn by_regex(pattern: &str, substitution: &str) -> ir::PathRewrite {
    ir::PathRewrite::Regex(Box::new(ir::RegexRewrite::new(pattern, substitution).unwrap()))
}

fn redirect() -> ir::Redirect {
    ir::Redirect { scheme: None, hostname: None, port: None, path: None, status: StatusCode::FOUND }
}

pub(super) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: a.test\r\n\r\n")
}

pub(super) fn first_line(request: &str) -> &str {
    request.lines().next().unwrap()
}

fn location(answer: &str) -> Option<&str> {
    answer.lines().find_map(|line| line.strip_prefix("location: "))
}

#[tokio::test]
async fn paths_are_rewritten_by_regular_expression() {
    let origin = Origin::start(Reply::always(OK)).await;
    let mut captures = rule("/service", &[(&origin, 1)]);
    captures.filters = vec![rewriting(by_regex("^/service/([^/]+)(/.*)$", "$2/instance/$1"))];
    let mut dots = rule("/dots", &[(&origin, 1)]);
    dots.filters = vec![rewriting(by_regex("-", "."))];
    let gateway = Gateway::start(vec![selector(vec![captures, dots])]).await;
    for (target, sent) in [
        ("/service/foo/v1/api?x=%2F&y", "/v1/api/instance/foo?x=%2F&y"),
        ("/service/f%7eo//evil.test", "/evil.test/instance/f~o"),
        ("/service", "/service"),
    ] {
        gateway.send(&get(target)).await;
        let seen = origin.requests().pop().unwrap();
        assert_eq!(first_line(&seen), format!("GET {sent} HTTP/1.1"), "{target}");
    }
    let answer = gateway.send(&get("/dots/a/-./secret")).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("bad-path"), "{answer}");
    assert_eq!(origin.requests().len(), 3, "nothing that leads elsewhere is sent");
}

/// envoyproxy/gateway#2976: a prefix that is replaced by `/` made `//bar`, in rewrites and in redirects.
#[tokio::test]
async fn replacing_a_prefix_by_a_slash_makes_no_second_one() {
    let origin = Origin::start(Reply::always(OK)).await;
    let replaced = || ir::PathRewrite::Prefix("/".into());
    let mut rewrite = rule("/api/foo/", &[(&origin, 1)]);
    rewrite.filters = vec![rewriting(replaced())];
    let mut moved = rule("/moved/foo/", &[]);
    moved.action = Action::Redirect(ir::Redirect { path: Some(replaced()), ..redirect() });
    let gateway = Gateway::start(vec![selector(vec![rewrite, moved])]).await;
    for (rest, expected) in [("/bar?q=1", "/bar?q=1"), ("", "/"), ("/", "/"), ("//bar", "/bar")] {
        gateway.send(&get(&format!("/api/foo{rest}"))).await;
        let seen = origin.requests().pop().unwrap();
        assert_eq!(first_line(&seen), format!("GET {expected} HTTP/1.1"), "{rest}");
        let answer = gateway.send(&get(&format!("/moved/foo{rest}"))).await;
        assert_eq!(location(&answer), Some(&*format!("http://a.test{expected}")), "{rest}");
    }
}

#[tokio::test]
async fn queries_are_edited_and_the_rest_of_them_kept() {
    let origin = Origin::start(Reply::always(OK)).await;
    let mut edited = rule("/", &[(&origin, 1)]);
    let edit = ir::QueryEdit {
        remove: vec!["debug".into()],
        set: vec![("v".into(), "v=a%20b".into())],
        add: vec!["tag=x".into(), "tag=y".into()],
    };
    edited.filters = vec![Filter::RequestQuery(edit), rewriting(by_regex("^/old", "/new"))];
    let mut less = rule("/less", &[(&origin, 1)]);
    let edit = ir::QueryEdit { remove: vec!["a".into()], ..ir::QueryEdit::default() };
    less.filters = vec![Filter::RequestQuery(edit)];
    let gateway = Gateway::start(vec![selector(vec![edited, less])]).await;
    for (target, sent) in [
        ("/old/x?q=%2f+1&debug=1&v=1&z&v=2&deb%75g", "/new/x?q=%2f+1&v=a%20b&z&tag=x&tag=y"),
        ("/x", "/x?v=a%20b&tag=x&tag=y"),
        ("/less?a=1", "/less"),
        ("/less?b=%&&c", "/less?b=%&&c"),
        ("/less?", "/less?"),
    ] {
        gateway.send(&get(target)).await;
        let seen = origin.requests().pop().unwrap();
        assert_eq!(first_line(&seen), format!("GET {sent} HTTP/1.1"), "{target}");
    }
}

#[tokio::test]
async fn a_backend_has_changes_of_its_own_after_the_rules_on_the_way_and_before_them_on_the_way_back() {
    let reply = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: x-both\r\nx-both: origin\r\n\r\nok";
    let (changed, plain) = (Origin::start(Reply::always(reply)).await, Origin::start(Reply::always(OK)).await);
    let mut split = rule("/", &[(&changed, 1), (&plain, 1)]);
    split.filters = vec![Filter::RequestHeaders(set("x-both", "rule")), Filter::ResponseHeaders(add("x-both", "rule"))];
    if let Action::Forward(backends) = &mut split.action {
        backends[0].filters =
            vec![Filter::RequestHeaders(add("x-both", "backend")), Filter::ResponseHeaders(set("x-both", "backend"))];
    }
    let gateway = Gateway::start(vec![selector(vec![split])]).await;
    let mut answers = [gateway.send(&get("/")).await, gateway.send(&get("/")).await];
    answers.sort_by_key(|answer| !answer.contains("x-both: backend"));
    assert!(answers[0].contains("x-both: backend\r\nx-both: rule\r\n"), "{}", answers[0]);
    assert!(answers[1].contains("x-both: rule\r\n") && !answers[1].contains("backend"), "{}", answers[1]);
    let (changed, plain) = (changed.requests().remove(0), plain.requests().remove(0));
    assert!(changed.contains("x-both: rule\r\nx-both: backend\r\n"), "{changed}");
    assert!(plain.contains("x-both: rule\r\n") && !plain.contains("backend"), "{plain}");
}

#[tokio::test]
async fn a_host_is_rewritten_and_the_clients_kept_beside_it() {
    let origin = Origin::start(Reply::always(OK)).await;
    let mut named = rule("/", &[(&origin, 1)]);
    named.filters = vec![Filter::Rewrite { hostname: Some("inside.test".into()), path: None }];
    let gateway = Gateway::start(vec![selector(vec![named])]).await;
    gateway.send(&get("/")).await;
    let seen = origin.requests().remove(0);
    assert_eq!(host_header(&seen), Some("inside.test"));
    assert!(seen.contains("x-forwarded-host: a.test\r\n"), "{seen}");
}

#[tokio::test]
async fn redirects_change_every_part_and_lead_to_no_other_host() {
    let to = |path: &str, change: ir::Redirect| {
        let mut rule = rule(path, &[]);
        rule.action = Action::Redirect(change);
        rule
    };
    let mut rules = vec![
        to("/port", ir::Redirect { port: Some(8443), ..redirect() }),
        to("/https", ir::Redirect { scheme: Some("https".into()), ..redirect() }),
        to("/regex", ir::Redirect { path: Some(by_regex("^/regex", "")), ..redirect() }),
        to("/full", ir::Redirect { path: Some(ir::PathRewrite::Full("/x/y".into())), ..redirect() }),
        to("/host", ir::Redirect { hostname: Some("b.test".into()), ..redirect() }),
    ];
    for status in [301, 302, 303, 307, 308] {
        let status = StatusCode::from_u16(status).unwrap();
        rules.push(to(&format!("/{}", status.as_u16()), ir::Redirect { port: Some(81), status, ..redirect() }));
    }
    let gateway = Gateway::start(vec![selector(rules)]).await;
    for (target, host, expected) in [
        ("/port/a", "a.test", "http://a.test:8443/port/a"),
        ("/https/a?b=%2F", "a.test:8080", "https://a.test/https/a?b=%2F"),
        ("/https", "[2001:DB8::1]:8080", "https://[2001:db8::1]/https"),
        ("/regex//evil.test", "[::1]:8080", "http://[::1]:8080/evil.test"),
        ("/regex", "a.test:80", "http://a.test/"),
        ("/full/z?q", "a.test", "http://a.test/x/y?q"),
        ("/host/%5e", "a.test:8080", "http://b.test:8080/host/%5E"),
    ] {
        let answer = gateway.send(&format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 302 "), "{answer}");
        assert_eq!(location(&answer), Some(expected), "{target} {host}");
    }
    for status in [301, 302, 303, 307, 308] {
        let answer = gateway.send(&get(&format!("/{status}"))).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    let nameless = gateway.send("GET /port//evil.test HTTP/1.0\r\n\r\n").await;
    assert!(nameless.contains(" 400 ") && location(&nameless).is_none(), "{nameless}");
    let named = gateway.send("GET /host//evil.test HTTP/1.0\r\n\r\n").await;
    assert_eq!(location(&named), Some("http://b.test/host//evil.test"));
}

/// kubernetes/ingress-nginx#1000: a client's own `X-Forwarded` fields turned redirects and lists of addresses off.
#[tokio::test]
async fn forwarded_fields_of_a_stranger_change_nothing() {
    let origin = Origin::start(Reply::always(OK)).await;
    let mut https = rule("/https", &[]);
    https.action = Action::Redirect(ir::Redirect { scheme: Some("https".into()), ..redirect() });
    let from = |path: &str, net: &str| {
        let mut listed = rule(path, &[(&origin, 1)]);
        let predicate = ir::Predicate::Cidr(vec![net.parse().unwrap()]);
        listed.matches[0].conditions = vec![ir::Condition { source: ir::Source::ClientIp, predicate, negate: false }];
        listed
    };
    let rules = vec![https, from("/inside", "10.0.0.0/8"), from("/local", "127.0.0.0/8")];
    let gateway = Gateway::start(vec![selector(rules)]).await;
    let spoofed = |target: &str| {
        format!(
            "GET {target} HTTP/1.1\r\nhost: a.test\r\nx-forwarded-for: 10.0.0.1\r\nx-forwarded-proto: https\r\n\r\n"
        )
    };
    let answer = gateway.send(&spoofed("/https")).await;
    assert_eq!(location(&answer), Some("https://a.test/https"));
    assert!(gateway.send(&spoofed("/inside")).await.starts_with("HTTP/1.1 404 "));
    assert!(gateway.send(&spoofed("/local")).await.starts_with("HTTP/1.1 200 "));
    let seen = origin.requests().remove(0);
    assert!(seen.contains("x-forwarded-for: 127.0.0.1\r\n") && seen.contains("x-forwarded-proto: http\r\n"), "{seen}");
    assert!(!seen.contains("10.0.0.1") && !seen.contains("https"), "{seen}");
}

#[tokio::test]
async fn own_answers_suit_head_and_leave_unread_bodies_behind() {
    let mut direct = rule("/direct", &[]);
    direct.action = Action::DirectResponse(ir::DirectResponse {
        status: StatusCode::OK,
        headers: vec![field("x-a", "1")],
        body: "hello".into(),
    });
    direct.filters = vec![Filter::ResponseHeaders(set("x-a", "2"))];
    let mut empty = rule("/empty", &[]);
    empty.action =
        Action::DirectResponse(ir::DirectResponse { status: StatusCode::NO_CONTENT, headers: vec![], body: "".into() });
    let mut moved = rule("/moved", &[]);
    moved.action = Action::Redirect(ir::Redirect { port: Some(81), ..redirect() });
    let gateway = Gateway::start(vec![selector(vec![direct, empty, moved])]).await;
    let mut client = gateway.connect().await;
    client.write("HEAD /direct HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let answer = client.read_until("\r\n\r\n").await;
    assert!(answer.contains("content-length: 5\r\n") && answer.contains("x-a: 2\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n") && !answer.contains("x-a: 1"), "{answer}");
    client.write("GET /empty HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let answer = client.read_until("\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 204 ") && !answer.contains("content-length"), "{answer}");
    // A body that nobody reads is no request: what follows it is.
    for target in ["/direct", "/moved"] {
        let body = "GET /evil HTTP/1.1\r\nhost: a\r\n\r\n";
        let length = body.len();
        let answer = client
            .exchange(&format!("POST {target} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}"))
            .await;
        assert!(answer.starts_with("HTTP/1.1 200 ") || answer.starts_with("HTTP/1.1 302 "), "{answer}");
    }
    let answer = client.exchange(&get("/direct")).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"), "{answer}");
}

fn cors(origin: &str) -> Filter {
    Filter::Cors(Box::new(ir::Cors {
        origins: ir::Origins::Some(vec![ir::OriginPattern::parse(origin).unwrap()]),
        credentials: true,
        methods: ir::Allowed::Listed(HeaderValue::from_static("PUT")),
        headers: ir::Allowed::All,
        expose: Some(HeaderValue::from_static("x-a")),
        max_age: 600,
    }))
}

fn preflight(target: &str, origin: &str, method: &str) -> String {
    format!(
        "OPTIONS {target} HTTP/1.1\r\nhost: a.test\r\norigin: {origin}\r\naccess-control-request-method: {method}\r\n\
         access-control-request-headers: X-B\r\nconnection: close\r\n\r\n"
    )
}

#[tokio::test]
async fn preflights_are_answered_for_the_rule_that_they_ask_about() {
    let origin = Origin::start(Reply::always(OK)).await;
    let mut put = rule("/", &[(&origin, 1)]);
    put.matches[0].methods = vec![http::Method::PUT];
    put.filters = vec![cors("https://*.foo.test")];
    // Fewer methods come first: without a look at what is asked for, this one would take every OPTIONS.
    let mut other = rule("/", &[(&origin, 1)]);
    other.name = "other".into();
    let gateway = Gateway::start(vec![selector(vec![put, other])]).await;
    let answer = gateway.send(&preflight("/x", "https://a.foo.test", "PUT")).await;
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    for line in [
        "access-control-allow-origin: https://a.foo.test",
        "access-control-allow-credentials: true",
        "access-control-allow-methods: PUT",
        "access-control-allow-headers: x-b",
        "access-control-max-age: 600",
        "x-request-id: ",
    ] {
        assert!(answer.contains(line), "{line} not in {answer}");
    }
    assert!(!answer.contains("expose") && !answer.contains("content-length"), "{answer}");
    let answer = gateway.send(&preflight("/x", "https://foo.test.evil", "PUT")).await;
    assert!(answer.starts_with("HTTP/1.1 204 ") && !answer.contains("access-control-allow"), "{answer}");
    assert_eq!(origin.requests().len(), 0, "no backend is asked");
    for request in [preflight("/x", "https://a.foo.test", "DELETE"), "OPTIONS /x HTTP/1.1\r\nhost: a\r\n\r\n".into()] {
        assert!(gateway.send(&request).await.starts_with("HTTP/1.1 200 "), "{request}");
    }
    assert_eq!(origin.requests().len(), 2, "the rule without the filter leaves them to its backend");
}

#[tokio::test]
async fn answers_say_of_origins_what_the_filter_says() {
    let reply = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\naccess-control-allow-origin: *\r\nvary: accept\r\n\r\nok";
    let origin = Origin::start(Reply::always(reply)).await;
    let mut open = rule("/", &[(&origin, 1)]);
    open.filters = vec![cors("https://a.test")];
    let mut gone = harness::service_rule("/gone", "none");
    gone.filters = vec![cors("https://a.test"), Filter::ResponseHeaders(set("access-control-allow-origin", "x"))];
    let mut moved = rule("/moved", &[]);
    moved.action = Action::Redirect(ir::Redirect { port: Some(81), ..redirect() });
    moved.filters = vec![cors("https://a.test"), Filter::ResponseHeaders(set("access-control-allow-origin", "x"))];
    let gateway = Gateway::start(vec![selector(vec![open, gone, moved])]).await;
    let from = |target: &str, origin: &str| format!("GET {target} HTTP/1.1\r\nhost: a\r\norigin: {origin}\r\n\r\n");
    for (target, status) in [("/", 200), ("/gone", 503), ("/moved", 302)] {
        let answer = gateway.send(&from(target, "https://a.test")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert_eq!(answer.matches("access-control-allow-origin").count(), 1, "{answer}");
        assert!(answer.contains("access-control-allow-origin: https://a.test\r\n"), "{answer}");
        assert!(
            answer.contains("access-control-expose-headers: x-a\r\n") && answer.contains("vary: origin"),
            "{answer}"
        );
        let answer = gateway.send(&from(target, "https://b.test")).await;
        assert!(!answer.contains("access-control") && answer.contains("vary: origin\r\n"), "{answer}");
    }
    assert!(gateway.send(&get("/")).await.contains("vary: accept\r\nvary: origin\r\n"));
}

#[tokio::test]
async fn preflights_wait_for_no_place_and_broken_rules_answer_none() {
    let origin = Origin::start(Reply::never()).await;
    let mut full = rule("/full", &[(&origin, 1)]);
    full.limits = ir::Limits { max_in_flight: Some(1), ..ir::Limits::default() };
    full.filters = vec![cors("https://a.test")];
    let mut broken = rule("/broken", &[]);
    broken.action = Action::Invalid { reason: "Invalid" };
    broken.filters = vec![cors("https://a.test")];
    let gateway = Gateway::start(vec![selector(vec![full, broken])]).await;
    let mut first = gateway.connect().await;
    first.write(&get("/full")).await;
    origin.wait_for_requests(1).await;
    assert!(gateway.send(&preflight("/full", "https://a.test", "GET")).await.starts_with("HTTP/1.1 204 "));
    assert!(gateway.send(&get("/full")).await.starts_with("HTTP/1.1 503 "));
    assert!(gateway.send(&preflight("/broken", "https://a.test", "GET")).await.starts_with("HTTP/1.1 500 "));
}

#[test]
fn filters_have_one_order() {
    let stages: Vec<u8> = [
        cors("https://a.test"),
        Filter::RequestHeaders(ir::HeaderEdit::default()),
        Filter::RequestQuery(ir::QueryEdit::default()),
        Filter::Rewrite { hostname: Some(Arc::from("a")), path: None },
        Filter::Mirror(ir::Mirror { cluster: ir::ClusterId::host("a", 1), numerator: 1, denominator: 1 }),
        Filter::ResponseHeaders(ir::HeaderEdit::default()),
    ]
    .iter()
    .map(Filter::stage)
    .collect();
    assert!(stages.is_sorted_by(|a, b| a < b));
}
