//! The table that a gateway with these settings would serve, without one that serves.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::{cluster, translation};
use crate::explain::{Answer, EndpointTold, Endpoints, Gateway, Question, QuestionError, World};
use crate::ir::{ClusterId, EndpointSet, EndpointState, Fragment, Target};
use crate::routing::RouteTable;
use crate::settings::Settings;
use crate::source::file::{self, Problem};
use crate::source::index::Index;
use crate::source::kube::{self as source, ListError};
use crate::source::{translate, unix_time};

/// A table of objects that were read once.
pub struct Offline {
    gateway: Gateway,
    fragment: Arc<Fragment>,
    table: RouteTable<()>,
    endpoints: HashMap<ClusterId, Arc<EndpointSet>>,
    source: String,
    /// What is wrong with manifests.
    pub problems: Vec<Problem>,
}

impl Offline {
    /// Reads manifests as `serve --manifests` does.
    pub fn of_files(dir: &Path, settings: &Settings) -> Self {
        let loaded = file::load(dir);
        let mut index = Index::new(translation(settings, translate::HostBackends::Anywhere));
        index.set_now(unix_time());
        for object in loaded.objects {
            index.apply(object);
        }
        let source = format!("the manifests at {}", dir.display());
        Self { problems: loaded.problems, ..Self::of_index(index, settings, source) }
    }

    /// Lists the objects of a cluster once, as `serve` watches them.
    pub async fn of_cluster(client: kube::Client, settings: &Settings, source: String) -> Result<Self, ListError> {
        let watches = source::Settings {
            namespaces: settings.kubernetes.namespaces.clone(),
            // What is to be explained needs no private keys.
            translate: translate::Settings {
                reads_secrets: false,
                ..translation(settings, cluster::host_backends(settings))
            },
        };
        let objects = source::list(client, &watches.namespaces).await?;
        let mut index = Index::new(watches.translate);
        for object in objects {
            index.apply(object);
        }
        Ok(Self::of_index(index, settings, source))
    }

    fn of_index(mut index: Index, settings: &Settings, source: String) -> Self {
        // The first call always gives a table.
        let (fragment, sets) = index.take_table().unwrap_or_default();
        let gateway = Gateway::from(settings);
        let names: Vec<Arc<str>> = gateway.listeners.iter().map(|listener| Arc::clone(&listener.name)).collect();
        Self {
            table: RouteTable::compile(&names, &fragment.selectors, None, |_, _, _| ()),
            gateway,
            fragment,
            endpoints: sets.into_iter().map(|set| (set.cluster.clone(), set)).collect(),
            source,
            problems: Vec::new(),
        }
    }

    /// Says what would become of a request.
    pub fn answer(&self, question: &Question) -> Result<Answer, QuestionError> {
        let world = World {
            gateway: &self.gateway,
            table: &self.table,
            fragment: Some(&self.fragment),
            endpoints: self,
            source: self.source.clone(),
            generation: None,
        };
        world.answer(question)
    }
}

impl Endpoints for Offline {
    fn of(&self, cluster: &ClusterId) -> Option<Vec<EndpointTold>> {
        if let Some(set) = self.endpoints.get(cluster) {
            // Draining ones are used while there is nothing else, as by the gateway.
            let any_ready = set.endpoints.iter().any(|endpoint| endpoint.state == EndpointState::Ready);
            let one = |endpoint: &crate::ir::Endpoint| {
                let is_ready = endpoint.state == EndpointState::Ready;
                EndpointTold {
                    address: endpoint.addr,
                    takes_requests: is_ready || !any_ready,
                    note: (!is_ready).then(|| "draining".to_owned()),
                }
            };
            return Some(set.endpoints.iter().map(one).collect());
        }
        let at = self.fragment.clusters.binary_search_by(|known| known.id.cmp(cluster)).ok()?;
        match &self.fragment.clusters.get(at)?.target {
            Target::Address(address) => {
                Some(vec![EndpointTold { address: *address, takes_requests: true, note: None }])
            }
            Target::Slices => Some(Vec::new()),
            Target::Dns { .. } => None,
        }
    }
}
