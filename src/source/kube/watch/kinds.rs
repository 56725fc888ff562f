//! The kinds that are watched, and what is kept of their objects.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::api::{ReferenceGrant, Route, Selector};
use crate::ir::{self, ObjectName};
use crate::source::index::{Content, Kind, Object};
use crate::source::kube::guard::Guard;
use crate::source::kube::status::Seen;
use crate::source::secrets::Material;

/// The label that the API server itself puts on every namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A kind of object that is watched.
pub(super) trait Observed:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// The kind in the index.
    const KIND: Kind;
    /// The kind among those that have a status of ours.
    const STATUS: Option<ir::Kind> = None;

    /// Where its objects are asked for.
    fn api(client: &Client, namespace: Option<&str>) -> Api<Guard<Self>>;

    /// Which of them.
    fn config(namespace: Option<&str>) -> Config {
        let _ = namespace;
        Config::default()
    }

    /// The one object that is read again and again in place of a watch.
    fn read(namespace: Option<&str>) -> Option<&str> {
        let _ = namespace;
        None
    }

    /// What the index keeps of an object.
    fn object(self) -> Object;

    /// The parents that an object names.
    fn parents(&self) -> Vec<ObjectName> {
        Vec::new()
    }

    /// What is known of the kind without reading it, where that is something.
    fn stand_in(namespace: Option<&str>) -> Option<Object> {
        let _ = namespace;
        None
    }

    /// What stands for the one object that is watched where it may not be read.
    fn denied(name: ObjectName) -> Option<Object> {
        let _ = name;
        None
    }

    /// Keeps of an object what is needed.
    fn reduce(guard: Guard<Self>) -> Reduced {
        let metadata = guard.meta();
        let name = name_of(metadata);
        let version = Version::new(metadata, Self::STATUS.is_some());
        let seen = Self::STATUS.map(|kind| {
            let parents = match &guard.object {
                Ok(object) => object.parents(),
                Err(invalid) => invalid.parents.clone(),
            };
            Seen::new(kind, metadata, parents, guard.status.as_ref())
        });
        let content = match (guard.object, Self::STATUS) {
            (Ok(object), _) => Ok(object.object()),
            (Err(invalid), Some(kind)) => {
                let generation = invalid.metadata.generation.unwrap_or(0);
                Ok(Object::invalid(kind, name.clone(), generation, invalid.error))
            }
            (Err(invalid), None) => Err(invalid.error),
        };
        Reduced { name, version, content, seen }
    }
}

/// An object, reduced to what is needed of it.
#[derive(Debug)]
pub(super) struct Reduced {
    pub(super) name: ObjectName,
    pub(super) version: Version,
    /// The object, or why one without a status does not decode.
    pub(super) content: Result<Object, String>,
    pub(super) seen: Option<Seen>,
}

impl Reduced {
    /// Why the object does not decode, if it does not.
    pub(super) fn undecodable(&self) -> Option<&str> {
        match &self.content {
            Ok(Object { content: Content::Invalid(invalid), .. }) => Some(&invalid.error),
            Ok(_) => None,
            Err(error) => Some(error),
        }
    }
}

/// Tells whether an object is the one known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    uid: Box<str>,
    resource: Box<str>,
    /// Where a generation stands for the whole spec.
    generation: Option<i64>,
}

impl Version {
    fn new(metadata: &ObjectMeta, counts_generations: bool) -> Self {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        Self {
            uid: text(&metadata.uid),
            resource: text(&metadata.resource_version),
            generation: metadata.generation.filter(|_| counts_generations),
        }
    }

    /// Nothing at all has changed.
    pub(super) fn same_object(&self, other: &Self) -> bool {
        self == other && !self.resource.is_empty()
    }

    /// At most status and metadata have changed.
    pub(super) fn same_spec(&self, other: &Self) -> bool {
        self.uid == other.uid && self.generation.is_some() && self.generation == other.generation
    }
}

fn name_of(metadata: &ObjectMeta) -> ObjectName {
    let part = |part: &Option<String>| Arc::<str>::from(part.as_deref().unwrap_or_default());
    ObjectName { namespace: part(&metadata.namespace), name: part(&metadata.name) }
}

