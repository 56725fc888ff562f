//! The API server without the time that a kubectl takes to start.

use std::process::Stdio;

use anyhow::{Context, Result};
use http::{StatusCode, header};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::cluster::Cluster;
use crate::web::{Answer, Client, request};

/// A `kubectl proxy`, which ends with the value.
#[derive(Debug)]
pub struct Api {
    _proxy: Child,
    address: String,
}

impl Api {
    /// Starts one.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let mut proxy = cluster.command(&["proxy", "--port=0"]).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(proxy.stdout.take().context("no output")?).lines();
        let line = lines.next_line().await?.context("kubectl proxy has ended")?;
        let address = line.rsplit(' ').next().context("no address")?.to_owned();
        Ok(Self { _proxy: proxy, address })
    }

    /// A connection to it.
    pub fn client(&self) -> ApiClient {
        ApiClient(Client::new(&self.address))
    }
}

/// One connection to the API server: one request at a time.
#[derive(Debug)]
pub struct ApiClient(Client);

impl ApiClient {
    /// Makes an object in the list at `path`.
    pub async fn create(&mut self, path: &str, object: &Value) -> Result<Answer> {
        self.send("POST", path, "application/json", object).await
    }

    /// Changes fields of the object at `path`.
    pub async fn merge(&mut self, path: &str, fields: &Value) -> Result<Answer> {
        self.send("PATCH", path, "application/merge-patch+json", fields).await
    }

    /// Evicts a pod, unless its `PodDisruptionBudget` forbids it for now: 201, or 429.
    pub async fn evict(&mut self, namespace: &str, pod: &str) -> Result<StatusCode> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
        let metadata = json!({"name": pod, "namespace": namespace});
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata});
        Ok(self.create(&path, &eviction).await?.status)
    }

    async fn send(&mut self, method: &str, path: &str, content: &str, body: &Value) -> Result<Answer> {
        let headers = [(header::CONTENT_TYPE.as_str(), content)];
        Ok(self.0.send(request(method, "localhost", path, &headers, &body.to_string())).await?)
    }
}
