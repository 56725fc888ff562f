//! Conditions: one source of a request's data, one test, optionally inverted.

use std::sync::Arc;

use ipnet::IpNet;
use serde::Serialize;

use super::{PathPattern, Regex};

/// How conditions combine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Mode {
    /// Every condition must hold.
    #[default]
    All,
    /// One condition must hold.
    Any,
}

/// Conditions with their mode. Empty holds for every request.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConditionSet {
    /// How they combine.
    pub mode: Mode,
    /// The conditions in the order of the object.
    pub conditions: Vec<Condition>,
}

impl ConditionSet {
    /// What counts for precedence: an `Any` set counts as one condition.
    pub fn count(&self) -> usize {
        match self.mode {
            Mode::All => self.conditions.len(),
            Mode::Any => self.conditions.len().min(1),
        }
    }
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Condition {
    /// The data that is tested.
    pub source: Source,
    /// The test; it holds when one value of the source passes.
    pub predicate: Predicate,
    /// Whether the outcome is inverted.
    pub negate: bool,
}

/// The data of a request that a condition tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Source {
    /// The normalised path, without the query.
    Path,
    /// The method, case-sensitive (RFC 9110, section 9.1).
    Method,
    /// The host, lower case, without a port.
    Host,
    /// Every field line of this name, each on its own; holds when one passes.
    Header(#[serde(serialize_with = "super::rule::as_string")] http::HeaderName),
    /// Every value of this query key, decoded; holds when one passes.
    Query(Arc<str>),
    /// Every cookie of this name; holds when one passes.
    Cookie(Arc<str>),
    /// The client's address.
    ClientIp,
    /// The time of the request.
    Time,
}

/// What a source's value must fulfil.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Predicate {
    /// One of the tests passes for one of the values.
    Text(Vec<StringTest>),
    /// There is a value, be it empty.
    Present,
    /// The address lies in one of the networks.
    Cidr(Vec<IpNet>),
    /// The time is before one of the points.
    Before(Vec<TimePoint>),
    /// The time is at or after one of the points.
    After(Vec<TimePoint>),
}

/// A test of a text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum StringTest {
    /// Equal.
    Exact(Arc<str>),
    /// Begins with. For a path by bytes, not by segments.
    Prefix(Arc<str>),
    /// Ends with.
    Suffix(Arc<str>),
    /// Contains.
    Contains(Arc<str>),
    /// The whole text matches.
    Regex(Regex),
    /// The path matches.
    Pattern(PathPattern),
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum TimePoint {
    /// Seconds since the epoch (from RFC 3339).
    Instant(i64),
    /// Seconds since midnight UTC, every day.
    Daily(u32),
}
