//! Heads of requests on streams that the crates let pass and this gateway does not, and heads of answers.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, response};

use crate::routing::host;

/// Why a request is malformed (RFC 9113, section 8.1.1). What the crate of HTTP/2 looks at itself: names in lower case, bytes
/// of names and values, pseudo-fields, fields of a connection, `TE`, and that the body is as long as announced.
pub(super) fn malformed<B>(request: &Request<B>) -> Option<&'static str> {
    judge(request.method(), request.uri(), request.headers()).err()
}

/// Why fields of a request on a stream of HTTP/3 are malformed, which its crate does not look at (RFC 9114, sections 4.1.2 and
/// 4.2).
pub(super) fn is_of_connection(headers: &HeaderMap) -> Option<&'static str> {
    const OF_CONNECTION: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
    if OF_CONNECTION.iter().any(|name| headers.contains_key(*name)) {
        return Some("a field is one of a connection");
    }
    if headers.get_all(header::TE).iter().any(|value| value != "trailers") {
        return Some("te is not trailers");
    }
    let is_number = |value: &HeaderValue| value.as_bytes().iter().all(u8::is_ascii_digit);
    match headers.get(header::CONTENT_LENGTH) {
        Some(length) if !is_number(length) => Some("content-length is not one number"),
        _ => None,
    }
}

fn judge(method: &Method, uri: &http::Uri, headers: &HeaderMap) -> Result<(), &'static str> {
    if *method == Method::CONNECT {
        if uri.authority().is_none() {
            return Err("there is no :authority");
        }
    } else {
        match uri.path_and_query().map(http::uri::PathAndQuery::as_str) {
            Some("*") if *method == Method::OPTIONS => {}
            Some(path) if path.starts_with('/') => {}
            Some(_) => return Err(":path does not begin with a slash"),
            None => return Err("there is no :path"),
        }
    }
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    if let Some(length) = lengths.next() {
        // The crate takes an empty one for none.
        if length.is_empty() || lengths.next().is_some() {
            return Err("content-length is not one number");
        }
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let named = hosts.next();
    if hosts.next().is_some() {
        return Err("there is more than one host");
    }
    if let Some(authority) = uri.authority() {
        if authority.as_str().contains('@') {
            return Err("there is user information in :authority");
        }
        if named.is_some_and(|named| !is_same(named, authority.as_str())) {
            return Err("host is not :authority");
        }
    }
    if headers.values().any(has_space_around) {
        return Err("a value begins or ends with a space");
    }
    Ok(())
}

/// Whether both name one host and port (section 8.3.1).
fn is_same(named: &HeaderValue, authority: &str) -> bool {
    if named.as_bytes() == authority.as_bytes() {
        return true;
    }
    let Ok(named) = named.to_str() else { return false };
    match (host::parse(named), host::parse(authority)) {
        (Ok(named), Ok(authority)) => named.host == authority.host && named.port == authority.port,
        _ => false,
    }
}

/// Section 8.2.1: one reader takes the space away and another does not.
fn has_space_around(value: &HeaderValue) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let bytes = value.as_bytes();
    is_space(bytes.first()) || is_space(bytes.last())
}

/// Completes the head of an answer with `length` bytes, where that is known.
pub(super) fn complete(head: &mut response::Parts, length: Option<u64>, date: Option<HeaderValue>) {
    let may_have_body = !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if let Some(length @ 1..) = length.filter(|_| may_have_body)
        && !head.headers.contains_key(header::CONTENT_LENGTH)
    {
        head.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    // No answer of this status has one (RFC 9110, section 8.6); clients take it for a body that is missing.
    if head.status == StatusCode::NO_CONTENT {
        head.headers.remove(header::CONTENT_LENGTH);
    }
    if let Some(date) = date
        && !head.headers.contains_key(header::DATE)
    {
        head.headers.insert(header::DATE, date);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(method: &str, uri: &str, fields: &[(&str, &str)]) -> Result<(), &'static str> {
        let mut builder = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        let (parts, ()) = builder.body(()).unwrap().into_parts();
        judge(&parts.method, &parts.uri, &parts.headers)
    }

    #[test]
    fn an_answer_without_content_announces_none() {
        let completed = |status: u16, given: Option<&str>, length| {
            let mut builder = http::Response::builder().status(status);
            if let Some(given) = given {
                builder = builder.header(header::CONTENT_LENGTH, given);
            }
            let (mut head, ()) = builder.body(()).unwrap().into_parts();
            complete(&mut head, length, None);
            head.headers.get(header::CONTENT_LENGTH).map(|length| length.to_str().unwrap().to_owned())
        };
        assert_eq!(completed(204, Some("3"), Some(0)), None);
        assert_eq!(
            completed(304, Some("3"), Some(0)).as_deref(),
            Some("3"),
            "that of the answer which is not sent again"
        );
        assert_eq!(completed(200, None, Some(7)).as_deref(), Some("7"));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_malformed() {
        for (method, uri, fields) in [
            ("GET", "http://a/x?y", &[][..]),
            ("OPTIONS", "http://a", &[]),
            ("GET", "http://a.test:80/", &[("host", "A.test:80")]),
            ("GET", "/", &[("host", "a")]),
            ("GET", "http://a/", &[("x", "a b"), ("x", "")]),
            ("CONNECT", "a:443", &[]),
        ] {
            assert_eq!(judged(method, uri, fields), Ok(()), "{method} {uri} {fields:?}");
        }
        for (method, uri, fields) in [
            ("GET", "*", &[][..]),
            ("CONNECT", "/", &[]),
            ("GET", "http://a/", &[("host", "b")]),
            ("GET", "http://a/", &[("host", "a:81")]),
            ("GET", "http://a/", &[("host", "a"), ("host", "a")]),
            ("GET", "http://u@a/", &[]),
            ("GET", "http://a/", &[("content-length", "1"), ("content-length", "1")]),
            ("GET", "http://a/", &[("content-length", "")]),
            ("GET", "http://a/", &[("x", " a")]),
            ("GET", "http://a/", &[("x", "a\t")]),
            ("GET", "http://a/", &[("host", " a")]),
        ] {
            assert!(judged(method, uri, fields).is_err(), "{method} {uri} {fields:?}");
        }
    }
}
