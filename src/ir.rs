//! The intermediate representation: what every source translates to and the data plane is compiled from.
//!
//! Plain, validated, comparable data. Nothing here knows Kubernetes, does IO or depends on the order in which
//! objects were seen. A new source is one module that emits [`Fragment`]s.

mod cluster;
mod condition;
mod cors;
mod filter;
mod pattern;
mod regex;
mod rewrite;
mod rule;
mod tls;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

pub use self::cluster::{
    Cluster, ClusterId, ClusterPlace, Endpoint, EndpointSet, EndpointState, Protocol, ProxyProtocol, Target,
};
pub use self::condition::{Condition, ConditionSet, Mode, Predicate, Source, StringTest, TimePoint};
pub use self::cors::{Allowed, Cors, InvalidOrigin, OriginPattern, Origins};
pub use self::filter::{DirectResponse, Filter, HeaderEdit, Mirror, PathRewrite, QueryEdit, Redirect};
pub use self::pattern::{Hostname, InvalidHostname, InvalidPattern, MAX_SEGMENTS, PathPattern, Segment};
pub use self::regex::Regex;
pub use self::rewrite::{InvalidRewrite, RegexRewrite, TooLong};
pub use self::rule::{
    Action, Backend, BackendTarget, HeaderMatch, HeaderTest, Limits, LoadBalancing, Match, PathMatch, QueryMatch,
    Retry, RetryOn, Rule, RuleName, Timeouts, UpstreamLimits,
};
pub use self::tls::{
    Authorities, BackendTls, Certificate, CertificateSource, ClientCertificates, Termination, Tls, Validity,
};

/// What one source contributes: the Selectors that have a place in the table with their rules, the Clusters they
/// refer to, and a verdict on every object it read.
///
/// Parts are shared by `Arc`: a source hands out the same `Arc` again for a Selector that did not change, and the
/// compiler reuses what it made of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fragment {
    /// The Selectors in the order of precedence of [`Selector::precedence`].
    pub selectors: Vec<Arc<Selector>>,
    /// The Clusters that rules refer to, sorted by id, without their endpoints.
    pub clusters: Vec<Arc<Cluster>>,
    /// Verdicts sorted by subject and parent.
    pub verdicts: Vec<Arc<Verdict>>,
    /// The certificate of hosts that have none of their own, or why it cannot be used; `None` where none is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_certificate: Option<Result<Arc<Certificate>, String>>,
}

/// The kinds of objects that verdicts speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Kind {
    /// A Selector object.
    Selector,
    /// A Route object.
    Route,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Selector => "Selector",
            Kind::Route => "Route",
        })
    }
}

/// Namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectName {
    /// Makes a name of its parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Serialize for ObjectName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where a part of the table comes from. Decides ties: the oldest object first, then `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Origin {
    /// Creation time in seconds since the epoch; 0 where the source knows none (files).
    pub created: i64,
    /// The object's name.
    pub object: ObjectName,
}

/// A Selector with everything that attaches to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selector {
    /// The Selector object.
    pub origin: Origin,
    /// Names of the listeners it serves; empty for all.
    pub listeners: Vec<Arc<str>>,
    /// The hostnames it serves, sorted, without those lost to another namespace; never empty.
    pub hostnames: Vec<Hostname>,
    /// Higher first.
    pub priority: i32,
    /// What a request must fulfil besides the hostname.
    pub conditions: ConditionSet,
    /// The rules of all attached Routes, ordered by Route origin, then by index.
    pub rules: Vec<Arc<Rule>>,
    /// Who ends TLS connections to the hostnames; `None` leaves it to the other Selectors of a hostname, then to the
    /// default certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

impl Selector {
    /// The order in which Selectors of one hostname are asked: priority (high first), number of conditions (many
    /// first), then the oldest, then `namespace/name`. The smallest key is asked first.
    pub fn precedence(&self) -> (std::cmp::Reverse<i32>, std::cmp::Reverse<usize>, &Origin) {
        (std::cmp::Reverse(self.priority), std::cmp::Reverse(self.conditions.count()), &self.origin)
    }
}

/// What the compiler says of one object, for a Route per parent Selector.
///
/// `Programmed` is no aspect here: it follows from `Accepted` once the table that holds the object is served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Verdict {
    /// Kind of the object.
    pub kind: Kind,
    /// The object.
    pub object: ObjectName,
    /// For a Route, the Selector that this verdict is about.
    pub parent: Option<ObjectName>,
    /// `metadata.generation` that was judged; 0 where the source knows none.
    pub generation: i64,
    /// For a Selector, how many Routes attach to it.
    pub attached_routes: u32,
    /// Whether the table holds the object, or what of it could be understood.
    pub in_table: bool,
    /// Accepted, and why (not).
    pub accepted: Finding,
    /// `ResolvedRefs`, and why (not).
    pub resolved_refs: Finding,
}

/// How much others take of what an object asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Extent {
    /// All: it never wins.
    Whole,
    /// Some of its requests.
    Part,
}

/// What is said of an object beside its verdict: others take its requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Shadowed {
    /// Kind of the object.
    pub kind: Kind,
    /// The object.
    pub object: ObjectName,
    /// For a Route, the Selector at which this is so.
    pub parent: Option<ObjectName>,
    /// The most that is taken of one of its matches.
    pub extent: Extent,
    /// What takes which requests, for people.
    pub message: Arc<str>,
}

/// A fragment whose table is served, with what was found in that table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Served {
    /// The fragment.
    pub fragment: Arc<Fragment>,
    /// Shadowed objects, sorted by subject and parent; one entry for each.
    pub shadowed: Vec<Shadowed>,
}

/// One finding of a verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Whether the condition is true.
    pub ok: bool,
    /// A closed `CamelCase` reason, one of the constants in `api`.
    pub reason: &'static str,
    /// What is wrong and where, for people; names the field.
    pub message: String,
    /// The same field by field, and all of it.
    #[serde(skip)]
    pub problems: Vec<FieldProblem>,
}

/// What is wrong with one field of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldProblem {
    /// As [`Finding::reason`].
    pub reason: &'static str,
    /// Such as `spec.rules[0].filters[1]`; empty for the object as a whole.
    pub field: String,
    /// What is wrong.
    pub what: String,
}
