//! The objects of a source, and which parts of its fragment a change touches. Pure.
//!
//! Changes only mark: a Selector, or a Route at one of its Selectors. [`Index::take_table`] translates what is marked
//! and hands out everything else as it was, by the same `Arc`s; [`Index::take_endpoints`] does the same for the
//! endpoints of Clusters, without a new fragment. Whatever the order of changes, the result is that of the objects.

mod certificates;
mod claims;
mod object;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::api::{GROUP, ReferenceGrantFrom, ReferenceGrantSpec, ReferenceGrantTo};
use crate::ir::{self, ClusterId, ClusterPlace, EndpointSet, Fragment, ObjectName, Origin, Protocol, Target};

use self::claims::Claims;
use self::table::Table;
use super::endpoints::{Service, Slice, endpoint_set};
use super::secrets::Material;
use super::translate::{Place, RouteSubject, SelectorSubject, Standing, World, references, route_references, standing};

pub use self::object::{Content, Invalid, Kind, Object};
pub use super::translate::{HostBackends, Listener, Reference, Settings};

/// The objects of one source.
#[derive(Debug)]
pub struct Index {
    objects: Objects,
    claims: Claims,
    /// The Routes that name a Selector, whether it exists or not.
    routes_of_selector: HashMap<ObjectName, BTreeSet<ObjectName>>,
    /// The Routes that name a Service, whether it exists or not.
    routes_of_service: HashMap<ObjectName, BTreeSet<ObjectName>>,
    /// The Selectors of our class that name a Secret or `ConfigMap`, whether it exists or not.
    selectors_of_reference: BTreeMap<Reference, BTreeSet<ObjectName>>,
    /// The Routes that name one, whether it exists or not.
    routes_of_reference: BTreeMap<Reference, BTreeSet<ObjectName>>,
    /// Whether they are others than those last told.
    references_changed: bool,
    /// The usable slices of a Service by name, whether it exists or not.
    slices_of_service: HashMap<ObjectName, BTreeSet<ObjectName>>,
    dirty: Dirty,
    dirty_services: BTreeSet<ObjectName>,
    table: Table,
    /// The endpoints last handed out, for every Cluster of the last fragment that has any of ours.
    served: BTreeMap<ClusterId, Arc<EndpointSet>>,
}

/// What is to be translated anew.
#[derive(Debug, Default)]
struct Dirty {
    selectors: BTreeSet<ObjectName>,
    routes: BTreeSet<ObjectName>,
    /// A Route at a Selector: the Selector first.
    attachments: BTreeSet<(ObjectName, ObjectName)>,
    /// The default certificate.
    default: bool,
}

#[derive(Debug)]
struct Objects {
    settings: Settings,
    selectors: BTreeMap<ObjectName, Slot<SelectorEntry>>,
    routes: BTreeMap<ObjectName, Slot<RouteEntry>>,
    services: HashMap<ObjectName, Service>,
    slices: HashMap<ObjectName, Slice>,
    grants: BTreeMap<ObjectName, ReferenceGrantSpec>,
    namespaces: HashMap<Arc<str>, BTreeMap<String, String>>,
    materials: HashMap<Reference, Material>,
    /// Seconds since the epoch; `None` where nobody has told.
    now: Option<i64>,
}

#[derive(Debug, PartialEq)]
enum Slot<T> {
    Valid(T),
    Invalid(Invalid),
}

impl<T> Slot<T> {
    const fn valid(&self) -> Option<&T> {
        match self {
            Self::Valid(entry) => Some(entry),
            Self::Invalid(_) => None,
        }
    }
}

#[derive(Debug, PartialEq)]
struct SelectorEntry {
    subject: Arc<SelectorSubject>,
    /// `None` for a Selector of another class.
    standing: Option<Standing>,
}

