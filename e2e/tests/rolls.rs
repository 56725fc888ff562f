//! Pods that come and go, and objects that change, under drills that notice everything.
//!
//! `LOCKGATE_E2E_REQUESTS` and `LOCKGATE_E2E_RATE` make the first test longer and harder; `e2e/long` does. By themselves they
//! are what one round of it takes, on two cores that everything shares.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use lockgate_e2e::api::Api;
use lockgate_e2e::cluster::Cluster;
use lockgate_e2e::drill::Drill;
use lockgate_e2e::namespace::Namespace;
use lockgate_e2e::objects::{all, route};
use lockgate_e2e::shop::shop;
use lockgate_e2e::system::{Gateway, NAMESPACE};
use lockgate_e2e::timing::number;
use lockgate_e2e::wait::eventually;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

/// A GET of each kind, uploads, long answers, HTTP/2.
const TRAFFIC: &str = "keepalive*12,connection*4,upload,stream=/bytes/100000,h2*8";
/// Answers that take long, and ones that are long.
const SLOW: &str = "keepalive=/delay/1000*4,stream=/bytes/3000000,h2=/delay/1000*4";
/// Requests a second of [`SLOW`].
const SLOW_RATE: u32 = 18;

/// What every part of the test needs.
struct World {
    cluster: Cluster,
    gateway: Gateway,
    namespace: Namespace,
    api: Api,
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_rolls_and_scales_without_a_failed_request() {
    let (_alone, cluster, gateway, namespace) = shop("rolls").await;
    if !cluster.is_own() {
        return;
    }
    let (wanted, rate) = (number("LOCKGATE_E2E_REQUESTS", 130_000), number("LOCKGATE_E2E_RATE", 1250));
    let api = Api::start(&cluster).await.expect("a way to the API server");
    let world = World { cluster, gateway, namespace, api };
    world.scale("3").await;
    let host = world.namespace.host();
    let rate_outside = u32::try_from(rate / 5).expect("a rate");
    let begin = Instant::now();
    let drill =
        Drill::start(&world.gateway.address, &host, TRAFFIC, u32::try_from(rate).expect("a rate") - rate_outside);
    let outside = Drill::start_outside(&world.gateway.address, &host, TRAFFIC, rate_outside);
    let slow = Drill::start(&world.gateway.address, &host, SLOW, SLOW_RATE);
    // A little more than wanted, for drills take their time to start.
    let end = begin + Duration::from_secs(wanted / rate + 5);
    let mut rounds = 0;
    while rounds == 0 || Instant::now() + begin.elapsed() / 2 < end {
        world.round().await;
        rounds += 1;
        println!("round {rounds} is over after {:?}", begin.elapsed());
    }
    sleep_until(end).await;
    let (found, outside, slow) = (drill.stop().await, outside.stop().await, slow.stop().await);
    found.assert_clean(1);
    outside.assert_clean(1);
    slow.assert_clean(100);
    let requests = found.requests() + outside.requests();
    assert!(requests >= wanted, "only {requests} requests, {wanted} wanted");
}

impl World {
    /// Everything once, one after the other.
    async fn round(&self) {
        let begin = Instant::now();
        let tell = |what: &str| println!("{:>6.1} s: {what}", begin.elapsed().as_secs_f64());
        tell("the gateway rolls, externalTrafficPolicy Cluster");
        self.gateway.restart().await;
        self.gateway.ready(2).await;
        tell("the gateway rolls, externalTrafficPolicy Local");
        self.traffic_policy("Local").await;
        self.gateway.restart().await;
        self.gateway.ready(2).await;
        self.traffic_policy("Cluster").await;
        tell("the gateway rolls while kube-proxy is away");
        self.roll_without_kube_proxy().await;
        tell("the gateway's pods are evicted");
        self.evict_all().await;
        tell("the backend rolls");
        self.namespace.kubectl(&["rollout", "restart", "deployment/one"]).await.expect("a new template");
        self.namespace.rolled_out("one").await;
        tell("the backend scales");
        for replicas in ["1", "5", "3"] {
            self.scale(replicas).await;
            sleep(Duration::from_secs(2)).await;
        }
        tell("pods are deleted at random");
        self.delete_some().await;
        tell("the Route is edited ten times a second");
        self.edit(100).await;
        tell("all is done");
    }

    async fn scale(&self, replicas: &str) {
        let scale = ["scale", "deployment/one", "--replicas", replicas];
        self.namespace.kubectl(&scale).await.expect("another number of pods");
        self.namespace.rolled_out("one").await;
    }

    async fn traffic_policy(&self, policy: &str) {
        let patch = json!({"spec": {"externalTrafficPolicy": policy}}).to_string();
        let args = ["-n", NAMESPACE, "patch", "service", "lockgate", "--type=merge", "-p", &patch];
        self.cluster.kubectl(&args).await.expect("another policy");
    }

