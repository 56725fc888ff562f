//! Requests that would be read in two ways downstream: each is a stream error, and no backend sees it.

use super::raw::{self, GET, POST, Raw, block, frame};
use super::*;

/// Added to the code of an error that ended the connection.
const CONNECTION: u32 = 1000;
/// A connection that ended with `PROTOCOL_ERROR`.
const CONNECTION_ERROR: u32 = CONNECTION + raw::PROTOCOL_ERROR;

/// What becomes of a request with this block: the code of its reset, or `None` for an answer.
async fn judged(gateway: &Gateway, flags: u8, block: &[u8], rest: &[u8]) -> Option<u32> {
    let mut client = Raw::connect(gateway).await;
    client.write(&[frame(raw::HEADERS, raw::END_HEADERS | flags, 1, block), rest.to_vec()].concat()).await;
    let mut answered = false;
    while let Some(frame) = client.frame().await {
        match frame.kind {
            raw::RST_STREAM if frame.stream == 1 => return Some(frame.number(0)),
            raw::HEADERS => {
                answered = true;
                if frame.ends_stream() {
                    return None;
                }
            }
            raw::DATA if answered && frame.ends_stream() => return None,
            raw::GOAWAY => return Some(CONNECTION + frame.number(4)),
            _ => {}
        }
    }
    panic!("closed without a word");
}

fn with<'a>(base: &[(&'a str, &'a str)], fields: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    base.iter().chain(fields).copied().collect()
}

/// The base with one pseudo-field changed; without it where the value is `None`.
fn changed<'a>(name: &str, value: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    GET.iter().filter_map(|&(n, v)| if n == name { value.map(|value| (n, value)) } else { Some((n, v)) }).collect()
}

#[tokio::test]
async fn heads() {
    let (origin, gateway) = answering(OK).await;
    for fields in [
        // Values.
        with(&GET, &[("x", "a\r\nhost: evil")]),
        with(&GET, &[("x", "a\nb")]),
        with(&GET, &[("x", "a\0b")]),
        with(&GET, &[("x", " a")]),
        with(&GET, &[("x", "a\t")]),
        // Fields of a connection (section 8.2.2).
        with(&GET, &[("connection", "close")]),
        with(&GET, &[("connection", "x-own"), ("x-own", "1")]),
        with(&GET, &[("keep-alive", "timeout=5")]),
        with(&GET, &[("proxy-connection", "keep-alive")]),
        with(&POST, &[("transfer-encoding", "chunked")]),
        with(&GET, &[("upgrade", "h2c")]),
        with(&GET, &[("te", "gzip")]),
        with(&GET, &[("te", "trailers, gzip")]),
        // Pseudo-fields (section 8.3).
        with(&[("x-first", "1")], &GET),
        with(&GET, &[(":path", "/other")]),
        with(&GET, &[(":status", "200")]),
        with(&GET, &[(":protocol", "websocket")]),
        changed(":method", None),
        changed(":scheme", None),
        changed(":path", None),
        changed(":path", Some("")),
        changed(":path", Some("x")),
        changed(":path", Some("http://a.example/")),
        changed(":path", Some("*")),
        changed(":path", Some("/ HTTP/1.1\r\nx: y")),
        changed(":path", Some("/a b")),
        changed(":method", Some("GET / HTTP/1.1")),
        changed(":method", Some("")),
        changed(":scheme", Some("http\r\n")),
        changed(":authority", Some("")),
        changed(":authority", Some("a b")),
        changed(":authority", Some("user@a.example")),
        changed(":authority", Some("a.example\r\nx: y")),
        [("host", "a"), ("host", "a")].iter().fold(changed(":authority", None), |all, field| with(&all, &[*field])),
        // Host (section 8.3.1).
        with(&GET, &[("host", "b.example")]),
        with(&GET, &[("host", "a.example:81")]),
        with(&GET, &[("host", "a.example"), ("host", "a.example")]),
        // Lengths (section 8.1.1).
        with(&POST, &[("content-length", "5")]),
        with(&POST, &[("content-length", "+0")]),
        with(&POST, &[("content-length", "0"), ("content-length", "1")]),
        with(&POST, &[("content-length", "0"), ("content-length", "0")]),
        with(&POST, &[("content-length", "0, 0")]),
        with(&POST, &[("content-length", "")]),
    ] {
        let code = judged(&gateway, raw::END_STREAM, &block(&fields), &[]).await;
        // The crate's decoder takes some bytes of values for errors of the connection.
        let is_error = matches!(code, Some(raw::PROTOCOL_ERROR | CONNECTION_ERROR));
        assert!(is_error, "{fields:?}: {code:?}");
    }
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
}

