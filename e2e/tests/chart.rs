//! The chart with the real Helm: install, upgrade, roll back, uninstall under traffic; the rights it gives; what the API server says of what it renders.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockgate_e2e::audit::{asked, granted};
use lockgate_e2e::cluster::{Cluster, repository};
use lockgate_e2e::drill::Drill;
use lockgate_e2e::load::{Connections, Load};
use lockgate_e2e::namespace::Namespace;
use lockgate_e2e::objects::{all, backend, route};
use lockgate_e2e::release::{FULL_NAME, Release, chart};
use lockgate_e2e::system::{NAMESPACE, connect};
use lockgate_e2e::tls::Authority;
use lockgate_e2e::wait::eventually;
use lockgate_e2e::web::Client;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::sleep;

/// One release at a time: they have their definitions in common, and the address of a Service.
static ALONE: Mutex<()> = Mutex::const_new(());
/// That address.
const ADDRESS: &str = "10.0.0.120";
/// Where Kubernetes keeps the fields of a Route's spec.
const FIELDS: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";

/// The chart as an older release may have been: a version before this one, whose definition of Route lacks a field.
struct Older(PathBuf);

impl Older {
    async fn new(name: &str) -> Self {
        let copy = std::env::temp_dir().join(name);
        let copied = tokio::process::Command::new("cp").arg("-r").arg(chart()).arg(&copy).status().await;
        assert!(copied.is_ok_and(|status| status.success()), "a copy of the chart");
        let older = Self(copy);
        older.edit("Chart.yaml", "\nversion: 0.1.0\n", "\nversion: 0.0.9\n");
        let field = "              suspend:\n                default: false\n                description: Takes the Route out of the \
                     table.\n                type: boolean\n";
        older.edit("files/crds/lockgate.dev_routes.yaml", field, "");
        older
    }

    fn edit(&self, file: &str, old: &str, new: &str) {
        let path = self.0.join(file);
        let text = std::fs::read_to_string(&path).expect("a file of the chart");
        assert_eq!(text.matches(old).count(), 1, "{old:?} in {file}");
        std::fs::write(&path, text.replace(old, new)).expect("an edit of the copy");
    }
}

impl Drop for Older {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            println!("{} is left: {error}", self.0.display());
        }
    }
}

/// A Selector of the release's class, with more of its spec behind the hostname.
fn selector(release: &Release, name: &str, host: &str, more: &str) -> String {
    let class = release.class();
    format!(
        "apiVersion: lockgate.dev/v1alpha1\nkind: Selector\nmetadata: {{name: {name}}}\nspec:\n  className: {class}\n  hostnames: \
         ['{host}']\n{more}"
    )
}

/// Waits until 12 answers in a row are those of the backend `one`.
async fn serves(address: &str, host: &str) {
    eventually(&format!("{host} is served at {address}"), async || {
        for _ in 0..12 {
            let answer = Client::one_shot(address).get(host, "/").await?;
            ensure!(answer.backend().as_deref() == Some("one"), "{answer}");
        }
        Ok(())
    })
    .await;
}

/// Whether the cluster's definition of Route has a field.
async fn definition_has(cluster: &Cluster, field: &str) -> bool {
    let definition = cluster.get(&["crd", "routes.lockgate.dev"]).await.expect("the definition");
    definition.pointer(FIELDS).expect("its fields").get(field).is_some()
}

/// The settings in the release's `ConfigMap`.
async fn settings(release: &Release) -> String {
    let map = release.namespace.get("configmap", FULL_NAME).await.expect("the ConfigMap");
    map["data"]["lockgate.yaml"].as_str().expect("lockgate.yaml").to_owned()
}

