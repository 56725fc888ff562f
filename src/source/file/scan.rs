//! Which files there are.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Most files that are read; more is a mistake such as a link to the root.
const MAX_FILES: usize = 100_000;

/// Most directories inside each other.
const MAX_DEPTH: usize = 32;

/// Tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    identity: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
    /// Bytes.
    pub(super) size: u64,
}

impl Stamp {
    /// The state of a file now, if it has one.
    pub(super) fn now(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().as_ref().map(Self::of)
    }

    /// Whether the file was written to within `age` before now: it may be half written still.
    pub(super) fn is_younger_than(&self, age: Duration) -> bool {
        let (seconds, nanos) = self.modified;
        let (Ok(seconds), Ok(nanos)) = (u64::try_from(seconds), u32::try_from(nanos)) else { return false };
        let written = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
        // A time to come is another clock's and says nothing.
        SystemTime::now().duration_since(written).is_ok_and(|since| since < age)
    }

    fn of(metadata: &Metadata) -> Self {
        Self {
            identity: identity(metadata),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            size: metadata.size(),
        }
    }
}

/// Device and inode.
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Manifests with their states.
    pub(super) files: BTreeMap<PathBuf, Stamp>,
    /// Directories with what tells one from another of the same path.
    pub(super) directories: BTreeMap<PathBuf, (u64, u64)>,
    /// What could not be looked into.
    pub(super) unreadable: BTreeMap<PathBuf, String>,
    /// Links to nowhere that are named like manifests.
    pub(super) dangling: Vec<PathBuf>,
}

/// Finds all manifests below a directory. Links are followed; a file or directory that several paths lead to counts
/// once, by the first path. Names that begin with a dot are left out: they are editors' files, and the directories
/// that a mounted `ConfigMap` keeps its versions in.
pub(super) fn scan(root: &Path) -> Scan {
    let mut scan = Scan::default();
    let mut seen = HashSet::new();
    visit(root, 0, &mut seen, &mut scan);
    scan
}

fn visit(path: &Path, depth: usize, seen: &mut HashSet<(u64, u64)>, scan: &mut Scan) {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        // Gone between listing and looking, or a link to nowhere.
        Err(error) if error.kind() == io::ErrorKind::NotFound && depth > 0 => {
            if is_manifest(path) && path.is_symlink() {
                scan.dangling.push(path.to_owned());
            }
            return;
        }
        Err(error) => return drop(scan.unreadable.insert(path.to_owned(), error.to_string())),
    };
    if metadata.is_file() {
        if (depth == 0 || is_manifest(path)) && seen.insert(identity(&metadata)) {
            if scan.files.len() < MAX_FILES {
                scan.files.insert(path.to_owned(), Stamp::of(&metadata));
            } else {
                scan.unreadable.insert(path.to_owned(), format!("is one of more than {MAX_FILES} files"));
            }
        }
    } else if metadata.is_dir() && seen.insert(identity(&metadata)) {
        if depth > MAX_DEPTH {
            scan.unreadable.insert(path.to_owned(), format!("lies in more than {MAX_DEPTH} directories"));
            return;
        }
        scan.directories.insert(path.to_owned(), identity(&metadata));
        match entries(path) {
            Ok(entries) => entries.iter().for_each(|entry| visit(entry, depth + 1, seen, scan)),
            Err(error) => drop(scan.unreadable.insert(path.to_owned(), error.to_string())),
        }
    }
}

fn entries(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            entries.push(entry.path());
        }
    }
    entries.sort();
    Ok(entries)
}

fn is_manifest(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known)))
}
