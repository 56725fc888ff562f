//! What one edit costs from the event to the served table: CPU time of the whole process, all threads.
#![allow(clippy::unwrap_used, reason = "a benchmark whose fixture is wrong may panic")]
#![allow(clippy::print_stdout, reason = "its output")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate::api;
use lockgate::publish::{Published, Publisher, TlsSettings};
use lockgate::source::Update;
use lockgate::source::index::{HostBackends, Index, Settings};
use lockgate::telemetry::metrics::{Buckets, Metrics};
use lockgate::upstream::Clusters;
use lockgate_benches::cpu_time;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// How many edits are measured; the mean of them is printed.
const EDITS: u64 = 20;
/// Longer than a publisher waits between two tables; whatever an edit sets off is over by then.
const PAUSE: Duration = Duration::from_millis(400);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("routes   in Selectors of   Route edit ms   EndpointSlice edit ms");
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for (routes, each) in [(1_000, 10), (10_000, 10), (10_000, 10_000), (100_000, 10)] {
        if !wanted.is_empty() && !wanted.contains(&format!("{routes}/{each}")) {
            continue;
        }
        let [route, slice] = runtime.block_on(measure(routes, each));
        println!("{routes:<8} {each:<17} {:<15.2} {:.3}", route.as_secs_f64() * 1e3, slice.as_secs_f64() * 1e3);
    }
}

/// A running publisher and what feeds it.
struct Gateway {
    index: Index,
    updates: mpsc::Sender<Update>,
    published: Arc<Published>,
}

impl Gateway {
    fn start() -> Self {
        let metrics = Metrics::new(2, Buckets::default());
        let names = vec!["http".into()];
        let published = Arc::new(Published::new(&names));
        let clusters = Arc::new(Clusters::new(Arc::clone(&metrics)));
        let tables = Publisher::new(names, TlsSettings::default(), Arc::clone(&published), clusters, metrics);
        let (updates, received) = mpsc::channel(256);
        tokio::spawn(tables.run(received));
        let settings = Settings {
            class_name: "lockgate".into(),
            listeners: Vec::new(),
            host_backends: HostBackends::Never,
            default_certificate: None,
            reads_secrets: true,
        };
        Self { index: Index::new(settings), updates, published }
    }

    /// Sends on what the index has to say.
    async fn tell(&mut self) {
        if let Some((fragment, endpoints)) = self.index.take_table() {
            self.updates.send(Update::Table { fragment, endpoints }).await.unwrap();
        }
        for set in self.index.take_endpoints() {
            self.updates.send(Update::Endpoints { set, observed: Instant::now() }).await.unwrap();
        }
    }

    async fn served(&self, generation: u64) {
        while self.published.generation() < generation {
            sleep(Duration::from_millis(1)).await;
        }
        sleep(PAUSE).await;
    }
}

async fn measure(routes: usize, each: usize) -> [Duration; 2] {
    let mut gateway = Gateway::start();
    let services = routes / 10;
    for number in 0..routes / each {
        gateway.index.apply(selector(number));
    }
    for number in 0..routes {
        gateway.index.apply(route(number, each, services, 1));
    }
    for number in 0..services {
        let service: k8s_openapi::api::core::v1::Service = serde_json::from_value(service(number)).unwrap();
        gateway.index.apply(&service);
        gateway.index.apply(&slice(number, 0));
    }
    gateway.tell().await;
    gateway.served(1).await;

    let start = cpu_time::process();
    sleep(PAUSE).await;
    let idle = since(start);
    let mut route_edit = Duration::ZERO;
    for edit in 0..EDITS {
        let edited = route(routes / 2, each, services, 2 + edit);
        let start = cpu_time::process();
        gateway.index.apply(edited);
        gateway.tell().await;
        gateway.served(2 + edit).await;
        route_edit += since(start).saturating_sub(idle);
    }
    let mut slice_edit = Duration::ZERO;
    for edit in 0..EDITS {
        let edited = slice(services / 2, 1 + edit);
        let start = cpu_time::process();
        gateway.index.apply(&edited);
        gateway.tell().await;
        sleep(PAUSE).await;
        slice_edit += since(start).saturating_sub(idle);
    }
    let edits = u32::try_from(EDITS).unwrap();
    [route_edit / edits, slice_edit / edits]
}

/// CPU time from `start` to now.
fn since(start: Duration) -> Duration {
    cpu_time::process().saturating_sub(start)
}

fn selector(number: usize) -> api::Selector {
    api::Selector::from_value(json!({
        "apiVersion": "lockgate.dev/v1alpha1", "kind": "Selector",
        "metadata": {"name": format!("selector-{number}"), "namespace": "bench"},
        "spec": {"hostnames": [format!("shop-{number}.example.com")]},
    }))
    .unwrap()
}

fn route(number: usize, each: usize, services: usize, weight: u64) -> api::Route {
    api::Route::from_value(json!({
        "apiVersion": "lockgate.dev/v1alpha1", "kind": "Route",
        "metadata": {"name": format!("route-{number}"), "namespace": "bench"},
        "spec": {
            "selectors": [{"name": format!("selector-{}", number / each)}],
            "rules": [{
                "name": "main",
                "matches": [{"path": {"type": "Prefix", "value": format!("/api/v1/service-{number}")}}],
                "backends": [{"service": format!("service-{}", number % services), "port": 80, "weight": weight}],
            }],
        },
    }))
    .unwrap()
}

fn service(number: usize) -> Value {
    json!({
        "metadata": {"name": format!("service-{number}"), "namespace": "bench"},
        "spec": {"ports": [{"name": "http", "port": 80}]},
    })
}

fn slice(number: usize, edit: u64) -> k8s_openapi::api::discovery::v1::EndpointSlice {
    let address = |host: u64| format!("10.{}.{}.{}", number / 256 % 256, number % 256, host);
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("slice-{number}"), "namespace": "bench",
            "labels": {"kubernetes.io/service-name": format!("service-{number}")},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": [address(edit)]}, {"addresses": [address(200)]}],
    }))
    .unwrap()
}