/// Deletes a pod and returns what it logged to its end.
async fn drained(namespace: &Namespace, pod: &str) -> String {
    let name = namespace.name.as_str();
    let mut follow = namespace.cluster().command(&["-n", name, "logs", "--follow", pod]);
    let follow = follow.stdout(Stdio::piped()).spawn().expect("kubectl logs");
    sleep(Duration::from_secs(1)).await;
    // Returns when the pod has ended.
    namespace.kubectl(&["delete", "pod", pod]).await.expect("deleted");
    let output = follow.wait_with_output().await.expect("its log");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_comes_changes_and_goes_under_traffic() {
    let cluster = Cluster::from_env();
    if !cluster.is_own() {
        return;
    }
    let _alone = ALONE.lock().await;
    let shop = Namespace::new(&cluster, "chart-shop").await;
    let release = Release::new(&cluster, "chart").await;
    let host = shop.host();
    shop.apply(&all(&[
        backend(&cluster, "one", 2),
        selector(&release, "shop", &host, ""),
        route("shop", "shop", "one"),
    ]))
    .await;
    shop.rolled_out("one").await;

    // The definitions are there already, as kubectl made them: a release takes them over.
    let older = Older::new(&shop.name).await;
    release.helm("install", Some(&older.0), &["--take-ownership", "--force-conflicts"]).await.expect("installed");
    release.rolled_out().await;
    assert!(!definition_has(&cluster, "suspend").await, "the older definition is there");
    let address = release.lend(ADDRESS).await;
    serves(&address, &host).await;
    shop.has("route", "shop", "Programmed", "True", "").await;
    let tested = release.helm("test", None, &["--logs"]).await.expect("helm test passes");
    assert!(tested.contains("Succeeded"), "{tested}");

    let drill = Drill::start(&address, &host, "keepalive*4,connection*2,upload,stream=/bytes/100000,h2*2", 200);
    sleep(Duration::from_secs(2)).await;
    let first = release.pods().await;
    release.helm("upgrade", Some(&chart()), &["--set", "config.log.level=debug", "--wait"]).await.expect("upgraded");
    release.rolled_out().await;
    assert!(settings(&release).await.contains("level: debug"));
    let second = release.pods().await;
    assert!(second.is_disjoint(&first), "a change of the settings rolls the pods: {first:?} -> {second:?}");
    assert!(definition_has(&cluster, "suspend").await, "an upgrade brings what is new in the definitions");

    release.helm("rollback", None, &["1", "--wait"]).await.expect("rolled back");
    release.rolled_out().await;
    assert!(!settings(&release).await.contains("level: debug"));
    let third = release.pods().await;
    assert!(third.is_disjoint(&second), "{second:?} -> {third:?}");
    assert!(!definition_has(&cluster, "suspend").await, "the definitions go back as well");
    serves(&address, &host).await;

    release.helm("upgrade", Some(&chart()), &["--wait"]).await.expect("upgraded again");
    release.rolled_out().await;
    let fourth = release.pods().await;
    assert_eq!(fourth, third, "the same settings and the same image: nothing rolls");
    assert!(definition_has(&cluster, "suspend").await);

    // The drain, with the chart's defaults.
    let slow = Load::start(&address, &host, "/delay/3000", 8, Connections::PerRequest);
    slow.more(8).await;
    let log = drained(&release.namespace, fourth.first().expect("a pod")).await;
    let is_end = |line: &Value| line.to_string().contains("\"drained\"");
    let end = log.lines().filter_map(|line| serde_json::from_str(line).ok()).find(is_end);
    let end = end.unwrap_or_else(|| panic!("{log}"));
    println!("{end}");
    assert!(end.to_string().contains("\"forced\":0"), "{end}");
    release.rolled_out().await;
    drill.stop().await.assert_clean(4_000);

    // Whoever has asked is answered.
    slow.more(8).await;
    let (report, uninstalled) = tokio::join!(slow.stop(), release.helm("uninstall", None, &[]));
    uninstalled.expect("uninstalled");
    report.assert_clean(24);
    release.gone().await;
    let left = release.objects().await.expect("what is left");
    let names: Vec<String> =
        left.iter().map(|object| format!("{} {}", object["kind"], object["metadata"]["name"])).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(left.iter().all(|object| object["kind"] == "CustomResourceDefinition"), "{names:?}");
    shop.get("route", "shop").await.expect("objects outlive the release");
}

/// A Secret of kubernetes.io/tls and a `ConfigMap` of authorities, for a Selector to name.
async fn certificates(namespace: &Namespace, host: &str) {
    let pair = Authority::default().issue(host);
    namespace.apply(&pair.secret("shop-tls")).await;
    let authority = pair.pem().replace('\n', "\n    ");
    namespace
        .apply(&format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: clients}}\ndata:\n  ca.crt: |\n    {authority}\n"
        ))
        .await;
}

