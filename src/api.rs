//! The Kubernetes objects a user writes: Route and Selector, their schemas and what their status says.

mod backend;
mod byte_size;
mod crd;
mod duration;
mod fields;
mod filters;
mod grant;
mod matching;
mod policy;
mod route;
mod rules;
pub mod schema;
mod selector;
mod upgrade;
mod validate;

pub use backend::{Backend, BackendPort, BackendProtocol, BackendProxyProtocol, BackendReference, BackendTls};
pub use byte_size::{ByteSize, ByteSizeError};
pub use crd::{crds, crds_yaml};
pub use duration::{Duration, DurationError};
pub use filters::{
    BackendFilter, BackendFilterType, Cors, DirectResponse, Filter, FilterType, Fraction, Header, HeaderModifier,
    PathModifier, PathModifierType, QueryModifier, QueryParameter, RedirectScheme, RegexReplacement, RequestMirror,
    RequestRedirect, UrlRewrite,
};
pub use grant::{ReferenceGrant, ReferenceGrantFrom, ReferenceGrantSpec, ReferenceGrantTo};
pub use matching::{
    Condition, ConditionOperator, ConditionSource, HeaderMatch, PathMatch, PathMatchType, QueryMatch, ValueMatchType,
};
pub use policy::{ConsistentHash, Limits, LoadBalancing, LoadBalancingType, Policy, Reject, Retry, Timeouts, Upstream};
pub use route::{Route, RouteMatch, RouteRule, RouteSelectorStatus, RouteSpec, RouteStatus, SelectorReference};
pub use rules::OWN_HEADERS;
pub use selector::{
    AddressType, AllowedNamespaces, AllowedRoutes, ClientCertificateMode, ClientCertificates, MatchMode,
    NamespacesFrom, Selector, SelectorAddress, SelectorMatch, SelectorSpec, SelectorStatus, SelectorTls, TlsMode,
};

pub use upgrade::{UpgradeProtocol, UpgradeProtocolError};
pub use validate::{Problem, Refused};

/// The API group of Route and Selector.
pub const GROUP: &str = "lockgate.dev";

/// The version of the API.
pub const VERSION: &str = "v1alpha1";

/// The class a Selector belongs to when it names none.
pub const DEFAULT_CLASS: &str = "lockgate";

/// Who writes status, as it stands in a Route's status.
pub const CONTROLLER_NAME: &str = "lockgate.dev/gateway";

/// Types of conditions in a status.
pub mod condition {
    /// The object is understood and used.
    pub const ACCEPTED: &str = "Accepted";
    /// Everything the object names is there and may be used.
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    /// The writer's own proxy serves the table that holds the object.
    pub const PROGRAMMED: &str = "Programmed";
    /// Others take requests of the object; absent when they do not.
    pub const SHADOWED: &str = "Shadowed";
}

/// Reasons of conditions in a status.
pub mod reason {
    /// Accepted: true.
    pub const ACCEPTED: &str = "Accepted";
    /// Accepted: false, a field is wrong.
    pub const INVALID: &str = "Invalid";
    /// Accepted: false, a field asks for what this version does not do.
    pub const UNSUPPORTED_VALUE: &str = "UnsupportedValue";
    /// Accepted: false, the Route's Selector does not exist.
    pub const NO_MATCHING_SELECTOR: &str = "NoMatchingSelector";
    /// Accepted: false, the Selector's `allowedRoutes` does not let the Route in.
    pub const NOT_ALLOWED_BY_SELECTOR: &str = "NotAllowedBySelector";
    /// Accepted: false, a hostname belongs to an older Selector of another namespace.
    pub const HOSTNAME_CONFLICT: &str = "HostnameConflict";
    /// Accepted: false, the object asks to be left out.
    pub const SUSPENDED: &str = "Suspended";
    /// `ResolvedRefs`: true.
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    /// `ResolvedRefs`: false, a backend's Service or port does not exist.
    pub const BACKEND_NOT_FOUND: &str = "BackendNotFound";
    /// `ResolvedRefs`: false, an object of another namespace is named without its leave.
    pub const REF_NOT_PERMITTED: &str = "RefNotPermitted";
    /// `ResolvedRefs`: false, the object named is of a kind or type that cannot be used.
    pub const INVALID_KIND: &str = "InvalidKind";
    /// `ResolvedRefs`: false, a backend's port speaks what the gateway does not.
    pub const UNSUPPORTED_PROTOCOL: &str = "UnsupportedProtocol";
    /// `ResolvedRefs`: false, the Secret of the certificate does not exist, may not be read or holds none that can be used.
    pub const INVALID_CERTIFICATE_REF: &str = "InvalidCertificateRef";
    /// `ResolvedRefs`: false, the same of the Secret or `ConfigMap` with the authorities of others' certificates.
    pub const INVALID_CA_CERTIFICATE_REF: &str = "InvalidCACertificateRef";
    /// Told beside `ResolvedRefs`: the certificate is served although its time is over, or has not begun.
    pub const CERTIFICATE_NOT_VALID_NOW: &str = "CertificateNotValidNow";
    /// Told beside `ResolvedRefs`: the certificate is served although it is not for the hostname.
    pub const HOSTNAME_NOT_COVERED: &str = "HostnameNotCovered";
    /// Programmed: true.
    pub const PROGRAMMED: &str = "Programmed";
    /// Programmed: false, the object is not accepted.
    pub const NOT_PROGRAMMED: &str = "NotProgrammed";
    /// Programmed: unknown until the proxy serves the table that holds the object.
    pub const PENDING: &str = "Pending";
    /// Shadowed: true, a match of the Route, or the Selector as a whole, never takes a request.
    pub const NEVER_WINS: &str = "NeverWins";
    /// Shadowed: true, a match loses requests to one that is not simply more specific.
    pub const PARTLY_TAKEN: &str = "PartlyTaken";
}
