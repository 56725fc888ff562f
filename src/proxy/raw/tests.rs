use http::HeaderMap;
use proptest::prelude::*;

use super::*;
use crate::http1::Chunks;

const LIMITS: Limits = Limits { bytes: 4096, fields: 16, target: 200 };

fn scan(bytes: &[u8]) -> Result<Option<Head>, Fault> {
    Scan::default().advance(bytes, &LIMITS)
}

fn head(text: &str) -> Head {
    scan(text.as_bytes()).unwrap().unwrap()
}

fn refused(text: &str) -> Refusal {
    scan(text.as_bytes()).unwrap_err().reason
}

#[test]
fn a_head_ends_at_its_empty_line() {
    let text = "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /next";
    let (version, body) = (Version::HTTP_11, Length::None);
    let expected = Head { len: 27, version, body, keep_alive: true, expects: false, takes_trailers: false };
    assert_eq!(head(text), expected);
    assert_eq!(scan(&text.as_bytes()[..26]), Ok(None));
}

#[test]
fn what_follows_a_head_is_known_from_it() {
    let body = |fields: &str| head(&format!("POST / HTTP/1.1\r\n{fields}\r\n")).body;
    assert_eq!(body("Content-Length: 0\r\n"), Length::None);
    assert_eq!(body("content-length:\t5 \r\n"), Length::Known(5));
    assert_eq!(body("TRANSFER-ENCODING: Chunked\r\n"), Length::Chunked);
}

#[test]
fn a_head_says_what_its_client_expects() {
    let said = |version: &str, fields: &str| {
        let head = head(&format!("PUT / {version}\r\ncontent-length: 1\r\n{fields}\r\n"));
        (head.keep_alive, head.expects, head.takes_trailers)
    };
    for (version, fields, expected) in [
        ("HTTP/1.1", "", (true, false, false)),
        ("HTTP/1.0", "", (false, false, false)),
        ("HTTP/1.0", "Connection: Keep-Alive\r\n", (true, false, false)),
        ("HTTP/1.1", "connection: x\r\nconnection: te, close\r\n", (false, false, false)),
        ("HTTP/1.1", "Expect: 100-Continue \r\nTE: gzip;q=0.5, trailers;q=1\r\n", (true, true, true)),
        ("HTTP/1.0", "expect: 100-continue\r\nte: gzip\r\n", (false, false, false)),
    ] {
        assert_eq!(said(version, fields), expected, "{version} {fields:?}");
    }
    assert!(!head("GET / HTTP/1.1\r\nexpect: 100-continue\r\n\r\n").expects, "there is nothing to wait for");
}

#[test]
fn a_head_becomes_the_request_that_it_is() {
    let text = b"\r\nPOST http://a/b?c HTTP/1.0\r\nHost:a\r\nx: \t\r\nX:  1 2\t\r\ncontent-length: 0\r\n\r\nmore";
    let mut scan = Scan::default();
    assert_eq!(scan.advance(&text[..40], &LIMITS), Ok(None));
    let head = scan.advance(text, &LIMITS).unwrap().unwrap();
    let request = scan.request(&Bytes::copy_from_slice(&text[..head.len])).unwrap();
    assert_eq!((request.method(), request.version()), (&Method::POST, Version::HTTP_10));
    assert_eq!(request.uri(), "http://a/b?c");
    let fields: Vec<_> = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    assert_eq!(fields, [("host", &b"a"[..]), ("x", b""), ("x", b"1 2"), ("content-length", b"0")]);
    scan.clear();
    assert_eq!(scan.advance(b"GET / HTTP/1.1\r\n\r\n", &LIMITS).unwrap().unwrap().body, Length::None);
    assert!(scan.request(&Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n")).unwrap().headers().is_empty());
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    for fields in [
        "content-length: 1\r\ncontent-length: 1\r\n",
        "content-length: 1\r\ntransfer-encoding: chunked\r\n",
        "content-length: +1\r\n",
        "content-length: 9223372036854775808\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: \u{b}chunked\r\n",
        "a: 1\r\n 2\r\n",
        "a : 1\r\n",
        "a: 1\nb: 2\r\n",
        "a: 1\r2\r\n",
        "a: \0\r\n",
    ] {
        assert_eq!(refused(&format!("POST / HTTP/1.1\r\n{fields}\r\n")), Refusal::BadRequest, "{fields:?}");
    }
    assert_eq!(refused("POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n"), Refusal::NotImplemented);
    assert_eq!(refused("GET /#a HTTP/1.1\r\n\r\n"), Refusal::BadRequest);
}

#[test]
fn limits_hold_before_a_head_has_ended() {
    assert_eq!(refused(&format!("GET /{}", "a".repeat(300))), Refusal::UriTooLong);
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\na: {}", "a".repeat(5000))), Refusal::HeadersTooLarge);
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(17))), Refusal::HeadersTooLarge);
    assert_eq!(refused("\u{16}\u{3}\u{1}"), Refusal::BadRequest);
}

