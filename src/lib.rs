//! Lockgate: a Kubernetes ingress gateway in one binary.
//!
//! ```text
//!  watch event ─▶ source::kube ─▶ source::index ─▶ source::translate ─▶ ir::Fragment + Verdicts
//!  file change ─▶ source::file ─▶ (the same index and translation)  ─┘
//!       Fragment ─▶ publish: hold off, merge, compile, ArcSwap<Snapshot> ─▶ proxy: one load per request
//!  EndpointSlice ─▶ source::endpoints ─▶ ArcSwap<EndpointSet> inside the long-lived upstream::Cluster
//!       Verdicts ─▶ source::kube::status (lease holder only)
//! ```

pub mod admin;
pub mod api;
pub mod app;
pub mod check;
pub mod cli;
pub mod descriptors;
pub mod drill;
pub mod explain;
pub mod http1;
pub mod ir;
pub mod lifecycle;
pub mod limiter;
pub mod nearby;
pub mod proxy;
pub mod publish;
pub mod routing;
pub mod settings;
pub mod socket;
pub mod source;
pub mod telemetry;
pub mod upstream;
