//! Messages of HTTP/1.1 in the form of HTTP/2, and back (RFC 9113, section 8).

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Uri, Version, request, uri};

/// Fields of one connection, which HTTP/2 has no use for and forbids (section 8.2.2). `TE` may say `trailers`.
const CONNECTION_FIELDS: [HeaderName; 5] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The trailers of gRPC, which its servers need not announce.
const GRPC_TRAILERS: HeaderValue = HeaderValue::from_static("grpc-status, grpc-message, grpc-status-details-bin");

/// The head of a request: `Host` becomes `:authority` (section 8.3.1).
pub(super) fn request(mut parts: request::Parts, scheme: &Scheme) -> Request<()> {
    let headers = &mut parts.headers;
    remove(headers, &CONNECTION_FIELDS);
    if headers.get_all(header::TE).iter().any(|te| te != "trailers") {
        headers.remove(header::TE);
    }
    let authority = headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    // A request that names no host has none in HTTP/2 either.
    if let Some(uri) = authority.and_then(|authority| absolute(&parts.uri, authority, scheme)) {
        headers.remove(header::HOST);
        parts.uri = uri;
        parts.version = Version::HTTP_2;
    }
    Request::from_parts(parts, ())
}

fn absolute(target: &Uri, authority: Authority, scheme: &Scheme) -> Option<Uri> {
    let mut parts = uri::Parts::default();
    parts.scheme = Some(scheme.clone());
    parts.authority = Some(authority);
    parts.path_and_query = Some(target.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    Uri::from_parts(parts).ok()
}

/// Announces the trailers of a gRPC answer: in HTTP/1.1 those that are not announced are not sent.
pub(super) fn announce_trailers(headers: &mut HeaderMap) {
    let is_grpc = headers.get(header::CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/grpc"));
    if is_grpc && !headers.contains_key(header::TRAILER) {
        headers.insert(header::TRAILER, GRPC_TRAILERS);
    }
}

/// Bytes that a body must have; `None` where its end alone tells.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn remove(headers: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(target: &str, fields: &[(&str, &str)]) -> Request<()> {
        let mut builder = Request::builder().method("GET").uri(target);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        request(builder.body(()).unwrap().into_parts().0, &Scheme::HTTP)
    }

    #[test]
    fn the_host_becomes_the_authority() {
        for (target, host, expected) in [
            ("/a%2Fb?x=%20&y", "a.example:8080", "http://a.example:8080/a%2Fb?x=%20&y"),
            ("/", "[::1]:80", "http://[::1]:80/"),
            ("http://other/x", "a", "http://a/x"),
        ] {
            let request = converted(target, &[("host", host)]);
            assert_eq!(*request.uri(), *expected);
            assert!(!request.headers().contains_key("host"));
        }
        let star = converted("*", &[("host", "a")]);
        assert_eq!(star.uri().path_and_query().unwrap(), "*");
        let none = converted("/x", &[]);
        assert_eq!((none.uri().authority(), none.uri().path()), (None, "/x"));
    }

    #[test]
    fn fields_of_the_connection_are_left_out() {
        let fields = [
            ("connection", "close"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("te", "gzip"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
        ];
        let request = converted("/", &fields);
        assert_eq!(request.headers().keys().collect::<Vec<_>>(), ["cookie"]);
        assert_eq!(request.headers().get_all("cookie").iter().collect::<Vec<_>>(), ["a=1", "b=2"]);
        assert_eq!(converted("/", &[("te", "trailers")]).headers()["te"], "trailers");
    }

    #[test]
    fn grpc_trailers_are_announced_unless_the_server_did() {
        let trailer = |fields: &[(&str, &str)]| {
            let mut request = converted("/", fields);
            announce_trailers(request.headers_mut());
            request.headers().get("trailer").map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(trailer(&[("content-type", "text/plain")]), None);
        assert!(trailer(&[("content-type", "application/grpc+proto")]).unwrap().contains("grpc-status"));
        let announced = [("content-type", "application/grpc"), ("trailer", "grpc-status")];
        assert_eq!(trailer(&announced).as_deref(), Some("grpc-status"));
    }
}