#[test]
fn a_body_of_chunks_ends_where_it_says() {
    for (body, rest) in [
        ("0\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "GET /"),
        ("5 ;a=\"b\"\r\nhello\r\n00\r\nx: 1\r\ny:2\r\n\r\n", "0\r\n\r\n"),
        ("aF\r\n", ""),
    ] {
        let mut chunks = Chunks::default();
        let taken = chunks.advance(format!("{body}{rest}").as_bytes()).unwrap();
        assert_eq!((taken, chunks.has_ended()), (body.len(), body.ends_with("\r\n\r\n")), "{body:?}");
    }
    for body in
        ["\r\n", "x\r\n", "-1\r\n", "0x1\r\n", "1\nx", "1\r\nxy", "1;\n", "1;\0", "0\r\n a: b\r\n", "0\r\na b: c", " 1"]
    {
        assert!(Chunks::default().advance(body.as_bytes()).is_err(), "{body:?}");
    }
    assert!(Chunks::default().advance(b"10000000000000000\r\n").is_err());
}

/// Pieces that heads are made of, and what spoils them.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "GET",
        "POST",
        " ",
        "/",
        "/a?b=c",
        "HTTP/1.1",
        "HTTP/1.0",
        "\r\n",
        "\n",
        "\r",
        "host",
        ":",
        "a",
        "\t",
        "#",
        "\"",
        "é",
        "content-length",
        "5",
        "+",
        ",",
        "transfer-encoding",
        "chunked",
        "gzip",
        "\0",
        "\u{7f}",
        "http://",
        "*",
        "@",
        "[",
        "%",
    ]);
    let good = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST /a?b HTTP/1.1\r\nhost: a\r\n",
        "GET ",
        "a: b\r\n",
        "\r\n\r\n",
    ]);
    let piece = prop_oneof![piece, good];
    let bytes = prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat().into_bytes());
    (bytes, prop::option::of((any::<prop::sample::Index>(), any::<u8>()))).prop_map(|(mut bytes, spoil)| {
        if let Some((at, byte)) = spoil
            && !bytes.is_empty()
        {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn it_matters_not_how_the_bytes_come(bytes in pieces(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(bytes.len() + 1);
        let whole = scan(&bytes);
        let mut scan = Scan::default();
        let first = scan.advance(&bytes[..cut], &LIMITS);
        let result = if first == Ok(None) { scan.advance(&bytes, &LIMITS) } else { first };
        // Of two things that are wrong, the one that has come already is told.
        let of = |result: Result<Option<Head>, Fault>| result.map_err(|_| ());
        prop_assert_eq!(of(result), of(whole));
    }

    #[test]
    fn what_passes_is_what_another_reader_makes_of_it(bytes in pieces()) {
        let mut scan = Scan::default();
        if let Ok(Some(head)) = scan.advance(&bytes, &LIMITS) {
            let mut fields = [httparse::EMPTY_HEADER; 16];
            let mut other = httparse::Request::new(&mut fields);
            prop_assert_eq!(other.parse(&bytes), Ok(httparse::Status::Complete(head.len)));
            let request = scan.request(&Bytes::copy_from_slice(&bytes[..head.len])).unwrap();
            prop_assert_eq!(request.method().as_str(), other.method.unwrap());
            prop_assert_eq!(request.version() == Version::HTTP_11, other.version == Some(1));
            prop_assert_eq!(request.uri(), &other.path.unwrap().parse::<Uri>().unwrap());
            let mut expected = HeaderMap::new();
            for field in other.headers {
                expected.append(HeaderName::try_from(field.name).unwrap(), HeaderValue::from_bytes(field.value).unwrap());
            }
            prop_assert_eq!(request.headers(), &expected);
        }
    }
}
