//! The two ports beside the traffic: probes and metrics for the cluster, and what operates or reveals for loopback.
//!
//! Both run on the controller's runtime and share no limit with the traffic. The public port can change nothing and
//! reveals nothing beyond metrics. The operator port listens on loopback, reached by `kubectl port-forward`; a GET never
//! changes anything there, and a browser that was lured to it by a foreign page is refused.

mod guard;
mod listen;
mod operator;
mod page;
mod public;
mod server;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio::net::TcpListener;

pub use self::listen::BindError;

use crate::lifecycle::Lifecycle;
use crate::telemetry::logs::Logs;
use crate::telemetry::metrics::Metrics;

/// What is asked of a page of the operator port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// The query, without its `?`.
    pub query: String,
    /// Whether `Accept` names `text/plain`.
    pub accepts_text: bool,
    /// The body of a POST; `None` for a GET.
    pub body: Option<Bytes>,
}

/// What a page shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// A value.
    Json(Value),
    /// A text for a terminal.
    Text(String),
}

/// Answers a GET on the operator port, or says what is wrong with what is asked. Runs on a thread that may block, and
/// never changes anything.
pub type Handler = Arc<dyn Fn(&Ask) -> Result<Shown, String> + Send + Sync>;

/// A page of the operator port.
#[derive(Clone)]
pub struct Page {
    /// Whether it can be asked by POST, too, for questions that are too long for a target.
    pub takes_body: bool,
    /// Answers.
    pub handler: Handler,
}

/// What the ports show and operate.
#[derive(Clone)]
pub struct Parts {
    /// Probes and drain.
    pub lifecycle: Arc<Lifecycle>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// The log level.
    pub logs: Arc<Logs>,
    /// Further pages of the operator port by name: `routes` answers `/routes`.
    pub pages: BTreeMap<&'static str, Page>,
}

/// Both ports, bound and not yet served.
pub struct Admin {
    public: TcpListener,
    operator: TcpListener,
}

// === impl Admin ===

impl Admin {
    /// Binds both ports; must run inside a runtime. An unspecified IPv6 address takes IPv4 as well, and is IPv4 alone
    /// where there is no IPv6. Fails if a port is in use, and if the operator port is not on loopback.
    pub fn bind(public: SocketAddr, operator: SocketAddr) -> Result<Self, BindError> {
        if !operator.ip().is_loopback() {
            return Err(BindError::NotLoopback { address: operator });
        }
        Ok(Self { public: listen::listen(public)?, operator: listen::listen(operator)? })
    }

    /// Where probes and metrics are.
    pub fn public_addr(&self) -> std::io::Result<SocketAddr> {
        self.public.local_addr()
    }

    /// Where the operator port is.
    pub fn operator_addr(&self) -> std::io::Result<SocketAddr> {
        self.operator.local_addr()
    }

    /// Serves both until it is dropped.
    pub async fn serve(self, parts: Parts) {
        let public = public::Public::new(&parts);
        let operator = operator::Operator::new(parts);
        let public = server::serve(self.public, move |request| public.clone().answer(request));
        let operator = server::serve(self.operator, move |request| operator.clone().answer(request));
        tokio::join!(public, operator);
    }
}
