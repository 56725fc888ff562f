//! Pods that come and go, and objects that change, under a drill that notices everything.

use std::time::Duration;

use lockgate_e2e::drill::Drill;
use lockgate_e2e::objects::{all, route};
use lockgate_e2e::shop::shop;
use tokio::time::sleep;

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
