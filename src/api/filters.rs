//! What a rule does to a request or an answer on the way. The forms are Gateway API's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{fields, rules};

/// Which of a filter's members is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FilterType {
    /// Changes headers on the way to the backend.
    RequestHeaderModifier,
    /// Changes headers on the way to the client.
    ResponseHeaderModifier,
    /// Changes host and path on the way to the backend.
    #[serde(rename = "URLRewrite")]
    UrlRewrite,
    /// Answers with a redirect.
    RequestRedirect,
    /// Answers with a fixed response.
    DirectResponse,
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

/// Which part of a path is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PathModifierType {
    /// The whole path.
    ReplaceFullPath,
    /// The prefix by which the rule matched.
    ReplacePrefixMatch,
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
    pub scheme: Option<RedirectScheme>,
    /// The host; the request's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::hostname")]
    pub hostname: Option<String>,
    /// The path; the request's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathModifier>,
    /// The port; when absent the scheme's if one is given, else the listener's.
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