fn namespaced<K>(client: &Client, namespace: Option<&str>) -> Api<Guard<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    namespace.map_or_else(|| Api::all(client.clone()), |namespace| Api::namespaced(client.clone(), namespace))
}

impl Observed for Route {
    const KIND: Kind = Kind::Route;
    const STATUS: Option<ir::Kind> = Some(ir::Kind::Route);

    fn api(client: &Client, namespace: Option<&str>) -> Api<Guard<Self>> {
        namespaced(client, namespace)
    }

    fn object(self) -> Object {
        self.into()
    }

    fn parents(&self) -> Vec<ObjectName> {
        let own = self.metadata.namespace.as_deref().unwrap_or_default();
        let parent = |parent: &crate::api::SelectorReference| {
            ObjectName::new(parent.namespace.as_deref().unwrap_or(own), parent.name.as_str())
        };
        self.spec.selectors.iter().map(parent).collect()
    }
}

impl Observed for Selector {
    const KIND: Kind = Kind::Selector;
    const STATUS: Option<ir::Kind> = Some(ir::Kind::Selector);

    fn api(client: &Client, namespace: Option<&str>) -> Api<Guard<Self>> {
        namespaced(client, namespace)
    }

    fn object(self) -> Object {
        self.into()
    }
}

impl Observed for Service {
    const KIND: Kind = Kind::Service;

    fn api(client: &Client, namespace: Option<&str>) -> Api<Guard<Self>> {
        namespaced(client, namespace)
    }

    fn object(self) -> Object {
        (&self).into()
    }
}

impl Observed for EndpointSlice {
    const KIND: Kind = Kind::EndpointSlice;

    fn api(client: &Client, namespace: Option<&str>) -> Api<Guard<Self>> {
        namespaced(client, namespace)
    }

    fn object(self) -> Object {
        (&self).into()
    }
}

impl Observed for ReferenceGrant {
    const KIND: Kind = Kind::ReferenceGrant;

    fn api(client: &Client, namespace: Option<&str>) -> Api<Guard<Self>> {
        namespaced(client, namespace)
    }

    fn object(self) -> Object {
        self.into()
    }
}

impl Observed for Secret {
    const KIND: Kind = Kind::Secret;

    fn api(client: &Client, namespace: Option<&str>) -> Api<Guard<Self>> {
        namespaced(client, namespace)
    }

    fn object(self) -> Object {
        (&self).into()
    }

    fn denied(name: ObjectName) -> Option<Object> {
        Some(Object { name, content: Content::Secret(Material::Denied) })
    }
}

impl Observed for ConfigMap {
    const KIND: Kind = Kind::ConfigMap;

    fn api(client: &Client, namespace: Option<&str>) -> Api<Guard<Self>> {
        namespaced(client, namespace)
    }

    fn object(self) -> Object {
        (&self).into()
    }

    fn denied(name: ObjectName) -> Option<Object> {
        Some(Object { name, content: Content::ConfigMap(Material::Denied) })
    }
}

impl Observed for Namespace {
    const KIND: Kind = Kind::Namespace;

    fn api(client: &Client, _: Option<&str>) -> Api<Guard<Self>>
    where
        Self: Resource<Scope = ClusterResourceScope>,
    {
        Api::all(client.clone())
    }

    fn config(namespace: Option<&str>) -> Config {
        namespace.map_or_else(Config::default, |name| Config::default().fields(&format!("metadata.name={name}")))
    }

    fn object(self) -> Object {
        (&self).into()
    }

    /// A Role in a namespace can permit to get that namespace, but neither to list nor to watch it.
    fn read(namespace: Option<&str>) -> Option<&str> {
        namespace
    }

    /// The label with its name is known whatever a Role permits.
    fn stand_in(namespace: Option<&str>) -> Option<Object> {
        let namespace = namespace?;
        let labels = BTreeMap::from([(NAME_LABEL.to_owned(), namespace.to_owned())]);
        Some(Object { name: ObjectName::new("", namespace), content: Content::Namespace(labels) })
    }
}
