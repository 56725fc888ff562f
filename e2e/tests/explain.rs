//! Decisions that explain themselves, in a cluster: conditions of shadowed Routes, and `explain` from objects and live.

use anyhow::{Context, ensure};
use lockgate_e2e::namespace::Namespace;
use lockgate_e2e::objects::{all, backend, route_with, selector};
use lockgate_e2e::system::{NAMESPACE, connect};
use lockgate_e2e::wait::eventually;
use serde_json::Value;
use tokio::process::Command;

const CART: &str =
    "- {name: cart, matches: [{path: {type: Prefix, value: /cart}}], backends: [{service: one, port: 8080}]}";

#[tokio::test(flavor = "multi_thread")]
async fn a_shadowed_route_says_so_until_it_is_not() {
    let (cluster, gateway) = connect().await;
    let namespace = Namespace::new(&cluster, "shadow").await;
    let host = namespace.host();
    namespace
        .apply(&all(&[backend(&cluster, "one", 1), selector("shop", &host), route_with("a-first", "shop", CART)]))
        .await;
    namespace.rolled_out("one").await;
    gateway.answers(&host, "/cart", "one").await;

    namespace.apply(&route_with("b-second", "shop", CART)).await;
    let shadowed = namespace.has("route", "b-second", "Shadowed", "True", "NeverWins").await;
    assert!(shadowed.message.contains("a-first"), "{shadowed:?}");
    assert!(shadowed.message.contains(&format!("GET http://{host}/cart")), "{shadowed:?}");
    assert!(namespace.condition("route", "a-first", "Shadowed").await.is_err());

    namespace.apply(&route_with("b-second", "shop", &CART.replace("/cart", "/other"))).await;
    eventually("the condition goes with its reason", async || {
        ensure!(namespace.condition("route", "b-second", "Shadowed").await.is_err());
        Ok(())
    })
    .await;
    gateway.answers(&host, "/other", "one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_and_a_live_gateway_explain_alike() {
    let (cluster, gateway) = connect().await;
    let namespace = Namespace::new(&cluster, "explain").await;
    let host = namespace.host();
    namespace
        .apply(&all(&[backend(&cluster, "one", 2), selector("shop", &host), route_with("cart", "shop", CART)]))
        .await;
    namespace.rolled_out("one").await;
    gateway.answers(&host, "/cart/1", "one").await;

    let url = format!("http://{host}/cart/1");
    let question = ["explain", "GET", url.as_str(), "-o", "json"];
    let pod = gateway.pods().await.unwrap().remove(0);
    let live = [&["exec", "-n", NAMESPACE, &pod, "--", "/lockgate"][..], &question, &["--live"]].concat();
    let live: Value = serde_json::from_str(&cluster.kubectl(&live).await.unwrap()).unwrap();
    check(&live, &namespace.name);

    if let Some(binary) = std::env::var_os("LOCKGATE_E2E_BINARY") {
        let output = Command::new(binary).args(question).output().await.context("lockgate explain").unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        let objects: Value = serde_json::from_slice(&output.stdout).unwrap();
        check(&objects, &namespace.name);
        assert_eq!(objects["decision"], live["decision"]);
    }
}

fn check(explained: &Value, namespace: &str) {
    let winner = &explained["decision"]["winner"];
    assert_eq!(winner["selector"], format!("{namespace}/shop"), "{explained}");
    assert_eq!(winner["route"], format!("{namespace}/cart"), "{explained}");
    assert_eq!(winner["rule"], "cart", "{explained}");
    assert_eq!(explained["result"]["kind"], "forward", "{explained}");
    let backend = &explained["action"]["backends"][0];
    assert_eq!(
        (&backend["ready"], &backend["cluster"]),
        (&2.into(), &format!("{namespace}/one:8080").into()),
        "{explained}"
    );
}
