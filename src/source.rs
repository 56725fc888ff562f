//! Sources: where configuration comes from. Each emits [`Update`]s; nothing behind them knows which one runs.

pub mod endpoints;
pub mod file;
pub mod index;
pub mod kube;
pub mod secrets;
pub mod translate;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::ir::{Certificate, EndpointSet, Fragment};

/// What a source tells the publisher, in order.
#[derive(Debug)]
pub enum Update {
    /// A new whole fragment. The first one is sent only after every kind of object has been listed once.
    Table {
        /// The fragment.
        fragment: Arc<Fragment>,
        /// The endpoints of every Cluster in it that the fragment before did not have.
        endpoints: Vec<Arc<EndpointSet>>,
    },
    /// The certificate of hosts that have none of their own, where it comes from files.
    DefaultCertificate(Arc<Certificate>),
    /// The endpoints of a Cluster of the last fragment changed; no new table is needed.
    Endpoints {
        /// The whole new set.
        set: Arc<EndpointSet>,
        /// When the event that caused it was received.
        observed: Instant,
    },
}

/// The channel to the publisher. Bounded: a source waits rather than pile up.
pub type UpdateSender = tokio::sync::mpsc::Sender<Update>;

/// The time in seconds since the epoch.
pub fn unix_time() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