#[derive(Debug, PartialEq)]
struct RouteEntry {
    subject: Arc<RouteSubject>,
    /// The Selectors it names, each once.
    selectors: BTreeSet<ObjectName>,
    /// The Services it names, each once.
    services: BTreeSet<ObjectName>,
    /// The Secrets and `ConfigMaps` it names, each once.
    references: BTreeSet<Reference>,
}

impl World for Objects {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn service(&self, name: &ObjectName) -> Option<&Service> {
        self.services.get(name)
    }

    fn is_granted(&self, from: &str, service: &ObjectName) -> bool {
        in_namespace(&self.grants, &service.namespace).any(|(_, grant)| {
            let to = |to: &ReferenceGrantTo| {
                to.group.is_empty()
                    && to.kind == "Service"
                    && to.name.as_deref().is_none_or(|name| name == &*service.name)
            };
            grant.from.iter().any(|source| is_route(source) && source.namespace == from) && grant.to.iter().any(to)
        })
    }

    fn labels(&self, namespace: &str) -> Option<&BTreeMap<String, String>> {
        self.namespaces.get(namespace)
    }

    fn material(&self, reference: &Reference) -> Option<&Material> {
        self.materials.get(reference)
    }

    fn now(&self) -> Option<i64> {
        self.now
    }
}

fn is_route(from: &ReferenceGrantFrom) -> bool {
    from.group == GROUP && from.kind == "Route"
}

/// The objects of one namespace.
fn in_namespace<'a, T>(
    objects: &'a BTreeMap<ObjectName, T>,
    namespace: &'a Arc<str>,
) -> impl Iterator<Item = (&'a ObjectName, &'a T)> {
    let first = ObjectName::new(Arc::clone(namespace), "");
    objects.range(first..).take_while(move |(name, _)| name.namespace == *namespace)
}

impl Index {
    /// An index without objects.
    pub fn new(settings: Settings) -> Self {
        Self {
            objects: Objects {
                settings,
                selectors: BTreeMap::new(),
                routes: BTreeMap::new(),
                services: HashMap::new(),
                slices: HashMap::new(),
                grants: BTreeMap::new(),
                namespaces: HashMap::new(),
                materials: HashMap::new(),
                now: None,
            },
            claims: Claims::default(),
            routes_of_selector: HashMap::new(),
            routes_of_service: HashMap::new(),
            selectors_of_reference: BTreeMap::new(),
            routes_of_reference: BTreeMap::new(),
            references_changed: true,
            slices_of_service: HashMap::new(),
            dirty: Dirty { default: true, ..Dirty::default() },
            dirty_services: BTreeSet::new(),
            table: Table::default(),
            served: BTreeMap::new(),
        }
    }

    /// Enters an object, in place of the one of its kind and name.
    pub fn apply(&mut self, object: impl Into<Object>) {
        let object: Object = object.into();
        let kind = object.kind();
        match object.content {
            Content::Selector(subject) => self.put_selector(&object.name, Some(self.selector_entry(subject))),
            Content::Route(subject) => self.put_route(&object.name, Some(Slot::Valid(route_entry(subject)))),
            Content::Invalid(invalid) if kind == Kind::Selector => {
                self.put_selector(&object.name, Some(Slot::Invalid(invalid)));
            }
            Content::Invalid(invalid) => self.put_route(&object.name, Some(Slot::Invalid(invalid))),
            Content::Service(service) => self.put_service(&object.name, Some(service)),
            Content::EndpointSlice(slice) => self.put_slice(&object.name, slice.ok()),
            Content::ReferenceGrant(grant) => self.put_grant(&object.name, Some(grant)),
            Content::Namespace(labels) => self.put_namespace(&object.name.name, Some(labels)),
            Content::Secret(material) => self.put_material(Reference::Secret(object.name), Some(material)),
            Content::ConfigMap(material) => self.put_material(Reference::ConfigMap(object.name), Some(material)),
        }
    }

    /// Enters an object that does not decode: it has a verdict and no place in the table.
    pub fn apply_invalid(&mut self, kind: ir::Kind, name: ObjectName, generation: i64, error: String) {
        self.apply(Object::invalid(kind, name, generation, error));
    }

