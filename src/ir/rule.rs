//! Rules: what matches, what happens to the request, where it goes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{ClusterId, Condition, DirectResponse, Filter, Origin, PathPattern, Redirect, Regex};

/// A rule's name inside its Route: as given, else its index.
pub type RuleName = Arc<str>;

/// One rule of a Route as it stands under one Selector, that Selector's policy merged in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rule {
    /// The Route object.
    pub origin: Origin,
    /// Position in the Route's list.
    pub index: u16,
    /// Its name; unnamed rules have their index.
    pub name: RuleName,
    /// Any of them takes the request; never empty. Invalid matches are left out.
    pub matches: Vec<Match>,
    /// In the order of [`Filter::stage`], none of them twice but [`Filter::Mirror`].
    pub filters: Vec<Filter>,
    /// What answers.
    pub action: Action,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// When a failed attempt is repeated; `None` for the built-in behaviour.
    pub retry: Option<Retry>,
    /// How an endpoint is chosen.
    pub load_balancing: LoadBalancing,
    /// What a rule admits.
    pub limits: Limits,
    /// What it may hold open per endpoint.
    pub upstream: UpstreamLimits,
    /// Protocols that connections may change to, as names that may have a version; `None` for those of the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrades: Option<Vec<Arc<str>>>,
}

/// A conjunction: all parts must hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Match {
    /// Position in the rule's list.
    pub index: u16,
    /// The path.
    pub path: PathMatch,
    /// One of these methods; empty for any.
    #[serde(serialize_with = "as_strings")]
    pub methods: Vec<http::Method>,
    /// Every one of these.
    pub headers: Vec<HeaderMatch>,
    /// Every one of these.
    pub query: Vec<QueryMatch>,
    /// Every one of these.
    pub conditions: Vec<Condition>,
}

pub(super) fn as_strings<S: Serializer, T: fmt::Display>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

pub(super) fn as_string<S: Serializer, T: AsRef<str>>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.as_ref())
}

/// A match on the normalised path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum PathMatch {
    /// The very path.
    Exact(Arc<str>),
    /// Whole leading segments; stored without a trailing slash, so `/` is the empty text.
    Prefix(Arc<str>),
    /// Segment by segment.
    Pattern(PathPattern),
    /// The whole path.
    Regex(Regex),
}

/// A match on a header field.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeaderMatch {
    /// The field name.
    #[serde(serialize_with = "as_string")]
    pub name: http::HeaderName,
    /// What its value must fulfil; of several field lines one must pass, for `Absent` there must be none.
    pub test: HeaderTest,
}

/// A match on a query parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueryMatch {
    /// The decoded key, case-sensitive.
    pub name: Arc<str>,
    /// What its decoded value must fulfil; of repeated keys one must pass, for `Absent` there must be none.
    pub test: HeaderTest,
}

/// The test of a header or query match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum HeaderTest {
    /// Equal, case-sensitive.
    Exact(Arc<str>),
    /// The whole value matches.
    Regex(Regex),
    /// It is there.
    Present,
    /// It is not there.
    Absent,
    /// Begins with.
    Prefix(Arc<str>),
    /// Ends with.
    Suffix(Arc<str>),
    /// Contains.
    Contains(Arc<str>),
}

/// What answers a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Action {
    /// A backend.
    Forward(Vec<Backend>),
    /// A redirect made by the gateway.
    Redirect(Redirect),
    /// An answer made by the gateway.
    DirectResponse(DirectResponse),
    /// The rule is broken: 500.
    Invalid {
        /// A closed reason, as in the Route's verdict.
        reason: &'static str,
    },
}

/// One weighted backend of a rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Backend {
    /// Its share among the weights of the rule; 0 takes none.
    pub weight: u32,
    /// Where requests go.
    pub target: BackendTarget,
    /// Changes to its requests and answers alone: header fields, in the order of [`Filter::stage`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
}

/// Where a backend's requests go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum BackendTarget {
    /// To a Cluster.
    Cluster(ClusterId),
    /// Nowhere, for its reference is broken: 500 for its share.
    Invalid {
        /// A closed reason, as in the Route's verdict.
        reason: &'static str,
    },
}

/// How long things may take; zero is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Timeouts {
    /// From the request's head to the answer's head, attempts included.
    pub request: Duration,
    /// The same for one attempt.
    pub backend_request: Duration,
    /// To connect to an endpoint.
    pub connect: Duration,
    /// Without a byte either way.
    pub idle: Duration,
    /// The same after the connection has changed to another protocol.
    pub tunnel: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            request: Duration::ZERO,
            backend_request: Duration::ZERO,
            connect: Duration::from_secs(2),
            idle: Duration::from_mins(1),
            tunnel: Duration::from_hours(1),
        }
    }
}

/// When a failed attempt is repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Retry {
    /// Retries after the first try.
    pub attempts: u32,
    /// On what.
    pub on: Vec<RetryOn>,
    /// Before the first retry; doubles each time, with full jitter.
    pub backoff: Duration,
    /// Retries as a share of live requests, in percent.
    pub budget_percent: u32,
}

/// A cause to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RetryOn {
    /// No connection could be made.
    ConnectFailure,
    /// The connection broke before a byte of the answer.
    Reset,
    /// The backend answered with this status.
    Status(u16),
}

/// How an endpoint is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum LoadBalancing {
    /// In turn.
    #[default]
    RoundRobin,
    /// Of two random ones the one with fewer requests.
    LeastRequest,
    /// At random.
    Random,
}

/// What a rule admits; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Bytes of a request body; more is 413.
    pub max_body_bytes: Option<u64>,
    /// Requests in flight, whole process; more is queued or 503.
    pub max_in_flight: Option<u32>,
    /// Requests that wait for a place.
    pub max_queued: u32,
    /// How long they wait; zero is no limit.
    pub queue_timeout: Duration,
    /// Whether one more has the oldest of them refused, and else is refused itself.
    pub rejects_oldest: bool,
}

/// What a backend gets, whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamLimits {
    /// Requests in flight to the Cluster, of whatever rule. Of rules that differ the smallest holds; `None` is no limit.
    pub max_requests: Option<u32>,
    /// Open connections to one endpoint.
    pub max_connections: u32,
    /// Requests that wait for a connection, and as many for a place among `max_requests`.
    pub max_pending: u32,
    /// How long they wait; zero is no limit.
    pub acquire_timeout: Duration,
    /// An unused connection is closed after this.
    pub idle_timeout: Duration,
    /// A connection is not reused after this.
    pub max_lifetime: Duration,
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            max_requests: None,
            max_connections: 512,
            max_pending: 1024,
            acquire_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(50),
            max_lifetime: Duration::from_hours(1),
        }
    }
}
