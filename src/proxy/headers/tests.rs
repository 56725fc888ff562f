use std::net::SocketAddr;

use super::*;

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    lines.iter().map(|(n, v)| (n.parse::<HeaderName>().unwrap(), v.parse::<HeaderValue>().unwrap())).collect()
}

fn lines(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<String> = headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
    lines.sort();
    lines
}

#[test]
fn fields_named_in_connection_go() {
    let mut headers =
        map(&[("connection", "close, X-Drop"), ("connection", "x-also"), ("x-drop", "1"), ("x-also", "1")]);
    headers.insert("x-stay", HeaderValue::from_static("1"));
    strip_hop_by_hop(&mut headers);
    assert_eq!(lines(&headers), ["x-stay: 1"]);
}

#[test]
fn hop_by_hop_fields_go_without_being_named() {
    let mut headers = map(&[("keep-alive", "5"), ("proxy-connection", "x"), ("te", "gzip"), ("upgrade", "h2c")]);
    strip_hop_by_hop(&mut headers);
    assert_eq!(lines(&headers), [""; 0]);
}

#[test]
fn connection_cannot_hide_what_the_gateway_relies_on() {
    let mut headers = map(&[
        ("connection", "host, authorization, cookie, x-forwarded-for, content-length"),
        ("host", "a"),
        ("authorization", "b"),
        ("cookie", "c"),
        ("x-forwarded-for", "1.2.3.4"),
        ("content-length", "3"),
    ]);
    strip_hop_by_hop(&mut headers);
    assert_eq!(headers.len(), 5);
}

#[test]
fn te_trailers_stays() {
    for connection in ["te", "close"] {
        let mut headers = map(&[("connection", connection), ("te", "deflate, trailers")]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(lines(&headers), ["te: trailers"]);
    }
    let mut headers = map(&[("te", "trailers")]);
    strip_hop_by_hop(&mut headers);
    assert_eq!(lines(&headers), ["te: trailers"]);
}

#[test]
fn forwarded_fields_of_strangers_are_rebuilt() {
    let peer = Peer::new("::ffff:192.0.2.7".parse().unwrap(), &[], false);
    let mut headers = map(&[
        ("host", "shop.example.com:8080"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-prefix", "/evil"),
        ("x-real-ip", "10.0.0.1"),
        ("forwarded", "for=10.0.0.1"),
    ]);
    assert_eq!(peer.client_ip(&headers, &[]), "192.0.2.7".parse::<IpAddr>().unwrap());
    forward(&mut headers, &peer, Some(8080));
    assert_eq!(
        lines(&headers),
        [
            "host: shop.example.com:8080",
            "x-forwarded-for: 192.0.2.7",
            "x-forwarded-host: shop.example.com:8080",
            "x-forwarded-port: 8080",
            "x-forwarded-proto: http"
        ]
    );
}

#[test]
fn forwarded_fields_of_trusted_peers_are_kept_and_added_to() {
    let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap()];
    let peer = Peer::new("10.0.0.9".parse().unwrap(), &trusted, false);
    let mut headers = map(&[
        ("host", "a"),
        ("x-forwarded-for", "6.6.6.6, 203.0.113.5"),
        ("x-forwarded-for", "10.0.0.8"),
        ("x-forwarded-proto", "https"),
    ]);
    assert_eq!(peer.client_ip(&headers, &trusted), "203.0.113.5".parse::<IpAddr>().unwrap());
    forward(&mut headers, &peer, None);
    assert_eq!(headers["x-forwarded-for"], "6.6.6.6, 203.0.113.5, 10.0.0.8, 10.0.0.9");
    assert_eq!(headers["x-forwarded-proto"], "https");
    assert_eq!(headers["x-forwarded-port"], "443", "it fits the scheme that the peer told");
}

#[test]
fn the_port_is_the_one_that_the_client_used() {
    let addresses = |port| Some((SocketAddr::from(([192, 0, 2, 7], 1)), SocketAddr::from(([192, 0, 2, 1], port))));
    let told =
        |addresses, tls| Peer::told(&proxy_protocol::Header { addresses, tls }, [10, 0, 0, 9].into(), &[], false);
    let direct = Peer::new([192, 0, 2, 7].into(), &[], false);
    for (peer, named, expected) in [
        (&direct, None, "80"),
        (&direct, Some(8080), "8080"),
        (&direct, Some(8080), "8080"),
        (&direct, Some(443), "443"),
        (&direct, None, "80"),
        (&told(addresses(8443), true), None, "8443"),
        (&told(addresses(8443), true), Some(443), "443"),
        (&told(addresses(0), true), None, "443"),
        (&told(None, true), None, "443"),
        (&told(None, false), None, "80"),
    ] {
        let mut headers = map(&[("x-forwarded-port", "1"), ("x-forwarded-port", "2")]);
        forward(&mut headers, peer, named);
        let ports: Vec<_> = headers.get_all("x-forwarded-port").iter().collect();
        assert_eq!(ports, [expected], "{peer:?} {named:?}");
    }
}

#[test]
fn the_port_fits_what_a_trusted_peer_tells() {
    let peer = Peer::new([10, 0, 0, 9].into(), &["10.0.0.0/8".parse().unwrap()], false);
    for (told, named, expected) in [
        (&[("x-forwarded-port", "1")][..], Some(8080), "1"),
        (&[("x-forwarded-host", "a.test:8443"), ("x-forwarded-proto", "https")], Some(8080), "8443"),
        (&[("x-forwarded-host", "a.test"), ("x-forwarded-proto", "https")], Some(8080), "443"),
        (&[("x-forwarded-host", "a.test, b.test"), ("x-forwarded-proto", "http")], Some(8080), "80"),
        (&[("x-forwarded-proto", "https")], Some(8080), "8080"),
        (&[("x-forwarded-proto", "wss")], None, "80"),
        (&[], Some(8080), "8080"),
    ] {
        let mut headers = map(told);
        forward(&mut headers, &peer, named);
        assert_eq!(headers["x-forwarded-port"], expected, "{told:?}");
    }
}

#[test]
fn who_a_load_balancer_tells_of_is_the_peer() {
    let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap()];
    let balancer: IpAddr = [10, 0, 0, 9].into();
    let of = |source: &str| {
        let addresses = Some((source.parse().unwrap(), "192.0.2.1:443".parse().unwrap()));
        Peer::told(&proxy_protocol::Header { addresses, tls: true }, balancer, &trusted, false)
    };
    let client = of("[::ffff:203.0.113.7]:1");
    assert_eq!((client.ip.to_string().as_str(), client.trusted, client.scheme), ("203.0.113.7", false, "https"));
    assert!(of("10.1.1.1:1").trusted, "a proxy in front of the load balancer");
    let unknown = Peer::told(&proxy_protocol::Header::default(), balancer, &trusted, false);
    assert_eq!((unknown.ip, unknown.trusted, unknown.scheme), (balancer, false, "http"));
}

