//! Heads, and answers without a body.

use super::super::harness::Reply;
use super::*;
use crate::ir::Action;

fn lines<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let prefix = format!("{name}: ");
    head.lines().filter_map(|line| line.strip_prefix(&prefix)).collect()
}

#[tokio::test]
async fn a_request_and_its_answer_change_their_form_and_nothing_else() {
    let reply = "HTTP/1.1 201 Created\r\nx-own: 1\r\nset-cookie: a\r\nset-cookie: b\r\ncontent-length: 2\r\n\r\nok";
    let (origin, gateway) = answering(reply).await;
    let mut client = Client::connect(&gateway).await;
    let answer = client.send(request("GET", "/a%2Db?x=%20", &[("x-own", "2"), ("te", "trailers")])).await;
    assert_eq!((answer.head.status.as_u16(), &*answer.body), (201, "ok"));
    assert_eq!(answer.field("x-own"), Some("1"));
    assert_eq!(answer.field("content-length"), Some("2"));
    assert_eq!(answer.head.headers.get_all("set-cookie").iter().collect::<Vec<_>>(), ["a", "b"]);
    assert!(answer.field("x-request-id").is_some() && answer.field("date").is_some());
    let seen = &origin.requests()[0];
    assert!(seen.starts_with("GET /a-b?x=%20 HTTP/1.1\r\n"), "{seen}");
    for (name, value) in [
        ("host", "a.example"),
        ("x-own", "2"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "a.example"),
        ("x-forwarded-port", "80"),
    ] {
        assert_eq!(lines(seen, name), [value], "{seen}");
    }
    let text = gateway.metrics();
    let line = r#"lockgate_http_requests_total{selector="test/selector",route="test/route",rule="/",method="GET",code="201"} 1"#;
    assert!(text.contains(line), "{text}");
}

#[tokio::test]
async fn crumbs_of_cookies_are_one_line_for_a_backend_of_http1() {
    let (origin, gateway) = answering(OK).await;
    let mut client = Client::connect(&gateway).await;
    client.send(request("GET", "/", &[("cookie", "a=1"), ("x", "y"), ("cookie", "b=\"2 3\""), ("cookie", "c")])).await;
    gateway.send("GET / HTTP/1.1\r\nhost: a\r\ncookie: a=1\r\nx: y\r\nCookie: b=2;c=3\r\n\r\n").await;
    let seen = origin.requests();
    assert_eq!(lines(&seen[0], "cookie"), ["a=1; b=\"2 3\"; c"]);
    assert_eq!(lines(&seen[1], "cookie"), ["a=1; b=2;c=3"]);
}

#[tokio::test]
async fn fields_of_a_backends_connection_never_reach_a_client() {
    let reply = "HTTP/1.1 200 OK\r\nkeep-alive: timeout=5\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\n\
        upgrade: h2c\r\nproxy-connection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let (_origin, gateway) = answering(reply).await;
    let mut client = Client::connect(&gateway).await;
    for _ in 0..2 {
        let answer = client.get("/").await;
        assert_eq!((answer.head.status.as_u16(), &*answer.body), (200, "ok"));
        for name in ["keep-alive", "connection", "x-hop", "upgrade", "proxy-connection", "transfer-encoding"] {
            assert_eq!(answer.field(name), None, "{name}");
        }
    }
}

#[tokio::test]
async fn answers_without_a_body_end_with_their_head() {
    let head = Origin::start(Reply::always("HTTP/1.1 200 OK\r\ncontent-length: 2048\r\n\r\n")).await;
    let empty = Origin::start(Reply::always("HTTP/1.1 204 No Content\r\n\r\n")).await;
    let same = Origin::start(Reply::always("HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n")).await;
    let rules =
        [("/head", &head), ("/empty", &empty), ("/same", &same)].map(|(path, origin)| rule(path, &[(origin, 1)]));
    let gateway = Gateway::start(vec![selector(rules.into())]).await;
    let mut client = Client::connect(&gateway).await;
    for (method, path, status, field) in [
        ("HEAD", "/head", 200, ("content-length", "2048")),
        ("GET", "/empty", 204, ("x-none", "")),
        ("GET", "/same", 304, ("etag", "\"a\"")),
    ] {
        let response = client.head(request(method, path, &[])).await;
        assert!(response.body().is_end_stream(), "{path}");
        let answer = whole(response).await.unwrap();
        assert_eq!(answer.head.status, status);
        assert_eq!(answer.field(field.0).unwrap_or_default(), field.1);
    }
}

