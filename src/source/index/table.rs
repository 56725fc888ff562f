//! The parts of a fragment, kept so that only those that changed are made anew.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::api::reason::{INVALID, RESOLVED_REFS};
use crate::ir::{Certificate, Cluster, ClusterId, Finding, Fragment, Kind, ObjectName, Rule, Selector, Tls, Verdict};
use crate::source::translate::{Attachment, Standing, attach, default_certificate, resolve};

use super::claims::Claims;
use super::object::Invalid;
use super::{Dirty, Objects, SelectorEntry, Slot};

type VerdictKey = (Kind, ObjectName, Option<ObjectName>);

/// The parts of the last fragment.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Selectors of our class with the hostnames that are theirs.
    standings: BTreeMap<ObjectName, Standing>,
    /// By Selector, then Route.
    /// By Selector and Route. In boxes, for a map has room for eleven and most Selectors have one.
    attachments: BTreeMap<ObjectName, BTreeMap<ObjectName, Box<Attachment>>>,
    selectors: BTreeMap<ObjectName, Arc<Selector>>,
    clusters: BTreeMap<ClusterId, (usize, Arc<Cluster>)>,
    verdicts: BTreeMap<VerdictKey, Arc<Verdict>>,
    default_certificate: Option<Result<Arc<Certificate>, String>>,
    was_taken: bool,
    has_changed: bool,
}

impl Table {
    /// Translates what is dirty; a new fragment if that changed anything, or if there was none.
    pub(super) fn update(
        &mut self,
        objects: &Objects,
        claims: &mut Claims,
        routes_of_selector: &HashMap<ObjectName, BTreeSet<ObjectName>>,
        dirty: &mut Dirty,
    ) -> Option<Arc<Fragment>> {
        let Dirty { mut selectors, routes, mut attachments, default } = std::mem::take(dirty);
        selectors.append(&mut claims.settle());
        for name in &selectors {
            self.stand(objects, claims, name);
            let routes = routes_of_selector.get(name).into_iter().flatten();
            attachments.extend(routes.map(|route| (name.clone(), route.clone())));
        }
        for name in &routes {
            self.judge_invalid_route(objects, name);
        }
        for (selector, route) in attachments {
            if self.attach(objects, &selector, &route) {
                selectors.insert(selector);
            }
        }
        for name in &selectors {
            self.assemble(objects, name);
        }
        if default {
            let secret = objects.settings.default_certificate.as_ref().filter(|_| objects.settings.reads_secrets);
            let certificate = secret.map(|secret| default_certificate(secret, objects));
            self.has_changed |= certificate != self.default_certificate;
            self.default_certificate = certificate;
        }
        if self.was_taken && !self.has_changed {
            return None;
        }
        (self.was_taken, self.has_changed) = (true, false);
        Some(Arc::new(self.fragment()))
    }

    fn fragment(&self) -> Fragment {
        let mut selectors: Vec<Arc<Selector>> = self.selectors.values().cloned().collect();
        selectors.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
        Fragment {
            selectors,
            clusters: self.clusters.values().map(|(_, cluster)| Arc::clone(cluster)).collect(),
            verdicts: self.verdicts.values().cloned().collect(),
            default_certificate: self.default_certificate.clone(),
        }
    }

    /// Finds out where a Selector stands now.
    fn stand(&mut self, objects: &Objects, claims: &Claims, name: &ObjectName) {
        let standing = valid_selector(objects, name).and_then(|entry| {
            let standing = entry.standing.as_ref()?;
            let lost = standing.place.as_ref().map(|place| claims.lost(&entry.subject.origin, place));
            Some(standing.without(&lost.unwrap_or_default()))
        });
        match standing {
            Some(standing) => self.standings.insert(name.clone(), standing),
            None => self.standings.remove(name),
        };
    }

    fn judge_invalid_route(&mut self, objects: &Objects, name: &ObjectName) {
        let verdict = match objects.routes.get(name) {
            Some(Slot::Invalid(invalid)) => Some(invalid_verdict(name, invalid)),
            _ => None,
        };
        self.put_verdict((Kind::Route, name.clone(), None), verdict);
    }

    /// Translates a Route at a Selector. Whether that changed the Selector's rules or number of Routes.
    fn attach(&mut self, objects: &Objects, selector: &ObjectName, route: &ObjectName) -> bool {
        let new = self.attachment(objects, selector, route);
        let verdict = new.as_ref().map(|attachment| attachment.verdict.clone());
        self.put_verdict((Kind::Route, route.clone(), Some(selector.clone())), verdict);
        let attachments = self.attachments.entry(selector.clone()).or_default();
        let old = attachments.remove(route);
        let new = new.map(|new| reuse(new, old.as_deref()));
        let essence = |attachment: &Attachment| {
            let counts = attachment.is_attached && attachment.verdict.accepted.ok;
            (counts, attachment.rules.iter().map(Arc::as_ptr).collect::<Vec<_>>())
        };
        let has_changed = new.as_ref().map(essence) != old.as_deref().map(essence);
        for cluster in new.iter().flat_map(|new| &new.clusters) {
            let entry = self.clusters.entry(cluster.id.clone()).or_insert_with(|| (0, Arc::clone(cluster)));
            entry.0 += 1;
        }
        for cluster in old.iter().flat_map(|old| &old.clusters) {
            release(&mut self.clusters, &cluster.id);
        }
        if let Some(new) = new {
            attachments.insert(route.clone(), Box::new(new));
        } else if attachments.is_empty() {
            self.attachments.remove(selector);
        }
        has_changed
    }

