//! Backends that die at once on SIGTERM, whatever they were doing.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use lockgate_e2e::drill::Drill;
use lockgate_e2e::objects::{abrupt_backend, all, route};
use lockgate_e2e::shop::shop;
use tokio::time::sleep;

/// Ways to ask for something that may be asked for twice.
const IDEMPOTENT: [&str; 3] = ["keepalive", "connection", "h2"];

#[tokio::test(flavor = "multi_thread")]
async fn backends_that_die_at_once_cost_no_idempotent_request_and_no_post_comes_twice() {
    let (_alone, cluster, gateway, namespace) = shop("abrupt").await;
    if !cluster.is_own() {
        return;
    }
    // Pods write into it who came to them: they are gone when that is asked.
    let record = std::env::temp_dir().join(&namespace.name);
    std::fs::create_dir(&record).unwrap();
    std::fs::set_permissions(&record, std::fs::Permissions::from_mode(0o777)).unwrap();
    let host = namespace.host();
    namespace.apply(&all(&[abrupt_backend(&cluster, "abrupt", 3, &record), route("shop", "shop", "abrupt")])).await;
    namespace.rolled_out("abrupt").await;
    gateway.answers(&host, "/", "abrupt").await;

    let drill = Drill::start(&gateway.address, &host, "keepalive*10,connection*3,h2*6,upload", 400);
    sleep(Duration::from_secs(1)).await;
    for _ in 0..2 {
        namespace.kubectl(&["rollout", "restart", "deployment/abrupt"]).await.expect("a new template");
        namespace.rolled_out("abrupt").await;
    }
    // Whose addresses are used by nobody any more, before the gateway can know.
    let all_but_one = namespace.pods_of("abrupt").await.into_iter().skip(1);
    let delete: Vec<String> =
        ["delete", "pod", "--wait=false"].map(str::to_owned).into_iter().chain(all_but_one).collect();
    namespace.kubectl(&delete.iter().map(String::as_str).collect::<Vec<_>>()).await.expect("pods are deleted");
    sleep(Duration::from_secs(1)).await;
    namespace.rolled_out("abrupt").await;
    sleep(Duration::from_secs(1)).await;
    let found = drill.stop().await;
    found.print();

    for lane in IDEMPOTENT {
        assert_eq!(found.lane(lane, "failed"), 0, "{lane}: {:?}", found.failures().collect::<Vec<_>>());
    }
    // An upload that was under way is answered with 502, never left without an answer.
    let unanswered: u64 = found.kinds().iter().filter(|(kind, _)| *kind != "status").map(|(_, count)| count).sum();
    assert!(unanswered * 1000 <= found.requests(), "{:?}", found.kinds());
    let (begun, twice) = recorded(&record);
    println!("{begun} POSTs came to backends, {} were answered", found.lane("upload", "requests"));
    assert!(begun > 0);
    assert_eq!(twice, HashSet::new(), "the same POST came to two backends");
    std::fs::remove_dir_all(&record).unwrap();
}

/// How many POSTs came to all backends, and the ids of those that came more than once.
fn recorded(directory: &std::path::Path) -> (usize, HashSet<String>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for file in std::fs::read_dir(directory).expect("the directory") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("ids");
        for id in text.lines() {
            *seen.entry(id.to_owned()).or_default() += 1;
        }
    }
    let twice = seen.iter().filter(|(_, count)| **count > 1).map(|(id, _)| id.clone()).collect();
    (seen.values().sum(), twice)
}
