//! What the gateway has to know of gRPC: which requests are of it, how long they may take, how they ended.

use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName};
use http::{Method, request};

use super::error::GRPC_STATUS;
use crate::telemetry::metrics::GrpcStatus;

const MEDIA_TYPE: &[u8] = b"application/grpc";

/// How long a call may take.
const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Most digits of a timeout.
const MAX_DIGITS: usize = 8;

/// Whether a request is one of gRPC over HTTP/2, whose failures are told in `grpc-status`.
///
/// Its method is always POST, and its content type `application/grpc`, alone or with `+` and the format of messages.
/// gRPC-Web is another protocol, whose clients make a status of HTTP's.
pub(super) fn is_request(method: &Method, headers: &HeaderMap) -> bool {
    // First, so that most requests cost no look into their heads.
    *method == Method::POST && headers.get(header::CONTENT_TYPE).is_some_and(|value| is_media_type(value.as_bytes()))
}

/// The same of a head.
pub(super) fn is_head(parts: &request::Parts) -> bool {
    is_request(&parts.method, &parts.headers)
}

/// How long a call may take; `None` where it does not say, or says it in a way that gRPC does not have, which is left to
/// its backend to judge.
pub(super) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let (unit, digits) = headers.get(TIMEOUT)?.as_bytes().split_last()?;
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The status that a head or trailers tell.
pub(super) fn status(fields: &HeaderMap) -> GrpcStatus {
    let Some(value) = fields.get(GRPC_STATUS) else { return GrpcStatus::None };
    let known = |status: &&GrpcStatus| status.as_str().as_bytes() == value.as_bytes();
    GrpcStatus::CODES.iter().find(known).copied().unwrap_or(GrpcStatus::Other)
}

fn is_media_type(value: &[u8]) -> bool {
    let Some((start, rest)) = value.split_at_checked(MEDIA_TYPE.len()) else { return false };
    start.eq_ignore_ascii_case(MEDIA_TYPE) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_a_number_and_a_unit() {
        let read = |value: &str| timeout(&HeaderMap::from_iter([(TIMEOUT, value.parse().unwrap())]));
        for (value, expected) in [
            ("2H", Duration::from_hours(2)),
            ("99999999H", Duration::from_hours(99_999_999)),
            ("3M", Duration::from_mins(3)),
            ("0S", Duration::ZERO),
            ("05S", Duration::from_secs(5)),
            ("100m", Duration::from_millis(100)),
            ("7u", Duration::from_micros(7)),
            ("99999999n", Duration::from_nanos(99_999_999)),
        ] {
            assert_eq!(read(value), Some(expected), "{value}");
        }
        for value in ["", "S", "5", "123456789S", "-1S", "+1S", "1.5S", "1 S", "5s", "5h", "5SS"] {
            assert_eq!(read(value), None, "{value}");
        }
        assert_eq!(timeout(&HeaderMap::new()), None);
    }

    #[test]
    fn statuses_are_a_closed_set() {
        let read = |value: &str| status(&HeaderMap::from_iter([(GRPC_STATUS, value.parse().unwrap())])).as_str();
        for code in 0..=16 {
            assert_eq!(read(&code.to_string()), code.to_string());
        }
        for value in ["17", "-1", "00", "", "other", "none"] {
            assert_eq!(read(value), "other", "{value}");
        }
        assert_eq!(status(&HeaderMap::new()), GrpcStatus::None);
    }

    #[test]
    fn requests_of_grpc_are_posts_of_its_media_type() {
        let is_grpc = |method: Method, content_type: &str| {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, content_type.parse().unwrap())]);
            is_request(&method, &headers)
        };
        for content_type in ["application/grpc", "application/grpc+proto", "Application/GRPC; charset=utf-8"] {
            assert!(is_grpc(Method::POST, content_type), "{content_type}");
        }
        for content_type in ["application/grpc-web", "application/grpc-web+proto", "application/grp", "text/plain", ""]
        {
            assert!(!is_grpc(Method::POST, content_type), "{content_type}");
        }
        assert!(!is_grpc(Method::GET, "application/grpc"));
        assert!(!is_request(&Method::POST, &HeaderMap::new()));
    }
}
