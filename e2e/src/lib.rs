//! Tests of Lockgate on a real Kubernetes cluster, and what they share.
//!
//! `make e2e` brings a cluster up (`cluster/`), the gateway in it as a user would install it, and runs `tests/` inside the cluster's
//! network. `LOCKGATE_E2E_KUBECONFIG` names any other cluster that has the gateway in it; README.md of this folder has the rest.

pub mod api;
pub mod audit;
pub mod cluster;
pub mod drill;
pub mod load;
pub mod namespace;
pub mod objects;
pub mod prometheus;
pub mod release;
pub mod shop;
pub mod system;
pub mod timing;
pub mod tls;
pub mod wait;
pub mod web;
