use std::path::Path;

use super::*;
use crate::app::Offline;
use crate::settings::{Listener, Settings};

fn settings() -> Settings {
    let listener = |name: &str, port: u16| Listener::plain(name, ([127, 0, 0, 1], port).into());
    Settings {
        listeners: vec![listener("http", 8080), listener("intern", 9090)],
        trusted_proxies: vec!["192.0.2.0/24".parse().unwrap()],
        ..Settings::default()
    }
}

fn question(method: &str, url: &str, headers: &[&str]) -> Question {
    Question {
        method: method.to_owned(),
        url: url.to_owned(),
        headers: headers.iter().map(ToString::to_string).collect(),
        at: Some("2026-01-31T08:30:00Z".to_owned()),
        ..Question::default()
    }
}

fn shop() -> Offline {
    let offline = Offline::of_files(Path::new("src/explain/testdata"), &settings());
    assert_eq!(offline.problems, []);
    offline
}

fn answer(question: &Question) -> Answer {
    let answer = shop().answer(question).unwrap();
    let json = serde_json::to_string(&answer).unwrap();
    assert_eq!(serde_json::from_str::<Answer>(&json).unwrap(), answer, "the JSON form is read back");
    answer
}

#[test]
fn answers_read_well() {
    let with = |question: Question, client_ip: &str| Question { client_ip: Some(client_ip.to_owned()), ..question };
    let cases = [
        ("forwarded", question("GET", "http://shop.example.com/cart/7?x=1", &[])),
        ("exact", question("GET", "http://shop.example.com/cart/items?v=2", &["x-user: beta"])),
        ("selector", question("GET", "http://shop.example.com/cart", &["X-Stage: canary"])),
        (
            "proxied",
            with(question("GET", "http://shop.example.com/", &["x-forwarded-for: 10.9.1.1, 192.0.2.9"]), "192.0.2.1"),
        ),
        ("no-match", question("POST", "shop.example.com/cat", &[])),
        ("no-host", question("GET", "http://shop.exmaple.com/cart", &[])),
        ("no-endpoints", question("GET", "http://shop.example.com/idle", &[])),
        ("broken", question("GET", "http://shop.example.com/broken", &[])),
        ("half", question("GET", "http://shop.example.com/half", &[])),
        ("redirect", question("GET", "https://shop.example.com:8443/old/x?y", &[])),
        ("refused", question("GET", "http://shop.example.com/a%2Fb", &[])),
    ];
    for (name, question) in cases {
        insta::assert_snapshot!(format!("text_{name}"), answer(&question).to_text());
    }
}

#[test]
fn the_json_form_is_stable() {
    let asked = question("GET", "http://shop.example.com/cart/items", &["x-user: alpha"]);
    insta::assert_snapshot!("json", serde_json::to_string_pretty(&answer(&asked)).unwrap());
}

#[test]
fn lists_are_cut_unless_all_is_asked_for() {
    let rules: Vec<String> = (0..60)
        .map(|n| format!("  - {{matches: [{{path: {{value: /p{n}}}}}], backends: [{{host: 10.0.0.1, port: 80}}]}}\n"))
        .collect();
    let route = |n: usize| {
        let head = "---\napiVersion: lockgate.dev/v1alpha1\nkind: Route\nmetadata:";
        format!("{head} {{name: r{n}}}\nspec:\n  selectors: [{{name: s}}]\n  rules:\n{}", rules.concat())
    };
    let selector =
        "apiVersion: lockgate.dev/v1alpha1\nkind: Selector\nmetadata: {name: s}\nspec: {hostnames: [x.test]}\n";
    let yaml = [selector.to_owned(), route(0), route(1), route(2)].concat();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("many.yaml"), yaml).unwrap();
    let offline = Offline::of_files(directory.path(), &settings());
    assert_eq!(offline.problems, []);
    let told = |all| offline.answer(&Question { all, ..question("GET", "x.test/p1", &[]) }).unwrap().decision.unwrap();
    let (few, all) = (told(false), told(true));
    assert_eq!((few.losers.shown.len(), few.losers.more, few.runners_up.shown.len()), (50, 127, 2));
    assert_eq!((all.losers.shown.len(), all.losers.more), (177, 0));
}