#[test]
fn a_broken_chain_ends_at_the_last_good_address() {
    let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap()];
    let peer = Peer::new("10.0.0.9".parse().unwrap(), &trusted, false);
    let headers = map(&[("x-forwarded-for", "1.1.1.1, junk, 10.0.0.8")]);
    assert_eq!(peer.client_ip(&headers, &trusted), "10.0.0.8".parse::<IpAddr>().unwrap());
}

#[test]
fn request_ids_are_taken_from_trusted_peers_only() {
    let headers = map(&[("x-request-id", "theirs")]);
    assert_eq!(request_id(&headers, true, || 0), "theirs");
    let ours = request_id(&headers, false, || 0x0123_4567_89ab_cdef);
    assert_eq!(ours, "fedcba9876543210fedcba9876543210");
}

#[test]
fn edits_remove_then_set_then_add() {
    let field = |n: &'static str, v: &'static str| (HeaderName::from_static(n), HeaderValue::from_static(v));
    let mut headers = map(&[("a", "1"), ("b", "1"), ("b", "2"), ("c", "1")]);
    let change = HeaderEdit {
        remove: vec![HeaderName::from_static("a")],
        set: vec![field("b", "3")],
        add: vec![field("c", "2"), field("a", "9")],
    };
    edit(&mut headers, &change);
    assert_eq!(lines(&headers), ["a: 9", "b: 3", "c: 1", "c: 2"]);
}

#[test]
fn addresses_are_read_with_ports_and_brackets_too() {
    for (entry, expected) in [
        ("10.1.1.1", Some("10.1.1.1")),
        (" 10.1.1.1:1234 ", Some("10.1.1.1")),
        ("2001:db8::1", Some("2001:db8::1")),
        ("[2001:db8::1]", Some("2001:db8::1")),
        ("[2001:db8::1]:443", Some("2001:db8::1")),
        ("unknown", None),
        ("", None),
        ("10.1.1.1:port", None),
        ("[10.1.1.1", None),
    ] {
        assert_eq!(address(entry), expected.map(|text| text.parse().unwrap()), "{entry:?}");
    }
}

#[test]
fn forwarded_tells_of_this_hop_behind_what_a_trusted_peer_says() {
    let told = |ip: &str, trusted: &[IpNet], before: &[(&str, &str)]| {
        let peer = Peer::new(ip.parse().unwrap(), trusted, false);
        let mut headers = map(before);
        forward(&mut headers, &peer, None);
        add_forwarded(&mut headers, &peer);
        let values = headers.get_all(header::FORWARDED).iter().map(|v| v.to_str().unwrap().to_owned());
        values.collect::<Vec<_>>()
    };
    let spoofed = [("host", "a:8080"), ("forwarded", "for=1.1.1.1")];
    assert_eq!(told("192.0.2.7", &[], &spoofed), ["for=192.0.2.7;host=\"a:8080\";proto=http"]);
    let trusted = ["10.0.0.0/8".parse().unwrap()];
    let chain = [("host", "a"), ("forwarded", "for=1.1.1.1"), ("forwarded", "for=10.0.0.1")];
    assert_eq!(told("10.0.0.9", &trusted, &chain), ["for=1.1.1.1, for=10.0.0.1, for=10.0.0.9;host=\"a\";proto=http"]);
    assert_eq!(told("2001:db8::1", &[], &[]), ["for=\"[2001:db8::1]\";proto=http"]);
}
