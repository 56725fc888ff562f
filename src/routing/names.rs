//! A hash table from texts to ranges.

use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Texts, each with a range. The hash is seeded at random, so that no client can make texts collide.
#[derive(Debug, Default)]
pub(super) struct Names {
    table: HashTable<Entry>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Entry {
    name: Arc<str>,
    range: Range<u32>,
}

impl Names {
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The range of `name`, if there is one.
    pub(super) fn get(&self, name: &str) -> Option<Range<u32>> {
        if self.table.is_empty() {
            return None;
        }
        self.table.find(self.hasher.hash_one(name), |entry| *entry.name == *name).map(|entry| entry.range.clone())
    }

    /// The range of `name`, empty when it is new.
    pub(super) fn entry(&mut self, name: &Arc<str>) -> &mut Range<u32> {
        let hasher = &self.hasher;
        let entry = self.table.entry(hasher.hash_one(&**name), |e| e.name == *name, |e| hasher.hash_one(&*e.name));
        &mut entry.or_insert_with(|| Entry { name: Arc::clone(name), range: 0..0 }).into_mut().range
    }

    pub(super) fn ranges_mut(&mut self) -> impl Iterator<Item = &mut Range<u32>> {
        self.table.iter_mut().map(|entry| &mut entry.range)
    }

    /// Gives back what the table holds in reserve.
    pub(super) fn shrink(&mut self) {
        self.table.shrink_to_fit(|entry| self.hasher.hash_one(&*entry.name));
    }
}
