//! A cache of lookups by host and path, at its best: what it would cost and save if it could be had.
//!
//! It is no more than a measuring stick (`docs/adr/0008-no-match-cache.md`). It is right only for tables in which nothing
//! but host and path decides.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Outcomes by host and path, at most so many; full, it starts anew.
#[derive(Debug, Default)]
pub struct Cache {
    entries: HashTable<Entry>,
    hasher: RandomState,
    capacity: usize,
}

#[derive(Debug)]
struct Entry {
    host: Box<str>,
    path: Box<str>,
    outcome: u32,
}

impl Cache {
    /// A cache of `capacity` entries.
    pub fn new(capacity: usize) -> Self {
        Self { entries: HashTable::with_capacity(capacity), capacity, ..Self::default() }
    }

    /// The outcome of an earlier lookup, else that of `look_up`, which is kept.
    pub fn get(&mut self, host: &str, path: &str, look_up: impl FnOnce() -> u32) -> u32 {
        let hash = self.hasher.hash_one((host, path));
        if let Some(entry) = self.entries.find(hash, |entry| *entry.path == *path && *entry.host == *host) {
            return entry.outcome;
        }
        let outcome = look_up();
        if self.entries.len() == self.capacity {
            self.entries.clear();
        }
        let entry = Entry { host: host.into(), path: path.into(), outcome };
        // Capacity is given, so no entry is ever hashed again.
        self.entries.insert_unique(hash, entry, |_| hash);
        outcome
    }
}
