use super::*;
use crate::ir::OriginPattern;

fn cors(origins: &[&str]) -> Cors {
    Cors {
        origins: match origins {
            ["*"] => Origins::All,
            patterns => Origins::Some(patterns.iter().map(|text| OriginPattern::parse(text).unwrap()).collect()),
        },
        credentials: false,
        methods: Allowed::None,
        headers: Allowed::None,
        expose: None,
        max_age: 5,
    }
}

fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let field =
        |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let mut headers = HeaderMap::new();
    for (name, value) in fields.iter().map(field) {
        headers.append(name, value);
    }
    headers
}

/// The lines of an answer's head, sorted.
fn lines(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

fn granted(
    cors: &Cors,
    request: &[(&'static str, &'static str)],
    answer: &[(&'static str, &'static str)],
) -> Vec<String> {
    let mut answer = headers(answer);
    Grant::new(cors, &headers(request)).apply(&mut answer);
    lines(&answer)
}

const FOO: [(&str, &str); 1] = [("origin", "https://foo.example")];

#[test]
fn an_origin_that_is_let_in_is_named() {
    let mut filter = cors(&["https://foo.example", "https://*.bar.example"]);
    let named = ["access-control-allow-origin: https://foo.example", "vary: origin"];
    assert_eq!(granted(&filter, &FOO, &[]), named);
    filter.credentials = true;
    filter.expose = Some(HeaderValue::from_static("x-a, x-b"));
    assert_eq!(
        granted(&filter, &FOO, &[]),
        [
            "access-control-allow-credentials: true",
            "access-control-allow-origin: https://foo.example",
            "access-control-expose-headers: x-a, x-b",
            "vary: origin",
        ]
    );
    for other in [&[("origin", "https://evil.example")][..], &[("origin", "null")], &[], &[FOO[0], FOO[0]]] {
        assert_eq!(granted(&filter, other, &[]), ["vary: origin"], "{other:?}");
    }
}

#[test]
fn any_origin_is_a_star_only_without_credentials() {
    let mut filter = cors(&["*"]);
    for request in [&FOO[..], &[("origin", "null")], &[]] {
        assert_eq!(granted(&filter, request, &[]), ["access-control-allow-origin: *"], "the same for every cache");
    }
    filter.credentials = true;
    let named =
        ["access-control-allow-credentials: true", "access-control-allow-origin: https://foo.example", "vary: origin"];
    assert_eq!(granted(&filter, &FOO, &[]), named);
    assert_eq!(granted(&filter, &[], &[]), ["vary: origin"]);
}

#[test]
fn what_a_backend_says_is_replaced_and_its_vary_kept() {
    let filter = cors(&["https://foo.example"]);
    let backend = [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-private-network", "true"),
        ("vary", "accept-encoding"),
        ("x-own", "1"),
    ];
    let kept = ["vary: accept-encoding", "vary: origin", "x-own: 1"];
    assert_eq!(granted(&filter, &[("origin", "https://evil.example")], &backend), kept);
    let named = granted(&filter, &FOO, &backend);
    assert_eq!(named, ["access-control-allow-origin: https://foo.example", kept[0], kept[1], kept[2]]);
    for vary in ["*", "Accept, Origin"] {
        assert_eq!(granted(&filter, &[], &[("vary", vary)]), [format!("vary: {vary}")]);
    }
}

fn preflighted(cors: &Cors, request: &[(&'static str, &'static str)]) -> Vec<String> {
    let response = answer(cors, &Method::PUT, &headers(request));
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    lines(response.headers())
}

const VARY: &str = "vary: origin, access-control-request-method, access-control-request-headers";

#[test]
fn a_preflight_is_told_what_is_let_in() {
    let mut filter = cors(&["https://foo.example"]);
    let origin = "access-control-allow-origin: https://foo.example";
    assert_eq!(preflighted(&filter, &FOO), [origin, "access-control-max-age: 5", VARY]);
    filter.methods = Allowed::Listed(HeaderValue::from_static("GET, OPTIONS"));
    filter.headers = Allowed::Listed(HeaderValue::from_static("x-a"));
    filter.expose = Some(HeaderValue::from_static("x-b"));
    filter.credentials = true;
    assert_eq!(
        preflighted(&filter, &FOO),
        [
            "access-control-allow-credentials: true",
            "access-control-allow-headers: x-a",
            "access-control-allow-methods: GET, OPTIONS",
            origin,
            "access-control-max-age: 5",
            VARY,
        ]
    );
    assert_eq!(preflighted(&filter, &[("origin", "https://evil.example")]), [VARY]);
}

#[test]
fn stars_name_what_is_asked_for() {
    let mut filter = cors(&["*"]);
    filter.methods = Allowed::All;
    filter.headers = Allowed::All;
    let asked =
        [FOO[0], ("access-control-request-headers", "X-A, authorization"), ("access-control-request-headers", "x-b")];
    let told = [
        "access-control-allow-headers: x-a, authorization, x-b",
        "access-control-allow-methods: PUT",
        "access-control-allow-origin: *",
        "access-control-max-age: 5",
        VARY,
    ];
    assert_eq!(preflighted(&filter, &asked), told);
    for nothing in [&[FOO[0]][..], &[FOO[0], ("access-control-request-headers", "a b")]] {
        assert_eq!(preflighted(&filter, nothing), told[1..], "{nothing:?}");
    }
}
