//! The one task that owns the index: watches put batches in, updates for the publisher come out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::Instant as Time;
use tracing::{info, warn};

use super::watch::Named;
use super::{Links, NAMED, WHOLE};
use crate::ir::ObjectName;
use crate::source::index::{Index, Kind, Object};
use crate::source::translate::prepare::Prepared;
use crate::source::{Update, UpdateSender, unix_time};

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

/// How long the first table waits for objects that are watched by name, once everything else has been listed.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
/// How long a later table waits for them, so that a host whose certificate moves to another Secret is never without.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the time is looked at.
const CLOCK: Duration = Duration::from_mins(1);

/// Takes in batches of `watches`, given by their kinds, and of those of single objects, until there are no more or nobody
/// receives updates.
pub(super) async fn run(
    index: Index,
    watches: Vec<Kind>,
    mut batches: mpsc::Receiver<Batch>,
    updates: UpdateSender,
    (links, named): (Links, Named),
) {
    let mut feed = Feed::new(index, watches, links, named);
    loop {
        let wake = feed.patience.unwrap_or_else(|| Time::now() + CLOCK);
        let received = tokio::select! {
            batch = batches.recv() => match batch {
                Some(batch) => Some(batch),
                None => return,
            },
            () = tokio::time::sleep_until(wake) => None,
        };
        let begun = Instant::now();
        let observed = received.as_ref().map_or(begun, |batch| batch.received);
        if let Some(batch) = received {
            feed.take(batch);
        }
        while begun.elapsed() < SLICE
            && let Ok(batch) = batches.try_recv()
        {
            feed.take(batch);
        }
        feed.index.set_now(unix_time());
        feed.follow();
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
    named: Named,
    /// The watches of single objects that a table waits for.
    awaited: BTreeSet<usize>,
    /// Until when it does.
    patience: Option<Time>,
    links: Links,
    /// What belongs to changes that are not translated yet.
    prepared: Vec<Prepared>,
    /// Whether every kind that is watched as a whole has been listed.
    complete: bool,
    /// Whether the first table has what it waited for.
    settled: bool,
}

impl Feed {
    fn new(index: Index, watches: Vec<Kind>, links: Links, named: Named) -> Self {
        Self {
            index,
            pending: watches.iter().copied().enumerate().collect(),
            watches,
            named,
            awaited: BTreeSet::new(),
            patience: None,
            links,
            prepared: Vec::new(),
            complete: false,
            settled: false,
        }
    }

    fn take(&mut self, batch: Batch) {
        let kind = self.watches.get(batch.watch).copied();
        if kind.is_none() && !self.named.runs(batch.watch) {
            // What a watch said before it was ended.
            return;
        }
        self.prepared.extend(batch.prepared);
        for change in batch.changes {
            match change {
                Change::Apply(object) => self.index.apply(object),
                Change::Delete(kind, name) => self.index.delete(kind, &name),
            }
        }
        if !batch.listed {
            return;
        }
        let Some(kind) = kind else {
            self.awaited.remove(&batch.watch);
            return;
        };
        if self.pending.remove(&(batch.watch, kind)) && !self.pending.iter().any(|(_, pending)| *pending == kind) {
            self.synced(kind);
            self.complete = WHOLE.into_iter().all(|kind| self.links.health.synced(kind));
        }
    }

    fn synced(&self, kind: Kind) {
        self.links.health.set_synced(kind);
        self.links.hooks.synced(kind);
    }

    /// Has the objects watched that the index asks for.
    fn follow(&mut self) {
        let Some(references) = self.index.take_references() else { return };
        let (new, gone) = self.named.follow(&references);
        self.awaited.extend(new);
        self.awaited.retain(|number| self.named.runs(*number));
        for reference in gone {
            self.index.forget(&reference);
        }
    }

    /// Whether a table has to wait for objects that are watched by name.
    fn waits(&mut self) -> bool {
        if !self.awaited.is_empty() {
            let patience = if self.settled { PATIENCE } else { FIRST_PATIENCE };
            let until = *self.patience.get_or_insert_with(|| Time::now() + patience);
            if Time::now() < until {
                return true;
            }
            warn!(watches = self.awaited.len(), "goes on without certificates that the API server does not answer for");
            self.awaited.clear();
        }
        self.patience = None;
        if !std::mem::replace(&mut self.settled, true) {
            for kind in NAMED {
                self.synced(kind);
            }
            info!("every kind of object has been listed");
        }
        false
    }

    /// What has changed for the publisher. The endpoints of Clusters that are served come first: they cannot wait.
    fn give(&mut self, observed: Instant) -> Vec<Update> {
        if !self.complete {
            return Vec::new();
        }
        let endpoints = self.index.take_endpoints().into_iter().map(|set| Update::Endpoints { set, observed });
        let mut updates: Vec<Update> = endpoints.collect();
        if self.waits() {
            return updates;
        }
        if let Some((fragment, endpoints)) = self.index.take_table() {
            updates.push(Update::Table { fragment, endpoints });
        }
        self.prepared.clear();
        updates
    }
}

#[cfg(test)]
mod tests;
