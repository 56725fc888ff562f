//! Which rule takes a request.

use super::support::{Gateway, Origin, backend, route};

/// A rule on a path prefix to the Service of the same name, as one line of YAML.
fn prefix(path: &str, service: &str) -> String {
    format!(
        "  - {{matches: [{{path: {{type: Prefix, value: {path}}}}}], backends: [{{service: {service}, port: 80}}]}}\n"
    )
}

#[test]
fn a_method_outranks_headers() {
    // nginx/nginx-gateway-fabric#755
    let (a, b) = (Origin::start("a"), Origin::start("b"));
    let rules = "
  - matches:
    - path: {type: Prefix, value: /coffee}
      headers: [{name: x-one, value: '1'}, {name: x-two, value: '2'}]
    backends: [{service: b, port: 80}]
  - matches:
    - path: {type: Prefix, value: /coffee}
      methods: [GET]
    backends: [{service: a, port: web}]
";
    let gateway = Gateway::start(&(backend(&a) + &backend(&b) + &route("cafe", "[cafe.test]", rules)));
    let headers = ["x-one: 1", "x-two: 2"];
    assert_eq!(gateway.get("cafe.test/coffee", &headers).body, "a");
    let post = "POST /coffee HTTP/1.1\r\nhost: cafe.test\r\nx-one: 1\r\nx-two: 2\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(gateway.send(post).body, "b");
}

#[test]
fn a_prefix_takes_whole_segments() {
    // nginx/nginx-gateway-fabric#796
    let (v1, v2) = (Origin::start("v1"), Origin::start("v2"));
    let rules = prefix("/", "v1") + &prefix("/v2", "v2");
    let gateway = Gateway::start(&(backend(&v1) + &backend(&v2) + &route("api", "[api.test]", &rules)));
    for (path, expected) in [("/v2", "v2"), ("/v2/", "v2"), ("/v2/a", "v2"), ("/v2example", "v1"), ("/v2?x", "v2")] {
        assert_eq!(gateway.get(&format!("api.test{path}"), &[]).body, expected, "{path}");
    }
}

#[test]
fn the_specific_host_decides_alone() {
    // traefik/traefik#9681
    let (wide, own) = (Origin::start("wide"), Origin::start("own"));
    let wildcard = route("wildcard", "['*.example.test']", &(prefix("/", "wide") + &prefix("/a/long/path", "wide")));
    let specific = route("specific", "[my.example.test]", &prefix("/a", "own"));
    let gateway = Gateway::start(&(wildcard + &specific + &backend(&wide) + &backend(&own)));
    assert_eq!(gateway.get("my.example.test/a/long/path", &[]).body, "own");
    assert_eq!(gateway.get("other.example.test/a/long/path", &[]).body, "wide");
    let missing = gateway.get("my.example.test/b", &[]);
    assert_eq!((missing.status, missing.reason()), (404, "no-route"));
    assert!(wide.requests().iter().all(|head| !head.contains("my.example.test")));
}

#[test]
fn a_long_regex_never_beats_an_exact_path_nor_blows_up() {
    // kubernetes-sigs/gateway-api#1770
    let origins = ["exact", "regex", "prefix"].map(Origin::start);
    let rules = "
  - {matches: [{path: {type: Prefix, value: /a/}}], backends: [{service: prefix, port: 80}]}
  - {matches: [{path: {type: Regex, value: '/a/(.*)+'}}], backends: [{service: regex, port: 80}]}
  - {matches: [{path: {type: Exact, value: /a/b}}], backends: [{service: exact, port: 80}]}
";
    let manifests: String = origins.iter().map(backend).collect();
    let gateway = Gateway::start(&(manifests + &route("r", "[r.test]", rules)));
    assert_eq!(gateway.get("r.test/a/b", &[]).body, "exact");
    assert_eq!(gateway.get("r.test/a/c", &[]).body, "regex");
    assert_eq!(gateway.get("r.test/a", &[]).body, "prefix");
    // Just below the largest target that is taken.
    let long = "a".repeat(8000);
    assert_eq!(gateway.get(&format!("r.test/a/{long}"), &[]).body, "regex");
}

#[test]
fn a_rule_that_is_broken_or_gone_costs_itself_alone() {
    // projectcontour/contour#2019
    let origins = ["s1", "s2", "s3", "s4", "s5"].map(Origin::start);
    let rules: String = origins.iter().map(|o| prefix(&format!("/{}", o.name), o.name)).collect();
    let gateway = Gateway::start(&route("r", "[r.test]", &rules));
    for origin in &origins {
        gateway.apply(&format!("{}.yaml", origin.name), &backend(origin));
    }
    let status = |name: &str| gateway.get(&format!("r.test/{name}"), &[]).status;
    super::support::until("all serve", || origins.iter().all(|origin| status(origin.name) == 200));
    gateway.delete("s3.yaml");
    super::support::until("s3 fails", || status("s3") == 500);
    let broken = rules.replace("type: Prefix, value: /s4", "type: Regex, value: '/s4('");
    gateway.apply("main.yaml", &route("r", "[r.test]", &broken));
    super::support::until("s4 has no match", || status("s4") == 404);
    for name in ["s1", "s2", "s5"] {
        assert_eq!(status(name), 200, "{name}");
    }
}
