//! The pages of a running gateway: what it serves this moment, and why.

mod clusters;
mod objects;
mod part;
mod state;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

pub use self::clusters::{ClusterRow, ClustersTold, EndpointRow, EndpointState};
pub use self::objects::{FindingTold, ObjectRow, Objects, ShadowedTold};
pub use self::state::{DrainTold, ListenerTold, SourceRow, State, Traffic};
use super::question::pairs;
use super::routes::{self, Page};
use super::{Answer, EndpointTold, Endpoints, Gateway, Question, World};
use crate::ir::{ClusterId, Fragment, Served};
use crate::lifecycle::Lifecycle;
use crate::publish::{Published, Snapshot};
use crate::telemetry::metrics::Metrics;
use crate::upstream::Clusters;

/// What a running gateway has to explain itself with.
pub struct Live {
    /// Its settings.
    pub gateway: Gateway,
    /// The table that is served.
    pub published: Arc<Published>,
    /// The Clusters with their endpoints.
    pub clusters: Arc<Clusters>,
    /// Its phase.
    pub lifecycle: Arc<Lifecycle>,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// What the table is made of.
    pub served: watch::Receiver<Option<Arc<Fragment>>>,
    /// The same, with what was found in the table afterwards.
    pub examined: watch::Receiver<Option<Arc<Served>>>,
    /// The class that it serves.
    pub class_name: String,
    /// When it started.
    pub started: Instant,
}

impl Live {
    /// What becomes of a request at the table that is served now.
    pub fn answer(&self, question: &Question) -> Result<Answer, String> {
        let snapshot: Arc<Snapshot> = self.published.load();
        let fragment = self.served.borrow().clone();
        let world = World {
            gateway: &self.gateway,
            table: &snapshot.table,
            fragment: fragment.as_deref(),
            endpoints: &*self.clusters,
            source: "the table being served".to_owned(),
            generation: Some(snapshot.generation),
        };
        let mut answer = world.answer(question).map_err(|error| error.to_string())?;
        let phase = self.lifecycle.phase();
        if !phase.serves() {
            answer.notes.push(format!("the gateway is {phase}: it answers every new request with 503"));
        }
        Ok(answer)
    }

    fn uptime_seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// A part of the table that is served now.
    pub fn routes(&self, query: &str) -> Result<Page, String> {
        let snapshot = self.published.load();
        routes::page(&snapshot.table, snapshot.generation, query)
    }
}

/// Whether a query asks for text, JSON or leaves it open.
pub fn wants_text(query: &str, accepts_text: bool) -> Result<bool, String> {
    match pairs(query).find(|(name, _)| name == "o") {
        None => Ok(accepts_text),
        Some((_, form)) => match form.as_str() {
            "text" => Ok(true),
            "json" => Ok(false),
            other => Err(format!("o: {other:?} is neither text nor json")),
        },
    }
}

impl Endpoints for Clusters {
    fn of(&self, cluster: &ClusterId) -> Option<Vec<EndpointTold>> {
        let cluster = self.get(cluster)?;
        let endpoints = cluster.endpoints();
        // A name that is not resolved yet has none, as one that resolves to nothing.
        let one = |endpoint: &Arc<crate::upstream::Endpoint>| {
            let takes_requests = endpoints.usable.iter().any(|usable| usable.uid == endpoint.uid);
            let note = match (takes_requests, endpoint.is_set_aside()) {
                (false, _) => Some("draining"),
                (true, true) => Some("set aside after failed connects"),
                (true, false) => None,
            };
            EndpointTold { address: endpoint.addr, takes_requests, note: note.map(str::to_owned) }
        };
        Some(endpoints.all.iter().map(one).collect())
    }
}
