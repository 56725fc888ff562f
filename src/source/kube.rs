//! The API server as a source: watches feed the index, the index feeds the publisher; a Lease decides who writes status.

pub mod addresses;
mod client;
pub mod definitions;
mod feed;
mod guard;
mod health;
pub mod lease;
#[cfg(test)]
mod mock;
pub mod status;
mod tap;
mod watch;

use std::sync::Arc;

use tokio::task::JoinSet;

pub use self::client::client;
pub use self::health::Health;
use self::status::Statuses;
pub use self::watch::{ListError, list};
use super::index::{Index, Kind};
use super::{UpdateSender, translate};
use crate::api;

/// Which objects to watch, and what the table depends on besides them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespaces to watch, with permissions in each of them; empty for all, with permissions in the whole cluster.
    pub namespaces: Vec<String>,
    /// Settings of the translation.
    pub translate: translate::Settings,
}

/// The kinds that are watched as a whole. `ReferenceGrants` need not be installed.
const WHOLE: [Kind; 6] =
    [Kind::Selector, Kind::Route, Kind::Service, Kind::EndpointSlice, Kind::ReferenceGrant, Kind::Namespace];

/// The kinds of which only those objects are watched that Selectors name.
const NAMED: [Kind; 2] = [Kind::Secret, Kind::ConfigMap];

/// All kinds.
pub const KINDS: [Kind; 8] = [
    Kind::Selector,
    Kind::Route,
    Kind::Service,
    Kind::EndpointSlice,
    Kind::ReferenceGrant,
    Kind::Namespace,
    Kind::Secret,
    Kind::ConfigMap,
];

/// The value of the metrics label `source` for a kind.
pub const fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Selector => "Selector",
        Kind::Route => "Route",
        Kind::Service => "Service",
        Kind::EndpointSlice => "EndpointSlice",
        Kind::ReferenceGrant => "ReferenceGrant",
        Kind::Namespace => "Namespace",
        Kind::Secret => "Secret",
        Kind::ConfigMap => "ConfigMap",
    }
}

/// Why a request to the API server failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Failure {
    /// No connection, or one that broke.
    #[error("the API server cannot be reached")]
    Unreachable,
    /// No answer in time.
    #[error("the API server did not answer in time")]
    Timeout,
    /// 401, 403: not logged in or not permitted.
    #[error("the API server does not permit it")]
    Denied,
    /// 404: the kind or the object does not exist.
    #[error("the API server does not know it")]
    Absent,
    /// 409: decided on what is no longer so.
    #[error("the object has changed meanwhile")]
    Conflict,
    /// 410: the position in the history of events is gone.
    #[error("the history of events is gone")]
    Gone,
    /// 429: told to wait.
    #[error("the API server asks for patience")]
    Throttled,
    /// 400, 422: refused as wrong.
    #[error("the API server refuses it as invalid")]
    Invalid,
    /// 5xx and answers that do not decode.
    #[error("the API server failed")]
    Server,
}

impl Failure {
    /// The value of a metrics label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Denied => "denied",
            Self::Absent => "absent",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Throttled => "throttled",
            Self::Invalid => "invalid",
            Self::Server => "server",
        }
    }

    fn of_code(code: u16) -> Self {
        match code {
            401 | 403 => Self::Denied,
            404 => Self::Absent,
            409 => Self::Conflict,
            410 => Self::Gone,
            429 => Self::Throttled,
            400 | 422 => Self::Invalid,
            _ => Self::Server,
        }
    }

    fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_code(status.code),
            kube::Error::Auth(_) => Self::Denied,
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Server,
            kube::Error::Service(error) => error.downcast_ref::<Self>().copied().unwrap_or(Self::Unreachable),
            _ => Self::Unreachable,
        }
    }
}

/// An error with what caused it: the API server's own words, or all that libraries say of a connection.
fn with_causes(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}

/// What became of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    /// It was written.
    Written,
    /// The API server did not take it.
    Failed,
    /// There were too many.
    Dropped,
}

/// What metrics learn of a source. Every method may be called from any task and must not block.
pub trait Hooks: Send + Sync + 'static {
    /// All objects of a kind have been listed once.
    fn synced(&self, source: Kind) {
        let _ = source;
    }

    /// An event of a kind has come.
    fn event(&self, source: Kind) {
        let _ = source;
    }

    /// A list or watch of a kind failed.
    fn error(&self, source: Kind, failure: Failure) {
        let _ = (source, failure);
    }

    /// A status was written, or could not be.
    fn status_write(&self, result: Result<(), Failure>) {
        let _ = result;
    }

    /// So many fields that this gateway reads are unknown to the cluster's definitions.
    fn fields_missing(&self, count: usize) {
        let _ = count;
    }

    /// An Event was written, or will not be.
    fn event_write(&self, outcome: EventOutcome) {
        let _ = outcome;
    }
}

impl Hooks for () {}

/// What a running source shares with the rest of the process.
#[derive(Clone)]
pub struct Links {
    /// Told of everything that happens.
    pub hooks: Arc<dyn Hooks>,
    /// Kept up to date for readiness and metrics.
    pub health: Arc<Health>,
    /// Kept up to date for the status writer.
    pub statuses: Arc<Statuses>,
}

/// Watches everything that makes a table and sends what comes of it, until nobody receives any more.
///
/// The first table is sent once every kind has been listed. Failures never end it: they are logged when they begin,
/// change or end, counted, and tried again. Dropping the future ends the watches.
pub async fn run(client: kube::Client, settings: Settings, updates: UpdateSender, links: Links) {
    let mut tasks = JoinSet::new();
    let (batches, received) = feed::channel();
    let watches = watch::spawn_all(&mut tasks, &client, &settings.namespaces, &batches, &links);
    let named = watch::Named::new(client, &batches, links.clone(), watches.len());
    drop(batches);
    feed::run(Index::new(settings.translate), watches, received, updates, (links, named)).await;
}

/// A class's name among controllers: [`api::CONTROLLER_NAME`], with the class appended unless it is the default one.
/// Also the field manager of its status.
pub fn controller_name(class: &str) -> String {
    if class.is_empty() || class == api::DEFAULT_CLASS {
        api::CONTROLLER_NAME.to_owned()
    } else {
        format!("{}-{class}", api::CONTROLLER_NAME)
    }
}

#[cfg(test)]
mod tests;
