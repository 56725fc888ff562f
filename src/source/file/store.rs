//! What the files say, read again only where they changed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ir::ObjectName;
use crate::source::index::Kind;

use super::decode::{self, Broken, Item, Purpose};
use super::scan::{Scan, Stamp, scan};
use super::{Loaded, Problem};

/// How long a file has to be left alone before its change counts.
pub(super) const SETTLE: Duration = Duration::from_millis(150);

/// Most bytes of one file.
const MAX_FILE: u64 = 16 << 20;

/// The files and what they declared last.
#[derive(Debug, Default)]
pub(super) struct Store {
    files: BTreeMap<PathBuf, Manifest>,
    directories: BTreeMap<PathBuf, (u64, u64)>,
    unreadable: BTreeMap<PathBuf, String>,
    /// A known file that was written to within this time may be half written, and is left for later.
    settle: Duration,
    is_settled: bool,
}

#[derive(Debug)]
struct Manifest {
    stamp: Stamp,
    items: Vec<Item>,
    /// Why it cannot be read now; `items` are those of when it could be.
    broken: Option<Broken>,
}

impl Store {
    /// A store that follows files while they are written.
    pub(super) fn following() -> Self {
        Self { settle: SETTLE, ..Self::default() }
    }

    /// Reads what changed below `path`. Whether anything did.
    pub(super) fn refresh(&mut self, path: &Path) -> bool {
        let Scan { files, directories, unreadable, .. } = scan(path);
        let mut has_changed = unreadable != self.unreadable;
        self.files.retain(|path, _| {
            let is_hidden = || unreadable.keys().any(|hidden| path.starts_with(hidden));
            let stays = files.contains_key(path) || is_hidden();
            has_changed |= !stays;
            stays
        });
        self.is_settled = true;
        for (path, stamp) in files {
            let known = self.files.get(&path);
            if known.is_some_and(|manifest| manifest.stamp == stamp) {
                continue;
            }
            // What a file held before is better than half of what it is going to hold.
            let is_young = known.is_some() && stamp.is_younger_than(self.settle);
            if is_young || !self.read(path, stamp) {
                self.is_settled = false;
            } else {
                has_changed = true;
            }
        }
        self.directories = directories;
        self.unreadable = unreadable;
        has_changed
    }

    /// Whether every file was read as it is. One that is being written is to be looked at again after [`SETTLE`].
    pub(super) const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The directories that were looked into.
    pub(super) const fn directories(&self) -> &BTreeMap<PathBuf, (u64, u64)> {
        &self.directories
    }

    /// Reads a file; false, and nothing done, if a known one changed meanwhile.
    fn read(&mut self, path: PathBuf, stamp: Stamp) -> bool {
        let text = text(&path, stamp);
        if self.files.contains_key(&path) && Stamp::now(&path) != Some(stamp) {
            return false;
        }
        let outcome = text.and_then(|text| decode::items(&path, &text, Purpose::Serve));
        let (items, broken) = match outcome {
            Ok(items) => (Some(items), None),
            Err(broken) => (None, Some(broken)),
        };
        match self.files.entry(path) {
            Entry::Occupied(mut entry) => {
                let manifest = entry.get_mut();
                manifest.stamp = stamp;
                manifest.broken = broken;
                if let Some(items) = items {
                    manifest.items = items;
                }
            }
            Entry::Vacant(entry) => {
                entry.insert(Manifest { stamp, items: items.unwrap_or_default(), broken });
            }
        }
        true
    }

    /// All objects and problems.
    pub(super) fn loaded(&self) -> Loaded {
        let mut loaded = Loaded::default();
        let unreadable = self.unreadable.iter();
        loaded.problems.extend(unreadable.map(|(path, reason)| Problem {
            file: path.clone(),
            line: None,
            object: None,
            field: String::new(),
            reason: format!("cannot be read: {reason}"),
        }));
        let mut declared: BTreeMap<(Kind, ObjectName), (&Path, u64)> = BTreeMap::new();
        for (path, manifest) in &self.files {
            if let Some(broken) = &manifest.broken {
                loaded.problems.push(broken.problem(path, manifest.items.len()));
            }
            for item in &manifest.items {
                loaded.problems.extend(item.problems.iter().cloned());
                let Some(object) = &item.object else { continue };
                match declared.entry((object.kind(), object.name.clone())) {
                    Entry::Vacant(entry) => {
                        entry.insert((path, item.line));
                        loaded.objects.push(object.clone());
                    }
                    Entry::Occupied(first) => loaded.problems.push(twice(path, item, *first.get())),
                }
            }
        }
        loaded.problems.sort();
        loaded
    }
}

fn twice(path: &Path, item: &Item, (first, line): (&Path, u64)) -> Problem {
    Problem {
        file: path.to_owned(),
        line: Some(item.line),
        object: item.name.clone(),
        field: String::new(),
        reason: format!("is already declared at {}:{line}, which counts", first.display()),
    }
}

pub(super) fn text(path: &Path, stamp: Stamp) -> Result<String, Broken> {
    let too_large = || Broken::new(format!("has more than {} MiB", MAX_FILE >> 20));
    if stamp.size > MAX_FILE {
        return Err(too_large());
    }
    let unreadable = |error: std::io::Error| Broken::new(format!("cannot be read: {error}"));
    let mut bytes = Vec::new();
    // The size may be that of another moment.
    File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(too_large());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + decode::newlines(&String::from_utf8_lossy(&error.as_bytes()[..at]));
        Broken { line: Some(line), reason: "is not UTF-8".to_owned() }
    })
}
