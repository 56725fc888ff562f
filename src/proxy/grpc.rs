//! What the gateway has to know of gRPC: which requests are of it.

use http::header::{self, HeaderMap};
use http::{Method, request};

const MEDIA_TYPE: &[u8] = b"application/grpc";

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

fn is_media_type(value: &[u8]) -> bool {
    let Some((start, rest)) = value.split_at_checked(MEDIA_TYPE.len()) else { return false };
    start.eq_ignore_ascii_case(MEDIA_TYPE) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

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
