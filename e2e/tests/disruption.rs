//! What happens to traffic when the gateway's own pods or the control plane go. One test at a time: each takes from under the others what they stand on.

use std::time::Duration;

use anyhow::{Context, ensure};
use lockgate_e2e::cluster::Cluster;
use lockgate_e2e::load::{Connections, Load};
use lockgate_e2e::objects::route;
use lockgate_e2e::shop::shop;
use lockgate_e2e::system::NAMESPACE;
use lockgate_e2e::timing::number;
use lockgate_e2e::wait::{eventually, within};
use serde_json::json;
use tokio::time::{Instant, sleep};

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_goes_and_comes_back_is_not_noticed_by_traffic() {
    let (_alone, cluster, gateway, namespace) = shop("api-server").await;
    if !cluster.is_own() {
        return;
    }
    let host = namespace.host();
    let kept = Load::start(&gateway.address, &host, "/", 4, Connections::Kept);
    let each = Load::start(&gateway.address, &host, "/", 4, Connections::PerRequest);
    kept.more(100).await;
    cluster.component(&["stop", "kube-apiserver", "KILL"]).await.unwrap();
    // A time without it, in which watches end, reconnect and back off.
    sleep(Duration::from_secs(number("LOCKGATE_E2E_API_AWAY_SECONDS", 30))).await;
    assert!(cluster.kubectl(&["get", "--raw", "/readyz"]).await.is_err());
    kept.more(100).await;
    cluster.component(&["start", "kube-apiserver"]).await.unwrap();
    eventually("the API server is ready", async || cluster.kubectl(&["get", "--raw", "/readyz"]).await).await;

    eventually("an edit is stored", async || namespace.try_apply(&route("shop", "shop", "two")).await).await;
    let edited = Instant::now();
    gateway.answers(&host, "/", "two").await;
    let served = edited.elapsed();
    println!("an edit after the API server's return is served by both replicas after {served:?}");
    assert!(served < Duration::from_secs(5), "the watches back off for too long: {served:?}");
    namespace.has("route", "shop", "Programmed", "True", "").await;
    kept.more(100).await;
    each.more(100).await;
    let reports = [kept.stop().await, each.stop().await];

    // These back off for up to a minute, in which no other test's pods would move.
    for component in ["kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"] {
        cluster.component(&["stop", component, "KILL"]).await.unwrap();
        cluster.component(&["start", component]).await.unwrap();
    }
    for report in reports {
        report.assert_clean(300);
    }
    // An API server that has just started may refuse what the role allows; the logs of pods that outlived it would accuse the role.
    gateway.restart().await;
    gateway.ready(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_writes_status_and_another_takes_over() {
    let (_alone, cluster, gateway, namespace) = shop("lease").await;
    let family = "lockgate_status_writes_total";
    let pods = gateway.ready(2).await;
    let holder = eventually("a replica holds the Lease", async || gateway.lease_holder().await).await;
    let other = pods.iter().find(|pod| **pod != holder).unwrap();
    namespace.has("route", "shop", "Programmed", "True", "").await;

    // A replica that never wrote may not have the series.
    let writes = async |pod: &str| gateway.metric(pod, family).await.unwrap_or(0.0);
    let before = (writes(&holder).await, writes(other).await);
    namespace.apply(&route("second", "shop", "two")).await;
    namespace.has("route", "second", "Programmed", "True", "").await;
    let after = (writes(&holder).await, writes(other).await);
    println!("status writes of the holder {} -> {}, of the other {} -> {}", before.0, after.0, before.1, after.1);
    assert!(after.0 > before.0, "the holder writes");
    assert!((after.1 - before.1).abs() < f64::EPSILON, "the other one does not");

    let read = namespace.get("route", "second").await.unwrap();
    let fields = read["metadata"]["managedFields"].as_array().unwrap();
    let of_status: Vec<_> = fields.iter().filter(|field| field["subresource"] == "status").collect();
    assert_eq!(of_status.len(), 1, "{of_status:?}");
    assert_eq!(of_status[0]["operation"], "Apply", "{of_status:?}");

    let version = async |kind: &str, name: &str| {
        let object = namespace.get(kind, name).await.unwrap();
        object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
    };
    eventually("what earlier tests left is gone", async || {
        let namespaces = cluster.kubectl(&["get", "namespaces", "--no-headers"]).await?;
        let leaving: Vec<&str> = namespaces.lines().filter(|line| line.contains("Terminating")).collect();
        ensure!(leaving.is_empty(), "{leaving:?}");
        Ok(())
    })
    .await;
    // What they took with them is told of by then or never.
    sleep(Duration::from_secs(2)).await;
    let settled = (version("selector", "shop").await, version("route", "shop").await, version("route", "second").await);
    let written = writes(&holder).await;
    sleep(Duration::from_secs(5)).await;
    let idle = writes(&holder).await - written;
    assert!(idle.abs() < f64::EPSILON, "{idle} status writes though nothing has changed");

    cluster.kubectl(&["-n", NAMESPACE, "delete", "pod", &holder, "--wait=false"]).await.unwrap();
    let next = eventually("another replica holds the Lease", async || {
        let next = gateway.lease_holder().await?;
        ensure!(next != holder, "still {next}");
        Ok(next)
    })
    .await;
    let same = (version("selector", "shop").await, version("route", "shop").await, version("route", "second").await);
    assert_eq!(same, settled, "the new holder finds nothing to write");
    namespace.apply(&route("third", "shop", "two")).await;
    namespace.has("route", "third", "Programmed", "True", "").await;
    println!("the Lease went from {holder} to {next}");
    assert!(writes(&next).await > 0.0);
    eventually("the holder's pod is gone", async || {
        ensure!(!cluster.kubectl(&["-n", NAMESPACE, "get", "pods"]).await?.contains(&holder), "still there");
        Ok(())
    })
    .await;
    gateway.ready(2).await;
}

/// Where a definition keeps the schema of its one version.
const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";

/// A definition that lets every object in, whatever is in it, as that of an older or a newer release may; strict again when this is dropped.
struct Loosened<'a> {
    cluster: &'a Cluster,
    name: &'static str,
    strict: String,
}

impl<'a> Loosened<'a> {
    async fn new(cluster: &'a Cluster, name: &'static str) -> Self {
        let strict = cluster.get(&["crd", name]).await.expect("the definition").pointer(SCHEMA).cloned();
        let patch = |schema| json!([{"op": "replace", "path": SCHEMA, "value": schema}]).to_string();
        let loosened = Self { cluster, name, strict: patch(strict.expect("a schema")) };
        let anything = patch(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
        cluster
            .kubectl(&["patch", "crd", name, "--type=json", "-p", &anything])
            .await
            .expect("the definition is loosened");
        loosened
    }
}

impl Drop for Loosened<'_> {
    fn drop(&mut self) {
        let args = ["patch", "crd", self.name, "--type=json", "-p", &self.strict];
        let patched = self.cluster.blocking_command(&args).output();
        if !patched.as_ref().is_ok_and(|output| output.status.success()) {
            println!("the definition {} lets everything in from now on: {patched:?}", self.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_does_not_decode_touches_no_other() {
    let (_alone, cluster, gateway, namespace) = shop("undecodable").await;
    let host = namespace.host();
    let load = Load::start(&gateway.address, &host, "/", 4, Connections::Kept);
    let nonsense = "apiVersion: lockgate.dev/v1alpha1
kind: Route
metadata: {name: nonsense}
spec: {selectors: 7, rules: [{matches: all, backends: {service: [one]}}]}
";
    namespace.try_apply(nonsense).await.expect_err("the definition refuses it");
    let loosened = Loosened::new(&cluster, "routes.lockgate.dev").await;
    eventually("the loose definition lets it in", async || namespace.try_apply(nonsense).await).await;

    // It comes by a watch event first, then in the lists of new pods.
    namespace.apply(&route("shop", "shop", "two")).await;
    gateway.answers(&host, "/", "two").await;
    gateway.restart().await;
    namespace.apply(&route("shop", "shop", "one")).await;
    gateway.answers(&host, "/", "one").await;
    namespace.has("route", "shop", "Programmed", "True", "").await;
    let logs = gateway.logs().await.unwrap();
    assert!(logs.lines().any(|line| line.contains("nonsense")), "the log names the object");

    namespace.kubectl(&["delete", "route", "nonsense"]).await.unwrap();
    drop(loosened);
    within(Duration::from_mins(1), "the definition refuses it again", async || {
        let dry = ["-n", &namespace.name, "apply", "--dry-run=server", "-f", "-"];
        let accepted = cluster.kubectl_with(&dry, nonsense).await.ok();
        accepted.is_none().then_some(()).context("accepted")
    })
    .await;
    load.stop().await.assert_clean(200);
    gateway.ready(2).await;
}
