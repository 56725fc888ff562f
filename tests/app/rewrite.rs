//! Paths on their way through.

use super::support::{Gateway, Origin, backend, route};

#[test]
fn a_prefix_replaced_by_the_root_never_doubles_the_slash() {
    // envoyproxy/gateway#2976
    let origin = Origin::start("s");
    let rules = "
  - matches: [{path: {type: Prefix, value: /api/foo/}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]
    backends: [{service: s, port: 80}]
  - matches: [{path: {type: Prefix, value: /old/foo/}}]
    filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]
";
    let gateway = Gateway::start(&(backend(&origin) + &route("r", "[r.test]", rules)));
    for (rest, expected) in [("/bar?q=1", "/bar?q=1"), ("", "/"), ("/", "/"), ("//bar", "/bar")] {
        assert_eq!(gateway.get(&format!("r.test/api/foo{rest}"), &[]).status, 200);
        let head = origin.take();
        assert_eq!(head.split(' ').nth(1), Some(expected), "{rest}");
        let redirect = gateway.get(&format!("r.test/old/foo{rest}"), &[]);
        let location = format!("http://r.test{expected}");
        assert_eq!((redirect.status, redirect.header("location")), (302, Some(location.as_str())), "{rest}");
    }
}
