//! Many objects, and endpoints that change all the time, beside traffic that must not notice.
//!
//! `LOCKGATE_E2E_ROUTES`, `LOCKGATE_E2E_ENDPOINTS` and `LOCKGATE_E2E_CHURN_SECONDS` make it larger; `e2e/long` does.

use std::sync::Arc;
use std::time::Duration;

use lockgate_e2e::api::Api;
use lockgate_e2e::drill::Drill;
use lockgate_e2e::namespace::Namespace;
use lockgate_e2e::objects::selector;
use lockgate_e2e::shop::shop;
use lockgate_e2e::system::Gateway;
use lockgate_e2e::timing::number;
use lockgate_e2e::wait::within;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// Endpoints of a Service, all in one slice.
const ENDPOINTS: u64 = 100;
/// Changes a second.
const CHANGES: u64 = 100;
/// Connections to the API server.
const CLIENTS: u64 = 8;
/// For the objects to be served, on two cores that everything shares.
const PATIENCE: Duration = Duration::from_mins(5);

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_of_many_routes_change_a_hundred_times_a_second_unnoticed() {
    let (_alone, cluster, gateway, shop) = shop("scale").await;
    if !cluster.is_own() {
        return;
    }
    let routes = number("LOCKGATE_E2E_ROUTES", 1000);
    let services = number("LOCKGATE_E2E_ENDPOINTS", 5000) / ENDPOINTS;
    let seconds = number("LOCKGATE_E2E_CHURN_SECONDS", 10);
    let pods = [address_of(&shop, "one").await, address_of(&shop, "two").await];
    let many =
        Many { namespace: Namespace::new(&cluster, "many").await, api: Api::start(&cluster).await.unwrap().into() };
    let begin = Instant::now();
    many.make(routes, services, &pods[0]).await;
    println!("{routes} Routes and {} endpoints were made in {:?}", services * ENDPOINTS, begin.elapsed());
    many.serves(&gateway, "one").await;
    println!("and are served {:?} after that began", begin.elapsed());

    let drill = Drill::start(&gateway.address, &shop.host(), "keepalive*4,connection,h2*2", 300);
    let generations = settled(&gateway).await;
    let begin = Instant::now();
    many.churn(services, seconds).await;
    println!("{} changes of endpoints in {:?}", seconds * CHANGES, begin.elapsed());
    let begin = Instant::now();
    many.point_to(&pods[1]).await;
    many.serves(&gateway, "two").await;
    println!("the last one is served after {:?}", begin.elapsed());
    let found = drill.stop().await;
    found.assert_clean(seconds * 200);
    assert_eq!(self::generations(&gateway).await, generations, "a change of endpoints makes no table");
}

async fn address_of(namespace: &Namespace, app: &str) -> String {
    let label = format!("app={app}");
    let args = ["get", "pods", "-l", &label, "-o", "jsonpath={.items[0].status.podIP}"];
    namespace.kubectl(&args).await.expect("a pod's address")
}

/// The generations of the tables of all pods.
async fn generations(gateway: &Gateway) -> Vec<f64> {
    let mut all = Vec::new();
    for pod in gateway.ready(2).await {
        all.push(gateway.metric(&pod, "lockgate_table_generation").await.expect("a generation"));
    }
    all
}

/// The same once no table is made any more: the last Route that was made need not be the last that is served.
async fn settled(gateway: &Gateway) -> Vec<f64> {
    let mut before = generations(gateway).await;
    loop {
        sleep(Duration::from_secs(1)).await;
        let now = generations(gateway).await;
        if now == before {
            return now;
        }
        before = now;
    }
}

/// Headless Services without selector, whose endpoints nobody ever connects to: only the gateway has work with them.
struct Many {
    namespace: Namespace,
    api: Arc<Api>,
}

