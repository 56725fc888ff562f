//! What is in the image of the gateway, seen from a pod that runs it.

use anyhow::Context;
use lockgate_e2e::system::{NAMESPACE, connect};
use lockgate_e2e::wait::eventually;

/// What the image may have. That of a release has link-time optimisation: `make image` holds it to 25 MB.
const MOST: u64 = 40_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn it_is_one_program_with_the_authorities_of_the_system() {
    let (cluster, gateway) = connect().await;
    if !cluster.is_own() {
        return;
    }
    let pod = gateway.ready(2).await[0].clone();
    let exec =
        async |command: &[&str]| cluster.kubectl(&[&["-n", NAMESPACE, "exec", &pod, "--"], command].concat()).await;
    let version = exec(&["/lockgate", "--version"]).await.expect("it tells its version");
    assert!(version.starts_with("lockgate "), "{version}");
    let shell = exec(&["/bin/sh", "-c", "true"]).await.expect_err("there is no shell").to_string();
    assert!(shell.contains("no such file"), "{shell}");

    // By name and over TLS: the client finds an address, and authorities to verify with, and only then the listener has no certificate for it.
    let drill = [
        "/lockgate",
        "drill",
        "--quiet",
        "--traffic",
        "connection",
        "--rate",
        "5",
        "--duration",
        "1s",
        "https://localhost:8443/",
    ];
    let failed = exec(&drill).await.expect_err("no certificate is for localhost").to_string();
    assert!(failed.contains("exit code 1"), "it does not even begin: {failed}");

    let size = eventually("the node tells of the image", async || {
        let nodes = cluster.get(&["nodes"]).await?;
        let images = nodes["items"][0]["status"]["images"].as_array().context("no images")?;
        let is_ours =
            |name: &serde_json::Value| name.as_str().is_some_and(|name| name.ends_with(&format!("/{}", cluster.image)));
        let ours = images.iter().find(|image| image["names"].as_array().into_iter().flatten().any(is_ours));
        ours.and_then(|image| image["sizeBytes"].as_u64()).context("not among them")
    })
    .await;
    println!("the image has {:.1} MB", size as f64 / 1e6);
    assert!(size <= MOST);
}