/// Installs a release and makes use of everything that it may do; then no request was denied, and no right was left unused.
async fn uses_what_it_is_granted(test: &str, values: impl Fn(&Namespace, &Release) -> Vec<String>) {
    let cluster = Cluster::from_env();
    if !cluster.is_own() {
        return;
    }
    let _alone = ALONE.lock().await;
    let grants = repository().join("e2e/testdata/referencegrants.yaml");
    cluster.kubectl(&["apply", "-f", &grants.display().to_string()]).await.expect("the kind ReferenceGrant");
    let shop = Namespace::new(&cluster, &format!("{test}-shop")).await;
    let mut release = Release::new(&cluster, test).await;
    let host = shop.host();
    certificates(&shop, &host).await;
    certificates(&release.namespace, "*.example.test").await;
    for value in values(&shop, &release) {
        release.set(&value);
    }
    release.set("crds.install=false");
    release.set(&format!("config.tls.defaultCertificate.secret={}/shop-tls", release.namespace.name));
    release.helm("install", Some(&chart()), &[]).await.expect("installed");
    release.rolled_out().await;
    let address = release.lend(ADDRESS).await;

    let tls = "  tls: {secretName: shop-tls, clientCertificates: {mode: Optional, caConfigMapName: clients}}\n";
    shop.apply(&all(&[
        backend(&cluster, "one", 1),
        selector(&release, "shop", &host, tls),
        route("shop", "shop", "one"),
    ]))
    .await;
    shop.rolled_out("one").await;
    shop.has("selector", "shop", "ResolvedRefs", "True", "").await;
    shop.has("route", "shop", "Programmed", "True", "").await;
    serves(&address, &host).await;
    eventually("the Selector says where it is reached", async || {
        let status = shop.get("selector", "shop").await?["status"].take();
        ensure!(
            status["addresses"] == serde_json::json!([{"type": "IPAddress", "value": address_of(&address)}]),
            "{status}"
        );
        Ok(())
    })
    .await;
    tells_of_refusals(&shop).await;

    let (namespace, account) = (release.namespace.name.as_str(), FULL_NAME);
    let all = granted(&cluster, namespace, account).await.expect("its rights");
    assert!(all.len() >= 15, "{all:?}");
    eventually("every right is made use of", async || {
        let asked = asked(namespace, account)?;
        assert!(asked.denied.is_empty(), "denied, or let pass by no role of the chart: {:#?}", asked.denied);
        let unused: Vec<_> = all.difference(&asked.used).collect();
        ensure!(unused.is_empty(), "{unused:#?}");
        Ok(())
    })
    .await;
    // A life goes on: watches are resumed, the Lease is renewed and taken over, pods come and go.
    for pod in release.pods().await {
        drained(&release.namespace, &pod).await;
    }
    release.rolled_out().await;
    shop.apply(&route("second", "shop", "one")).await;
    shop.has("route", "second", "Programmed", "True", "").await;
    let asked = asked(namespace, account).expect("the audit log");
    assert!(asked.denied.is_empty(), "{:#?}", asked.denied);
    assert_eq!(asked.used, all);
    println!("{} rights, every one used, no request denied", all.len());
    release.helm("uninstall", None, &[]).await.expect("uninstalled");
    release.gone().await;
}

