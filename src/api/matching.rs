//! What a request is compared with: paths, headers, query parameters and conditions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{fields, rules};

/// How a path is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PathMatchType {
    /// The whole path.
    Exact,
    /// Whole segments from the start.
    #[default]
    Prefix,
    /// Segment by segment: a literal, `{name}` or `*` for one, `**` at the end for the rest.
    Pattern,
    /// A regular expression over the whole path, linear in time.
    Regex,
}

/// A comparison of the request's path, after normalisation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<PathMatch>()))]
pub struct PathMatch {
    /// How the path is compared.
    #[serde(default)]
    pub r#type: PathMatchType,
    /// What the path is compared with.
    #[serde(default = "PathMatch::root")]
    #[schemars(schema_with = "fields::path_value")]
    pub value: String,
}

impl PathMatch {
    fn root() -> String {
        "/".to_owned()
    }
}

impl Default for PathMatch {
    fn default() -> Self {
        Self { r#type: PathMatchType::default(), value: Self::root() }
    }
}

/// How a header or a query parameter is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ValueMatchType {
    /// The whole value.
    #[default]
    Exact,
    /// A regular expression over the whole value, linear in time.
    Regex,
    /// It is there, with whatever value.
    Present,
    /// It is not there.
    Absent,
    /// The start of the value.
    Prefix,
    /// The end of the value.
    Suffix,
    /// Any part of the value.
    Contains,
}

/// A comparison of one request header.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<HeaderMatch>()))]
pub struct HeaderMatch {
    /// The header's name, in any case.
    #[schemars(schema_with = "fields::token")]
    pub name: String,
    /// How its value is compared.
    #[serde(default)]
    pub r#type: ValueMatchType,
    /// What its value is compared with; none for Present and Absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::match_value")]
    pub value: Option<String>,
}

/// A comparison of one query parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<QueryMatch>()))]
pub struct QueryMatch {
    /// The parameter's name after percent-decoding, case-sensitive.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// How its value is compared.
    #[serde(default)]
    pub r#type: ValueMatchType,
    /// What its value is compared with; none for Present and Absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::match_value")]
    pub value: Option<String>,
}

/// Which part of a request a condition looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionSource {
    /// The normalised path.
    Path,
    /// The method.
    Method,
    /// The host without port, lower case.
    Host,
    /// A header.
    Header,
    /// A query parameter.
    Query,
    /// A cookie.
    Cookie,
    /// The address of the client.
    #[serde(rename = "ClientIP")]
    ClientIp,
    /// The time of the request.
    Time,
}

/// How a condition compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionOperator {
    /// The whole value.
    #[default]
    Exact,
    /// The start of the value; in a path whole segments.
    Prefix,
    /// The end of the value.
    Suffix,
    /// Any part of the value.
    Contains,
    /// A regular expression over the whole value, linear in time.
    Regex,
    /// A path pattern; Path only.
    Pattern,
    /// The network the address is in; `ClientIP` only.
    Cidr,
    /// It is there, with whatever value.
    Present,
    /// Before a time: RFC 3339, or daily `hh:mm` in UTC; Time only.
    Before,
    /// At or after a time: RFC 3339, or daily `hh:mm` in UTC; Time only.
    After,
}

/// One comparison of any part of a request; true for any of the values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<Condition>()))]
pub struct Condition {
    /// The part of the request to look at.
    pub source: ConditionSource,
    /// The name of the header, query parameter or cookie; only for these sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::match_name")]
    pub name: Option<String>,
    /// How it is compared.
    #[serde(default)]
    pub operator: ConditionOperator,
    /// What it is compared with, any of them; none for Present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::condition_values")]
    pub values: Vec<String>,
    /// Inverts the condition.
    #[serde(default)]
    pub negate: bool,
}