    /// `None` where the Route does not name the Selector (any more), or the Selector is of another class.
    fn attachment(&self, objects: &Objects, selector: &ObjectName, route: &ObjectName) -> Option<Attachment> {
        let route = objects.routes.get(route)?.valid().filter(|route| route.selectors.contains(selector))?;
        let parent = match valid_selector(objects, selector) {
            Some(entry) => Some((&*entry.subject, self.standings.get(selector)?)),
            None => None,
        };
        Some(attach(&route.subject, selector, parent, objects))
    }

    /// Puts a Selector together of its attachments.
    fn assemble(&mut self, objects: &Objects, name: &ObjectName) {
        let none = BTreeMap::new();
        let attachments = self.attachments.get(name).unwrap_or(&none);
        let counts = |attachment: &&Attachment| attachment.is_attached && attachment.verdict.accepted.ok;
        let attached = attachments.values().map(Box::as_ref).filter(counts).count();
        let (selector, verdict) = match objects.selectors.get(name) {
            Some(Slot::Invalid(invalid)) => (None, Some(invalid_verdict(name, invalid))),
            Some(Slot::Valid(entry)) => match self.standings.get(name) {
                Some(standing) => {
                    let hostnames = standing.place.as_ref().map_or(&[][..], |place| &place.hostnames);
                    let (tls, resolved) = resolve(&entry.subject, hostnames, objects);
                    let verdict = verdict(entry, standing, u32::try_from(attached).unwrap_or(u32::MAX), resolved);
                    (selector(entry, standing, attachments, tls), Some(verdict))
                }
                None => (None, None),
            },
            None => (None, None),
        };
        self.put_verdict((Kind::Selector, name.clone(), None), verdict);
        match (selector, self.selectors.get(name)) {
            (Some(new), Some(old)) if is_same(&new, old) => return,
            (None, None) => return,
            (Some(new), _) => drop(self.selectors.insert(name.clone(), Arc::new(new))),
            (None, Some(_)) => drop(self.selectors.remove(name)),
        }
        self.has_changed = true;
    }

    fn put_verdict(&mut self, key: VerdictKey, verdict: Option<Verdict>) {
        if self.verdicts.get(&key).map(|old| &**old) == verdict.as_ref() {
            return;
        }
        match verdict {
            Some(verdict) => self.verdicts.insert(key, Arc::new(verdict)),
            None => self.verdicts.remove(&key),
        };
        self.has_changed = true;
    }
}

fn valid_selector<'a>(objects: &'a Objects, name: &ObjectName) -> Option<&'a SelectorEntry> {
    objects.selectors.get(name)?.valid()
}

fn release(clusters: &mut BTreeMap<ClusterId, (usize, Arc<Cluster>)>, id: &ClusterId) {
    if let Some((count, _)) = clusters.get_mut(id) {
        *count -= 1;
        if *count == 0 {
            clusters.remove(id);
        }
    }
}

/// Keeps the former `Arc`s of rules that did not change.
fn reuse(mut new: Attachment, old: Option<&Attachment>) -> Attachment {
    for (new, old) in new.rules.iter_mut().zip(old.into_iter().flat_map(|old| &old.rules)) {
        if new == old {
            *new = Arc::clone(old);
        }
    }
    new
}

/// Whether nothing but a copy was made. Rules are compared by address, as [`reuse`] keeps equal ones.
fn is_same(new: &Selector, old: &Selector) -> bool {
    let Selector { origin, listeners, hostnames, priority, conditions, rules, tls } = new;
    *origin == old.origin
        && *listeners == old.listeners
        && *hostnames == old.hostnames
        && *priority == old.priority
        && *conditions == old.conditions
        && *tls == old.tls
        && rules.len() == old.rules.len()
        && rules.iter().zip(&old.rules).all(|(new, old)| Arc::ptr_eq(new, old))
}

fn selector(
    entry: &SelectorEntry,
    standing: &Standing,
    attachments: &BTreeMap<ObjectName, Box<Attachment>>,
    tls: Option<Tls>,
) -> Option<Selector> {
    let place = standing.place.clone()?;
    let mut rules: Vec<Arc<Rule>> = attachments.values().flat_map(|attachment| &attachment.rules).cloned().collect();
    rules.sort_by(|a, b| (&a.origin, a.index).cmp(&(&b.origin, b.index)));
    Some(Selector {
        origin: entry.subject.origin.clone(),
        listeners: place.listeners,
        hostnames: place.hostnames,
        priority: entry.subject.spec.priority,
        conditions: place.conditions,
        rules,
        tls,
    })
}

fn verdict(entry: &SelectorEntry, standing: &Standing, attached_routes: u32, resolved_refs: Finding) -> Verdict {
    Verdict {
        kind: Kind::Selector,
        object: entry.subject.origin.object.clone(),
        parent: None,
        generation: entry.subject.generation,
        attached_routes,
        in_table: standing.place.is_some(),
        accepted: standing.accepted(),
        resolved_refs,
    }
}

fn resolved() -> Finding {
    Finding { ok: true, reason: RESOLVED_REFS, message: String::new(), problems: Vec::new() }
}

fn invalid_verdict(name: &ObjectName, invalid: &Invalid) -> Verdict {
    // Field by field, whoever read the object has told it already.
    let accepted = Finding { ok: false, reason: INVALID, message: invalid.error.clone(), problems: Vec::new() };
    Verdict {
        kind: invalid.kind,
        object: name.clone(),
        parent: None,
        generation: invalid.generation,
        attached_routes: 0,
        in_table: false,
        accepted,
        resolved_refs: resolved(),
    }
}
