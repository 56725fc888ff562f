//! A directory of manifests as a source.
//!
//! Every `*.yaml`, `*.yml` and `*.json` below the directory is read, documents and `List`s taken apart. What is wrong is
//! told with file, line, object and field, and costs as little as it can:
//! - An object that is wrong has a verdict and no place, as one that a cluster does not decode. There is no last-good
//!   version of an object.
//! - A file that cannot be read or is no YAML says nothing about its objects, for it may be half written: those that it
//!   declared last stay until it can be read again. Where a file is replaced by renaming, that never happens.
//! - Of an object that is declared twice, the first one counts, in the order of paths and then of documents.

mod decode;
mod locate;
mod manifests;
mod scan;
mod store;
mod watch;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch as channel;

use crate::ir::ObjectName;

use super::index::{Index, Kind, Object, Settings};
use super::{Update, UpdateSender, unix_time};

pub use self::decode::Draft;
pub use self::manifests::{Declared, Input, Manifests, read};
use self::store::Store;
use self::watch::Watch;

/// How often the time is looked at.
const CLOCK: Duration = Duration::from_mins(1);

/// Something that is wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file or directory.
    pub file: PathBuf,
    /// The line, from 1, where it is known.
    pub line: Option<u64>,
    /// The object's kind and name, as far as it has them.
    pub object: Option<(String, ObjectName)>,
    /// The field, such as `spec.rules[0].backends[1].port`; empty for the whole.
    pub field: String,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if let Some((kind, name)) = &self.object {
            write!(f, " {kind} {name}:")?;
        }
        if !self.field.is_empty() {
            write!(f, " {}:", self.field)?;
        }
        write!(f, " {}", self.reason)
    }
}

/// What a directory of manifests holds.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The objects, those that do not decode too, each name of a kind once.
    pub objects: Vec<Object>,
    /// What is wrong, sorted.
    pub problems: Vec<Problem>,
}

/// Reads a directory of manifests, or one file, once.
pub fn load(path: &Path) -> Loaded {
    let mut store = Store::default();
    store.refresh(path);
    store.loaded()
}

/// Why a directory is no source.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not there or cannot be read.
    #[error("cannot read the manifests at {path}")]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Reading ended with a panic.
    #[error("reading the manifests failed")]
    Read(#[from] tokio::task::JoinError),
}

/// Reads a directory and follows its changes, until the receiver of the updates is gone. `problems` is told what is
/// wrong once the first table is sent, even if nothing is, and then whenever that changes. Only a directory that cannot
/// be read at the start is an error.
pub async fn run(
    path: PathBuf,
    settings: Settings,
    updates: UpdateSender,
    problems: channel::Sender<Arc<Vec<Problem>>>,
) -> Result<(), FileError> {
    if let Err(source) = tokio::fs::metadata(&path).await {
        return Err(FileError::Unreadable { path, source });
    }
    let mut source = Box::new(Source { store: Store::following(), index: Index::new(settings), problems: None });
    let mut watch = Watch::new();
    let mut observed = Instant::now();
    loop {
        let work = Work { path: path.clone(), observed };
        let (back, messages, found) = tokio::task::spawn_blocking(move || {
            let (messages, found) = source.refresh(&work);
            (source, messages, found)
        })
        .await?;
        source = back;
        for message in messages {
            if updates.send(message).await.is_err() {
                return Ok(());
            }
        }
        if let Some(found) = found {
            problems.send_replace(Arc::new(found));
        }
        watch.follow(source.store.directories());
        observed = tokio::select! {
            observed = watch.changed() => observed,
            () = tokio::time::sleep(store::SETTLE), if !source.store.is_settled() => observed,
            // Certificates expire without any file changing.
            () = tokio::time::sleep(CLOCK) => observed,
            () = updates.closed() => return Ok(()),
        };
    }
}

struct Source {
    store: Store,
    index: Index,
    /// Those last told.
    problems: Option<Vec<Problem>>,
}

struct Work {
    path: PathBuf,
    observed: Instant,
}

impl Source {
    /// Reads what changed; the updates that follow, and the problems if they changed.
    fn refresh(&mut self, work: &Work) -> (Vec<Update>, Option<Vec<Problem>>) {
        let mut problems = None;
        if self.store.refresh(&work.path) || self.problems.is_none() {
            let loaded = self.store.loaded();
            if self.problems.as_ref() != Some(&loaded.problems) {
                self.problems = Some(loaded.problems.clone());
                problems = Some(loaded.problems);
            }
            enter(&mut self.index, loaded.objects);
        }
        self.index.set_now(unix_time());
        let table = self.index.take_table().map(|(fragment, endpoints)| Update::Table { fragment, endpoints });
        let sets = self.index.take_endpoints();
        let sets = sets.into_iter().map(|set| Update::Endpoints { set, observed: work.observed });
        (table.into_iter().chain(sets).collect(), problems)
    }
}

fn enter(index: &mut Index, objects: Vec<Object>) {
    const KINDS: [Kind; 8] = [
        Kind::Namespace,
        Kind::ReferenceGrant,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Secret,
        Kind::ConfigMap,
        Kind::Selector,
        Kind::Route,
    ];
    let mut kinds = KINDS.map(|kind| (kind, Vec::new()));
    for object in objects {
        let kind = object.kind();
        if let Some((_, all)) = kinds.iter_mut().find(|(other, _)| *other == kind) {
            all.push(object);
        }
    }
    for (kind, objects) in kinds {
        index.reset(kind, objects);
    }
}

#[cfg(test)]
mod tests;
