//! Which namespace a hostname of a listener belongs to: that of its oldest Selector.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::ir::{Hostname, ObjectName, Origin};
use crate::source::translate::{Conflict, Place};

/// All claims to hostnames.
#[derive(Debug, Default)]
pub(super) struct Claims {
    hosts: HashMap<Hostname, BTreeMap<Origin, Claim>>,
    dirty: BTreeSet<Hostname>,
}

#[derive(Debug)]
struct Claim {
    /// Sorted; empty for all listeners.
    listeners: Vec<Arc<str>>,
    conflict: Option<Conflict>,
}

impl Claims {
    /// Enters the claims of a Selector's place.
    pub(super) fn enter(&mut self, origin: &Origin, place: &Place) {
        for hostname in &place.hostnames {
            let claim = Claim { listeners: place.listeners.clone(), conflict: None };
            self.hosts.entry(hostname.clone()).or_default().insert(origin.clone(), claim);
            self.dirty.insert(hostname.clone());
        }
    }

    /// Takes them back.
    pub(super) fn withdraw(&mut self, origin: &Origin, place: &Place) {
        for hostname in &place.hostnames {
            if let Some(claims) = self.hosts.get_mut(hostname) {
                claims.remove(origin);
                self.dirty.insert(hostname.clone());
            }
        }
    }

    /// Decides anew where claims changed; names the Selectors for which something did.
    pub(super) fn settle(&mut self) -> BTreeSet<ObjectName> {
        let mut changed = BTreeSet::new();
        for hostname in std::mem::take(&mut self.dirty) {
            let Some(claims) = self.hosts.get_mut(&hostname) else { continue };
            if claims.is_empty() {
                self.hosts.remove(&hostname);
                continue;
            }
            settle_one(claims, &mut changed);
        }
        changed
    }

    /// The hostnames of a Selector's place that belong to other namespaces.
    pub(super) fn lost(&self, origin: &Origin, place: &Place) -> BTreeMap<Hostname, Conflict> {
        let conflict = |hostname: &Hostname| self.hosts.get(hostname)?.get(origin)?.conflict.clone();
        place.hostnames.iter().filter_map(|hostname| Some((hostname.clone(), conflict(hostname)?))).collect()
    }
}

/// The oldest Selector wins its listeners for its namespace, then the next one whose listeners are all free or won by
/// its own namespace, and so on: a claim that is lost on one listener is lost as a whole and takes nothing from others.
fn settle_one(claims: &mut BTreeMap<Origin, Claim>, changed: &mut BTreeSet<ObjectName>) {
    // The owners of listeners that were named, and of all that were not.
    let mut named: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
    let mut every: Option<Arc<str>> = None;
    for (origin, claim) in claims.iter_mut() {
        let namespace = &origin.object.namespace;
        let conflict = if claim.listeners.is_empty() {
            let other = named.iter().find(|(_, owner)| *owner != namespace);
            let other =
                other.map(|(listener, owner)| Conflict { listener: Some(listener.clone()), owner: owner.clone() });
            let all = every.as_ref().filter(|owner| *owner != namespace);
            all.map(|owner| Conflict { listener: None, owner: owner.clone() }).or(other)
        } else {
            claim.listeners.iter().find_map(|listener| {
                let owner = every.as_ref().or_else(|| named.get(listener)).filter(|owner| *owner != namespace)?;
                Some(Conflict { listener: Some(listener.clone()), owner: owner.clone() })
            })
        };
        if conflict.is_none() {
            if claim.listeners.is_empty() {
                every.get_or_insert_with(|| namespace.clone());
            }
            for listener in &claim.listeners {
                named.entry(listener.clone()).or_insert_with(|| namespace.clone());
            }
        }
        if conflict != claim.conflict {
            claim.conflict = conflict;
            changed.insert(origin.object.clone());
        }
    }
}
