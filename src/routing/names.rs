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
    /// Which lengths there are, modulo 64: most texts that are not here need no look at the table.
    lengths: u64,
}

#[derive(Debug)]
struct Entry {
    name: Name,
    range: Range<u32>,
}

/// A text. Short ones lie in the table itself, so that a lookup need not wait for another place of memory.
#[derive(Debug)]
enum Name {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Arc<str>),
}

/// Bytes of text for which [`Name`] takes no more room than for an `Arc`, its variant and its length.
const SHORT: usize = 22;

impl Name {
    fn new(text: &Arc<str>) -> Self {
        let mut bytes = [0; SHORT];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(text.as_bytes());
                Self::Short { len, bytes }
            }
            _ => Self::Long(Arc::clone(text)),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(text) => text.as_bytes(),
        }
    }
}

impl Names {
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The range of `name`, if there is one.
    pub(super) fn get(&self, name: &str) -> Option<&Range<u32>> {
        let name = name.as_bytes();
        if self.lengths & length_bit(name) == 0 {
            return None;
        }
        self.table.find(self.hasher.hash_one(name), |entry| entry.name.as_bytes() == name).map(|entry| &entry.range)
    }

    /// The range of `name`, empty when it is new.
    pub(super) fn entry(&mut self, name: &Arc<str>) -> &mut Range<u32> {
        self.lengths |= length_bit(name.as_bytes());
        let hasher = &self.hasher;
        let hash = hasher.hash_one(name.as_bytes());
        let same = |entry: &Entry| entry.name.as_bytes() == name.as_bytes();
        let entry = self.table.entry(hash, same, |e| hasher.hash_one(e.name.as_bytes()));
        &mut entry.or_insert_with(|| Entry { name: Name::new(name), range: 0..0 }).into_mut().range
    }

    pub(super) fn ranges_mut(&mut self) -> impl Iterator<Item = &mut Range<u32>> {
        self.table.iter_mut().map(|entry| &mut entry.range)
    }

    /// Gives back what the table holds in reserve.
    pub(super) fn shrink(&mut self) {
        self.table.shrink_to_fit(|entry| self.hasher.hash_one(entry.name.as_bytes()));
    }
}

fn length_bit(name: &[u8]) -> u64 {
    1 << (name.len() % 64)
}