    /// Removes an object.
    pub fn delete(&mut self, kind: Kind, name: &ObjectName) {
        match kind {
            Kind::Selector => self.put_selector(name, None),
            Kind::Route => self.put_route(name, None),
            Kind::Service => self.put_service(name, None),
            Kind::EndpointSlice => self.put_slice(name, None),
            Kind::ReferenceGrant => self.put_grant(name, None),
            Kind::Namespace => self.put_namespace(&name.name, None),
            Kind::Secret => self.put_material(Reference::Secret(name.clone()), None),
            Kind::ConfigMap => self.put_material(Reference::ConfigMap(name.clone()), None),
        }
    }

    /// Enters all objects of a kind: what is not among them is gone. Objects of other kinds are none of it.
    pub fn reset(&mut self, kind: Kind, objects: Vec<Object>) {
        let mut gone: BTreeSet<ObjectName> = self.names(kind);
        for object in objects.into_iter().filter(|object| object.kind() == kind) {
            gone.remove(&object.name);
            self.apply(object);
        }
        for name in gone {
            self.delete(kind, &name);
        }
    }

    fn names(&self, kind: Kind) -> BTreeSet<ObjectName> {
        match kind {
            Kind::Selector => self.objects.selectors.keys().cloned().collect(),
            Kind::Route => self.objects.routes.keys().cloned().collect(),
            Kind::Service => self.objects.services.keys().cloned().collect(),
            Kind::EndpointSlice => self.objects.slices.keys().cloned().collect(),
            Kind::ReferenceGrant => self.objects.grants.keys().cloned().collect(),
            Kind::Namespace => self.objects.namespaces.keys().map(|name| ObjectName::new("", name.clone())).collect(),
            Kind::Secret => {
                let secret = |reference: &Reference| match reference {
                    Reference::Secret(name) => Some(name.clone()),
                    Reference::ConfigMap(_) => None,
                };
                self.objects.materials.keys().filter_map(secret).collect()
            }
            Kind::ConfigMap => {
                let map = |reference: &Reference| match reference {
                    Reference::ConfigMap(name) => Some(name.clone()),
                    Reference::Secret(_) => None,
                };
                self.objects.materials.keys().filter_map(map).collect()
            }
        }
    }

    /// A new fragment if something that it consists of changed, with the endpoints of the Clusters that the fragment
    /// before did not have. The first call always gives one.
    pub fn take_table(&mut self) -> Option<(Arc<Fragment>, Vec<Arc<EndpointSet>>)> {
        let fragment = self.table.update(&self.objects, &mut self.claims, &self.routes_of_selector, &mut self.dirty)?;
        let mut new = Vec::new();
        let mut served = BTreeMap::new();
        for cluster in fragment.clusters.iter().filter(|cluster| cluster.target == Target::Slices) {
            let set = self.served.remove(&cluster.id).unwrap_or_else(|| {
                let set = Arc::new(self.endpoints(&cluster.id));
                new.push(Arc::clone(&set));
                set
            });
            served.insert(cluster.id.clone(), set);
        }
        self.served = served;
        Some((fragment, new))
    }

    /// The endpoints that changed, of Clusters of the last fragment. A Cluster that a fragment brings has its
    /// endpoints from [`Self::take_table`].
    pub fn take_endpoints(&mut self) -> Vec<Arc<EndpointSet>> {
        let mut changed = Vec::new();
        for service in std::mem::take(&mut self.dirty_services) {
            let first = ClusterId::service(service.clone(), 0, Protocol::default());
            let is_own =
                |id: &ClusterId| matches!(&id.place, ClusterPlace::Service { service: of, .. } if *of == service);
            let clusters = self.served.range(first..).take_while(|(id, _)| is_own(id));
            for set in clusters.map(|(id, old)| (self.endpoints(id), old)).filter(|(new, old)| *new != ***old) {
                changed.push(Arc::new(set.0));
            }
        }
        for set in &changed {
            self.served.insert(set.cluster.clone(), Arc::clone(set));
        }
        changed
    }

