//! What a request's head must be before anything is looked up.

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Version};

use super::error::Failure;
use crate::telemetry::metrics::Refusal;

/// The host and port that a request is for, as the client sent them; empty where a client of HTTP/1.0 names none.
/// Refuses heads that are ambiguous or not served. `max_uri` is in bytes.
pub(super) fn authority(parts: &Parts, max_uri: u64) -> Result<String, Failure> {
    if parts.method == Method::CONNECT {
        return Err(Failure::because(Refusal::NotImplemented, "CONNECT is not served"));
    }
    let length = parts.uri.path_and_query().map_or(0, |p| p.as_str().len() as u64);
    if length > max_uri {
        return Err(Failure::because(Refusal::UriTooLong, format!("the target has {length} bytes, at most {max_uri}")));
    }
    let mut expected = parts.headers.get_all(header::EXPECT).iter();
    if !expected.all(|expect| expect.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Failure::because(Refusal::ExpectationFailed, "Expect knows 100-continue alone"));
    }
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Failure::because(Refusal::BadRequest, "there is more than one Host"));
    }
    if let Some(authority) = parts.uri.authority() {
        if authority.as_str().contains('@') {
            return Err(Failure::because(Refusal::BadRequest, "there is user information in the target"));
        }
        if parts.uri.scheme_str().is_some_and(|scheme| scheme != "http" && scheme != "https") {
            return Err(Failure::because(Refusal::BadRequest, "the target's scheme is not HTTP's"));
        }
        return Ok(authority.as_str().to_owned());
    }
    match host.map(HeaderValue::to_str) {
        Some(Ok("")) => Err(Failure::because(Refusal::NoHost, "Host is empty")),
        Some(Ok(host)) => Ok(host.to_owned()),
        Some(Err(error)) => Err(Failure::because(Refusal::BadRequest, error)),
        None if parts.version <= Version::HTTP_10 => Ok(String::new()),
        None => Err(Failure::because(Refusal::NoHost, "there is no Host")),
    }
}

/// Refuses a head with more than `most` fields, as the reader of HTTP/1.1 does. Cookies count as one, for clients of HTTP/2
/// may send each as a field of its own (RFC 9113, section 8.2.3).
pub(super) fn count_fields(headers: &HeaderMap, most: usize) -> Result<(), Failure> {
    if headers.len() <= most {
        return Ok(());
    }
    let cookies = headers.get_all(header::COOKIE).iter().count();
    let fields = headers.len() - cookies.saturating_sub(1);
    if fields > most {
        let detail = format!("there are {fields} header fields, at most {most}");
        return Err(Failure::because(Refusal::HeadersTooLarge, detail));
    }
    Ok(())
}

/// Refuses an answer over HTTP/2 whose end readers of HTTP/1.1 may see in different places (RFC 9112, section 6.3).
pub(super) fn judge_framing(headers: &HeaderMap) -> Result<(), &'static str> {
    let only = |name| {
        let mut values = headers.get_all(name).iter();
        (values.next().map(HeaderValue::as_bytes), values.next().is_some())
    };
    match (only(header::TRANSFER_ENCODING), only(header::CONTENT_LENGTH)) {
        ((None, _), (None, _)) => Ok(()),
        ((None, _), (Some(length), false)) if length.iter().all(u8::is_ascii_digit) => Ok(()),
        ((None, _), (Some(_), false)) => Err("Content-Length is no number"),
        ((None, _), (Some(_), true)) => Err("more than one Content-Length"),
        ((Some(coding), false), (None, _)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(()),
        ((Some(_), _), (None, _)) => Err("Transfer-Encoding is not chunked alone"),
        ((Some(_), _), (Some(_), _)) => Err("both Transfer-Encoding and Content-Length"),
    }
}
