//! Endpoints of backends that are named by a DNS name.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Cluster, Clusters};
use crate::ir;

/// How often a name is looked up again. The system's resolver tells no time to live.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long one look-up may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What a name may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Anything: whoever starts the gateway also wrote the name.
    Any,
    /// Other hosts only: whoever wrote the name must not reach the gateway's own host through it, nor a Service of the
    /// cluster by a name that a search domain completes.
    Outside,
}

impl Trust {
    fn name(self, name: &str) -> String {
        match self {
            Self::Any => name.to_owned(),
            Self::Outside => format!("{}.", name.trim_end_matches('.')),
        }
    }

    fn admits(self, addr: IpAddr) -> bool {
        let is_local = match addr.to_canonical() {
            IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified(),
            IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified(),
        };
        self == Self::Any || !is_local
    }
}

/// Keeps the endpoints of every Cluster with a DNS name up to date, for ever. While a name cannot be resolved its
/// last addresses stay. A change of the Clusters is told through `changed`.
pub async fn resolve(clusters: Arc<Clusters>, trust: Trust, mut changed: tokio::sync::watch::Receiver<u64>) {
    loop {
        let named = clusters.all().into_iter().filter_map(|c| c.name.clone().map(|name| (c, name)));
        let lookups = named.map(|(cluster, (name, port))| look_up(&clusters, cluster, trust, name, port));
        futures::future::join_all(lookups).await;
        if let Ok(Err(_)) = tokio::time::timeout(INTERVAL, changed.changed()).await {
            return;
        }
    }
}

async fn look_up(clusters: &Clusters, cluster: Arc<Cluster>, trust: Trust, name: Arc<str>, port: u16) {
    let found = tokio::time::timeout(TIMEOUT, tokio::net::lookup_host((trust.name(&name), port))).await;
    let mut addrs: Vec<_> = match found {
        Ok(Ok(addrs)) => addrs.filter(|addr| trust.admits(addr.ip())).collect(),
        Ok(Err(error)) => {
            tracing::warn!(cluster = %cluster.id, %error, "the backend's name cannot be resolved");
            return;
        }
        Err(_) => {
            tracing::warn!(cluster = %cluster.id, "resolving the backend's name takes too long");
            return;
        }
    };
    addrs.sort_unstable();
    addrs.dedup();
    let known: Vec<_> = cluster.endpoints().all.iter().map(|e| e.addr).collect();
    if addrs != known && !addrs.is_empty() {
        let endpoints = addrs.into_iter().map(|addr| ir::Endpoint { addr, state: ir::EndpointState::Ready }).collect();
        clusters.update(&ir::EndpointSet { cluster: cluster.id.clone(), endpoints });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_strangers_do_not_lead_to_the_gateways_own_host() {
        for local in
            ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "0.0.0.0", "::"]
        {
            let addr = local.parse().unwrap();
            assert!(!Trust::Outside.admits(addr) && Trust::Any.admits(addr), "{local}");
        }
        assert!(Trust::Outside.admits("10.1.2.3".parse().unwrap()));
        assert_eq!(Trust::Outside.name("db.example.com"), "db.example.com.");
        assert_eq!(Trust::Any.name("localhost"), "localhost");
    }
}