#[tokio::test]
async fn interim_answers_are_not_the_answer() {
    let reply = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let (_origin, gateway) = answering(reply).await;
    let answer = Client::connect(&gateway).await.get("/").await;
    assert_eq!((answer.head.status.as_u16(), &*answer.body), (200, "ok"));
}

#[tokio::test]
async fn what_the_gateway_answers_itself_leaves_the_connection_alone() {
    let origin = Origin::start(Reply::always(OK)).await;
    let mut small = rule("/small", &[(&origin, 1)]);
    small.limits.max_body_bytes = Some(1);
    let mut direct = rule("/direct", &[]);
    direct.action = Action::DirectResponse(ir::DirectResponse {
        status: http::StatusCode::IM_A_TEAPOT,
        headers: Vec::new(),
        body: "short and stout".into(),
    });
    let gateway = Gateway::start(vec![selector(vec![rule("/ok", &[(&origin, 1)]), small, direct])]).await;
    let mut client = Client::connect(&gateway).await;
    let many: Vec<(String, &str)> = (0..101).map(|n| (format!("x-{n}"), "1")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, *value)).collect();
    let long = format!("/ok/{}", "a".repeat(9000));
    for (method, path, fields, status, reason) in [
        ("GET", "/none", &[][..], 404, "no-route"),
        ("GET", "/ok/%2F", &[], 400, "bad-path"),
        ("GET", "/ok", &[("expect", "magic")], 417, "expectation-failed"),
        ("GET", "/ok", &many, 431, "headers-too-large"),
        ("GET", &long, &[], 414, "uri-too-long"),
        ("GET", "/direct", &[], 418, ""),
        ("GET", "/ok", &[], 200, ""),
    ] {
        let answer = client.send(request(method, path, fields)).await;
        assert_eq!(answer.head.status, status, "{path:.20}");
        assert_eq!(answer.field("x-lockgate-reason").unwrap_or_default(), reason);
        assert_eq!(answer.field("connection"), None);
        assert_eq!(answer.field("content-length"), Some(&*answer.body.len().to_string()));
    }
    let (response, mut body) = client.begin(request("POST", "/small", &[]), false).await;
    body.send_data(Bytes::from_static(b"too much"), false).unwrap();
    assert_eq!(response.await.unwrap().status(), 413);
    assert_eq!(client.get("/ok").await.head.status, 200);
}

#[tokio::test]
async fn cookies_in_crumbs_count_as_one_field() {
    let (_origin, gateway) = answering(OK).await;
    let crumbs: Vec<(&str, &str)> = (0..150).map(|_| ("cookie", "a=1")).collect();
    let answer = Client::connect(&gateway).await.send(request("GET", "/", &crumbs)).await;
    assert_eq!(answer.head.status, 200);
}

#[tokio::test]
async fn an_upgrade_to_http2_is_neither_honoured_nor_passed_on() {
    let (origin, gateway) = answering(OK).await;
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n\
        http2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n";
    let answer = gateway.send(request).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let seen = &origin.requests()[0];
    assert!(!seen.contains("upgrade") && !seen.contains("http2-settings"), "{seen}");
}

#[tokio::test]
async fn tunnels_are_not_served() {
    let (origin, gateway) = answering(OK).await;
    let mut client = Client::connect(&gateway).await;
    let connect = Request::builder().method("CONNECT").uri("a.example:443").body(()).unwrap();
    assert_eq!(client.head(connect).await.status(), 501);
    assert!(origin.requests().is_empty());
}
