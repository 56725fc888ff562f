//! Handles that live as long as somebody else holds them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Finds handles by key and forgets those that nobody holds.
pub(super) struct WeakMap<K, V>(Mutex<State<K, V>>);

struct State<K, V> {
    entries: BTreeMap<K, Weak<V>>,
    /// Without a scraper nobody else would ever clean up.
    clean_at: usize,
}

const CLEAN_AT_LEAST: usize = 64;

// === impl WeakMap ===

impl<K: Ord, V> WeakMap<K, V> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { entries: BTreeMap::new(), clean_at: CLEAN_AT_LEAST }))
    }

    /// The handle of a key, made if nobody holds one.
    pub(super) fn get(&self, key: K, make: impl FnOnce(&K) -> V) -> Arc<V> {
        let mut state = self.0.lock();
        if let Some(found) = state.entries.get(&key).and_then(Weak::upgrade) {
            return found;
        }
        if state.entries.len() >= state.clean_at {
            state.entries.retain(|_, handle| handle.strong_count() > 0);
            state.clean_at = (state.entries.len() * 2).max(CLEAN_AT_LEAST);
        }
        let handle = Arc::new(make(&key));
        state.entries.insert(key, Arc::downgrade(&handle));
        handle
    }

    /// All handles that somebody holds, in the order of their keys.
    pub(super) fn all(&self) -> Vec<Arc<V>> {
        let mut state = self.0.lock();
        let mut all = Vec::with_capacity(state.entries.len());
        state.entries.retain(|_, handle| {
            let live = handle.upgrade();
            let keep = live.is_some();
            all.extend(live);
            keep
        });
        all
    }
}

#[cfg(test)]
impl<K, V> WeakMap<K, V> {
    pub(super) fn len(&self) -> usize {
        self.0.lock().entries.len()
    }
}
