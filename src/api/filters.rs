//! What a rule does to a request or an answer on the way. The forms are Gateway API's, where it has one.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{fields, rules};

mod cors;
mod mirror;

pub use cors::Cors;
pub use mirror::{Fraction, RequestMirror};

/// Which of a filter's members is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FilterType {
    /// Changes headers on the way to the backend.
    RequestHeaderModifier,
    /// Changes headers on the way to the client.
    ResponseHeaderModifier,
    /// Changes query parameters on the way to the backend.
    RequestQueryModifier,
    /// Answers preflights, and lets pages of other origins read answers.
    #[serde(rename = "CORS")]
    Cors,
    /// Sends copies of requests to another backend, whose answers nobody sees.
    RequestMirror,
    /// Changes host and path on the way to the backend.
    #[serde(rename = "URLRewrite")]
    UrlRewrite,
    /// Answers with a redirect.
    RequestRedirect,
    /// Answers with a fixed response.
    DirectResponse,
}

impl fmt::Display for FilterType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UrlRewrite => f.write_str("URLRewrite"),
            Self::Cors => f.write_str("CORS"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// One filter: a type and the member of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<Filter>()))]
pub struct Filter {
    /// Which member is set.
    pub r#type: FilterType,
    /// Changes headers on the way to the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_header_modifier: Option<HeaderModifier>,
    /// Changes headers on the way to the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_header_modifier: Option<HeaderModifier>,
    /// Changes query parameters on the way to the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_query_modifier: Option<QueryModifier>,
    /// Answers preflights, and lets pages of other origins read answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cors: Option<Cors>,
    /// Sends copies of requests to another backend, whose answers nobody sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_mirror: Option<RequestMirror>,
    /// Changes host and path on the way to the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_rewrite: Option<UrlRewrite>,
    /// Answers with a redirect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_redirect: Option<RequestRedirect>,
    /// Answers with a fixed response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_response: Option<DirectResponse>,
}

/// A header and its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<Header>()))]
pub struct Header {
    /// The header's name, in any case.
    #[schemars(schema_with = "fields::token")]
    pub name: String,
    /// The header's value.
    #[schemars(schema_with = "fields::header_value")]
    pub value: String,
}

/// Changes to headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct HeaderModifier {
    /// Headers that replace those of the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub set: Vec<Header>,
    /// Headers that are added to those of the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub add: Vec<Header>,
    /// Names of headers to take away, in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::header_names")]
    pub remove: Vec<String>,
}

/// Which of a backend's filter's members is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum BackendFilterType {
    /// Changes headers on the way to this backend.
    RequestHeaderModifier,
    /// Changes headers of this backend's answers.
    ResponseHeaderModifier,
}

/// A filter for the requests of one backend: a type and the member of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<BackendFilter>()))]
pub struct BackendFilter {
    /// Which member is set.
    pub r#type: BackendFilterType,
    /// Changes headers on the way to this backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::backend_headers")]
    pub request_header_modifier: Option<HeaderModifier>,
    /// Changes headers of this backend's answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::backend_headers")]
    pub response_header_modifier: Option<HeaderModifier>,
}

/// A query parameter and its value, as they are after percent-decoding.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct QueryParameter {
    /// The parameter's name, case-sensitive.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// The parameter's value.
    #[schemars(length(max = 4096))]
    pub value: String,
}

/// Changes to query parameters; all others keep their bytes and their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct QueryModifier {
    /// Parameters that replace all of the same name, at the place of the first, else at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub set: Vec<QueryParameter>,
    /// Parameters that are added at the end, beside those of the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub add: Vec<QueryParameter>,
    /// Names of parameters to take away, all of the name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::query_names")]
    pub remove: Vec<String>,
}

/// Which part of a path is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PathModifierType {
    /// The whole path.
    ReplaceFullPath,
    /// The prefix by which the rule matched.
    ReplacePrefixMatch,
    /// The first part that a regular expression matches.
    ReplaceRegexMatch,
}

/// A change of the path; the query stays.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<PathModifier>()))]
pub struct PathModifier {
    /// Which member is set.
    pub r#type: PathModifierType,
    /// What replaces the whole path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::replacement_path")]
    pub replace_full_path: Option<String>,
    /// What replaces the matched prefix; empty or `/` takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::replacement_path")]
    pub replace_prefix_match: Option<String>,
    /// What replaces the first part of the path that a regular expression matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_regex_match: Option<RegexReplacement>,
}

/// A replacement of the first part of the path that a regular expression matches; no match changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct RegexReplacement {
    /// The regular expression, linear in time. It matches anywhere in the normalised path; `^` and `$` stand for its ends.
    #[schemars(schema_with = "fields::path_value")]
    pub pattern: String,
    /// What replaces the match: text with `$1` or `${name}` for captures, `$0` for the match and `$$` for a dollar sign.
    #[schemars(schema_with = "fields::substitution")]
    pub substitution: String,
}

/// Changes host and path on the way to the backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<UrlRewrite>()))]
pub struct UrlRewrite {
    /// The host the backend sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::hostname")]
    pub hostname: Option<String>,
    /// The path the backend sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathModifier>,
}

/// The scheme of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RedirectScheme {
    /// `http`, port 80 unless given.
    Http,
    /// `https`, port 443 unless given.
    Https,
}

/// Answers with a redirect to the request's own URL with these parts changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<RequestRedirect>()))]
pub struct RequestRedirect {
    /// The scheme; the request's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RedirectScheme")]
    pub scheme: Option<RedirectScheme>,
    /// The host; the request's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::hostname")]
    pub hostname: Option<String>,
    /// The path; the request's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathModifier>,
    /// The port; when absent the usual one of the scheme if one is given, else that of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::port_number")]
    pub port: Option<u16>,
    /// The status of the answer.
    #[serde(default = "RequestRedirect::found")]
    #[schemars(schema_with = "fields::redirect_status")]
    pub status_code: u16,
}

impl RequestRedirect {
    const fn found() -> u16 {
        302
    }
}

impl Default for RequestRedirect {
    fn default() -> Self {
        Self { scheme: None, hostname: None, path: None, port: None, status_code: Self::found() }
    }
}

/// Answers with a fixed response.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DirectResponse {
    /// The status of the answer.
    #[schemars(schema_with = "fields::response_status")]
    pub status: u16,
    /// Headers of the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub headers: Vec<Header>,
    /// The body of the answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 65536))]
    pub body: String,
    /// The content type of the body; `text/plain; charset=utf-8` when absent and a body is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::content_type")]
    pub content_type: Option<String>,
}
