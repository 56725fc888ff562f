//! The request's target: rewritten for a backend, or as the location of a redirect.

use std::borrow::Cow;
use std::fmt::Write as _;

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};

use crate::ir::{PathRewrite, Redirect, TooLong};
use crate::routing::host::Authority;
use crate::routing::path::{PathError, normalise};

/// Why a rewrite gives no path that can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RewriteError {
    /// It is too long.
    #[error("the rewritten path: {0}")]
    TooLong(#[from] TooLong),
    /// It has what no path has.
    #[error("the rewritten path: {0}")]
    Path(#[from] PathError),
    /// A replacement made a `.` or `..` segment, which would lead out of where the rule sends requests.
    #[error("the rewritten path has a dot segment")]
    DotSegment,
}

/// The path after a rewrite, in normal form and at most `max` bytes where a request has a say in it. `matched` is how
/// many bytes of `path` the match covers, for a prefix without the slash that follows it. Joining never makes `//` nor
/// loses the leading slash (Gateway API, `ReplacePrefixMatch`).
pub(super) fn rewrite_path<'a>(
    path: &'a str,
    matched: usize,
    rewrite: &'a PathRewrite,
    max: usize,
) -> Result<Cow<'a, str>, RewriteError> {
    match rewrite {
        PathRewrite::Full(new) => Ok(Cow::Borrowed(new)),
        PathRewrite::Prefix(new) => Ok(Cow::Owned(replace_prefix(path, matched, new))),
        PathRewrite::Regex(rewrite) => match rewrite.apply(path, max)? {
            Some(result) => normal(result).map(Cow::Owned),
            None => Ok(Cow::Borrowed(path)),
        },
    }
}

fn replace_prefix(path: &str, matched: usize, new: &str) -> String {
    let rest = path.get(matched..).unwrap_or_default().trim_start_matches('/');
    let had_slash = path.len() > matched;
    let base = new.trim_end_matches('/');
    let joined = match (rest.is_empty(), had_slash) {
        // `/api` and `/api/` both become `/new`, or `/` where nothing else is left.
        (true, false) => new.into(),
        (true, true) if new.ends_with('/') || base.is_empty() => new.into(),
        (true, true) => format!("{base}/"),
        (false, _) => format!("{base}/{rest}"),
    };
    if joined.starts_with('/') { joined } else { format!("/{joined}") }
}

/// A path that begins with one slash, whatever captures were put together: `//host` is a host to many a reader.
fn normal(path: String) -> Result<String, RewriteError> {
    let rest = path.trim_start_matches('/');
    let path = if path.len() == rest.len() + 1 { path } else { format!("/{rest}") };
    // Before escapes are decoded and after: normalising takes dot segments away with what stands before them.
    let has_dots = |path: &str| path.split('/').any(decoded_dots);
    if has_dots(&path) {
        return Err(RewriteError::DotSegment);
    }
    Ok(match normalise(&path)? {
        Cow::Borrowed(_) => path,
        Cow::Owned(normal) => normal,
    })
}

/// Whether a segment is `.` or `..`, escaped or not.
fn decoded_dots(segment: &str) -> bool {
    let mut rest = segment;
    let mut dots = 0;
    while !rest.is_empty() && dots <= 2 {
        let after = rest.strip_prefix('.').or_else(|| rest.strip_prefix("%2E")).or_else(|| rest.strip_prefix("%2e"));
        match after {
            Some(after) => rest = after,
            None => return false,
        }
        dots += 1;
    }
    (1..=2).contains(&dots)
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
    /// The host and port that the client named; none of an HTTP/1.0 request without `Host`.
    pub authority: Option<&'a Authority<'a>>,
    /// The normalised path.
    pub path: &'a str,
    /// The query.
    pub query: Option<&'a str>,
    /// Bytes of `path` that the match covers.
    pub matched: usize,
    /// Bytes that a rewritten path may have.
    pub max_path: usize,
}