    fn endpoints(&self, cluster: &ClusterId) -> EndpointSet {
        let ClusterPlace::Service { service, .. } = &cluster.place else {
            return EndpointSet { cluster: cluster.clone(), endpoints: Vec::new() };
        };
        let names = self.slices_of_service.get(service).into_iter().flatten();
        let slices = names.filter_map(|name| self.objects.slices.get(name));
        endpoint_set(cluster, self.objects.services.get(service), slices)
    }

    fn selector_entry(&self, subject: Arc<SelectorSubject>) -> Slot<SelectorEntry> {
        let settings = &self.objects.settings;
        let is_ours = subject.spec.class_name == settings.class_name;
        let standing = is_ours.then(|| standing(&subject, settings));
        Slot::Valid(SelectorEntry { subject, standing })
    }

    fn put_selector(&mut self, name: &ObjectName, entry: Option<Slot<SelectorEntry>>) {
        if self.objects.selectors.get(name) == entry.as_ref() {
            return;
        }
        let old = match entry {
            Some(entry) => self.objects.selectors.insert(name.clone(), entry),
            None => self.objects.selectors.remove(name),
        };
        if let Some((origin, place)) = old.as_ref().and_then(claim) {
            self.claims.withdraw(origin, place);
        }
        if let Some((origin, place)) = self.objects.selectors.get(name).and_then(claim) {
            self.claims.enter(origin, place);
        }
        self.link_references(name, old.as_ref());
        self.dirty.selectors.insert(name.clone());
    }

    fn put_route(&mut self, name: &ObjectName, entry: Option<Slot<RouteEntry>>) {
        if self.objects.routes.get(name) == entry.as_ref() {
            return;
        }
        let old = self.objects.routes.remove(name);
        for entry in [old.as_ref(), entry.as_ref()].into_iter().flatten().filter_map(Slot::valid) {
            let pairs = entry.selectors.iter().map(|selector| (selector.clone(), name.clone()));
            self.dirty.attachments.extend(pairs);
        }
        if let Some(entry) = old.as_ref().and_then(Slot::valid) {
            entry.selectors.iter().for_each(|selector| unlink(&mut self.routes_of_selector, selector, name));
            entry.services.iter().for_each(|service| unlink(&mut self.routes_of_service, service, name));
            self.unlink_route(name, &entry.references);
        }
        if let Some(entry) = entry.as_ref().and_then(Slot::valid) {
            entry.selectors.iter().for_each(|selector| link(&mut self.routes_of_selector, selector, name));
            entry.services.iter().for_each(|service| link(&mut self.routes_of_service, service, name));
            self.link_route(name, &entry.references);
        }
        self.dirty.routes.insert(name.clone());
        if let Some(entry) = entry {
            self.objects.routes.insert(name.clone(), entry);
        }
    }

    fn put_service(&mut self, name: &ObjectName, service: Option<Service>) {
        if self.objects.services.get(name) == service.as_ref() {
            return;
        }
        match service {
            Some(service) => self.objects.services.insert(name.clone(), service),
            None => self.objects.services.remove(name),
        };
        self.dirty_services.insert(name.clone());
        let routes = self.routes_of_service.get(name).cloned().unwrap_or_default();
        for route in &routes {
            self.touch_route(route);
        }
    }

    fn put_slice(&mut self, name: &ObjectName, slice: Option<Slice>) {
        if self.objects.slices.get(name) == slice.as_ref() {
            return;
        }
        if let Some(old) = self.objects.slices.remove(name) {
            unlink(&mut self.slices_of_service, &old.service, name);
            self.dirty_services.insert(old.service);
        }
        if let Some(slice) = slice {
            link(&mut self.slices_of_service, &slice.service, name);
            self.dirty_services.insert(slice.service.clone());
            self.objects.slices.insert(name.clone(), slice);
        }
    }

