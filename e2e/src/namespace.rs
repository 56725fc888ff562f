//! A namespace for each test, so that tests run side by side.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::wait::eventually;

/// A namespace that goes when the value is dropped, and tells what is in it when the test has failed.
#[derive(Debug)]
pub struct Namespace {
    cluster: Cluster,
    /// Its name, of which no other test and no other run makes the same.
    pub name: String,
}

/// What a condition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence for a person.
    pub message: String,
    /// The generation of the object it speaks of.
    pub observed_generation: i64,
}

impl Namespace {
    /// Makes a namespace named after the test.
    pub async fn new(cluster: &Cluster, test: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        let name = format!("e2e-{test}-{:x}", since.as_micros() & 0xff_ffff_ffff);
        cluster.kubectl(&["create", "namespace", &name]).await.expect("a namespace is made");
        Self { cluster: cluster.clone(), name }
    }

    /// The cluster that it is in.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A hostname of its own.
    pub fn host(&self) -> String {
        format!("{}.example.test", self.name)
    }

    /// `kubectl` in this namespace.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.cluster.kubectl(&[&["-n", &self.name], args].concat()).await
    }

    /// `kubectl apply` of YAML documents.
    pub async fn try_apply(&self, yaml: &str) -> Result<String> {
        self.cluster.kubectl_with(&["-n", &self.name, "apply", "-f", "-"], yaml).await
    }

    /// `kubectl apply` of YAML documents; panics when one is refused.
    pub async fn apply(&self, yaml: &str) {
        self.try_apply(yaml).await.unwrap_or_else(|error| panic!("{error:#}\n{yaml}"));
    }

    /// `kubectl get KIND NAME -o json`.
    pub async fn get(&self, kind: &str, name: &str) -> Result<Value> {
        self.cluster.get(&["-n", &self.name, kind, name]).await
    }

    /// Waits until every replica of a Deployment is there, of the newest template, and ready.
    pub async fn rolled_out(&self, deployment: &str) {
        let args = ["rollout", "status", "--timeout=120s", &format!("deployment/{deployment}")];
        self.kubectl(&args).await.expect("the Deployment is rolled out");
    }

    /// The names of the pods with that `app` label that are not leaving.
    pub async fn pods_of(&self, app: &str) -> BTreeSet<String> {
        let list = self.cluster.get(&["-n", &self.name, "pods", "-l", &format!("app={app}")]).await.expect("pods");
        let pods = list["items"].as_array().into_iter().flatten();
        let staying = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        staying.filter_map(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned).collect()
    }

    /// A condition of a Selector, or of a Route's one Selector.
    pub async fn condition(&self, kind: &str, name: &str, r#type: &str) -> Result<Condition> {
        let object = self.get(kind, name).await?;
        let conditions = match kind {
            "selector" => &object["status"]["conditions"],
            "route" => {
                let selectors = object["status"]["selectors"].as_array().context("no status.selectors")?;
                ensure!(selectors.len() == 1, "{} entries in status.selectors: {}", selectors.len(), object["status"]);
                &selectors[0]["conditions"]
            }
            _ => bail!("no conditions are known of a {kind}"),
        };
        let found = conditions.as_array().and_then(|all| all.iter().find(|condition| condition["type"] == r#type));
        let found = found.with_context(|| format!("{kind} {name} has no {type}: {}", object["status"]))?;
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        Ok(Condition {
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
            observed_generation: found["observedGeneration"].as_i64().unwrap_or_default(),
        })
    }

    /// Waits until a condition of the object's newest generation has this status; `reason` may be empty for any.
    pub async fn has(&self, kind: &str, name: &str, r#type: &str, status: &str, reason: &str) -> Condition {
        eventually(&format!("{kind} {name}: {type}={status} {reason}"), async || {
            let condition = self.condition(kind, name, r#type).await?;
            let generation = self.get(kind, name).await?["metadata"]["generation"].as_i64().unwrap_or_default();
            ensure!(condition.observed_generation == generation, "generation is {generation}: {condition:?}");
            ensure!(condition.status == status, "{condition:?}");
            ensure!(reason.is_empty() || condition.reason == reason, "{condition:?}");
            Ok(condition)
        })
        .await
    }

    fn print(&self, args: &[&str]) {
        let Ok(output) = self.cluster.blocking_command(args).output() else { return };
        println!("--- kubectl {}", args.join(" "));
        println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }

    fn diagnose(&self) {
        let name = self.name.as_str();
        self.print(&["-n", name, "get", "pods,services,endpointslices", "-o", "wide"]);
        self.print(&["-n", name, "get", "selectors,routes", "-o", "yaml"]);
        self.print(&["-n", name, "get", "events"]);
        self.print(&["-n", "lockgate-system", "get", "pods,services,endpointslices,leases", "-o", "wide"]);
        self.print(&[
            "-n",
            "lockgate-system",
            "logs",
            "-l",
            "app.kubernetes.io/name=lockgate",
            "--prefix",
            "--tail=40",
        ]);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.diagnose();
        }
        let name = self.name.as_str();
        let removed = self.cluster.blocking_command(&["delete", "namespace", name, "--wait=false"]).output();
        if let Err(error) = removed {
            println!("namespace {name} is left: {error}");
        }
    }
}

impl Deref for Namespace {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}
