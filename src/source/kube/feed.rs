//! The one task that owns the index: watches put batches in, updates for the publisher come out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tracing::info;

use super::{KINDS, Links};
use crate::ir::ObjectName;
use crate::source::index::{Index, Kind, Object};
use crate::source::translate::prepare::Prepared;
use crate::source::{Update, UpdateSender};

/// How many batches may wait; then watches stop reading.
const WAITING: usize = 256;
/// How long batches that are ready are taken in before their result is handed out.
const SLICE: Duration = Duration::from_millis(5);

/// What one watch tells the index, to be taken in as a whole.
#[derive(Debug)]
pub(super) struct Batch {
    /// The number of the watch.
    pub(super) watch: usize,
    pub(super) changes: Vec<Change>,
    /// Held until the index has translated the changes.
    pub(super) prepared: Vec<Prepared>,
    /// Whether the watch has listed all of its objects once.
    pub(super) listed: bool,
    pub(super) received: Instant,
}

/// One change.
#[derive(Debug)]
pub(super) enum Change {
    Apply(Object),
    Delete(Kind, ObjectName),
}

pub(super) fn channel() -> (mpsc::Sender<Batch>, mpsc::Receiver<Batch>) {
    mpsc::channel(WAITING)
}

/// Takes in batches of `watches`, given by their kinds, until there are no more or nobody receives updates.
pub(super) async fn run(
    index: Index,
    watches: Vec<Kind>,
    mut batches: mpsc::Receiver<Batch>,
    updates: UpdateSender,
    links: Links,
) {
    let pending = watches.iter().copied().enumerate().collect();
    let mut feed = Feed { index, watches, pending, links, prepared: Vec::new(), complete: false };
    while let Some(batch) = batches.recv().await {
        let begun = Instant::now();
        let observed = batch.received;
        feed.take(batch);
        while begun.elapsed() < SLICE
            && let Ok(batch) = batches.try_recv()
        {
            feed.take(batch);
        }
        for update in feed.give(observed) {
            if updates.send(update).await.is_err() {
                return;
            }
        }
    }
}

struct Feed {
    index: Index,
    watches: Vec<Kind>,
    /// The watches that have not listed yet.
    pending: BTreeSet<(usize, Kind)>,
    links: Links,
    /// What belongs to changes that are not translated yet.
    prepared: Vec<Prepared>,
    /// Whether every kind has been listed.
    complete: bool,
}

impl Feed {
    fn take(&mut self, batch: Batch) {
        self.prepared.extend(batch.prepared);
        for change in batch.changes {
            match change {
                Change::Apply(object) => self.index.apply(object),
                Change::Delete(kind, name) => self.index.delete(kind, &name),
            }
        }
        let Some(&kind) = self.watches.get(batch.watch).filter(|_| batch.listed) else { return };
        if self.pending.remove(&(batch.watch, kind)) && !self.pending.iter().any(|(_, pending)| *pending == kind) {
            self.links.health.set_synced(kind);
            self.links.hooks.synced(kind);
            self.complete = KINDS.into_iter().all(|kind| self.links.health.synced(kind));
            if self.complete {
                info!("every kind of object has been listed");
            }
        }
    }

    /// What has changed for the publisher. The endpoints of Clusters that are served come first: they cannot wait.
    fn give(&mut self, observed: Instant) -> Vec<Update> {
        if !self.complete {
            return Vec::new();
        }
        let endpoints = self.index.take_endpoints().into_iter().map(|set| Update::Endpoints { set, observed });
        let mut updates: Vec<Update> = endpoints.collect();
        if let Some((fragment, endpoints)) = self.index.take_table() {
            updates.push(Update::Table { fragment, endpoints });
        }
        self.prepared.clear();
        updates
    }
}

#[cfg(test)]
mod tests;
