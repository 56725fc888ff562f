//! The objects that an index holds, reduced to what is needed of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::{self, ReferenceGrantSpec};
use crate::ir::{self, ObjectName, Origin};
use crate::source::endpoints::{Service, Slice, UnusableSlice};
use crate::source::secrets::Material;
use crate::source::translate::{RouteSubject, SelectorSubject, Subject};

/// The kinds of objects that an index holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Selectors.
    Selector,
    /// Routes.
    Route,
    /// Services.
    Service,
    /// `EndpointSlices`.
    EndpointSlice,
    /// `ReferenceGrants`.
    ReferenceGrant,
    /// Namespaces, of which labels count. Their names have an empty namespace.
    Namespace,
    /// Secrets, of which certificates count.
    Secret,
    /// `ConfigMaps`, of which authorities for certificates count.
    ConfigMap,
}

/// One object, reduced to what is needed of it.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its name.
    pub name: ObjectName,
    /// What it says.
    pub content: Content,
}

/// What an object says.
#[derive(Clone, Debug)]
pub enum Content {
    /// A Selector.
    Selector(Arc<SelectorSubject>),
    /// A Route.
    Route(Arc<RouteSubject>),
    /// A Selector or Route that does not decode.
    Invalid(Invalid),
    /// A Service.
    Service(Service),
    /// An `EndpointSlice`, or why it is not used.
    EndpointSlice(Result<Slice, UnusableSlice>),
    /// A `ReferenceGrant`.
    ReferenceGrant(ReferenceGrantSpec),
    /// A Namespace, by its labels.
    Namespace(BTreeMap<String, String>),
    /// A Secret.
    Secret(Material),
    /// A `ConfigMap`.
    ConfigMap(Material),
}

/// A Selector or Route that does not decode. It has a verdict and no place in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Which of both.
    pub kind: ir::Kind,
    /// Its `metadata.generation`; 0 where the source knows none.
    pub generation: i64,
    /// Why it does not decode; names the field.
    pub error: String,
}

impl Object {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match &self.content {
            Content::Selector(_) | Content::Invalid(Invalid { kind: ir::Kind::Selector, .. }) => Kind::Selector,
            Content::Route(_) | Content::Invalid(Invalid { kind: ir::Kind::Route, .. }) => Kind::Route,
            Content::Service(_) => Kind::Service,
            Content::EndpointSlice(_) => Kind::EndpointSlice,
            Content::ReferenceGrant(_) => Kind::ReferenceGrant,
            Content::Namespace(_) => Kind::Namespace,
            Content::Secret(_) => Kind::Secret,
            Content::ConfigMap(_) => Kind::ConfigMap,
        }
    }

    /// A Selector or Route that does not decode.
    pub const fn invalid(kind: ir::Kind, name: ObjectName, generation: i64, error: String) -> Self {
        Self { name, content: Content::Invalid(Invalid { kind, generation, error }) }
    }
}

fn name_of(metadata: &ObjectMeta) -> ObjectName {
    let part = |part: &Option<String>| Arc::<str>::from(part.as_deref().unwrap_or_default());
    ObjectName { namespace: part(&metadata.namespace), name: part(&metadata.name) }
}

fn subject<S>(metadata: &ObjectMeta, spec: S) -> Arc<Subject<S>> {
    let created = metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    let origin = Origin { created, object: name_of(metadata) };
    Arc::new(Subject { origin, generation: metadata.generation.unwrap_or_default(), spec })
}

impl From<api::Selector> for Object {
    fn from(selector: api::Selector) -> Self {
        let name = name_of(&selector.metadata);
        Self { name, content: Content::Selector(subject(&selector.metadata, selector.spec)) }
    }
}

impl From<api::Route> for Object {
    fn from(route: api::Route) -> Self {
        Self { name: name_of(&route.metadata), content: Content::Route(subject(&route.metadata, route.spec)) }
    }
}

impl From<api::ReferenceGrant> for Object {
    fn from(grant: api::ReferenceGrant) -> Self {
        Self { name: name_of(&grant.metadata), content: Content::ReferenceGrant(grant.spec) }
    }
}

impl From<&core::Service> for Object {
    fn from(service: &core::Service) -> Self {
        Self { name: name_of(&service.metadata), content: Content::Service(Service::from(service)) }
    }
}

impl From<&discovery::EndpointSlice> for Object {
    fn from(slice: &discovery::EndpointSlice) -> Self {
        Self { name: name_of(&slice.metadata), content: Content::EndpointSlice(Slice::try_from(slice)) }
    }
}

impl From<&core::Secret> for Object {
    fn from(secret: &core::Secret) -> Self {
        Self { name: name_of(&secret.metadata), content: Content::Secret(Material::from(secret)) }
    }
}

impl From<&core::ConfigMap> for Object {
    fn from(map: &core::ConfigMap) -> Self {
        Self { name: name_of(&map.metadata), content: Content::ConfigMap(Material::from(map)) }
    }
}

impl From<&core::Namespace> for Object {
    fn from(namespace: &core::Namespace) -> Self {
        let labels = namespace.metadata.labels.clone().unwrap_or_default();
        Self { name: name_of(&namespace.metadata), content: Content::Namespace(labels) }
    }
}
