//! What stands in the status of every object, as last seen.

use std::collections::{HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Notify;

use crate::api::{RouteStatus, SelectorStatus};
use crate::ir::{Kind, ObjectName};

/// An object that has a status.
pub(in crate::source::kube) type Key = (Kind, ObjectName);

/// The status of an object, one way for each kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(in crate::source::kube) enum Status {
    /// Of a Selector.
    Selector(SelectorStatus),
    /// Of a Route.
    Route(RouteStatus),
}

/// An object as far as its status is concerned.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::source::kube) struct Seen {
    pub(super) uid: String,
    pub(super) generation: i64,
    /// The `resourceVersion`, where it is a number: tells which of two sights is the later one.
    version: Option<u64>,
    /// The parents that a Route names, for verdicts on a Route as a whole.
    pub(super) parents: Vec<ObjectName>,
    pub(super) status: Status,
}

impl Seen {
    /// What the watch, or the answer to a write, says of an object. A status that does not decode counts as empty: it is
    /// to be overwritten.
    pub(in crate::source::kube) fn new(
        kind: Kind,
        metadata: &ObjectMeta,
        parents: Vec<ObjectName>,
        status: Option<&Value>,
    ) -> Self {
        fn decode<T: DeserializeOwned + Default>(status: Option<&Value>) -> T {
            status.and_then(|status| T::deserialize(status).ok()).unwrap_or_default()
        }
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or(0),
            version: metadata.resource_version.as_deref().and_then(|version| version.parse().ok()),
            parents,
            status: match kind {
                Kind::Selector => Status::Selector(decode(status)),
                Kind::Route => Status::Route(decode(status)),
            },
        }
    }

    fn older_than(&self, other: &Self) -> bool {
        self.uid == other.uid && matches!((self.version, other.version), (Some(own), Some(other)) if own < other)
    }
}

/// What stands in the status of every Selector and Route. Filled by the watches, read by the status writer.
#[derive(Debug, Default)]
pub struct Statuses {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    seen: HashMap<Key, Seen>,
    /// What changed since the writer last asked.
    changed: HashSet<Key>,
}

impl Statuses {
    /// Takes note of an object that the watch showed. A sight older than the one known is ignored.
    pub(in crate::source::kube) fn observe(&self, key: Key, seen: Seen) {
        let mut inner = self.inner.lock();
        if let Some(known) = inner.seen.get(&key)
            && (*known == seen || seen.older_than(known))
        {
            return;
        }
        inner.seen.insert(key.clone(), seen);
        inner.changed.insert(key);
        drop(inner);
        self.changed.notify_one();
    }

    /// Forgets an object that is gone.
    pub(in crate::source::kube) fn forget(&self, key: &Key) {
        let mut inner = self.inner.lock();
        inner.seen.remove(key);
        inner.changed.remove(key);
    }

    /// Takes note of the answer to a write, before the watch shows it.
    pub(super) fn written(&self, key: &Key, mut seen: Seen) {
        let mut inner = self.inner.lock();
        if let Some(known) = inner.seen.get_mut(key)
            && !seen.older_than(known)
            && seen.uid == known.uid
        {
            seen.parents = std::mem::take(&mut known.parents);
            *known = seen;
        }
    }

    /// Looks at one object.
    pub(super) fn with<T>(&self, key: &Key, look: impl FnOnce(&Seen) -> T) -> Option<T> {
        self.inner.lock().seen.get(key).map(look)
    }

    /// Everything there is.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.inner.lock().seen.keys().cloned().collect()
    }

    /// What changed since the last call.
    pub(super) fn take_changed(&self) -> HashSet<Key> {
        std::mem::take(&mut self.inner.lock().changed)
    }

    /// Waits until something has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key() -> Key {
        (Kind::Selector, ObjectName::new("n", "s"))
    }

    fn seen(uid: &str, version: &str, attached: i32) -> Seen {
        let metadata = ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        Seen::new(Kind::Selector, &metadata, Vec::new(), Some(&json!({"attachedRoutes": attached})))
    }

    fn attached(statuses: &Statuses) -> Option<i32> {
        statuses.with(&key(), |seen| match &seen.status {
            Status::Selector(status) => status.attached_routes,
            Status::Route(_) => -1,
        })
    }

    #[test]
    fn an_event_older_than_our_own_write_changes_nothing() {
        let statuses = Statuses::default();
        statuses.observe(key(), seen("u", "9", 0));
        statuses.take_changed();
        statuses.written(&key(), seen("u", "11", 2));
        statuses.observe(key(), seen("u", "10", 1));
        assert_eq!((attached(&statuses), statuses.take_changed().len()), (Some(2), 0));
        statuses.observe(key(), seen("u", "12", 3));
        assert_eq!((attached(&statuses), statuses.take_changed().len()), (Some(3), 1));
    }

    #[test]
    fn an_object_made_anew_starts_from_its_own_status() {
        let statuses = Statuses::default();
        statuses.observe(key(), seen("old", "9", 4));
        statuses.observe(key(), seen("new", "5", 0));
        assert_eq!(attached(&statuses), Some(0));
        statuses.written(&key(), seen("old", "10", 7));
        assert_eq!(attached(&statuses), Some(0));
        statuses.forget(&key());
        statuses.written(&key(), seen("new", "12", 7));
        assert_eq!((attached(&statuses), statuses.take_changed().len()), (None, 0));
    }

    #[test]
    fn a_status_of_the_wrong_shape_counts_as_empty() {
        let status = Seen::new(Kind::Route, &ObjectMeta::default(), Vec::new(), Some(&json!({"selectors": 3}))).status;
        assert_eq!(status, Status::Route(RouteStatus::default()));
    }
}