impl Many {
    /// Makes as many Routes and Services, and one more of each with an endpoint that is there.
    async fn make(&self, routes: u64, services: u64, pod: &str) {
        self.namespace.apply(&selector("many", &self.namespace.host())).await;
        let mut making = JoinSet::new();
        for client in 0..CLIENTS {
            let (namespace, mut api) = (self.namespace.name.clone(), self.api.client());
            making.spawn(async move {
                let mine = |count: u64| (client..count).step_by(usize::try_from(CLIENTS).expect("few"));
                for number in mine(services) {
                    for (path, object) in service(&namespace, &format!("s{number}"), &endpoints(number, 0)) {
                        let made = api.create(&path, &object).await.expect("an answer");
                        assert_eq!(made.status, 201, "{made}");
                    }
                }
                for number in mine(routes) {
                    let (path, object) = route(&namespace, &format!("r{number}"), &format!("s{}", number % services));
                    let made = api.create(&path, &object).await.expect("an answer");
                    assert_eq!(made.status, 201, "{made}");
                }
            });
        }
        while let Some(made) = making.join_next().await {
            made.expect("objects are made");
        }
        let mut api = self.api.client();
        let last = service(&self.namespace.name, "last", &json!([endpoint(pod)]));
        for (path, object) in last.into_iter().chain([route(&self.namespace.name, "last", "last")]) {
            let made = api.create(&path, &object).await.expect("an answer");
            assert_eq!(made.status, 201, "{made}");
        }
    }

    /// Changes an endpoint of one Service after the other, at an even pace.
    async fn churn(&self, services: u64, seconds: u64) {
        let begin = Instant::now();
        let mut changing = JoinSet::new();
        for client in 0..CLIENTS {
            let (namespace, mut api) = (self.namespace.name.clone(), self.api.client());
            changing.spawn(async move {
                for change in (client..seconds * CHANGES).step_by(usize::try_from(CLIENTS).expect("few")) {
                    sleep_until(begin + Duration::from_millis(change * 1000 / CHANGES)).await;
                    let number = change % services;
                    let path = format!("{}/s{number}", slices(&namespace));
                    let fields = json!({"endpoints": endpoints(number, change / services + 1)});
                    let changed = api.merge(&path, &fields).await.expect("an answer");
                    assert_eq!(changed.status, 200, "{changed}");
                }
            });
        }
        while let Some(changed) = changing.join_next().await {
            changed.expect("endpoints change");
        }
    }

    /// Has the last Route lead elsewhere.
    async fn point_to(&self, pod: &str) {
        let path = format!("{}/last", slices(&self.namespace.name));
        let changed = self.api.client().merge(&path, &json!({"endpoints": [endpoint(pod)]})).await.expect("an answer");
        assert_eq!(changed.status, 200, "{changed}");
    }

    /// Waits until a dozen connections in a row are answered by that backend through the last Route: by then both replicas have
    /// answered.
    async fn serves(&self, gateway: &Gateway, backend: &str) {
        within(PATIENCE, &format!("the last Route leads to {backend}"), async || {
            for _ in 0..12 {
                let answer = gateway.get(&self.namespace.host(), "/last").await?;
                anyhow::ensure!(answer.backend().as_deref() == Some(backend), "{answer}");
            }
            Ok(())
        })
        .await;
    }
}

fn slices(namespace: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
}

fn endpoint(address: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": true}})
}

/// The endpoints of a Service after so many changes, of which each replaces one.
fn endpoints(service: u64, changes: u64) -> Value {
    let all = (0..ENDPOINTS).map(|number| {
        let host = number + if number == changes % ENDPOINTS { ENDPOINTS } else { 0 };
        endpoint(&format!("10.{}.{}.{host}", 100 + service / 250, service % 250))
    });
    all.collect()
}

/// A Service and its slice, each with the list that it belongs to.
fn service(namespace: &str, name: &str, endpoints: &Value) -> [(String, Value); 2] {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
    });
    [(format!("/api/v1/namespaces/{namespace}/services"), service), (slices(namespace), slice)]
}

/// A Route of the path of its name, with the list that it belongs to.
fn route(namespace: &str, name: &str, service: &str) -> (String, Value) {
    let object = json!({
        "apiVersion": "lockgate.dev/v1alpha1", "kind": "Route", "metadata": {"name": name},
        "spec": {
            "selectors": [{"name": "many"}],
            "rules": [{
                "matches": [{"path": {"type": "Prefix", "value": format!("/{name}")}}],
                "backends": [{"service": service, "port": 80}],
            }],
        },
    });
    (format!("/apis/lockgate.dev/v1alpha1/namespaces/{namespace}/routes"), object)
}
