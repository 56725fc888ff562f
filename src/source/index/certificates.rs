//! Secrets and `ConfigMaps`: which are named, and which Selectors and Routes a change of one concerns.

use std::collections::BTreeSet;

use super::{Index, Reference, SelectorEntry, Slot, references};
use crate::ir::{Certificate, ObjectName, Validity};
use crate::source::secrets::Material;

impl Index {
    /// The Secrets and `ConfigMaps` that Selectors of our class and Routes name, and the one of the default certificate, if they are
    /// not those of the last call.
    pub fn take_references(&mut self) -> Option<BTreeSet<Reference>> {
        let default = self.objects.settings.default_certificate.clone().map(Reference::Secret);
        let has_changed = std::mem::take(&mut self.references_changed);
        let named = || self.selectors_of_reference.keys().chain(self.routes_of_reference.keys()).cloned();
        has_changed.then(|| named().chain(default).collect())
    }

    /// Removes an object that is no longer asked for.
    pub fn forget(&mut self, reference: &Reference) {
        self.put_material(reference.clone(), None);
    }

    /// Tells the time, in seconds since the epoch: what is said of certificates whose time begins or ends is said anew.
    pub fn set_now(&mut self, now: i64) {
        let before = self.objects.now.replace(now);
        if before == Some(now) {
            return;
        }
        let crosses = |certificate: &Certificate| {
            let was = before.map_or(Validity::Valid, |before| certificate.validity(before));
            certificate.validity(now) != was
        };
        let concerned = self.objects.materials.iter().filter(|(_, material)| match material {
            Material::Held { certificate: Ok(certificate), .. } => crosses(certificate),
            _ => false,
        });
        let concerned: Vec<Reference> = concerned.map(|(reference, _)| reference.clone()).collect();
        for reference in &concerned {
            self.touch_reference(reference);
        }
    }

    pub(super) fn put_material(&mut self, reference: Reference, material: Option<Material>) {
        if self.objects.materials.get(&reference) == material.as_ref() {
            return;
        }
        self.touch_reference(&reference);
        match material {
            Some(material) => self.objects.materials.insert(reference, material),
            None => self.objects.materials.remove(&reference),
        };
    }

    /// Marks the Selectors and Routes that name an object.
    fn touch_reference(&mut self, reference: &Reference) {
        self.dirty.selectors.extend(self.selectors_of_reference.get(reference).into_iter().flatten().cloned());
        for route in self.routes_of_reference.get(reference).cloned().unwrap_or_default() {
            self.touch_route(&route);
        }
        let default = self.objects.settings.default_certificate.as_ref();
        self.dirty.default |= matches!(reference, Reference::Secret(name) if Some(name) == default);
    }

    /// Notes what a Route names.
    pub(super) fn link_route(&mut self, route: &ObjectName, named: &BTreeSet<Reference>) {
        for reference in named {
            let routes = self.routes_of_reference.entry(reference.clone()).or_default();
            self.references_changed |= routes.is_empty();
            routes.insert(route.clone());
        }
    }

    /// Forgets that a Route names them.
    pub(super) fn unlink_route(&mut self, route: &ObjectName, named: &BTreeSet<Reference>) {
        for reference in named {
            let Some(routes) = self.routes_of_reference.get_mut(reference) else { continue };
            routes.remove(route);
            if routes.is_empty() {
                self.routes_of_reference.remove(reference);
                self.references_changed = true;
            }
        }
    }

    /// Notes what a Selector names now in place of what it named before.
    pub(super) fn link_references(&mut self, selector: &ObjectName, before: Option<&Slot<SelectorEntry>>) {
        let named = |slot: Option<&Slot<SelectorEntry>>| {
            let entry = slot.and_then(Slot::valid).filter(|entry| entry.standing.is_some());
            entry.map(|entry| references(&entry.subject.spec, &selector.namespace)).unwrap_or_default()
        };
        for reference in named(before) {
            if let Some(selectors) = self.selectors_of_reference.get_mut(&reference) {
                selectors.remove(selector);
                if selectors.is_empty() {
                    self.selectors_of_reference.remove(&reference);
                    self.references_changed = true;
                }
            }
        }
        for reference in named(self.objects.selectors.get(selector)) {
            let selectors = self.selectors_of_reference.entry(reference).or_default();
            self.references_changed |= selectors.is_empty();
            selectors.insert(selector.clone());
        }
    }
}

#[cfg(test)]
mod tests;
