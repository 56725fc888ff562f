//! The request's target: rewritten for a backend, or as the location of a redirect.

use std::borrow::Cow;
use std::fmt::Write as _;

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};

use crate::ir::{PathRewrite, Redirect};

/// The path after a rewrite. `matched` is how many bytes of `path` the match covers, for a prefix without the slash
/// that follows it. Joining never makes `//` nor loses the leading slash (Gateway API, `ReplacePrefixMatch`).
pub(super) fn rewrite_path<'a>(path: &'a str, matched: usize, rewrite: &'a PathRewrite) -> Cow<'a, str> {
    match rewrite {
        PathRewrite::Full(new) => Cow::Borrowed(new),
        PathRewrite::Prefix(new) => {
            let rest = path.get(matched..).unwrap_or_default().trim_start_matches('/');
            let had_slash = path.len() > matched;
            let base = new.trim_end_matches('/');
            let joined = match (rest.is_empty(), had_slash) {
                // `/api` and `/api/` both become `/new`, or `/` where nothing else is left.
                (true, false) => new.as_ref().into(),
                (true, true) if new.ends_with('/') || base.is_empty() => new.as_ref().into(),
                (true, true) => format!("{base}/"),
                (false, _) => format!("{base}/{rest}"),
            };
            Cow::Owned(if joined.starts_with('/') { joined } else { format!("/{joined}") })
        }
    }
}

/// A target in origin form. An error means that the parts have a byte that no target may have.
pub(super) fn origin_form(path: &str, query: Option<&str>) -> Result<Uri, http::Error> {
    let mut text = String::with_capacity(path.len() + query.map_or(0, |q| q.len() + 1));
    text.push_str(path);
    if let Some(query) = query {
        text.push('?');
        text.push_str(query);
    }
    let target: PathAndQuery = text.parse::<PathAndQuery>()?;
    Uri::builder().path_and_query(target).build()
}

/// What of a request a redirect may keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTarget<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    /// `Host` as the client sent it, with its port.
    pub host: &'a str,
    /// The normalised path.
    pub path: &'a str,
    /// The query.
    pub query: Option<&'a str>,
    /// Bytes of `path` that the match covers.
    pub matched: usize,
}

/// The `Location` of a redirect (RFC 9110, section 10.2.2). An error means that it would hold a byte that no field
/// value may have.
pub(super) fn location(redirect: &Redirect, request: &RequestTarget<'_>) -> Result<HeaderValue, http::Error> {
    let scheme = redirect.scheme.as_deref().unwrap_or(request.scheme);
    let (own_host, own_port) = split_port(request.host);
    let host = redirect.hostname.as_deref().unwrap_or(own_host);
    // Gateway API: without a port of its own, a redirect that names a scheme goes to the port that is usual for it.
    let port = redirect.port.map(|p| p.to_string());
    let port = match (&port, &redirect.scheme) {
        (Some(port), _) => Some(port.as_str()),
        (None, Some(_)) => None,
        (None, None) => own_port,
    };
    let usual = if scheme == "https" { "443" } else { "80" };
    let path = match &redirect.path {
        Some(rewrite) => rewrite_path(request.path, request.matched, rewrite),
        None => Cow::Borrowed(request.path),
    };
    let mut text = format!("{scheme}://{host}");
    if let Some(port) = port.filter(|&p| p != usual) {
        let _ = write!(text, ":{port}");
    }
    text.push_str(&path);
    if let Some(query) = request.query {
        text.push('?');
        text.push_str(query);
    }
    Ok(HeaderValue::from_str(&text)?)
}

fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => (name, Some(port)),
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_a_prefix_never_doubles_a_slash() {
        let cases = [
            // The table of Gateway API's ReplacePrefixMatch, and envoyproxy/gateway#2976.
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo", "/", "/bar"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "", "/"),
            ("/api/foo/bar", "/api/foo", "/", "/bar"),
            ("/a/b", "", "/pre", "/pre/a/b"),
            ("/", "", "/pre", "/pre/"),
        ];
        for (path, prefix, new, expected) in cases {
            let rewrite = PathRewrite::Prefix(new.into());
            assert_eq!(rewrite_path(path, prefix.len(), &rewrite), expected, "{path} with {prefix} -> {new}");
        }
        assert_eq!(rewrite_path("/a", 2, &PathRewrite::Full("/x/y".into())), "/x/y");
    }

    fn redirect() -> Redirect {
        Redirect { scheme: None, hostname: None, port: None, path: None, status: http::StatusCode::FOUND }
    }

    fn to(redirect: &Redirect, host: &str) -> String {
        let request = RequestTarget { scheme: "http", host, path: "/api/foo/bar", query: Some("q=1"), matched: 8 };
        location(redirect, &request).unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn redirects_keep_what_they_do_not_name() {
        assert_eq!(to(&redirect(), "a.test:8080"), "http://a.test:8080/api/foo/bar?q=1");
        assert_eq!(to(&redirect(), "a.test:80"), "http://a.test/api/foo/bar?q=1");
        assert_eq!(to(&redirect(), "[::1]:8080"), "http://[::1]:8080/api/foo/bar?q=1");
        assert_eq!(to(&redirect(), "[::1]"), "http://[::1]/api/foo/bar?q=1");
        let https = Redirect { scheme: Some("https".into()), ..redirect() };
        assert_eq!(to(&https, "a.test:8080"), "https://a.test/api/foo/bar?q=1");
        let port = Redirect { scheme: Some("https".into()), port: Some(8443), ..redirect() };
        assert_eq!(to(&port, "a.test"), "https://a.test:8443/api/foo/bar?q=1");
        let path = Redirect { path: Some(PathRewrite::Prefix("/".into())), ..redirect() };
        assert_eq!(to(&path, "a.test"), "http://a.test/bar?q=1");
        let host = Redirect { hostname: Some("b.test".into()), ..redirect() };
        assert_eq!(to(&host, "a.test:8080"), "http://b.test:8080/api/foo/bar?q=1");
    }

    #[test]
    fn targets_keep_their_query_bytes() {
        assert_eq!(origin_form("/chat/TOM", Some("token=a%2Fb&x=")).unwrap(), "/chat/TOM?token=a%2Fb&x=");
        assert!(origin_form("/a b", None).is_err());
    }
}
