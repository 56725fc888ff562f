//! Watches of single objects: those Secrets and `ConfigMaps` that Selectors name, and no others.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::{Scope, Watch};
use crate::source::index::Reference;
use crate::source::kube::Links;
use crate::source::kube::feed::Batch;

/// The watches of single objects.
pub(in crate::source::kube) struct Named {
    client: Client,
    /// Weak, lest whoever receives the batches keep them coming.
    batches: mpsc::WeakSender<Batch>,
    links: Links,
    tasks: JoinSet<()>,
    /// The number of the next watch.
    next: usize,
    running: BTreeMap<Reference, Running>,
}

struct Running {
    number: usize,
    task: AbortHandle,
}

impl Named {
    /// None yet; they are numbered from `first` on.
    pub(in crate::source::kube) fn new(
        client: Client,
        batches: &mpsc::Sender<Batch>,
        links: Links,
        first: usize,
    ) -> Self {
        let batches = batches.downgrade();
        Self { client, batches, links, tasks: JoinSet::new(), next: first, running: BTreeMap::new() }
    }

    /// Whether a watch still runs.
    pub(in crate::source::kube) fn runs(&self, number: usize) -> bool {
        self.running.values().any(|running| running.number == number)
    }

    /// Has exactly these objects watched. Gives the numbers of watches that are new, and the objects that are no longer
    /// watched.
    pub(in crate::source::kube) fn follow(&mut self, wanted: &BTreeSet<Reference>) -> (Vec<usize>, Vec<Reference>) {
        while self.tasks.try_join_next().is_some() {}
        let mut gone = Vec::new();
        self.running.retain(|reference, running| {
            let stays = wanted.contains(reference);
            if !stays {
                running.task.abort();
                gone.push(reference.clone());
            }
            stays
        });
        let Some(batches) = self.batches.upgrade() else { return (Vec::new(), gone) };
        let mut new = Vec::new();
        for reference in wanted {
            if self.running.contains_key(reference) {
                continue;
            }
            let number = self.next;
            self.next += 1;
            let task = self.spawn(reference, number, batches.clone());
            self.running.insert(reference.clone(), Running { number, task });
            new.push(number);
        }
        (new, gone)
    }

    fn spawn(&mut self, reference: &Reference, number: usize, batches: mpsc::Sender<Batch>) -> AbortHandle {
        let name = reference.name();
        let scope = Scope { namespace: Some(name.namespace.to_string()), name: Some(name.name.to_string()) };
        match reference {
            Reference::Secret(_) => {
                self.tasks.spawn(Watch::<Secret>::new(number, &self.client, scope, batches, &self.links).run())
            }
            Reference::ConfigMap(_) => {
                self.tasks.spawn(Watch::<ConfigMap>::new(number, &self.client, scope, batches, &self.links).run())
            }
        }
    }
}