/// What cannot be the name of a field (section 8.2.1) is an error of the connection.
#[tokio::test]
async fn names() {
    let (origin, gateway) = answering(OK).await;
    for name in ["X-Upper", "x y", "x:y", "x\ny", "x\0", "", ":unknown"] {
        let code = judged(&gateway, raw::END_STREAM, &block(&with(&GET, &[(name, "1")])), &[]).await;
        assert_eq!(code, Some(CONNECTION_ERROR), "{name:?}");
    }
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
}

#[tokio::test]
async fn heads_that_look_odd_and_are_well_formed() {
    let (origin, gateway) = answering(OK).await;
    let options = [(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), (":authority", "a.example")];
    for fields in [
        GET.to_vec(),
        with(&GET, &[("host", "A.EXAMPLE")]),
        with(&GET, &[("te", "trailers")]),
        with(&GET, &[("x", ""), ("y", "a\tb")]),
        with(&changed(":authority", None), &[("host", "a.example")]),
        with(&POST, &[("content-length", "0")]),
        options.to_vec(),
    ] {
        let code = judged(&gateway, raw::END_STREAM, &block(&fields), &[]).await;
        assert_eq!(code, None, "{fields:?}");
    }
    for seen in origin.requests() {
        let hosts = seen.lines().filter(|line| line.to_lowercase().starts_with("host:")).count();
        assert_eq!(hosts, 1, "{seen}");
    }
}

#[tokio::test]
async fn without_any_host_there_is_400() {
    let (origin, gateway) = answering(OK).await;
    let code = judged(&gateway, raw::END_STREAM, &block(&changed(":authority", None)), &[]).await;
    assert_eq!(code, None);
    assert!(gateway.metrics().contains(r#"lockgate_requests_refused_total{reason="no-host"} 1"#));
    assert!(origin.requests().is_empty());
}

/// A body that is not as long as announced never reaches a backend whole.
#[tokio::test]
async fn lengths_that_are_not_those_of_the_body() {
    let ending = |data: &[u8]| frame(raw::DATA, raw::END_STREAM, 1, data);
    for rest in [
        ending(b"four"),
        ending(b"sixsix"),
        ending(b""),
        [frame(raw::DATA, 0, 1, b"sixsix"), ending(b"")].concat(),
        [frame(raw::DATA, 0, 1, b"five!"), ending(b"GET /")].concat(),
        [
            frame(raw::DATA, 0, 1, b"four"),
            frame(raw::HEADERS, raw::END_STREAM | raw::END_HEADERS, 1, &block(&[("x-trailer", "1")])),
        ]
        .concat(),
    ] {
        let origin = Origin::start(Reply::read_all_then(OK)).await;
        let gateway = gateway(&origin).await;
        let fields = with(&POST, &[("content-length", "5")]);
        let code = judged(&gateway, 0, &block(&fields), &rest).await;
        assert_eq!(code, Some(raw::PROTOCOL_ERROR), "{rest:?}");
        gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
        assert!(origin.bodies().is_empty(), "{:?}", origin.bodies());
    }
}

#[tokio::test]
async fn trailers_with_what_belongs_into_heads() {
    for (trailer, expected) in [
        (("connection", "close"), Some(raw::PROTOCOL_ERROR)),
        (("X", "1"), Some(CONNECTION_ERROR)),
        // Dropped with the rest of what has no place in trailers.
        ((":path", "/evil"), None),
        (("host", "evil"), None),
        (("content-length", "7"), None),
    ] {
        let origin = Origin::start(Reply::read_all_then(OK)).await;
        let gateway = gateway(&origin).await;
        let rest = [
            frame(raw::DATA, 0, 1, b"body"),
            frame(raw::HEADERS, raw::END_STREAM | raw::END_HEADERS, 1, &block(&[trailer])),
        ]
        .concat();
        let fields = with(&POST, &[("trailer", trailer.0)]);
        let code = judged(&gateway, 0, &block(&fields), &rest).await;
        assert_eq!(code, expected, "{trailer:?}");
        gateway.wait_for(|g| g.lifecycle().in_flight() == 0).await;
        match expected {
            None => assert_eq!(origin.bodies(), ["4\r\nbody\r\n0\r\n\r\n"], "{trailer:?}"),
            Some(_) => assert!(origin.bodies().is_empty(), "{trailer:?}"),
        }
    }
}
