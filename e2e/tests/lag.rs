//! How long it takes from the change of an `EndpointSlice` to the first answer of the new endpoint, and to the last request that a removed one
//! gets. Printed, not asserted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockgate_e2e::api::Api;
use lockgate_e2e::cluster::Cluster;
use lockgate_e2e::namespace::Namespace;
use lockgate_e2e::objects::{MANUAL_SERVICE, all, deployment, route_with, selector};
use lockgate_e2e::system::{Gateway, connect};
use lockgate_e2e::timing::print;
use lockgate_e2e::web::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const CHANGES: usize = 200;
/// Changes at which the last request to a removed endpoint is looked for.
const REMOVALS: usize = 100;
/// Connections that ask all the time: enough for every worker of both replicas.
const CLIENTS: usize = 12;

/// A Service with an `EndpointSlice` of the test's own, and pods to be in it.
struct Manual {
    namespace: Namespace,
    api: Api,
    /// Names and addresses.
    pods: Vec<(&'static str, String)>,
}

impl Manual {
    async fn new(cluster: &Cluster, gateway: &Gateway, test: &str) -> Self {
        let namespace = Namespace::new(cluster, test).await;
        let host = namespace.host();
        let slice = "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: manual
  labels: {kubernetes.io/service-name: manual}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: []
";
        let objects = [
            deployment(cluster, "one", 1),
            deployment(cluster, "two", 1),
            MANUAL_SERVICE.to_owned(),
            slice.to_owned(),
            selector("shop", &host),
            route_with("shop", "shop", "- backends: [{service: manual, port: 80}]"),
        ];
        namespace.apply(&all(&objects)).await;
        let mut pods = Vec::new();
        for name in ["one", "two"] {
            namespace.rolled_out(name).await;
            let label = format!("app={name}");
            let address = ["get", "pods", "-l", &label, "-o", "jsonpath={.items[0].status.podIP}"];
            pods.push((name, namespace.kubectl(&address).await.expect("a pod's address")));
        }
        gateway.answers_status(&host, "/", 503).await;
        let api = Api::start(cluster).await.expect("a way to the API server");
        Self { namespace, api, pods }
    }

    fn path(&self) -> String {
        format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices/manual", self.namespace.name)
    }
}

fn only(address: &str) -> Value {
    json!({"endpoints": [{"addresses": [address], "conditions": {"ready": true}}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn from_the_event_to_the_endpoint_in_use() {
    let (cluster, gateway) = connect().await;
    let manual = Manual::new(&cluster, &gateway, "lag").await;
    let host = manual.namespace.host();
    let mut api = manual.api.client();
    // One connection stays with one replica: it is that replica's time which is measured.
    let mut client = Client::new(&gateway.address);
    let (mut from_request, mut from_answer, mut failed) = (Vec::new(), Vec::new(), 0);
    for change in 0..CHANGES {
        let (name, address) = &manual.pods[change % 2];
        let sent = Instant::now();
        let answer = api.merge(&manual.path(), &only(address)).await.unwrap();
        let answered = Instant::now();
        assert_eq!(answer.status, 200, "{answer}");
        let arrived = timeout(Duration::from_secs(30), async {
            loop {
                let answer = client.get(&host, "/").await.unwrap();
                // Before the first change the Service has no endpoint.
                failed += usize::from(answer.status != 200 && change > 0);
                if answer.backend().as_deref() == Some(name) {
                    break Instant::now();
                }
            }
        });
        let arrived = arrived.await.unwrap_or_else(|_| panic!("change {change} to {name} is not served"));
        from_request.push(arrived - sent);
        from_answer.push(arrived - answered);
    }
    assert_eq!(failed, 0, "requests fail while endpoints change");
    print("EndpointSlice PATCH sent -> endpoint in use", from_request);
    print("EndpointSlice PATCH answered -> endpoint in use", from_answer);
}

/// What the clients of [`CLIENTS`] have seen: of each backend when the last request was sent that it answered, and of each client which
/// backend has answered last.
#[derive(Default)]
struct Seen {
    sent: HashMap<String, Instant>,
    last: HashMap<usize, String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn from_the_event_to_the_last_request_on_a_removed_endpoint() {
    let (cluster, gateway) = connect().await;
    let manual = Manual::new(&cluster, &gateway, "removal").await;
    let host = manual.namespace.host();
    let mut api = manual.api.client();
    api.merge(&manual.path(), &only(&manual.pods[1].1)).await.unwrap();
    gateway.answers(&host, "/", manual.pods[1].0).await;
    let seen = Arc::<Mutex<Seen>>::default();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (seen, host, mut client) = (Arc::clone(&seen), host.clone(), Client::new(&gateway.address));
        clients.spawn(async move {
            loop {
                let sent = Instant::now();
                let answer = client.get(&host, "/").await.expect("an answer");
                let name = answer.backend().unwrap_or_else(|| panic!("{answer}"));
                let mut seen = seen.lock();
                let latest = seen.sent.entry(name.clone()).or_insert(sent);
                *latest = sent.max(*latest);
                seen.last.insert(number, name);
            }
        });
    }
    let mut late = Vec::new();
    for change in 0..REMOVALS {
        let (new, removed) = (&manual.pods[change % 2], manual.pods[(change + 1) % 2].0);
        let begin = Instant::now();
        let answer = api.merge(&manual.path(), &only(&new.1)).await.unwrap();
        assert_eq!(answer.status, 200, "{answer}");
        timeout(Duration::from_secs(30), async {
            let all_new = || {
                let seen = seen.lock();
                seen.last.len() == CLIENTS && seen.last.values().all(|name| name == new.0)
            };
            while !all_new() {
                sleep(Duration::from_millis(2)).await;
            }
            // Long enough for a worker that would still use the removed one.
            sleep(Duration::from_millis(30)).await;
        })
        .await
        .unwrap_or_else(|_| panic!("change {change} to {} is not served", new.0));
        let last = seen.lock().sent.get(removed).copied();
        late.push(last.map_or(Duration::ZERO, |last| last.saturating_duration_since(begin)));
        if let Some(ended) = clients.try_join_next() {
            ended.expect("clients never end");
        }
    }
    clients.shutdown().await;
    print("EndpointSlice PATCH sent -> last request on the removed endpoint", late);
}