#[test]
fn limits_are_told_with_what_becomes_of_more() {
    let yaml = "apiVersion: lockgate.dev/v1alpha1
kind: Selector
metadata: {name: s}
spec: {hostnames: [x.test], policy: {upstream: {maxConnections: 8, maxPending: 0, maxRequests: 40}}}
---
apiVersion: lockgate.dev/v1alpha1
kind: Route
metadata: {name: r}
spec:
  selectors: [{name: s}]
  rules:
  - name: limited
    matches: [{path: {value: /limited}}]
    limits: {maxBodyBytes: 1Mi, maxInFlight: 10, maxQueued: 5, queueTimeout: 200ms, reject: Oldest}
    backends: [{host: 10.0.0.1, port: 80}]
  - name: unlimited
    matches: [{path: {value: /unlimited}}]
    limits: {maxBodyBytes: 0}
    upstream: {}
    backends: [{host: 10.0.0.2, port: 80}]
  - name: shares
    matches: [{path: {value: /shares}}]
    upstream: {acquireTimeout: 0s, maxRequests: 99}
    backends: [{host: 10.0.0.1, port: 80}]
";
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("limits.yaml"), yaml).unwrap();
    let told = |settings: &Settings, path: &str| {
        let offline = Offline::of_files(directory.path(), settings);
        assert_eq!(offline.problems, []);
        let answer = offline.answer(&question("GET", &format!("http://x.test{path}"), &[])).unwrap();
        let text = answer.to_text();
        let limits = text.split_once("Limits\n").map_or("", |(_, rest)| rest.split("\n\n").next().unwrap());
        limits.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let mut settings = settings();
    assert_eq!(
        told(&settings, "/limited"),
        [
            "bytes of a request's body              at most 1048576  413 body-too-large",
            "requests of the rule                   at most 10       5 wait up to 200ms, of more the oldest gets 503 rule-limit",
            "requests to 10.0.0.1:80, of all rules  at most 40       503 backend-limit",
            "connections to one endpoint            at most 8        503 backend-limit",
        ]
    );
    assert_eq!(told(&settings, "/unlimited"), [""; 0]);
    let shared = "requests to 10.0.0.1:80, of all rules  at most 40  1024 wait, others get 503 backend-limit";
    assert_eq!(told(&settings, "/shares"), [shared]);
    settings.limits.max_in_flight = Some(7);
    settings.limits.max_body_bytes = Some(crate::api::ByteSize::new(5));
    assert_eq!(
        told(&settings, "/unlimited"),
        ["requests of the gateway  at most 7  100 wait up to 1s, others get 503 request-limit"]
    );
}