/// Why there is no `Location`.
#[derive(Debug, thiserror::Error)]
pub(super) enum LocationError {
    /// Neither the redirect nor the request names a host; `http:///path` would lead to a host named `path`.
    #[error("neither the redirect nor the request names a host")]
    NoHost,
    /// The path cannot be rewritten.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// It would hold a byte that no field value may have.
    #[error(transparent)]
    Value(#[from] http::header::InvalidHeaderValue),
}

/// The `Location` of a redirect (RFC 9110, section 10.2.2): always with scheme and host, so that no path can be taken for
/// a host.
pub(super) fn location(redirect: &Redirect, request: &RequestTarget<'_>) -> Result<HeaderValue, LocationError> {
    let scheme = redirect.scheme.as_deref().unwrap_or(request.scheme);
    let own_host = request.authority.map(|authority| &*authority.host);
    let host = redirect.hostname.as_deref().or(own_host).ok_or(LocationError::NoHost)?;
    // Gateway API: without a port of its own, a redirect that names a scheme goes to the port that is usual for it. Any
    // other goes to the port that the client used, which is the listener's as seen from outside.
    let port = match (redirect.port, &redirect.scheme) {
        (Some(port), _) => Some(port),
        (None, Some(_)) => None,
        (None, None) => request.authority.and_then(|authority| authority.port),
    };
    let usual = if scheme == "https" { 443 } else { 80 };
    let path = match &redirect.path {
        Some(rewrite) => rewrite_path(request.path, request.matched, rewrite, request.max_path)?,
        None => Cow::Borrowed(request.path),
    };
    let mut text = format!("{scheme}://{host}");
    if let Some(port) = port.filter(|&port| port != usual) {
        let _ = write!(text, ":{port}");
    }
    text.push_str(&path);
    if let Some(query) = request.query {
        text.push('?');
        text.push_str(query);
    }
    Ok(HeaderValue::from_str(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::RegexRewrite;

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
            let result = rewrite_path(path, prefix.len(), &rewrite, 99).unwrap();
            assert_eq!(result, expected, "{path} with {prefix} -> {new}");
        }
        assert_eq!(rewrite_path("/a", 2, &PathRewrite::Full("/x/y".into()), 99).unwrap(), "/x/y");
    }

    fn by_regex(pattern: &str, substitution: &str, path: &str) -> Result<String, RewriteError> {
        let rewrite = PathRewrite::Regex(Box::new(RegexRewrite::new(pattern, substitution).unwrap()));
        rewrite_path(path, 0, &rewrite, 16).map(Cow::into_owned)
    }

    #[test]
    fn what_a_regex_makes_is_a_normal_path_or_nothing() {
        let dots = Err(RewriteError::DotSegment);
        for (pattern, substitution, path, expected) in [
            ("^/a(/.*)?$", "$1", "/a", Ok("/")),
            ("^/a(/.*)?$", "$1", "/a/b", Ok("/b")),
            ("^/a/", "", "/a/b", Ok("/b")),
            ("^/a", "", "/a//evil.test", Ok("/evil.test")),
            ("^/a/", "//", "/a/b", Ok("/b")),
            ("/x", "", "/y", Ok("/y")),
            ("b", "%7e", "/a/b", Ok("/a/~")),
            ("-", ".", "/a/-./b", dots),
            ("a", "..", "/x/a", dots),
            ("a", ".", "/a", dots),
            ("a", "%2e%2E", "/x/a/y", dots),
            ("a", "..a", "/x/a", Ok("/x/..a")),
            ("a", "...", "/x/a", Ok("/x/...")),
            ("a", "%2F", "/x/a", Err(RewriteError::Path(PathError::EscapedSlash))),
            ("2", "", "/%20x", Err(RewriteError::Path(PathError::BadEscape))),
            ("a", "0123456789abcdef", "/a", Err(RewriteError::TooLong(TooLong(16)))),
        ] {
            let expected = expected.map(str::to_owned);
            assert_eq!(by_regex(pattern, substitution, path), expected, "{pattern} {substitution} {path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_capture_leads_out_of_the_path(
            path in "/[a./%E2-]{0,10}",
            pattern in "[a./%-]{1,3}",
            substitution in "[a./%2Ee-]{0,6}",
        ) {
            let Ok(path) = normalise(&path) else { return Ok(()) };
            let Ok(rewrite) = RegexRewrite::new(&pattern, &substitution) else { return Ok(()) };
            let rewrite = PathRewrite::Regex(Box::new(rewrite));
            if let Ok(result) = rewrite_path(&path, 0, &rewrite, 99) {
                let again = normalise(&result);
                proptest::prop_assert!(matches!(again, Ok(Cow::Borrowed(_))), "{result}");
                proptest::prop_assert!(!result.starts_with("//") || result == path, "{result}");
            }
        }
    }

    fn redirect() -> Redirect {
        Redirect { scheme: None, hostname: None, port: None, path: None, status: http::StatusCode::FOUND }
    }

    fn to(redirect: &Redirect, host: &str) -> String {
        let authority = crate::routing::host::parse(host).unwrap();
        let request = RequestTarget {
            scheme: "http",
            authority: Some(&authority),
            path: "/api/foo/bar",
            query: Some("q=1"),
            matched: 8,
            max_path: 99,
        };
        location(redirect, &request).unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn redirects_keep_what_they_do_not_name() {
        assert_eq!(to(&redirect(), "a.test:8080"), "http://a.test:8080/api/foo/bar?q=1");
        assert_eq!(to(&redirect(), "a.test:80"), "http://a.test/api/foo/bar?q=1");
        assert_eq!(to(&redirect(), "a.test:"), "http://a.test/api/foo/bar?q=1");
        assert_eq!(to(&redirect(), "[::1]:8080"), "http://[::1]:8080/api/foo/bar?q=1");
        assert_eq!(to(&redirect(), "[::1]"), "http://[::1]/api/foo/bar?q=1");
        let https = Redirect { scheme: Some("https".into()), ..redirect() };
        assert_eq!(to(&https, "a.test:8080"), "https://a.test/api/foo/bar?q=1");
        assert_eq!(to(&https, "[2001:db8::1]:8080"), "https://[2001:db8::1]/api/foo/bar?q=1");
        let port = Redirect { scheme: Some("https".into()), port: Some(8443), ..redirect() };
        assert_eq!(to(&port, "a.test"), "https://a.test:8443/api/foo/bar?q=1");
        let usual = Redirect { scheme: Some("https".into()), port: Some(443), ..redirect() };
        assert_eq!(to(&usual, "a.test:8080"), "https://a.test/api/foo/bar?q=1");
        let path = Redirect { path: Some(PathRewrite::Prefix("/".into())), ..redirect() };
        assert_eq!(to(&path, "a.test"), "http://a.test/bar?q=1");
        let host = Redirect { hostname: Some("b.test".into()), ..redirect() };
        assert_eq!(to(&host, "a.test:8080"), "http://b.test:8080/api/foo/bar?q=1");
    }

    #[test]
    fn a_redirect_without_any_host_is_none() {
        let mut request = RequestTarget {
            scheme: "http",
            authority: None,
            path: "/evil.test",
            query: None,
            matched: 0,
            max_path: 99,
        };
        assert!(matches!(location(&redirect(), &request), Err(LocationError::NoHost)));
        request.path = "//evil.test";
        let named = Redirect { hostname: Some("b.test".into()), ..redirect() };
        assert_eq!(location(&named, &request).unwrap(), "http://b.test//evil.test");
    }

    #[test]
    fn targets_keep_their_query_bytes() {
        assert_eq!(origin_form("/chat/TOM", Some("token=a%2Fb&x=")).unwrap(), "/chat/TOM?token=a%2Fb&x=");
        assert!(origin_form("/a b", None).is_err());
    }
}
