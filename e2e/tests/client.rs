//! The load client itself: a test that counts no failure is worth as much as its client notices one.

use anyhow::ensure;
use lockgate_e2e::cluster::Cluster;
use lockgate_e2e::load::{Connections, Load};
use lockgate_e2e::namespace::Namespace;
use lockgate_e2e::objects::backend;
use lockgate_e2e::wait::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn the_load_client_sees_what_a_killed_backend_loses() {
    let cluster = Cluster::from_env();
    if !cluster.is_own() {
        return;
    }
    let namespace = Namespace::new(&cluster, "client").await;
    namespace.apply(&backend(&cluster, "one", 1)).await;
    namespace.rolled_out("one").await;
    let pod = namespace.kubectl(&["get", "pods", "-o", "jsonpath={.items[0].status.podIP}"]).await.unwrap();
    let address = format!("{pod}:8080");
    let fine = Load::start(&address, "a", "/", 2, Connections::PerRequest);
    fine.more(50).await;
    let report = fine.stop().await;
    report.assert_clean(50);
    assert!(report.connections >= 50, "{report}");

    let refused = Load::start(&address, "a", "/status/503", 2, Connections::Kept);
    refused.more(20).await;
    let report = refused.stop().await;
    assert!(report.statuses[&503] >= 20 && report.connections == 2, "{report}");

    let kept = Load::start(&address, "a", "/", 2, Connections::Kept);
    let each = Load::start(&address, "a", "/", 2, Connections::PerRequest);
    kept.more(20).await;
    namespace.kubectl(&["delete", "pods", "--all", "--force", "--grace-period=0"]).await.unwrap();
    for load in [kept, each] {
        eventually("a failure is noticed", async || {
            let report = load.so_far();
            ensure!(!report.failures.is_empty(), "{report}");
            Ok(())
        })
        .await;
        let report = load.stop().await;
        println!("{report}");
        assert!(report.statuses[&200] > 0, "{report}");
    }
}
