//! What clients say of themselves, and what backends hear.

use super::support::{Gateway, Origin, backend, h2c_service, header, route, slice};
use super::tls::Authority;

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
fn fields_of_one_connection_stay_on_it_before_http2() {
    // linkerd/linkerd2#1407
    let origin = Origin::start("s");
    let manifests = h2c_service("s") + &slice("s", "s", Some(&origin));
    let gateway = Gateway::start(&(manifests + &route("r", "[r.test]", "  - {backends: [{service: s, port: 80}]}")));
    let stray = ["Proxy-Connection: keep-alive", "Keep-Alive: timeout=5", "Upgrade: h2c", "TE: gzip", "X-Kept: 1"];
    let answer = gateway.get("r.test/a?b", &stray);
    assert_eq!((answer.status, &*answer.body), (200, "s"));
    let head = origin.take();
    assert!(head.starts_with("GET http://r.test/a?b HTTP/2.0\r\n"), "{head}");
    for name in ["proxy-connection", "keep-alive", "upgrade", "te", "connection", "host"] {
        assert_eq!(header(&head, name), None, "{head}");
    }
    assert_eq!(header(&head, "x-kept"), Some("1"));
    assert_eq!(header(&head, "x-forwarded-host"), Some("r.test"));
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

/// A header of version 2 from 203.0.113.7 to 192.0.2.1:8443, whose client came over TLS or not.
fn proxy_v2(tls: bool) -> Vec<u8> {
    let ssl: &[u8] = if tls { &[0x20, 0, 5, 1, 0, 0, 0, 0] } else { &[] };
    let block = [&[203, 0, 113, 7, 192, 0, 2, 1, 0xdc, 0x04, 0x20, 0xfb], ssl].concat();
    let length = u8::try_from(block.len()).unwrap();
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0".as_slice(), &[length], &block].concat()
}

#[test]
fn behind_a_load_balancer_host_and_port_agree() {
    // kubernetes/ingress-nginx#4951 and #4038
    let origin = Origin::start("s");
    let rules = "
  - matches:
    - path: {type: Prefix, value: /inside}
      conditions: [{source: ClientIP, operator: Cidr, values: [203.0.113.0/24]}]
    backends: [{service: s, port: 80}]
  - filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: /elsewhere}}}]
";
    let gateway = Gateway::with(&(backend(&origin) + &route("r", "[a.test]", rules)), |settings| {
        settings.listeners[0].proxy_protocol = true;
        settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    });
    let v1 = b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 8443\r\n".to_vec();
    let cases = [
        (v1, "a.test:8443", "http", "8443"),
        (proxy_v2(true), "a.test:8443", "https", "8443"),
        (proxy_v2(true), "a.test", "https", "8443"),
        (proxy_v2(true), "a.test:444", "https", "444"),
        (proxy_v2(false), "a.test:8443", "http", "8443"),
    ];
    for (proxy, host, scheme, port) in cases {
        let get = |path| format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nx-forwarded-port: 443\r\n\r\n");
        let mut client = gateway.connect();
        assert_eq!(client.send([&proxy, get("/inside").as_bytes()].concat()).status, 200);
        let head = origin.take();
        for (name, expected) in [
            ("x-forwarded-host", host),
            ("x-forwarded-port", port),
            ("x-forwarded-proto", scheme),
            ("x-forwarded-for", "203.0.113.7"),
        ] {
            assert_eq!(header(&head, name), Some(expected), "{name}: {head}");
        }
        let redirect = client.send(get("/other"));
        assert_eq!(redirect.header("location"), Some(&*format!("{scheme}://{host}/elsewhere")));
    }

    // The same where the load balancer passes TLS on and the gateway ends it.
    let authority = Authority::new();
    let manifests = authority.secret("r", &["a.test"]).0 + &backend(&origin) + &route("r", "[a.test]", rules);
    let manifests = manifests.replace("hostnames: [a.test]", "hostnames: [a.test], tls: {secretName: r}");
    let gateway = Gateway::with(&manifests, |settings| {
        settings.listeners[0].proxy_protocol = true;
        settings.listeners[0].tls = true;
        settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    });
    let v1 = b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 8443\r\n".to_vec();
    for (proxy, host, port) in [
        (v1.clone(), "a.test:8443", "8443"),
        (proxy_v2(false), "a.test:8443", "8443"),
        (proxy_v2(true), "a.test:8443", "8443"),
        (v1, "a.test", "8443"),
        (proxy_v2(false), "a.test:444", "444"),
    ] {
        let mut client = gateway.connect_tls(&proxy, "a.test", &authority).unwrap();
        let request = format!("GET /inside HTTP/1.1\r\nhost: {host}\r\nx-forwarded-port: 443\r\n\r\n");
        assert_eq!(client.send(request).status, 200);
        let head = origin.take();
        for (name, expected) in [
            ("x-forwarded-host", host),
            ("x-forwarded-port", port),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-for", "203.0.113.7"),
        ] {
            assert_eq!(header(&head, name), Some(expected), "{name}: {head}");
        }
        let redirect = client.send(format!("GET /other HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        assert_eq!(redirect.header("location"), Some(&*format!("https://{host}/elsewhere")));
    }

    // Without a load balancer the port is never the listener's own.
    let gateway =
        Gateway::start(&(backend(&origin) + &route("r", "[a.test]", "  - {backends: [{service: s, port: 80}]}")));
    assert_eq!(gateway.get("a.test/", &["x-forwarded-port: 443"]).status, 200);
    assert_eq!(header(&origin.take(), "x-forwarded-port"), Some("80"));
}