/// An address without its port.
fn address_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(address, _)| address)
}

/// A Route is refused, mended and refused again, which its Events say, the same one counted up.
async fn tells_of_refusals(shop: &Namespace) {
    for backend in ["nobody", "one", "nobody", "one"] {
        shop.apply(&route("told", "shop", backend)).await;
        let status = if backend == "one" { "True" } else { "False" };
        shop.has("route", "told", "ResolvedRefs", status, "").await;
    }
    eventually("Events say so", async || {
        let list = shop.cluster().get(&["-n", &shop.name, "events.events.k8s.io"]).await?;
        let events = list["items"].as_array().into_iter().flatten();
        let mut told: Vec<String> = events
            .filter(|event| event["regarding"]["name"] == "told" && event["regarding"]["kind"] == "Route")
            .map(|event| format!("{} {} {}", event["type"], event["reason"], event["series"]["count"]))
            .collect();
        told.sort();
        let wanted = [r#""Normal" "ResolvedRefs" 2"#, r#""Warning" "BackendNotFound" 2"#];
        ensure!(told == wanted, "{told:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_whole_cluster_no_request_is_denied_and_no_right_unused() {
    uses_what_it_is_granted("rights", |shop, _| vec![format!("rbac.certificates.namespaces={{{}}}", shop.name)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_some_namespaces_no_request_is_denied_and_no_right_unused() {
    uses_what_it_is_granted("roles", |shop, _| {
        vec![
            format!("config.kubernetes.namespaces={{{}}}", shop.name),
            format!("rbac.certificates.namespaces={{{}}}", shop.name),
        ]
    })
    .await;
}

/// Namespaces that the rendered objects are for.
const PLACES: [&str; 6] = ["gateways", "shop", "billing", "infra", "leases", "monitoring"];
/// Kinds of the Prometheus Operator, which is not in this cluster.
const FOREIGN: &str = "apiVersion: monitoring.coreos.com/";

async fn taken(cluster: &Cluster, file: &Path) -> Result<usize> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let documents: Vec<&str> = text.split("---\n").filter(|document| !document.contains(FOREIGN)).collect();
    let dry = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"];
    cluster.kubectl_with(&dry, &documents.join("---\n")).await.with_context(|| file.display().to_string())?;
    Ok(documents.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_takes_whatever_the_chart_renders() {
    let cluster = Cluster::from_env();
    if !cluster.is_own() {
        return;
    }
    let _alone = ALONE.lock().await;
    for place in PLACES {
        cluster.kubectl(&["create", "namespace", place]).await.expect("a namespace");
    }
    let mut files = 0;
    for entry in std::fs::read_dir(chart().join("ci/golden")).expect("golden files") {
        let path = entry.expect("a file").path();
        let documents = taken(&cluster, &path).await.unwrap_or_else(|error| panic!("{error:#}"));
        assert!(documents > 2, "{}", path.display());
        files += 1;
    }
    println!("{files} sets of objects are taken");
    assert!(files >= 8);
    cluster.kubectl(&[&["delete", "--wait=false", "namespace"], &PLACES[..]].concat()).await.expect("deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_takes_over_what_manifests_installed_and_no_pod_rolls() {
    let (cluster, gateway) = connect().await;
    if !cluster.is_own() {
        return;
    }
    let _alone = ALONE.lock().await;
    let before = gateway.ready(2).await;
    let (repository, tag) = cluster.image.rsplit_once(':').expect("an image with a tag");
    let (chart, repository, tag) = (chart(), format!("image.repository={repository}"), format!("image.tag={tag}"));
    let words = ["upgrade", "--install", "lockgate", &chart.display().to_string(), "--namespace", NAMESPACE];
    let image = ["--set", &repository, "--set", &tag, "--take-ownership", "--force-conflicts", "--wait"];
    let output = cluster.helm_command(&[&words[..], &image[..]].concat()).output().await.expect("helm starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(gateway.ready(2).await, before);
}
