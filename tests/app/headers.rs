//! What clients say of themselves, and what backends hear.

use super::support::{Gateway, Origin, backend, header, route};

#[test]
fn a_client_cannot_claim_an_address_or_a_scheme() {
    // kubernetes/ingress-nginx#1000
    let origin = Origin::start("s");
    let rules = "
  - matches:
    - path: {type: Prefix, value: /inside}
      conditions: [{source: ClientIP, operator: Cidr, values: [10.0.0.0/8]}]
    backends: [{service: s, port: 80}]
  - matches: [{path: {type: Prefix, value: /open}}]
    backends: [{service: s, port: 80}]
  - filters: [{type: RequestRedirect, requestRedirect: {scheme: https, statusCode: 301}}]
";
    let manifests = backend(&origin) + &route("r", "[r.test]", rules);
    let claims = [
        "X-Forwarded-For: 10.0.0.1",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: evil.test",
        "X-Forwarded-Port: 1",
        "X-Real-IP: 10.0.0.1",
        "Forwarded: for=10.0.0.1;proto=https",
    ];
    let gateway = Gateway::start(&manifests);
    let redirect = gateway.get("r.test/inside", &claims);
    assert_eq!((redirect.status, redirect.header("location")), (301, Some("https://r.test/inside")));
    assert_eq!(gateway.get("r.test/open", &claims).status, 200);
    let head = origin.take();
    for (name, expected) in [
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-host", Some("r.test")),
        ("x-real-ip", None),
        ("forwarded", None),
    ] {
        assert_eq!(header(&head, name), expected, "{name}: {head}");
    }

    // From a trusted proxy the same claims hold, counted from the right.
    let gateway = Gateway::with(&manifests, |settings| settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()]);
    assert_eq!(gateway.get("r.test/inside", &claims).status, 200);
    assert_eq!(header(&origin.take(), "x-forwarded-for"), Some("10.0.0.1, 127.0.0.1"));
    let spoofed = gateway.get("r.test/inside", &["X-Forwarded-For: 10.0.0.1, 192.0.2.7"]);
    assert_eq!(spoofed.status, 301, "what stands left of an untrusted address is a claim");
}

#[test]
fn fields_of_one_connection_stay_on_it() {
    // linkerd/linkerd2#1407, where the backend speaks HTTP/1.1
    let origin = Origin::start("s");
    let gateway =
        Gateway::start(&(backend(&origin) + &route("r", "[r.test]", "  - {backends: [{service: s, port: 80}]}")));
    let stray = ["Proxy-Connection: keep-alive", "Keep-Alive: timeout=5", "Upgrade: h2c", "TE: gzip", "X-Kept: 1"];
    assert_eq!(gateway.get("r.test/", &stray).status, 200);
    let head = origin.take();
    for name in ["proxy-connection", "keep-alive", "upgrade", "te"] {
        assert_eq!(header(&head, name), None, "{head}");
    }
    assert_eq!(header(&head, "x-kept"), Some("1"));
}

#[test]
fn cookie_lines_stay_in_order() {
    let origin = Origin::start("s");
    let rules = "
  - matches: [{conditions: [{source: Cookie, name: b, values: ['2']}]}]
    backends: [{service: s, port: 80}]
";
    let gateway = Gateway::start(&(backend(&origin) + &route("r", "[r.test]", rules)));
    assert_eq!(gateway.get("r.test/", &["cookie: a=1", "cookie: b=2"]).status, 200);
    assert!(origin.take().to_ascii_lowercase().contains("cookie: a=1"));
    assert_eq!(gateway.get("r.test/", &["cookie: a=1"]).status, 404);
}
