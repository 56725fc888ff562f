//! A release of the chart, by the real Helm, beside the gateway that is installed already.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, repository};
use crate::namespace::Namespace;
use crate::wait::eventually;

/// The name of every release: each has a namespace of its own.
pub const NAME: &str = "edge";
/// The name of its objects.
pub const FULL_NAME: &str = "edge-lockgate";
/// Pods of the gateway and no others.
const PODS: &str = "app.kubernetes.io/name=lockgate,app.kubernetes.io/instance=edge";

/// A release in a namespace of its own, for a class of its own.
#[derive(Debug)]
pub struct Release {
    /// Where it is. Only pods that meet the Pod Security Standard `restricted` are let in.
    pub namespace: Namespace,
    /// Values that every revision has.
    values: Vec<String>,
}

/// The chart of this repository.
pub fn chart() -> PathBuf {
    repository().join("charts/lockgate")
}

impl Release {
    /// A place for a release whose gateway serves Selectors of the class [`Release::class`] alone.
    pub async fn new(cluster: &Cluster, test: &str) -> Self {
        let namespace = Namespace::new(cluster, test).await;
        let label = "pod-security.kubernetes.io/enforce=restricted";
        cluster.kubectl(&["label", "namespace", &namespace.name, label]).await.expect("a label");
        let (repository, tag) = cluster.image.rsplit_once(':').expect("an image with a tag");
        let values = vec![
            format!("image.repository={repository}"),
            format!("image.tag={tag}"),
            format!("config.className={}", namespace.name),
        ];
        Self { namespace, values }
    }

    /// The class of Selectors that it serves.
    pub fn class(&self) -> &str {
        &self.namespace.name
    }

    /// Values that every revision from now on has.
    pub fn set(&mut self, value: &str) {
        self.values.push(value.to_owned());
    }

    /// `helm COMMAND edge`, with a chart and the values where the command takes them.
    pub async fn helm(&self, command: &str, chart: Option<&Path>, args: &[&str]) -> Result<String> {
        let mut words = vec![command, NAME, "--namespace", &self.namespace.name];
        let chart = chart.map(|chart| chart.display().to_string());
        if let Some(chart) = &chart {
            words.push(chart);
            for value in &self.values {
                words.extend(["--set", value]);
            }
        }
        words.extend(args);
        let output = self.namespace.helm_command(&words).output().await.context("start helm")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm {}: {}", words.join(" "), error.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until its pods are those of the newest template, and ready.
    pub async fn rolled_out(&self) {
        self.namespace.rolled_out(FULL_NAME).await;
    }

    /// Gives its Service an address, as a cloud does.
    pub async fn lend(&self, ip: &str) -> String {
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": ip, "ipMode": "VIP"}]}}}).to_string();
        let patch = ["patch", "service", FULL_NAME, "--subresource=status", "--type=merge", "-p", &status];
        self.namespace.kubectl(&patch).await.expect("an address");
        format!("{ip}:80")
    }

    /// Its pods that are not leaving.
    pub async fn pods(&self) -> BTreeSet<String> {
        let list = self.namespace.cluster().get(&["-n", &self.namespace.name, "pods", "-l", PODS]).await.expect("pods");
        let pods = list["items"].as_array().into_iter().flatten();
        let staying = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        staying.filter_map(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned).collect()
    }

    /// Waits until no pod of it is left, not even a leaving one.
    pub async fn gone(&self) {
        eventually("its pods are gone", async || {
            let left = self.namespace.kubectl(&["get", "pods", "-l", PODS, "--no-headers"]).await?;
            ensure!(left.is_empty(), "{left}");
            Ok(())
        })
        .await;
    }

    /// Everything in the cluster that is labelled as this release's.
    pub async fn objects(&self) -> Result<Vec<Value>> {
        let kinds = "deployments,services,configmaps,serviceaccounts,poddisruptionbudgets,horizontalpodautoscalers,\
                     networkpolicies,roles,rolebindings,clusterroles,clusterrolebindings,pods,customresourcedefinitions";
        let label = format!("app.kubernetes.io/instance={NAME},app.kubernetes.io/managed-by=Helm");
        let mut list = self.namespace.cluster().get(&["-A", "-l", &label, kinds]).await?;
        let items = list["items"].take();
        Ok(serde_json::from_value(items)?)
    }
}