    fn put_grant(&mut self, name: &ObjectName, grant: Option<ReferenceGrantSpec>) {
        if self.objects.grants.get(name) == grant.as_ref() {
            return;
        }
        let new = grant.clone();
        let old = match grant {
            Some(grant) => self.objects.grants.insert(name.clone(), grant),
            None => self.objects.grants.remove(name),
        };
        let sources = [old, new].into_iter().flatten().flat_map(|grant| grant.from);
        let namespaces: BTreeSet<String> = sources.filter(is_route).map(|source| source.namespace).collect();
        for namespace in namespaces {
            self.touch_namespace(&namespace.into(), |route| {
                route.services.iter().any(|service| service.namespace == name.namespace)
            });
        }
    }

    fn put_namespace(&mut self, name: &Arc<str>, labels: Option<BTreeMap<String, String>>) {
        if self.objects.namespaces.get(name) == labels.as_ref() {
            return;
        }
        match labels {
            Some(labels) => self.objects.namespaces.insert(name.clone(), labels),
            None => self.objects.namespaces.remove(name),
        };
        self.touch_namespace(name, |_| true);
    }

    /// Marks the Routes of a namespace that are concerned.
    fn touch_namespace(&mut self, namespace: &Arc<str>, is_concerned: impl Fn(&RouteEntry) -> bool) {
        let routes = in_namespace(&self.objects.routes, namespace);
        let concerned = routes.filter(|(_, slot)| slot.valid().is_some_and(&is_concerned));
        let names: Vec<ObjectName> = concerned.map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.touch_route(name);
        }
    }

    /// Marks a Route at all of its Selectors.
    fn touch_route(&mut self, name: &ObjectName) {
        if let Some(entry) = self.objects.routes.get(name).and_then(Slot::valid) {
            let pairs = entry.selectors.iter().map(|selector| (selector.clone(), name.clone()));
            self.dirty.attachments.extend(pairs);
        }
    }
}

fn claim(slot: &Slot<SelectorEntry>) -> Option<(&Origin, &Place)> {
    let entry = slot.valid()?;
    Some((&entry.subject.origin, entry.standing.as_ref()?.place.as_ref()?))
}

fn route_entry(subject: Arc<RouteSubject>) -> RouteEntry {
    let own = &subject.origin.object.namespace;
    let name = |namespace: Option<&str>, name: &str| {
        let namespace = namespace.map_or_else(|| Arc::clone(own), Arc::from);
        ObjectName { namespace, name: name.into() }
    };
    let selectors = subject.spec.selectors.iter().map(|to| name(to.namespace.as_deref(), &to.name)).collect();
    let backends = subject.spec.rules.iter().flat_map(|rule| &rule.backends);
    let backends = backends.filter_map(|to| Some(name(to.namespace.as_deref(), to.service.as_deref()?)));
    let filters = subject.spec.rules.iter().flat_map(|rule| &rule.filters);
    let mirrors = filters.filter_map(|filter| filter.request_mirror.as_ref()).map(|mirror| &mirror.backend);
    let mirrors = mirrors.filter_map(|to| Some(name(to.namespace.as_deref(), to.service.as_deref()?)));
    let services = backends.chain(mirrors).collect();
    let references = route_references(&subject.spec, own);
    RouteEntry { subject, selectors, services, references }
}

fn link(map: &mut HashMap<ObjectName, BTreeSet<ObjectName>>, to: &ObjectName, from: &ObjectName) {
    map.entry(to.clone()).or_default().insert(from.clone());
}

fn unlink(map: &mut HashMap<ObjectName, BTreeSet<ObjectName>>, to: &ObjectName, from: &ObjectName) {
    if let Some(names) = map.get_mut(to) {
        names.remove(from);
        if names.is_empty() {
            map.remove(to);
        }
    }
}

#[cfg(test)]
mod tests;
