use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::mock::Call;
use super::*;
use crate::source::Update;
use crate::source::translate::HostBackends;
use crate::source::translate::tests::settings;

/// How many Routes there are, and how many an API server gives at a time.
const ROUTES: usize = 5000;
const PAGE: usize = 500;

fn route(number: usize) -> Value {
    let rules =
        json!([{"matches": [{"path": {"value": format!("/{number}")}}], "backends": [{"service": "s", "port": 80}]}]);
    json!({
        "apiVersion": "lockgate.dev/v1alpha1", "kind": "Route",
        "metadata": {"name": format!("r{number}"), "namespace": "x", "uid": format!("u{number}"), "resourceVersion": "1"},
        "spec": {"selectors": [{"name": "shop"}], "rules": rules},
    })
}

/// A page of Routes, after a while.
async fn page(call: Call) {
    let from =
        call.query.split('&').find_map(|pair| pair.strip_prefix("continue=")).map_or(0, |from| from.parse().unwrap());
    tokio::time::sleep(Duration::from_millis(200)).await;
    let routes: Vec<Value> = (from..from + PAGE).map(route).collect();
    let next = if from + PAGE < ROUTES { (from + PAGE).to_string() } else { String::new() };
    call.page("1", &next, &routes);
}

/// Of a kind that comes in one page.
fn whole(call: Call) {
    let named =
        |spec: Value| json!({"metadata": {"name": "shop", "namespace": "x", "resourceVersion": "1"}, "spec": spec});
    let mut items = Vec::new();
    if call.path.ends_with("/selectors") {
        items.push(named(json!({"hostnames": ["shop.test"]})));
    } else if call.path.ends_with("/services") {
        let mut service = named(json!({"ports": [{"port": 80}]}));
        service["metadata"]["name"] = "s".into();
        items.push(service);
    }
    call.items("1", &items);
}

#[tokio::test(start_paused = true)]
async fn the_first_table_has_all_routes_however_late_they_and_others_come() {
    let (client, mut server) = mock::pair();
    let links = Links { hooks: Arc::new(()), health: Arc::default(), statuses: Arc::default() };
    let settings = Settings { namespaces: Vec::new(), translate: settings(HostBackends::Never) };
    let (updates, mut received) = mpsc::channel(64);
    tokio::spawn(run(client, settings, updates, links));
    tokio::spawn(async move {
        // What is asked for and never answered stays open.
        let mut held = Vec::new();
        loop {
            let call = server.next().await;
            if call.is_watch() {
                held.push(call.stream());
            } else if call.path.ends_with("/routes") {
                tokio::spawn(page(call));
            } else if call.path.ends_with("/endpointslices") {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    whole(call);
                });
            } else {
                whole(call);
            }
        }
    });
    let begun = tokio::time::Instant::now();
    let Some(Update::Table { fragment, .. }) = received.recv().await else { panic!("no table") };
    assert!(begun.elapsed() >= Duration::from_secs(5), "a table before all kinds were there: {:?}", begun.elapsed());
    assert_eq!(fragment.selectors.iter().map(|selector| selector.rules.len()).sum::<usize>(), ROUTES);
    assert!(fragment.verdicts.iter().all(|verdict| verdict.accepted.ok && verdict.resolved_refs.ok));
    // No further event is needed for any of them.
    let more = tokio::time::timeout(Duration::from_mins(1), received.recv()).await;
    assert!(more.is_err(), "{more:?}");
}
