//! From objects that kubectl applies to answers of the right pod.

use anyhow::{Context, ensure};
use lockgate_e2e::load::{Connections, Load};
use lockgate_e2e::namespace::Namespace;
use lockgate_e2e::objects::{MANUAL_SERVICE, all, backend, deployment, route, route_with, selector};
use lockgate_e2e::system::{NAMESPACE, connect};
use lockgate_e2e::wait::eventually;
use lockgate_e2e::web::{Client, request};
use serde_json::json;

/// A namespace with the backend `one` behind the Selector and Route `shop` of its own hostname.
async fn shop(cluster: &lockgate_e2e::cluster::Cluster, test: &str) -> Namespace {
    let namespace = Namespace::new(cluster, test).await;
    let host = namespace.host();
    let objects = [backend(cluster, "one", 1), selector("shop", &host), route("shop", "shop", "one")];
    namespace.apply(&all(&objects)).await;
    namespace.rolled_out("one").await;
    namespace
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_the_answer_of_the_right_pod() {
    let (cluster, gateway) = connect().await;
    let namespace = Namespace::new(&cluster, "right-pod").await;
    let host = namespace.host();
    let rules = "
- matches: [{path: {type: Prefix, value: /two}}]
  backends: [{service: two, port: http}]
- matches: [{path: {type: Exact, value: /one}, methods: [POST], headers: [{name: x-a, type: Exact, value: b}]}]
  backends: [{service: one, port: 8080}]";
    let objects = [
        backend(&cluster, "one", 1),
        backend(&cluster, "two", 2),
        selector("shop", &host),
        route_with("shop", "shop", rules),
    ];
    namespace.apply(&all(&objects)).await;
    namespace.rolled_out("one").await;
    namespace.rolled_out("two").await;

    gateway.answers(&host, "/two/a", "two").await;
    gateway.answers_status(&host, "/other", 404).await;
    gateway.answers_status("nobody.example.test", "/two", 404).await;

    let pods = namespace.pods_of("two").await;
    assert_eq!(pods.len(), 2);
    let mut seen = std::collections::BTreeSet::new();
    let mut client = Client::new(&gateway.address);
    for _ in 0..20 {
        let answer = client.get(&host, "/two/a?b=c").await.unwrap().json();
        assert_eq!((answer["path"].as_str(), answer["query"].as_str()), (Some("/two/a"), Some("b=c")));
        seen.insert(answer["pod"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(seen, pods, "both pods of the Service answer, and no other");

    let posted = request("POST", &host, "/one", &[("x-a", "b")], "hello");
    let answer = client.send(posted).await.unwrap();
    assert_eq!(answer.backend().as_deref(), Some("one"), "{answer}");
    assert_eq!(answer.json()["bodyLength"], 5);
    assert_eq!(answer.json()["headers"]["host"], host);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_edit_takes_effect() {
    let (cluster, gateway) = connect().await;
    let namespace = shop(&cluster, "edit").await;
    let host = namespace.host();
    namespace.apply(&backend(&cluster, "two", 1)).await;
    namespace.rolled_out("two").await;
    gateway.answers(&host, "/", "one").await;

    let load = Load::start(&gateway.address, &host, "/", 4, Connections::Kept);
    load.more(100).await;
    namespace.apply(&route("shop", "shop", "two")).await;
    gateway.answers(&host, "/", "two").await;
    namespace.has("route", "shop", "Programmed", "True", "").await;
    load.more(100).await;
    load.stop().await.assert_clean(200);

    namespace.kubectl(&["patch", "route", "shop", "--type=merge", "-p", r#"{"spec":{"suspend":true}}"#]).await.unwrap();
    gateway.answers_status(&host, "/", 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_of_the_backend_loses_nothing() {
    let (cluster, gateway) = connect().await;
    let namespace = shop(&cluster, "rollout").await;
    let host = namespace.host();
    namespace.kubectl(&["scale", "deployment/one", "--replicas=3"]).await.unwrap();
    namespace.rolled_out("one").await;
    gateway.answers(&host, "/", "one").await;
    let old = namespace.pods_of("one").await;

    let kept = Load::start(&gateway.address, &host, "/", 4, Connections::Kept);
    let each = Load::start(&gateway.address, &host, "/", 4, Connections::PerRequest);
    kept.more(200).await;
    namespace.kubectl(&["rollout", "restart", "deployment/one"]).await.unwrap();
    namespace.rolled_out("one").await;
    eventually("the old pods are gone", async || {
        let now = namespace.pods_of("one").await;
        ensure!(now.is_disjoint(&old) && now.len() == 3, "{now:?}");
        Ok(())
    })
    .await;
    kept.more(200).await;
    each.more(200).await;
    for load in [kept, each] {
        let report = load.stop().await;
        report.assert_clean(400);
        assert!(report.pods.len() >= 6, "old and new pods answered: {:?}", report.pods);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_scaled_to_nothing_is_503_until_it_is_back() {
    let (cluster, gateway) = connect().await;
    let namespace = shop(&cluster, "scale").await;
    let host = namespace.host();
    gateway.answers(&host, "/", "one").await;
    namespace.kubectl(&["scale", "deployment/one", "--replicas=0"]).await.unwrap();
    gateway.answers_status(&host, "/", 503).await;
    namespace.kubectl(&["scale", "deployment/one", "--replicas=1"]).await.unwrap();
    gateway.answers(&host, "/", "one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_route_does_not_touch_a_good_one() {
    let (cluster, gateway) = connect().await;
    let namespace = shop(&cluster, "invalid").await;
    let host = namespace.host();
    gateway.answers(&host, "/", "one").await;
    let load = Load::start(&gateway.address, &host, "/", 4, Connections::Kept);

    // The schema cannot tell that the expression does not compile.
    let bad = "
- matches: [{path: {type: Regex, value: '/bad/(a'}}]
  backends: [{service: one, port: 8080}]
- matches: [{path: {type: Prefix, value: /fine}}]
  backends: [{service: one, port: 8080}]
- matches: [{path: {type: Prefix, value: /dangling}}]
  backends: [{service: nowhere, port: 8080}]";
    namespace.apply(&route_with("bad", "shop", bad)).await;
    let rejected = eventually("the bad Route is told what is wrong", async || {
        let accepted = namespace.condition("route", "bad", "Accepted").await?;
        ensure!(accepted.message.contains("/bad/(a") || accepted.status == "False", "{accepted:?}");
        Ok(accepted)
    })
    .await;
    println!("Accepted of the bad Route: {rejected:?}");
    let unresolved = namespace.has("route", "bad", "ResolvedRefs", "False", "BackendNotFound").await;
    assert!(unresolved.message.contains("nowhere"), "{unresolved:?}");
    gateway.answers_status(&host, "/dangling", 500).await;
    gateway.answers(&host, "/fine", "one").await;
    gateway.answers(&host, "/", "one").await;
    for r#type in ["Accepted", "ResolvedRefs", "Programmed"] {
        namespace.has("route", "shop", r#type, "True", "").await;
    }
    load.more(50).await;
    load.stop().await.assert_clean(50);
}

/// A Route of 64 rules with 64 matches each, of more than a megabyte.
fn huge_route(name: &str) -> String {
    let matches = |rule| {
        let one = |number| json!({"path": {"type": "Exact", "value": format!("/{rule}/{number}/{}", "x".repeat(240))}});
        (0..64).map(one).collect::<Vec<_>>()
    };
    let rule = |rule| json!({"matches": matches(rule), "backends": [{"service": "one", "port": 8080}]});
    let spec = json!({"selectors": [{"name": "shop"}], "rules": (0..64).map(rule).collect::<Vec<_>>()});
    json!({"apiVersion": "lockgate.dev/v1alpha1", "kind": "Route", "metadata": {"name": name}, "spec": spec})
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_of_a_megabyte_is_served_beside_others() {
    let (cluster, gateway) = connect().await;
    let namespace = shop(&cluster, "huge").await;
    let host = namespace.host();
    gateway.answers(&host, "/", "one").await;
    let load = Load::start(&gateway.address, &host, "/", 4, Connections::Kept);
    load.more(50).await;

    let huge = huge_route("huge");
    assert!(huge.len() > 1 << 20, "{} bytes", huge.len());
    // `kubectl apply` without this keeps a copy in an annotation, which has less room.
    let apply = ["-n", &namespace.name, "apply", "--server-side", "-f", "-"];
    cluster.kubectl_with(&apply, &huge).await.unwrap();
    namespace.has("route", "huge", "Programmed", "True", "").await;
    gateway.answers(&host, &format!("/63/63/{}", "x".repeat(240)), "one").await;
    load.more(50).await;
    load.stop().await.assert_clean(100);
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_are_read_back_with_kubectl() {
    let (cluster, gateway) = connect().await;
    let namespace = shop(&cluster, "conditions").await;
    for r#type in ["Accepted", "ResolvedRefs", "Programmed"] {
        namespace.has("selector", "shop", r#type, "True", "").await;
        namespace.has("route", "shop", r#type, "True", "").await;
    }
    gateway.answers(&namespace.host(), "/", "one").await;
    eventually("the Selector counts its Route", async || {
        let status = namespace.get("selector", "shop").await?["status"].clone();
        ensure!(status["attachedRoutes"] == 1, "{status}");
        Ok(())
    })
    .await;
    let read = namespace.get("route", "shop").await.unwrap();
    let parent = &read["status"]["selectors"][0];
    assert_eq!(parent["namespace"], namespace.name.as_str());
    assert_eq!(parent["name"], "shop");
    assert_eq!(parent["controllerName"], "lockgate.dev/gateway");
    let before = namespace.condition("route", "shop", "Accepted").await.unwrap().observed_generation;

    namespace.apply(&route_with("shop", "shop", "- backends: [{service: absent, port: 8080}]")).await;
    let unresolved = namespace.has("route", "shop", "ResolvedRefs", "False", "BackendNotFound").await;
    assert!(unresolved.observed_generation > before && unresolved.message.contains("absent"), "{unresolved:?}");

    // A Route of a Selector that does not exist, and the columns that people see.
    namespace.apply(&route("lost", "no-such-selector", "one")).await;
    let lost = namespace.has("route", "lost", "Accepted", "False", "").await;
    assert!(lost.message.contains("no-such-selector"), "{lost:?}");
    let table = namespace.kubectl(&["get", "lsel,lroute"]).await.unwrap();
    println!("{table}");
    let row = |name: &str| table.lines().find(|line| line.contains(name)).unwrap_or_default();
    let cells = |name: &str| row(name).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cells("route.lockgate.dev/shop")[1..5], ["shop", "True", "False", "True"], "{table}");
    assert_eq!(cells("route.lockgate.dev/lost")[1..5], ["no-such-selector", "False", "True", "False"], "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_any_object_takes_its_traffic_and_no_other() {
    let (cluster, gateway) = connect().await;
    let namespace = shop(&cluster, "deletion").await;
    let other = shop(&cluster, "deletion-other").await;
    let host = namespace.host();
    gateway.answers(&host, "/", "one").await;
    gateway.answers(&other.host(), "/", "one").await;
    let load = Load::start(&gateway.address, &other.host(), "/", 2, Connections::Kept);

    let objects = all(&[backend(&cluster, "one", 1), selector("shop", &host), route("shop", "shop", "one")]);
    // A Route whose Service is gone has a dangling reference, 500; one whose Service has no endpoint is unavailable, 503.
    for (kind, name, status) in
        [("route", "shop", 404), ("selector", "shop", 404), ("service", "one", 500), ("deployment", "one", 503)]
    {
        namespace.kubectl(&["delete", kind, name]).await.unwrap();
        gateway.answers_status(&host, "/", status).await;
        namespace.apply(&objects).await;
        gateway.answers(&host, "/", "one").await;
    }
    load.more(50).await;
    load.stop().await.assert_clean(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_slice_that_is_deleted_takes_its_endpoints() {
    let (cluster, gateway) = connect().await;
    let namespace = Namespace::new(&cluster, "slice").await;
    let host = namespace.host();
    // A Service without selector: its slices are made by hand.
    let objects = [
        deployment(&cluster, "one", 1),
        MANUAL_SERVICE.to_owned(),
        selector("shop", &host),
        route_with("shop", "shop", "- backends: [{service: manual, port: 80}]"),
    ];
    namespace.apply(&all(&objects)).await;
    namespace.rolled_out("one").await;
    gateway.answers_status(&host, "/", 503).await;
    let address = namespace.kubectl(&["get", "pods", "-o", "jsonpath={.items[0].status.podIP}"]).await.unwrap();
    let slice = |name: &str| {
        format!(
            "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {name}
  labels: {{kubernetes.io/service-name: manual}}
addressType: IPv4
ports: [{{name: http, port: 8080, protocol: TCP}}]
endpoints: [{{addresses: ['{address}']}}]
"
        )
    };
    // The same address in two slices, as while it moves from one to the other.
    namespace.apply(&all(&[slice("manual-a"), slice("manual-b")])).await;
    gateway.answers(&host, "/", "one").await;
    namespace.kubectl(&["delete", "endpointslice", "manual-a"]).await.unwrap();
    gateway.answers(&host, "/", "one").await;
    namespace.kubectl(&["delete", "endpointslice", "manual-b"]).await.unwrap();
    gateway.answers_status(&host, "/", 503).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_of_another_namespace_needs_a_grant() {
    let (cluster, gateway) = connect().await;
    let namespace = Namespace::new(&cluster, "grant").await;
    let owner = Namespace::new(&cluster, "grant-owner").await;
    let host = namespace.host();
    let rule = format!("- backends: [{{service: one, namespace: {}, port: 8080}}]", owner.name);
    owner.apply(&backend(&cluster, "one", 1)).await;
    owner.rolled_out("one").await;
    namespace.apply(&all(&[selector("shop", &host), route_with("shop", "shop", &rule)])).await;
    let refused = namespace.has("route", "shop", "ResolvedRefs", "False", "RefNotPermitted").await;
    assert!(refused.message.contains(&owner.name), "{refused:?}");
    gateway.answers_status(&host, "/", 500).await;

    // A cluster need not have this kind; here it comes after the gateway has started.
    let crd = lockgate_e2e::cluster::repository().join("e2e/testdata/referencegrants.yaml");
    cluster.kubectl(&["apply", "--server-side", "-f", &crd.to_string_lossy()]).await.unwrap();
    let established = ["wait", "--for=condition=Established", "crd/referencegrants.gateway.networking.k8s.io"];
    cluster.kubectl(&established).await.unwrap();
    let grant = format!(
        "apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {{name: shop}}
spec:
  from: [{{group: lockgate.dev, kind: Route, namespace: {}}}]
  to: [{{group: '', kind: Service}}]
",
        namespace.name
    );
    eventually("the grant is stored", async || owner.try_apply(&grant).await).await;
    gateway.answers(&host, "/", "one").await;
    namespace.has("route", "shop", "ResolvedRefs", "True", "").await;

    owner.kubectl(&["delete", "referencegrant", "shop"]).await.unwrap();
    gateway.answers_status(&host, "/", 500).await;
    namespace.has("route", "shop", "ResolvedRefs", "False", "RefNotPermitted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selector_lets_routes_of_other_namespaces_in_or_not() {
    let (cluster, gateway) = connect().await;
    let owner = shop(&cluster, "allowed-owner").await;
    let guest = Namespace::new(&cluster, "allowed-guest").await;
    let host = owner.host();
    guest.apply(&backend(&cluster, "two", 1)).await;
    guest.rolled_out("two").await;
    let visit = route_with(
        "visit",
        "shop",
        "- matches: [{path: {type: Prefix, value: /guest}}]\n  backends: [{service: two, port: 8080}]",
    );
    guest.apply(&visit.replace("{name: shop}", &format!("{{name: shop, namespace: {}}}", owner.name))).await;
    gateway.answers(&host, "/", "one").await;
    let refused = guest.has("route", "visit", "Accepted", "False", "NotAllowedBySelector").await;
    println!("{refused:?}");
    gateway.answers(&host, "/guest", "one").await;

    let patch = r#"{"spec":{"allowedRoutes":{"namespaces":{"from":"All"}}}}"#;
    owner.kubectl(&["patch", "selector", "shop", "--type=merge", "-p", patch]).await.unwrap();
    gateway.answers(&host, "/guest", "two").await;
    guest.has("route", "visit", "Accepted", "True", "").await;
    gateway.answers(&host, "/", "one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostname_belongs_to_the_namespace_of_its_oldest_selector() {
    let (cluster, gateway) = connect().await;
    let first = shop(&cluster, "owner").await;
    let host = first.host();
    gateway.answers(&host, "/", "one").await;
    // An object's age has a resolution of one second.
    eventually("a second has passed", async || {
        let age = "{.metadata.creationTimestamp}";
        let selector = first.kubectl(&["get", "selector", "shop", "-o", &format!("jsonpath={age}")]).await?;
        let marker = Namespace::new(&cluster, "owner-clock").await;
        let now = cluster.kubectl(&["get", "namespace", &marker.name, "-o", &format!("jsonpath={age}")]).await?;
        ensure!(now > selector, "{now} is not after {selector}");
        Ok(())
    })
    .await;
    let second = Namespace::new(&cluster, "owner-second").await;
    second.apply(&all(&[backend(&cluster, "two", 1), selector("shop", &host), route("shop", "shop", "two")])).await;
    second.rolled_out("two").await;
    let conflict = second.has("selector", "shop", "Accepted", "False", "HostnameConflict").await;
    assert!(conflict.message.contains(&host), "{conflict:?}");
    gateway.answers(&host, "/", "one").await;

    first.kubectl(&["delete", "selector", "shop"]).await.unwrap();
    second.has("selector", "shop", "Accepted", "True", "").await;
    gateway.answers(&host, "/", "two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_needs_no_more_than_its_role() {
    let (cluster, gateway) = connect().await;
    let who = format!("system:serviceaccount:{NAMESPACE}:lockgate");
    let may = async |args: &[&str]| {
        // It says no with an exit status as well as with a word.
        let output = cluster.command(&[&["auth", "can-i", "--as", &who], args].concat()).output().await.unwrap();
        String::from_utf8_lossy(&output.stdout).trim() == "yes"
    };
    for allowed in [
        ["list", "routes.lockgate.dev", "-A"].as_slice(),
        &["watch", "endpointslices.discovery.k8s.io", "-A"],
        &["patch", "routes.lockgate.dev", "--subresource=status", "-A"],
        &["create", "leases.coordination.k8s.io", "-n", NAMESPACE],
    ] {
        assert!(may(allowed).await, "{allowed:?}");
    }
    for refused in [
        ["get", "secrets", "-A"].as_slice(),
        &["get", "secrets", "-n", NAMESPACE],
        &["get", "pods", "-A"],
        &["update", "routes.lockgate.dev", "-A"],
        &["patch", "routes.lockgate.dev", "-A"],
        &["patch", "services", "-A"],
        &["delete", "leases.coordination.k8s.io", "-n", NAMESPACE],
        &["create", "leases.coordination.k8s.io", "-n", "default"],
    ] {
        assert!(!may(refused).await, "{refused:?}");
    }
    for pod in gateway.pods().await.unwrap() {
        let pod = cluster.get(&["-n", NAMESPACE, "pod", &pod]).await.unwrap();
        assert_eq!(pod["spec"]["serviceAccountName"], "lockgate");
    }
    // Whatever it asked for so far it was given, but for what the owners of namespaces give or do not.
    let logs = gateway.logs().await.unwrap();
    let is_owners =
        |line: &str| ["\"source\":\"Secret\"", "\"source\":\"ConfigMap\""].iter().any(|of| line.contains(of));
    let forbidden = logs.lines().filter(|line| line.to_lowercase().contains("forbidden") && !is_owners(line));
    let forbidden: Vec<&str> = forbidden.collect();
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    logs.lines().next().context("the gateway logs something").unwrap();
}
