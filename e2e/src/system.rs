//! The gateway's own installation in the cluster.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::cluster::Cluster;
use crate::wait::eventually;
use crate::web::{Answer, Client};

/// The namespace of `manifests/install.yaml`.
pub const NAMESPACE: &str = "lockgate-system";
const PODS: &str = "app.kubernetes.io/name=lockgate";

/// The installed gateway.
#[derive(Debug, Clone)]
pub struct Gateway {
    cluster: Cluster,
    /// `HOST:PORT` of its Service.
    pub address: String,
}

impl Gateway {
    /// The gateway's Service, at `LOCKGATE_E2E_GATEWAY` or at its first address.
    pub async fn find(cluster: &Cluster) -> Self {
        if let Ok(address) = std::env::var("LOCKGATE_E2E_GATEWAY") {
            return Self { cluster: cluster.clone(), address };
        }
        let address = eventually("the gateway's Service has an address", async || {
            let service = cluster.get(&["-n", NAMESPACE, "service", "lockgate"]).await?;
            let first = &service["status"]["loadBalancer"]["ingress"][0];
            let host = first["ip"].as_str().or(first["hostname"].as_str()).context("no address yet")?;
            Ok(format!("{host}:{}", service["spec"]["ports"][0]["port"]))
        })
        .await;
        Self { cluster: cluster.clone(), address }
    }

    /// Where it ends TLS: the same address, at the port of https.
    pub fn secure_address(&self) -> String {
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        std::env::var("LOCKGATE_E2E_GATEWAY_TLS").unwrap_or_else(|_| format!("{host}:443"))
    }

    /// One GET on a connection of its own.
    pub async fn get(&self, host: &str, path: &str) -> Result<Answer> {
        Ok(Client::one_shot(&self.address).get(host, path).await?)
    }

    /// Waits until 12 answers in a row, each on a connection of its own, are as wanted: by then both replicas have given some.
    pub async fn settles(&self, host: &str, path: &str, what: &str, wanted: impl Fn(&Answer) -> bool) {
        eventually(&format!("{host}{path}: {what}"), async || {
            for number in 0..12 {
                let answer = self.get(host, path).await?;
                ensure!(wanted(&answer), "after {number} that were as wanted: {answer}");
            }
            Ok(())
        })
        .await;
    }

    /// Waits until a path is answered by the demo backend of that name.
    pub async fn answers(&self, host: &str, path: &str, backend: &str) {
        let wanted = |answer: &Answer| answer.status == 200 && answer.backend().as_deref() == Some(backend);
        self.settles(host, path, &format!("answered by {backend}"), wanted).await;
    }

    /// Waits until a path is answered with this status.
    pub async fn answers_status(&self, host: &str, path: &str, status: u16) {
        self.settles(host, path, &format!("status {status}"), |answer| answer.status.as_u16() == status).await;
    }

    /// The names of its pods that are ready and not leaving.
    pub async fn pods(&self) -> Result<Vec<String>> {
        let list = self.cluster.get(&["-n", NAMESPACE, "pods", "-l", PODS]).await?;
        let pods = list["items"].as_array().context("a list of pods")?.iter().filter(|pod| {
            let conditions = pod["status"]["conditions"].as_array();
            let ready = conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
            ready && pod["metadata"]["deletionTimestamp"].is_null()
        });
        Ok(pods.filter_map(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned).collect())
    }

    /// Waits until `number` pods are ready and no other is there, and returns their names.
    pub async fn ready(&self, number: usize) -> Vec<String> {
        eventually(&format!("{number} gateway pods, all ready"), async || {
            let list = self.cluster.get(&["-n", NAMESPACE, "pods", "-l", PODS]).await?;
            let there = list["items"].as_array().map_or(0, Vec::len);
            let ready = self.pods().await?;
            ensure!(ready.len() == number && there == number, "{there} pods, of which {ready:?} are ready");
            Ok(ready)
        })
        .await
    }

    /// Replaces every pod, as for a new release, and waits until the new ones are ready.
    pub async fn restart(&self) {
        let rollout = ["-n", NAMESPACE, "rollout"];
        let restart = [&rollout[..], &["restart", "deployment/lockgate"]].concat();
        self.cluster.kubectl(&restart).await.expect("the Deployment has a new template");
        let status = [&rollout[..], &["status", "--timeout=180s", "deployment/lockgate"]].concat();
        self.cluster.kubectl(&status).await.expect("the new pods become ready");
    }

    /// The metrics of a pod: the samples by their name and labels.
    pub async fn metrics(&self, pod: &str) -> Result<BTreeMap<String, f64>> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:8081/proxy/metrics");
        let text = self.cluster.kubectl(&["get", "--raw", &path]).await?;
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        Ok(samples.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
    }

    /// The sum of a pod's samples of that family.
    pub async fn metric(&self, pod: &str, family: &str) -> Result<f64> {
        let all = self.metrics(pod).await?;
        let of_family = |name: &str| name.split('{').next() == Some(family);
        let found: Vec<f64> = all.iter().filter(|(name, _)| of_family(name)).map(|(_, value)| *value).collect();
        ensure!(!found.is_empty(), "pod {pod} has no {family}");
        Ok(found.iter().sum())
    }

    /// The pod that holds the Lease, by the Lease's holder, which begins with the pod's name.
    pub async fn lease_holder(&self) -> Result<String> {
        let leases = self.cluster.get(&["-n", NAMESPACE, "leases"]).await?;
        let leases = leases["items"].as_array().context("a list of leases")?;
        ensure!(leases.len() == 1, "one Lease in {NAMESPACE}, not {}", leases.len());
        let holder = leases[0]["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let pods = self.pods().await?;
        let pod = pods.into_iter().find(|pod| holder.contains(pod.as_str()));
        pod.with_context(|| format!("the Lease's holder {holder:?} is no ready pod"))
    }

    /// What its pods logged.
    pub async fn logs(&self) -> Result<String> {
        self.cluster.kubectl(&["-n", NAMESPACE, "logs", "-l", PODS, "--prefix", "--tail=-1"]).await
    }
}

/// The cluster and the gateway in it.
pub async fn connect() -> (Cluster, Gateway) {
    let cluster = Cluster::from_env();
    let gateway = Gateway::find(&cluster).await;
    (cluster, gateway)
}
