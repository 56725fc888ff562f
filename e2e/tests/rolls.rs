//! Pods that come and go, and objects that change, under a drill that notices everything.

use std::time::Duration;

use lockgate_e2e::cluster::Cluster;
use lockgate_e2e::drill::Drill;
use lockgate_e2e::namespace::Namespace;
use lockgate_e2e::objects::{all, backend, route, selector};
use lockgate_e2e::system::{Gateway, connect};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;

/// One test at a time: the gateway's own pods go.
static ALONE: Mutex<()> = Mutex::const_new(());

async fn shop(test: &str) -> (MutexGuard<'static, ()>, Cluster, Gateway, Namespace) {
    let alone = ALONE.lock().await;
    let (cluster, gateway) = connect().await;
    gateway.ready(2).await;
    let namespace = Namespace::new(&cluster, test).await;
    let host = namespace.host();
    let objects = [
        backend(&cluster, "one", 2),
        backend(&cluster, "two", 1),
        selector("shop", &host),
        route("shop", "shop", "one"),
    ];
    namespace.apply(&all(&objects)).await;
    namespace.rolled_out("one").await;
    namespace.rolled_out("two").await;
    gateway.answers(&host, "/", "one").await;
    (alone, cluster, gateway, namespace)
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_and_backends_roll_and_scale_without_a_failed_request() {
    let (_alone, cluster, gateway, namespace) = shop("rolls").await;
    if !cluster.is_own() {
        return;
    }
    let traffic = "keepalive*6,connection*3,upload,stream=/bytes/100000,h2*4";
    let drill = Drill::start(&gateway.address, &namespace.host(), traffic, 400);
    sleep(Duration::from_secs(2)).await;
    gateway.restart().await;
    gateway.ready(2).await;
    namespace.kubectl(&["rollout", "restart", "deployment/one"]).await.expect("a new template");
    namespace.rolled_out("one").await;
    for replicas in ["4", "1", "2"] {
        namespace.kubectl(&["scale", "deployment/one", "--replicas", replicas]).await.expect("another number of pods");
        namespace.rolled_out("one").await;
        sleep(Duration::from_secs(2)).await;
    }
    drill.stop().await.assert_clean(8_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_websockets_outlive_every_change_of_objects() {
    let (_alone, cluster, gateway, namespace) = shop("sockets").await;
    if !cluster.is_own() {
        return;
    }
    let drill = Drill::start(&gateway.address, &namespace.host(), "websocket=/ws*20", 1);
    sleep(Duration::from_secs(2)).await;
    for round in 0..10 {
        let other = format!("other-{round}");
        namespace.apply(&all(&[route(&other, "shop", "two"), route("shop", "shop", ["two", "one"][round % 2])])).await;
        namespace.kubectl(&["delete", "route", &other]).await.expect("deleted");
    }
    namespace.kubectl(&["scale", "deployment/one", "--replicas", "4"]).await.expect("more pods");
    namespace.rolled_out("one").await;
    sleep(Duration::from_secs(3)).await;
    drill.stop().await.assert_clean(200);
}
