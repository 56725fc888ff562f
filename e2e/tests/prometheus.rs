//! The gateway's metrics as a real Prometheus sees them: the dashboard's queries, the alerts, percentiles beside those of a load generator.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use lockgate_e2e::cluster::Cluster;
use lockgate_e2e::drill::Drill;
use lockgate_e2e::load::{Connections, Load};
use lockgate_e2e::namespace::Namespace;
use lockgate_e2e::objects::{MANUAL_SERVICE, all, backend, route, route_with, selector};
use lockgate_e2e::prometheus::{Prometheus, queries};
use lockgate_e2e::release::chart;
use lockgate_e2e::system::{Gateway, NAMESPACE, connect};
use lockgate_e2e::tls::Authority;
use lockgate_e2e::wait::eventually;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::sleep;

/// Lets the gateway read certificates of a namespace.
const BINDING: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: lockgate-certificates}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lockgate-certificates}
subjects: [{kind: ServiceAccount, name: lockgate, namespace: lockgate-system}]
";

/// Answers that take as long as the middle of a wide bucket, 1 to 2.5 s.
const TRAFFIC: &str = "keepalive=/delay/1200";

/// The gateway's pods by name and address.
async fn addresses(cluster: &Cluster, pods: &[String]) -> Vec<(String, String)> {
    let mut addresses = Vec::new();
    for pod in pods {
        let object = cluster.get(&["-n", NAMESPACE, "pod", pod]).await.expect("a pod");
        addresses.push((pod.clone(), object["status"]["podIP"].as_str().expect("an address").to_owned()));
    }
    addresses
}

/// The alerts that the chart renders, as Prometheus reads them.
async fn rules(cluster: &Cluster) -> String {
    let chart = chart().display().to_string();
    let words = ["template", &chart, "--set", "prometheusRule.enabled=true", "-s", "templates/prometheusrule.yaml"];
    let output = cluster.helm_command(&words).output().await.expect("helm starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, spec) = text.split_once("\nspec:\n").expect("a PrometheusRule");
    let lines: Vec<&str> = spec.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
    lines.join("\n")
}

/// A Service of which one endpoint in two refuses connections.
async fn flaky(namespace: &Namespace) {
    let good = namespace.cluster().get(&["-n", &namespace.name, "pods", "-l", "app=one"]).await.expect("pods");
    let good = good["items"][0]["status"]["podIP"].as_str().expect("an address").to_owned();
    let slice = format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: manual, labels: {{kubernetes.io/service-name: \
         manual}}}}\naddressType: IPv4\nports: [{{name: http, port: 8080}}]\nendpoints: [{{addresses: ['{good}']}}, {{addresses: \
         ['10.244.0.1']}}]\n"
    );
    namespace.apply(&all(&[MANUAL_SERVICE.to_owned(), slice])).await;
}

/// What promtool says of what a pod shows.
async fn lint(cluster: &Cluster, pod: &str) {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:8081/proxy/metrics");
    let metrics = cluster.kubectl(&["get", "--raw", &path]).await.expect("metrics");
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().expect("promtool starts");
    let mut input = child.stdin.take().expect("its input");
    input.write_all(metrics.as_bytes()).await.expect("it reads");
    drop(input);
    let output = child.wait_with_output().await.expect("it ends");
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.trim().is_empty(), "{told}");
}

