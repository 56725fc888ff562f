//! Clusters with the health of their endpoints, and their traffic.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;

use super::Live;
use super::part::Part;
use crate::upstream::{Cluster, Endpoint, Endpoints};

/// Endpoints of a Cluster that are told one by one.
const MAX_ENDPOINTS: usize = 100;

/// A part of the Clusters.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClustersTold {
    /// Seconds since the gateway's start.
    pub uptime_seconds: f64,
    /// Upper bounds in seconds of the buckets.
    pub bounds: Vec<f64>,
    /// Clusters there are.
    pub total: usize,
    /// Those of which no endpoint, or not every one, takes requests.
    pub troubled: usize,
    /// Clusters that were found.
    pub found: usize,
    /// Clusters found before this part.
    pub offset: usize,
    /// Where the next part begins; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
    /// Clusters by name.
    pub rows: Vec<ClusterRow>,
}

/// A Cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRow {
    /// As in the label `cluster` of metrics.
    pub cluster: String,
    /// The same with protocol and TLS: tells Clusters of one name apart.
    pub id: serde_json::Value,
    /// Why no endpoint takes requests; absent where one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Endpoints that take requests.
    pub ready: usize,
    /// Endpoints, at most a hundred of them.
    pub endpoints: Vec<EndpointRow>,
    /// Endpoints that are not told.
    pub more_endpoints: usize,
    /// Connections that carry a request.
    pub active: u64,
    /// Connections that wait for one.
    pub idle: u64,
    /// Connections that could not be made so far.
    pub connect_failures: u64,
    /// Attempts after the first one so far.
    pub retries: u64,
    /// Requests that may be in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u32>,
    /// Attempts that were answered, by time to the head of the answer: a count per bucket, the last one above all bounds.
    /// Clusters of one name count together.
    pub buckets: Vec<u64>,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointRow {
    /// Where to connect.
    pub address: SocketAddr,
    /// Whether it takes new requests.
    pub state: EndpointState,
    /// Why it does not; empty where it does.
    pub reason: String,
    /// Connections that carry requests.
    pub connections: u32,
    /// Requests that wait for a connection.
    pub waiting: u32,
}

/// Whether an endpoint takes new requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum EndpointState {
    /// It does.
    Ready,
    /// Only where no other can: connects to it failed.
    SetAside,
    /// It finishes those that it has.
    Draining,
}

impl Live {
    /// A part of the Clusters. The query has `q` (words of names or addresses), `state` (`trouble`: those with an endpoint
    /// that takes no requests, or without any), `offset`, `limit`.
    pub fn clusters(&self, query: &str) -> Result<ClustersTold, String> {
        let part = Part::read(query, &[("state", &["all", "trouble"])])?;
        let all: Vec<_> = self.clusters.all().into_iter().map(|c| (c.endpoints(), c)).collect();
        let only = part.get("state") == Some("trouble");
        let wanted = |(endpoints, cluster): &&(Arc<Endpoints>, Arc<Cluster>)| {
            let mut texts = vec![cluster.id.to_string()];
            texts.extend(endpoints.all.iter().map(|endpoint| endpoint.addr.to_string()));
            (!only || is_troubled(endpoints)) && part.found_in(&texts)
        };
        let (shown, found, next) = part.of(all.iter().filter(wanted));
        Ok(ClustersTold {
            uptime_seconds: self.uptime_seconds(),
            bounds: self.metrics.bounds().to_vec(),
            total: all.len(),
            troubled: all.iter().filter(|(endpoints, _)| is_troubled(endpoints)).count(),
            found,
            offset: part.offset,
            next,
            rows: shown.into_iter().map(|(endpoints, cluster)| told(cluster, endpoints)).collect(),
        })
    }
}

fn is_troubled(endpoints: &Endpoints) -> bool {
    endpoints.usable.is_empty()
        || endpoints.all.iter().any(|endpoint| state(endpoint, endpoints) != EndpointState::Ready)
}

fn state(endpoint: &Endpoint, endpoints: &Endpoints) -> EndpointState {
    if endpoints.usable.iter().all(|usable| usable.uid != endpoint.uid) {
        EndpointState::Draining
    } else if endpoint.is_set_aside() {
        EndpointState::SetAside
    } else {
        EndpointState::Ready
    }
}

fn told(cluster: &Cluster, endpoints: &Endpoints) -> ClusterRow {
    let totals = cluster.metrics.totals();
    let is_ready = |endpoint: &&Arc<Endpoint>| state(endpoint, endpoints) == EndpointState::Ready;
    let reason = match (&cluster.name, endpoints.usable.is_empty(), endpoints.all.is_empty()) {
        (Some((name, _)), true, true) => Some(format!("{name} is not resolved, or resolves to no address")),
        (None, true, true) => Some("the Service has no endpoint that is ready".to_owned()),
        (_, true, false) => Some("every endpoint is draining".to_owned()),
        (_, false, _) => None,
    };
    ClusterRow {
        cluster: cluster.id.to_string(),
        id: serde_json::to_value(&cluster.id).unwrap_or_default(),
        reason,
        ready: endpoints.all.iter().filter(is_ready).count(),
        endpoints: endpoints.all.iter().take(MAX_ENDPOINTS).map(|one| endpoint(one, endpoints)).collect(),
        more_endpoints: endpoints.all.len().saturating_sub(MAX_ENDPOINTS),
        active: totals.active,
        idle: totals.idle,
        connect_failures: totals.connect_failures,
        retries: totals.retries,
        max_requests: cluster.max_requests(),
        buckets: totals.buckets,
    }
}

fn endpoint(endpoint: &Endpoint, endpoints: &Endpoints) -> EndpointRow {
    let state = state(endpoint, endpoints);
    let reason = match state {
        EndpointState::Ready => String::new(),
        EndpointState::Draining => "finishes what it has, takes nothing new".to_owned(),
        EndpointState::SetAside => {
            let (failures, left) = (endpoint.connect_failures(), endpoint.set_aside_for().as_secs_f64());
            let failed = if failures == 1 { "a connect".to_owned() } else { format!("{failures} connects in a row") };
            format!("{failed} failed; used only where no other is left, for {left:.1} s more")
        }
    };
    EndpointRow {
        address: endpoint.addr,
        state,
        reason,
        connections: endpoint.connections.load(Relaxed),
        waiting: endpoint.waiters.load(Relaxed),
    }
}
