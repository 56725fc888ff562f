//! How long it takes from the change of an `EndpointSlice` to the first answer of the new endpoint. Printed, not asserted.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use http::header;
use lockgate_e2e::cluster::Cluster;
use lockgate_e2e::namespace::Namespace;
use lockgate_e2e::objects::{MANUAL_SERVICE, all, deployment, route_with, selector};
use lockgate_e2e::system::connect;
use lockgate_e2e::web::{Client, request};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::time::{Instant, timeout};

const CHANGES: usize = 200;

/// `kubectl proxy`: the API server without the time that a kubectl takes to start.
async fn api(cluster: &Cluster) -> Result<(Child, Client)> {
    let mut proxy = cluster.command(&["proxy", "--port=0"]).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(proxy.stdout.take().context("no output")?).lines();
    let line = lines.next_line().await?.context("kubectl proxy has ended")?;
    let address = line.rsplit(' ').next().context("no address")?;
    Ok((proxy, Client::new(address)))
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let milliseconds = |percent| percentile(&times, percent).as_secs_f64() * 1e3;
    println!(
        "{what}: median {:.1} ms, p99 {:.1} ms, most {:.1} ms, of {} changes",
        milliseconds(50),
        milliseconds(99),
        milliseconds(100),
        times.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn from_the_event_to_the_endpoint_in_use() {
    let (cluster, gateway) = connect().await;
    let namespace = Namespace::new(&cluster, "lag").await;
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
        deployment(&cluster, "one", 1),
        deployment(&cluster, "two", 1),
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
        pods.push((name, namespace.kubectl(&address).await.unwrap()));
    }
    gateway.answers_status(&host, "/", 503).await;

    let (_proxy, mut api) = api(&cluster).await.unwrap();
    // One connection stays with one replica: it is that replica's time which is measured.
    let mut client = Client::new(&gateway.address);
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices/manual", namespace.name);
    let headers = [(header::CONTENT_TYPE.as_str(), "application/merge-patch+json")];
    let (mut from_request, mut from_answer, mut failed) = (Vec::new(), Vec::new(), 0);
    for change in 0..CHANGES {
        let (name, address) = &pods[change % 2];
        let body = format!(r#"{{"endpoints":[{{"addresses":["{address}"],"conditions":{{"ready":true}}}}]}}"#);
        let sent = Instant::now();
        let answer = api.send(request("PATCH", "localhost", &path, &headers, &body)).await.unwrap();
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