    /// Traffic comes to pods that leave for as long as kube-proxy does not know of it.
    async fn roll_without_kube_proxy(&self) {
        let before = self.gateway.ready(2).await;
        let restart = ["-n", NAMESPACE, "rollout", "restart", "deployment/lockgate"];
        self.cluster.kubectl(&restart).await.expect("a new template");
        self.cluster.component(&["stop", "kube-proxy", "KILL"]).await.expect("kube-proxy stops");
        eventually("a pod leaves", async || {
            let there = self.gateway.pods().await?;
            ensure!(before.iter().any(|pod| !there.contains(pod)), "{before:?} are all there");
            Ok(())
        })
        .await;
        sleep(Duration::from_secs(5)).await;
        self.cluster.component(&["start", "kube-proxy"]).await.expect("kube-proxy starts");
        let status = ["-n", NAMESPACE, "rollout", "status", "--timeout=180s", "deployment/lockgate"];
        self.cluster.kubectl(&status).await.expect("the new pods become ready");
        self.gateway.ready(2).await;
    }

    /// Evicts every pod of the gateway: one at a time, for the `PodDisruptionBudget` lets no more go.
    async fn evict_all(&self) {
        let pods = self.gateway.ready(2).await;
        let mut api = self.api.client();
        let evicted = api.evict(NAMESPACE, &pods[0]).await.expect("an answer");
        assert_eq!(evicted, 201, "nothing speaks against the first");
        let refused = api.evict(NAMESPACE, &pods[1]).await.expect("an answer");
        assert_eq!(refused, 429, "the second has to wait for the replacement of the first");
        eventually("the second pod may go", async || {
            let status = api.evict(NAMESPACE, &pods[1]).await?;
            ensure!(status == 201, "{status}");
            Ok(())
        })
        .await;
        self.gateway.ready(2).await;
    }

    /// Deletes pods of the gateway and of the backend, whose replacements are waited for.
    async fn delete_some(&self) {
        for _ in 0..5 {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
            let random = since.subsec_micros() as usize;
            let gateways = self.gateway.ready(2).await;
            let backends: Vec<String> = self.namespace.pods_of("one").await.into_iter().collect();
            let (namespace, pod) = match random % 3 {
                0 => (NAMESPACE, &gateways[random / 3 % gateways.len()]),
                _ => (&*self.namespace.name, &backends[random / 3 % backends.len()]),
            };
            let args = ["-n", namespace, "delete", "pod", pod, "--wait=false"];
            self.cluster.kubectl(&args).await.expect("a pod is deleted");
            sleep(Duration::from_secs(1)).await;
            self.namespace.rolled_out("one").await;
        }
        self.gateway.ready(2).await;
    }

    /// Edits the Route ten times a second: its backend is now one, now the other.
    async fn edit(&self, times: u32) {
        let path = format!("/apis/lockgate.dev/v1alpha1/namespaces/{}/routes/shop", self.namespace.name);
        let mut api = self.api.client();
        let begin = Instant::now();
        for edit in 1..=times {
            let service = ["one", "two"][edit as usize % 2];
            let spec = json!({"spec": {"rules": [{"backends": [{"service": service, "port": 8080}]}]}});
            let answer = api.merge(&path, &spec).await.expect("an answer");
            assert_eq!(answer.status, 200, "{answer}");
            sleep_until(begin + edit * Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_websockets_outlive_every_change_of_objects() {
    let (_alone, cluster, gateway, namespace) = shop("sockets").await;
    if !cluster.is_own() {
        return;
    }
    let api = Api::start(&cluster).await.expect("a way to the API server");
    let drill = Drill::start(&gateway.address, &namespace.host(), "websocket=/ws*100", 1);
    sleep(Duration::from_secs(2)).await;
    let world = World { cluster, gateway, namespace, api };
    world.edit(50).await;
    for round in 0..5 {
        let other = format!("other-{round}");
        world
            .namespace
            .apply(&all(&[route(&other, "shop", "two"), route("shop", "shop", ["two", "one"][round % 2])]))
            .await;
        world.namespace.kubectl(&["delete", "route", &other]).await.expect("deleted");
    }
    world.scale("4").await;
    world.namespace.kubectl(&["delete", "route", "shop"]).await.expect("deleted");
    world.namespace.kubectl(&["delete", "selector", "shop"]).await.expect("deleted");
    sleep(Duration::from_secs(2)).await;
    drill.stop().await.assert_clean(1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_is_scaled_to_nothing_is_refused_at_once_and_comes_back() {
    let (_alone, cluster, gateway, namespace) = shop("nothing").await;
    if !cluster.is_own() {
        return;
    }
    let host = namespace.host();
    let drill = Drill::start(&gateway.address, &host, "keepalive*2,connection,h2", 50);
    sleep(Duration::from_secs(1)).await;
    namespace.kubectl(&["scale", "deployment/one", "--replicas", "0"]).await.expect("no pods");
    gateway.answers_status(&host, "/", 503).await;
    sleep(Duration::from_secs(2)).await;
    namespace.kubectl(&["scale", "deployment/one", "--replicas", "3"]).await.expect("three pods");
    namespace.rolled_out("one").await;
    gateway.answers(&host, "/", "one").await;
    let found = drill.stop().await;
    found.print();
    assert!(found.failed() >= 50, "the Service had no endpoint for two seconds");
    for [traffic, phase, kind, detail] in found.failures() {
        let known = ["503 no-endpoints", "502 connect-failed"].contains(&detail);
        assert!(kind == "status" && known, "{traffic}: {kind} in {phase}: {detail}");
    }
}
