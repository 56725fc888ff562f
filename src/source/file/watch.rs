//! When to look at the files again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Files are read once nothing happened to them for this long: editors and tools write in several steps.
const QUIET: Duration = Duration::from_millis(50);

/// But not later than this after the first change.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often to look where changes are told, for those that are not: of what links lead to, and of what was lost.
const SLOW_POLL: Duration = Duration::from_secs(10);

/// How often to look where changes are not told.
const FAST_POLL: Duration = Duration::from_secs(1);

/// Waits for changes in directories, told by the system where it can, else found by looking again.
pub(super) struct Watch {
    watcher: Option<RecommendedWatcher>,
    wakes: mpsc::Receiver<()>,
    watched: BTreeMap<PathBuf, (u64, u64)>,
    is_complete: bool,
}

impl Watch {
    pub(super) fn new() -> Self {
        // One is enough: it says that there is something to look at, not what.
        let (wake, wakes) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.as_ref().map_or(true, is_change) {
                // A full channel already says it.
                let _ = wake.try_send(());
            }
        });
        let watcher = watcher.inspect_err(|error| {
            tracing::warn!(%error, "changes of manifests are not told by the system; looking every {FAST_POLL:?}");
        });
        Self { watcher: watcher.ok(), wakes, watched: BTreeMap::new(), is_complete: true }
    }

    /// Watches these directories, each by itself, and no others.
    pub(super) fn follow(&mut self, directories: &BTreeMap<PathBuf, (u64, u64)>) {
        let Some(watcher) = &mut self.watcher else { return };
        self.watched.retain(|path, identity| {
            let stays = directories.get(path) == Some(identity);
            if !stays {
                // Fails for one that is gone, whose watch went with it.
                let _ = watcher.unwatch(path);
            }
            stays
        });
        let was_complete = std::mem::replace(&mut self.is_complete, true);
        for (path, identity) in directories {
            if self.watched.contains_key(path) {
                continue;
            }
            match watcher.watch(Path::new(path), RecursiveMode::NonRecursive) {
                Ok(()) => drop(self.watched.insert(path.clone(), *identity)),
                Err(error) => {
                    self.is_complete = false;
                    if was_complete {
                        let path = path.display();
                        tracing::warn!(%path, %error, "not told of changes; looking every {FAST_POLL:?}");
                    }
                }
            }
        }
    }

    /// Waits until it is time to look again; when the first change was told.
    pub(super) async fn changed(&mut self) -> Instant {
        let is_told = self.watcher.is_some() && self.is_complete;
        let poll = if is_told { SLOW_POLL } else { FAST_POLL };
        // Without a watcher the channel is closed, which is no wake.
        let woken = async {
            match self.wakes.recv().await {
                Some(()) => {}
                None => std::future::pending().await,
            }
        };
        if timeout(poll, woken).await.is_err() {
            return Instant::now();
        }
        let observed = Instant::now();
        let settle = async { while let Ok(Some(())) = timeout(QUIET, self.wakes.recv()).await {} };
        // Beyond patience there are always changes: what is half written is read again after the next.
        let _ = timeout(PATIENCE, settle).await;
        observed
    }
}

/// Reading is no change, nor is our own.
const fn is_change(event: &Event) -> bool {
    !matches!(event.kind, EventKind::Access(access) if !matches!(access, AccessKind::Close(AccessMode::Write)))
}
