//! Where requests go as endpoints come and go.

use super::support::{Gateway, Origin, backend, h2c_service, route, service, slice, until};

const RULE: &str = "  - {name: all, backends: [{service: s, port: 80}]}\n";

#[test]
fn no_endpoint_is_503_at_once_and_recovers() {
    // kubernetes/ingress-nginx#3523 and #1551
    let origin = Origin::start("s");
    let gateway = Gateway::start(&(service("s") + &route("r", "[r.test]", RULE)));
    let mut client = gateway.connect();
    let mut get = || client.send("GET / HTTP/1.1\r\nhost: r.test\r\n\r\n");
    for gone in [Some(slice("one", "s", None)), None] {
        gateway.apply("slice.yaml", &slice("one", "s", Some(&origin)));
        until("it serves", || get().status == 200);
        // The connection to the origin is idle in the pool now.
        match gone {
            Some(empty) => gateway.apply("slice.yaml", &empty),
            None => gateway.delete("slice.yaml"),
        }
        until("it is gone", || get().status != 200);
        let before = origin.requests().len();
        for _ in 0..50 {
            let answer = get();
            assert_eq!((answer.status, answer.reason()), (503, "no-endpoints"));
        }
        assert_eq!(origin.requests().len(), before, "a pooled connection was used");
    }
    gateway.apply("slice.yaml", &slice("one", "s", Some(&origin)));
    until("it serves again", || get().status == 200);
}

#[test]
fn slices_are_one_set_and_duplicates_count_once() {
    // kubernetes/website#38174
    let (a, b) = (Origin::start("a"), Origin::start("b"));
    let slices = slice("one", "s", Some(&a)) + &slice("other", "s", Some(&b));
    let gateway = Gateway::start(&(service("s") + &slices + &route("r", "[r.test]", RULE)));
    gateway.apply(
        "copy.yaml",
        &(slice("copy", "s", Some(&a))
            + &backend(&Origin::start("marker"))
            + &route("m", "[m.test]", "  - {backends: [{service: marker, port: 80}]}")),
    );
    until("the copy is known", || gateway.get("m.test/", &[]).status == 200);
    let counts = |requests: usize| {
        let before = [&a, &b].map(|origin| origin.requests().len());
        let mut client = gateway.connect();
        for _ in 0..requests {
            assert_eq!(client.send("GET / HTTP/1.1\r\nhost: r.test\r\n\r\n").status, 200);
        }
        [a.requests().len() - before[0], b.requests().len() - before[1]]
    };
    assert_eq!(counts(100), [50, 50]);
    // The address moved: the first slice loses it, the copy keeps it.
    gateway.apply(
        "main.yaml",
        &(service("s")
            + &slice("one", "s", None)
            + &slice("other", "s", Some(&b))
            + &route("r", "[r.test, n.test]", RULE)),
    );
    until("the move is known", || gateway.get("n.test/", &[]).status == 200);
    assert_eq!(counts(100), [50, 50]);
}

#[test]
fn a_port_is_spoken_to_in_its_protocol_from_the_moment_it_says_so() {
    // envoyproxy/gateway#8648
    let origin = Origin::start("s");
    let rest = slice("one", "s", Some(&origin)) + &route("r", "[r.test]", RULE);
    let gateway = Gateway::start(&(h2c_service("s") + &rest));
    let mut clients: Vec<_> = (0..8).map(|_| gateway.connect()).collect();
    let mut get_all = || {
        for client in &mut clients {
            let answer = client.send("GET / HTTP/1.1\r\nhost: r.test\r\n\r\n");
            assert_eq!((answer.status, &*answer.body), (200, "s"));
        }
    };
    let spoken = |head: &String| head.lines().next().and_then(|line| line.split(' ').nth(2)).map(str::to_owned);
    get_all();
    assert!(
        origin.requests().iter().all(|head| spoken(head).as_deref() == Some("HTTP/2.0")),
        "{:?}",
        origin.requests()
    );
    // The same address and port, with connections in the pool.
    for (service, version) in [(service("s"), "HTTP/1.1"), (h2c_service("s"), "HTTP/2.0")] {
        gateway.apply("main.yaml", &(service + &rest));
        until("the change is known", || {
            assert_eq!(gateway.get("r.test/", &[]).status, 200);
            spoken(origin.requests().last().unwrap()).as_deref() == Some(version)
        });
        let before = origin.requests().len();
        for _ in 0..5 {
            get_all();
        }
        let since = &origin.requests()[before..];
        assert_eq!(since.len(), 40);
        assert!(since.iter().all(|head| spoken(head).as_deref() == Some(version)), "{since:?}");
    }
}