/// The bounds of a histogram of requests.
async fn bounds(gateway: &Gateway, pod: &str, route: &str) -> Vec<f64> {
    let metrics = gateway.metrics(pod).await.expect("metrics");
    let of_route = metrics.keys().filter(|name| {
        name.starts_with("lockgate_http_request_duration_seconds_bucket{")
            && name.contains(&format!("route=\"{route}\""))
    });
    let bound = |name: &String| name.rsplit("le=\"").next()?.split('"').next()?.parse().ok();
    let mut bounds: Vec<f64> = of_route.filter_map(bound).collect();
    bounds.sort_by(f64::total_cmp);
    bounds
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboard_has_data_and_percentiles_are_right() {
    let (cluster, gateway) = connect().await;
    if !cluster.is_own() {
        return;
    }
    let pods = gateway.ready(2).await;
    let rules = rules(&cluster).await;
    let namespace = Namespace::new(&cluster, "prometheus").await;
    let (host, name) = (namespace.host(), namespace.name.clone());
    let (queue, flake) = (format!("queue.{host}"), format!("flake.{host}"));
    let limited =
        "- limits: {maxInFlight: 1, maxQueued: 100, queueTimeout: 10s}\n  backends: [{service: one, port: 8080}]";
    namespace.apply(&backend(&cluster, "one", 2)).await;
    namespace.apply(&Authority::default().issue(&host).secret("shop-tls")).await;
    namespace.apply(BINDING).await;
    namespace.rolled_out("one").await;
    flaky(&namespace).await;
    let shop = selector("shop", &host) + "  tls: {secretName: shop-tls}\n";
    let selectors = [shop, selector("queue", &queue), selector("flake", &flake)];
    let routes = [
        route("shop", "shop", "one"),
        route_with("queue", "queue", limited),
        route_with("flake", "flake", "- backends: [{service: manual, port: http}]"),
    ];
    namespace.apply(&all(&[&selectors[..], &routes[..]].concat())).await;
    for served in [&host, &queue, &flake] {
        gateway.answers(served, "/", "one").await;
    }

    let prometheus = Prometheus::start(&name, NAMESPACE, &addresses(&cluster, &pods).await, &rules).await;
    let drill = Drill::start(&gateway.address, &host, TRAFFIC, 10);
    let loads = [
        Load::start(&gateway.address, &queue, "/delay/20", 8, Connections::Kept),
        Load::start(&gateway.address, &flake, "/", 2, Connections::PerRequest),
        Load::start(&gateway.address, "nobody.example.test", "/", 1, Connections::Kept),
    ];
    sleep(Duration::from_secs(5)).await;
    // Endpoints that change, a table that is published, a status that is written: all seen by the scrapes.
    namespace.kubectl(&["scale", "deployment/one", "--replicas", "3"]).await.expect("another pod");
    namespace.rolled_out("one").await;
    namespace.apply(&route("later", "shop", "one")).await;
    namespace.has("route", "later", "Programmed", "True", "").await;

    let all = queries(&chart().join("files/dashboard.json"));
    assert!(all.len() >= 25, "{all:?}");
    for (panel, query) in &all {
        eventually(&format!("data of {panel:?}: {query}"), async || {
            let lines = prometheus.ask(query).await?;
            ensure!(lines.iter().any(|line| !line.contains("=> NaN")), "{lines:?}");
            Ok(())
        })
        .await;
    }
    println!("{} queries of the dashboard, every one with data", all.len());
    for recorded in ["lockgate:errors:ratio_rate5m", "lockgate:slow:ratio_rate5m"] {
        eventually(recorded, async || {
            let lines = prometheus.ask(recorded).await?;
            lines.iter().find(|line| line.contains(&format!("{name}/shop"))).cloned().context("nothing yet")
        })
        .await;
    }
    // Every answer of that Route takes longer than a second, and nothing fails.
    let alerts = eventually("an alert for a slow Route", async || {
        let alerts = prometheus.ask("ALERTS{alertstate=\"firing\",severity=\"critical\"}").await?;
        ensure!(alerts.iter().any(|alert| alert.contains(&format!("{name}/shop"))), "{alerts:?}");
        Ok(alerts)
    })
    .await;
    assert!(alerts.iter().all(|alert| alert.contains("LockgateLatencyBudgetBurn")), "{alerts:?}");
    for pod in &pods {
        lint(&cluster, pod).await;
    }

    let found = drill.stop().await;
    for load in loads {
        load.stop().await;
    }
    sleep(Duration::from_secs(3)).await;
    let query = format!(
        "histogram_quantile(0.99, sum by (le) (lockgate_http_request_duration_seconds_bucket{{route=\"{name}/shop\"}}))"
    );
    let (ours, theirs) = (prometheus.value(&query).await.expect("a quantile"), found.p99(TRAFFIC).as_secs_f64());
    let bounds = bounds(&gateway, &pods[0], &format!("{name}/shop")).await;
    let bucket = |seconds: f64| bounds.partition_point(|bound| *bound < seconds);
    println!("p99 by histogram_quantile {ours:.3} s, by the load generator {theirs:.3} s");
    assert!(bounds.len() >= 20 && bucket(ours) == bucket(theirs), "{bounds:?}");
}
