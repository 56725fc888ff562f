//! Objects to [`crate::ir`] and verdicts. Pure: the same objects give the same result, whatever came before.
//!
//! What is wrong with an object is told in its verdict and costs no more than it must:
//! - A match that does not compile is left out; a rule without a match left goes away.
//! - A rule whose filter or policy is broken answers 500, and so does a backend that cannot be used, for its share. A
//!   mirror whose backend cannot be used is left out.
//! - A Selector loses a hostname that it may not have or that is none, and has no place once none is left. One whose
//!   conditions cannot be understood has no place either: nothing says which traffic it means.
//!
//! `Accepted` is false whenever something was left out, so that partial service is never mistaken for the whole.

mod backend_tls;
mod backends;
mod conditions;
mod cors;
mod filters;
mod matches;
mod mirrors;
mod path;
mod policy;
pub mod prepare;
mod query;
mod report;
mod route;
mod selector;
mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{RouteSpec, SelectorSpec};
use crate::ir::{ObjectName, Origin};

use super::endpoints::Service;
use super::secrets::Material;

pub use self::backend_tls::route_references;
pub use self::route::{Attachment, attach};
pub use self::selector::{Conflict, Place, Standing, standing};
pub use self::tls::{Reference, default_certificate, references, resolve};

/// What a source's translation depends on besides objects.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Selectors of this class are served; those of others are as if they were not there.
    pub class_name: String,
    /// The gateway's listeners.
    pub listeners: Vec<Listener>,
    /// Which backends may be named by host and port.
    pub host_backends: HostBackends,
    /// The Secret with the certificate of hosts that have none of their own.
    pub default_certificate: Option<ObjectName>,
    /// Whether the source reads Secrets and `ConfigMaps`; else nothing is told of those that are named.
    pub reads_secrets: bool,
}

/// A listener that Selectors can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it ends TLS connections.
    pub tls: bool,
}

/// Which backends may be named by host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostBackends {
    /// None.
    Never,
    /// Those that are not the gateway's own host: no loopback, no link-local or unspecified address, no port of the
    /// admin server.
    Outside {
        /// Ports of the gateway's own admin and probe servers, refused on every host.
        admin_ports: Vec<u16>,
    },
    /// Any: for manifests that whoever starts the gateway also owns.
    Anywhere,
}

/// What is needed of a Selector or a Route.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject<S> {
    /// Its name and age.
    pub origin: Origin,
    /// Its `metadata.generation`; 0 where the source knows none.
    pub generation: i64,
    /// What it asks for.
    pub spec: S,
}

/// A Selector to translate.
pub type SelectorSubject = Subject<SelectorSpec>;

/// A Route to translate.
pub type RouteSubject = Subject<RouteSpec>;

/// The objects that Routes refer to.
pub trait World {
    /// The settings of the source.
    fn settings(&self) -> &Settings;
    /// The Service of this name.
    fn service(&self, name: &ObjectName) -> Option<&Service>;
    /// Whether a `ReferenceGrant` lets Routes of the namespace `from` refer to a Service of another one.
    fn is_granted(&self, from: &str, service: &ObjectName) -> bool;
    /// The certificates of a Secret or `ConfigMap`; `None` where it does not exist.
    fn material(&self, reference: &Reference) -> Option<&Material>;
    /// The time, in seconds since the epoch; `None` where it is not known, and no certificate is too old.
    fn now(&self) -> Option<i64>;
    /// The labels of a namespace; `None` where it is not known.
    fn labels(&self, namespace: &str) -> Option<&BTreeMap<String, String>>;
}

#[cfg(test)]
pub(super) mod tests;
