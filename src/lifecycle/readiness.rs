//! Named reasons not to be ready yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The latches that hold readiness back.
#[derive(Clone)]
pub struct Readiness(Arc<Inner>);

struct Inner {
    pending: Mutex<BTreeMap<String, usize>>,
    cleared: watch::Sender<bool>,
}

/// Holds readiness back until it is dropped.
#[must_use = "a latch that is dropped holds nothing back"]
pub struct Latch {
    name: String,
    readiness: Readiness,
}

// === impl Readiness ===

impl Default for Readiness {
    fn default() -> Self {
        Self(Arc::new(Inner { pending: Mutex::default(), cleared: watch::Sender::new(true) }))
    }
}

impl Readiness {
    /// Holds readiness back under a name until the latch is done.
    pub fn register(&self, name: impl Into<String>) -> Latch {
        let name = name.into();
        let mut pending = self.0.pending.lock();
        *pending.entry(name.clone()).or_default() += 1;
        self.0.cleared.send_replace(false);
        drop(pending);
        Latch { name, readiness: self.clone() }
    }

    /// The names of the latches that are not done, sorted.
    pub fn pending(&self) -> Vec<String> {
        self.0.pending.lock().keys().cloned().collect()
    }

    /// Waits until no latch is left.
    pub async fn cleared(&self) {
        let mut cleared = self.0.cleared.subscribe();
        // The sender lives as long as `self`.
        let _ = cleared.wait_for(|cleared| *cleared).await;
    }

    fn release(&self, name: &str) {
        let mut pending = self.0.pending.lock();
        if let Some(count) = pending.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                pending.remove(name);
            }
        }
        self.0.cleared.send_replace(pending.is_empty());
    }
}

// === impl Latch ===

impl Latch {
    /// The reason is gone.
    pub fn done(self) {
        drop(self);
    }
}

impl Drop for Latch {
    fn drop(&mut self) {
        self.readiness.release(&self.name);
    }
}
