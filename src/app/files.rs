//! A folder of manifests as the gateway's source.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Error, Source, Tables, translation};
use crate::ir::{Fragment, Served, Shadowed, Verdict};
use crate::proxy::Shared;
use crate::settings::Settings;
use crate::source::file::{self, Problem};
use crate::source::{UpdateSender, translate};
use crate::telemetry::metrics::{Metrics, SourceError};

/// The value of the label `source`.
const LABEL: &str = "file";
/// How often a folder that is followed counts as heard of.
const ALIVE: Duration = Duration::from_secs(1);

/// Starts to follow the folder.
pub(super) fn start(
    dir: &Path,
    settings: &Settings,
    shared: &Arc<Shared>,
    updates: UpdateSender,
    tables: Tables,
) -> Result<Source, Error> {
    if !dir.is_dir() {
        return Err(Error::Settings(format!("setting manifests: {} is no folder that can be read", dir.display())));
    }
    let (problems, told) = watch::channel(Arc::default());
    let (dir, settings) = (dir.to_owned(), translation(settings, translate::HostBackends::Anywhere));
    shared.metrics.source(LABEL).set_synced(false);
    tokio::spawn(tell_problems(told, Arc::clone(&shared.metrics)));
    tokio::spawn(tell_verdicts(tables.examined));
    let alive = tokio::spawn(tell_alive(tables.served, Arc::clone(&shared.metrics)));
    tokio::spawn(async move {
        if let Err(error) = file::run(dir, settings, updates, problems).await {
            tracing::error!(%error, "the manifests are no longer followed");
        }
        alive.abort();
    });
    Ok(Source { stop: watch::Sender::new(false), lease: None })
}

/// Logs what is wrong with the manifests whenever it changes, and counts it.
async fn tell_problems(mut told: watch::Receiver<Arc<Vec<Problem>>>, metrics: Arc<Metrics>) {
    let source = metrics.source(LABEL);
    let mut known: Arc<Vec<Problem>> = Arc::default();
    while told.changed().await.is_ok() {
        let now = Arc::clone(&told.borrow_and_update());
        for problem in now.iter().filter(|p| !known.contains(p)) {
            tracing::warn!("{problem}");
            source.error(if problem.object.is_some() { SourceError::Decode } else { SourceError::Io });
        }
        for gone in known.iter().filter(|p| !now.contains(p)) {
            tracing::info!("mended: {gone}");
        }
        known = now;
    }
}

/// Logs what is wrong with objects, where a cluster would show it in their status.
async fn tell_verdicts(mut examined: watch::Receiver<Option<Arc<Served>>>) {
    let mut known = BTreeSet::new();
    while examined.changed().await.is_ok() {
        let Some(served) = examined.borrow_and_update().clone() else { continue };
        let verdicts = served.fragment.verdicts.iter().flat_map(|verdict| complaints(verdict));
        let now: BTreeSet<String> = verdicts.chain(served.shadowed.iter().map(shadow)).collect();
        for complaint in now.difference(&known) {
            tracing::warn!("{complaint}");
        }
        for gone in known.difference(&now) {
            tracing::info!("mended: {gone}");
        }
        known = now;
    }
}

fn complaints(verdict: &Verdict) -> impl Iterator<Item = String> {
    let parent = verdict.parent.as_ref().map(|parent| format!(" at Selector {parent}")).unwrap_or_default();
    let consequence = if verdict.in_table { "" } else { " (it has no place in the table)" };
    let findings = [&verdict.accepted, &verdict.resolved_refs].into_iter();
    findings.filter(|finding| !finding.ok || !finding.message.is_empty()).map(move |finding| {
        format!("{} {}{parent}: {}: {}{consequence}", verdict.kind, verdict.object, finding.reason, finding.message)
    })
}

fn shadow(shadowed: &Shadowed) -> String {
    let parent = shadowed.parent.as_ref().map(|parent| format!(" at Selector {parent}")).unwrap_or_default();
    format!("{} {}{parent}: Shadowed: {}", shadowed.kind, shadowed.object, shadowed.message)
}

/// A folder in which nothing changes is not stale while it is followed.
async fn tell_alive(mut served: watch::Receiver<Option<Arc<Fragment>>>, metrics: Arc<Metrics>) {
    if served.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let source = metrics.source(LABEL);
    source.set_synced(true);
    let mut interval = tokio::time::interval(ALIVE);
    loop {
        interval.tick().await;
        source.heard();
    }
}
