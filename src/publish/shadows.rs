//! Looks for shadowed matches in tables that are served already.
//!
//! No table waits for this. It runs one table at a time and rests in between, so that it takes a small share of one core
//! however fast tables follow each other; then the newest one is next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::Snapshot;
use crate::ir::{Fragment, Served};
use crate::routing::shadow::{self, Detector};

/// After a search it rests so many times as long as that took, at most [`MAX_REST`].
const REST: u32 = 4;
const MAX_REST: Duration = Duration::from_secs(1);

/// Examines what `tables` shows until that ends.
pub(super) async fn examine(
    mut tables: watch::Receiver<Option<(Arc<Snapshot>, Arc<Fragment>)>>,
    examined: watch::Sender<Option<Arc<Served>>>,
) {
    let mut detector = Detector::default();
    let mut last = Vec::new();
    while tables.changed().await.is_ok() {
        let Some((snapshot, fragment)) = tables.borrow_and_update().clone() else { continue };
        let started = Instant::now();
        let mut used = std::mem::take(&mut detector);
        let search = tokio::task::spawn_blocking(move || {
            let shadowed = shadow::told(&used.update(&snapshot.table));
            // An old snapshot is freed here, never on a worker.
            drop(snapshot);
            (used, shadowed)
        });
        match search.await {
            Ok((used, shadowed)) => {
                detector = used;
                last = shadowed;
            }
            Err(error) => tracing::error!(%error, "the search for shadowed matches failed; the former result stays"),
        }
        let took = started.elapsed();
        tracing::debug!(shadowed = last.len(), ?took, "shadowed matches looked for");
        examined.send_replace(Some(Arc::new(Served { fragment, shadowed: last.clone() })));
        tokio::time::sleep((took * REST).min(MAX_REST)).await;
    }
}