#[test]
fn a_preflight_is_decided_as_what_it_asks_for() {
    let yaml = "apiVersion: lockgate.dev/v1alpha1
kind: Selector
metadata: {name: s}
spec: {hostnames: [x.test]}
---
apiVersion: lockgate.dev/v1alpha1
kind: Route
metadata: {name: r}
spec:
  selectors: [{name: s}]
  rules:
  - name: put
    matches: [{path: {value: /a}, methods: [PUT]}]
    filters: [{type: CORS, cors: {allowOrigins: [\"https://y.test\"], allowMethods: [PUT]}}]
    backends: [{host: 10.0.0.1, port: 80}]
";
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("cors.yaml"), yaml).unwrap();
    let offline = Offline::of_files(directory.path(), &settings());
    assert_eq!(offline.problems, []);
    let ask = |headers: &[&str]| offline.answer(&question("OPTIONS", "http://x.test/a", headers)).unwrap();
    let preflight = ask(&["origin: https://y.test", "access-control-request-method: PUT"]);
    assert_eq!((preflight.result.kind, preflight.result.status), (Kind::DirectResponse, Some(204)));
    assert_eq!(preflight.decision.unwrap().winner.unwrap().place.rule, "put");
    assert_eq!(preflight.notes, ["the preflight is decided as the PUT that it asks for"]);
    for headers in [&["origin: https://y.test"][..], &["origin: https://y.test", "access-control-request-method: GET"]]
    {
        assert_eq!(ask(headers).result.status, Some(404), "{headers:?}");
    }
}

fn refused(question: &Question) -> String {
    question.parse(&Gateway::from(&settings())).unwrap_err().to_string()
}

#[test]
fn what_cannot_be_read_is_named() {
    let with = |change: fn(&mut Question)| {
        let mut question = question("GET", "http://x.test/", &[]);
        change(&mut question);
        refused(&question)
    };
    assert_eq!(with(|q| q.method = "G T".to_owned()), "method: \"G T\" is no method");
    assert_eq!(with(|q| q.url = "ftp://x.test/".to_owned()), "url: the scheme \"ftp\" is neither http nor https");
    assert_eq!(with(|q| q.url = "http:///a".to_owned()), "url: has no host");
    assert!(with(|q| q.url = "http://x.test/a b".to_owned()).starts_with("url: \"/a b\" is no target"));
    assert_eq!(with(|q| q.headers = vec!["x".to_owned()]), "header: \"x\" is not \"name: value\"");
    assert_eq!(with(|q| q.headers = vec!["x y: z".to_owned()]), "header: \"x y: z\" is not \"name: value\"");
    assert_eq!(with(|q| q.client_ip = Some("me".to_owned())), "clientIp: \"me\" is no IP address");
    assert_eq!(
        with(|q| q.listener = Some("https".to_owned())),
        "listener: the gateway has no listener \"https\"; it has http, intern"
    );
    let late = with(|q| q.at = Some("noon".to_owned()));
    assert_eq!(late, "at: \"noon\" is not an RFC 3339 time, such as 2026-01-31T08:30:00Z");
}

#[test]
fn the_listener_is_found_by_port_then_by_scheme() {
    let gateway = Gateway::from(&settings());
    for (url, listener, notes) in [
        ("http://x.test/", "http", 0),
        ("http://x.test:9090/", "intern", 0),
        ("http://x.test:80/", "http", 0),
        ("https://x.test/", "http", 1),
        ("x.test/", "http", 1),
        ("http://x.test/a#b", "http", 1),
    ] {
        let asked = question("GET", url, &[]).parse(&gateway).unwrap();
        assert_eq!((&*asked.listener_name, asked.notes.len()), (listener, notes), "{url}: {:?}", asked.notes);
    }
    let named = Question { listener: Some("intern".to_owned()), ..question("GET", "http://x.test/", &[]) };
    assert_eq!(named.parse(&gateway).unwrap().listener, 1);
}

#[test]
fn a_listener_that_ends_tls_is_that_of_https() {
    let mut settings = settings();
    settings.listeners.push(Listener::ending_tls("secure", ([127, 0, 0, 1], 8443).into()));
    let gateway = Gateway::from(&settings);
    for (url, listener, scheme) in [
        ("https://x.test/", "secure", "https"),
        ("http://x.test/", "http", "http"),
        ("https://x.test:8443/", "secure", "https"),
        ("x.test:8443/", "secure", "https"),
        ("https://x.test:9090/", "intern", "http"),
    ] {
        let asked = question("GET", url, &[]).parse(&gateway).unwrap();
        assert_eq!((&*asked.listener_name, asked.scheme), (listener, scheme), "{url}");
        assert_eq!(asked.notes, [""; 0], "{url}");
    }
}

/// What a gateway with a plain listener that redirects and one that ends TLS says.
fn secure(manifests: &str, url: &str) -> Answer {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("m.yaml"), manifests).unwrap();
    let loopback = |port| ([127, 0, 0, 1], port).into();
    let redirecting = Listener { https_redirect: Some(8443), ..Listener::plain("redirecting", loopback(8082)) };
    let listeners =
        vec![Listener::plain("http", loopback(8080)), Listener::ending_tls("https", loopback(8443)), redirecting];
    let settings = Settings { listeners, ..Settings::default() };
    Offline::of_files(directory.path(), &settings).answer(&question("GET", url, &[])).unwrap()
}

#[test]
fn what_tls_makes_of_a_request_is_told() {
    use crate::source::secrets::tests::Authority;
    let authority = Authority::new("ca");
    let mut secret = authority.issue(&["a.test", "b.test"]).secret("s");
    secret["stringData"]["ca.crt"] = authority.pem.clone().into();
    let selector = |name: &str, tls: &str| {
        format!(
            "---\napiVersion: lockgate.dev/v1alpha1\nkind: Selector\nmetadata: {{name: {name}, namespace: test}}\n\
             spec: {{hostnames: [{name}.test], {tls}}}\n---\napiVersion: lockgate.dev/v1alpha1\nkind: Route\n\
             metadata: {{name: {name}, namespace: test}}\nspec: {{selectors: [{{name: {name}}}], \
             rules: [{{filters: [{{type: DirectResponse, directResponse: {{status: 204}}}}]}}]}}\n"
        )
    };
    let manifests = [
        format!("{secret}\n"),
        selector("a", "tls: {secretName: s}"),
        selector("b", "tls: {secretName: s, clientCertificates: {caSecretName: s}}"),
        selector("c", "tls: {secretName: none}"),
        selector("d", "priority: 0"),
        selector("p", "tls: {mode: Passthrough}").replace(
            "filters: [{type: DirectResponse, directResponse: {status: 204}}]",
            "backends: [{host: 10.0.0.1, port: 443}]",
        ),
        selector("q", "tls: {mode: Passthrough}"),
    ]
    .concat();
    for (url, status, reason) in [
        ("https://p.test/any?thing", None, None),
        ("http://p.test/", Some(404), Some("no-selector")),
        ("https://q.test/", None, Some("invalid-rule")),
        ("https://a.test/", Some(204), None),
        ("http://a.test/", Some(204), None),
        ("https://b.test/", Some(204), None),
        ("http://b.test/", Some(421), Some("misdirected")),
        ("https://c.test/", None, Some("broken-certificate")),
        ("http://c.test/", Some(204), None),
        ("https://d.test/", None, Some("no-certificate")),
        ("http://a.test:8082/x?y", Some(308), None),
    ] {
        let answer = secure(&manifests, url);
        assert_eq!((answer.result.status, answer.result.reason.as_deref()), (status, reason), "{url}: {answer:?}");
    }
    let summary = secure(&manifests, "http://a.test:8082/x?y").result.summary;
    assert_eq!(summary, "answered with 308: listener redirecting redirects to https://a.test:8443/x?y");
    assert_eq!(secure(&manifests, "https://b.test/").notes, ["the client has to show a certificate"]);
    let passed = secure(&manifests, "https://p.test/x");
    assert_eq!(passed.result.summary, "TLS is passed through to 10.0.0.1:443, which answers");
    assert_eq!(
        passed.notes,
        ["Selector test/p passes TLS through, by Route test/p: nothing but the host is looked at"]
    );
    let refused = &secure(&manifests, "https://q.test/").findings[0];
    assert!(refused.message.starts_with("spec.rules[0].filters: is not allowed where TLS is passed"), "{refused:?}");
}

#[test]
fn https_is_what_a_load_balancer_can_tell() {
    let mut settings = settings();
    settings.listeners[1].proxy_protocol = true;
    let gateway = Gateway::from(&settings);
    for (url, scheme) in
        [("https://x.test:8080/", "http"), ("https://x.test:9090/", "https"), ("http://x.test:9090/", "http")]
    {
        assert_eq!(question("GET", url, &[]).parse(&gateway).unwrap().scheme, scheme, "{url}");
    }
}

#[test]
fn urls_are_taken_apart_as_clients_do() {
    let gateway = Gateway::from(&settings());
    for (url, headers, target, host) in [
        ("http://x.test", &[][..], "/", "x.test"),
        ("http://x.test?a=http://y.test/", &[], "/?a=http://y.test/", "x.test"),
        ("x.test:81/a?b", &[], "/a?b", "x.test:81"),
        ("/a", &["host: y.test"], "/a", "y.test"),
        ("http://x.test/a", &["Host: y.test"], "/a", "y.test"),
        ("/redirect?to=http://y.test", &["host: x.test"], "/redirect?to=http://y.test", "x.test"),
    ] {
        let asked = question("GET", url, headers).parse(&gateway).unwrap();
        assert_eq!(
            (asked.parts.uri.to_string(), asked.parts.headers["host"].to_str().unwrap()),
            (target.to_owned(), host)
        );
    }
    let without = answer(&question("GET", "/a", &[]));
    assert_eq!((without.result.status, without.result.reason.as_deref()), (Some(400), Some("no-host")));
}

#[test]
fn queries_are_questions() {
    let query =
        "method=PUT&url=http%3A%2F%2Fx.test%2Fa%3Fb&header=x:+1&header=y:%202&clientIp=::1&listener=intern&all&o=json";
    let question = Question::from_query(query).unwrap();
    let expected = Question {
        method: "PUT".to_owned(),
        url: "http://x.test/a?b".to_owned(),
        headers: vec!["x: 1".to_owned(), "y: 2".to_owned()],
        client_ip: Some("::1".to_owned()),
        listener: Some("intern".to_owned()),
        at: None,
        all: true,
    };
    assert_eq!(question, expected);
    assert_eq!(Question::from_query("url=x.test").unwrap().method, "GET");
    assert!(Question::from_query("").unwrap_err().to_string().starts_with("url: is required"));
    assert!(Question::from_query("uri=x").unwrap_err().to_string().starts_with("query: \"uri\" is not known"));
}

#[test]
fn no_control_character_reaches_the_terminal() {
    let asked = question("GET", "http://shop.example.com/cart", &["x-stage: \u{1b}[31m"]);
    // Field values have no such bytes.
    assert!(refused(&asked).starts_with("header: "));
    let asked = question("GET", "http://shop.example.com/cart?a=%1b", &["x-stage: \u{9b}31m"]);
    let text = answer(&asked).to_text();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
}

proptest::proptest! {
    #[test]
    fn any_question_is_answered_or_refused(
        method in "[A-Z ]{0,4}",
        url in "(http://|https://|//)?[a-z.:@\\[\\]]{0,8}[/?#%a-z0-9\u{fc} .]{0,12}",
        header in "[a-z:; \u{fc}]{0,10}",
        client_ip in proptest::option::of("[0-9a-f.:]{0,8}"),
    ) {
        let asked = Question { client_ip, ..question(&method, &url, &[&header]) };
        if let Ok(answer) = shop_once().answer(&asked) {
            proptest::prop_assert!(!answer.to_text().is_empty());
        }
    }
}

fn shop_once() -> &'static Offline {
    static SHOP: std::sync::LazyLock<Offline> = std::sync::LazyLock::new(shop);
    &SHOP
}

#[test]
fn what_becomes_of_an_upgrade_is_told() {
    let told = |headers: &[&str]| answer(&question("GET", "http://shop.example.com/cart/7", headers)).notes;
    assert!(told(&["connection: upgrade"]).is_empty());
    let asked = told(&["connection: upgrade", "upgrade: websocket, h2c"]);
    assert!(asked.iter().any(|note| note.contains("asked to go on in websocket")), "{asked:?}");
    assert!(asked.iter().any(|note| note.contains("Upgrade to h2c is dropped: the setting upgrades")), "{asked:?}");
    let unmeant = told(&["upgrade: websocket"]);
    assert!(unmeant.iter().any(|note| note.contains("Connection does not name it")), "{unmeant:?}");
    let redirect =
        answer(&question("GET", "https://shop.example.com:8443/old/x", &["connection: upgrade", "upgrade: x"]));
    assert!(redirect.notes.iter().all(|note| !note.contains("pgrade")), "{:?}", redirect.notes);
}

#[test]
fn requests_of_grpc_are_told_their_status() {
    let ask = |path: &str, content_type: &str| {
        answer(&question(
            "POST",
            &format!("http://shop.example.com{path}"),
            &[&format!("content-type: {content_type}")],
        ))
    };
    let refused = ask("/idle", "application/grpc").result;
    assert_eq!((refused.status, refused.reason.as_deref()), (Some(200), Some("no-endpoints")));
    assert_eq!(refused.grpc_status.as_deref(), Some("14"));
    assert!(
        refused.summary.ends_with("; as the request is of gRPC, with the status 200 and grpc-status 14"),
        "{}",
        refused.summary
    );
    assert_eq!(ask("/a%2Fb", "application/grpc+proto").result.grpc_status.as_deref(), Some("13"));
    let plain = ask("/idle", "application/json").result;
    assert_eq!((plain.status, plain.grpc_status), (Some(503), None));
    let half = ask("/half", "application/grpc");
    assert_eq!((half.result.status, half.result.grpc_status), (None, None));
    assert!(half.notes.iter().any(|note| note.contains("grpc-status")), "{:?}", half.notes);
}
