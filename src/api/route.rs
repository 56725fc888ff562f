//! The Route: what happens to the traffic that its Selectors select.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as StatusCondition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Backend, Condition, Filter, HeaderMatch, Limits, LoadBalancing, PathMatch, QueryMatch, Retry, Timeouts,
    UpgradeProtocol, Upstream, fields, rules,
};

/// What the Route asks for: at which Selectors, and what to do with which of their requests.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "lockgate.dev",
    version = "v1alpha1",
    kind = "Route",
    namespaced,
    status = "RouteStatus",
    derive = "PartialEq",
    shortname = "lroute",
    category = "lockgate",
    doc = "A Route says what happens to the traffic of the Selectors it attaches to: its rules match requests and forward, redirect or answer them.",
    printcolumn = r#"{"name": "Selector", "type": "string", "jsonPath": ".spec.selectors[0].name"}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.selectors[0].conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name": "Resolved", "type": "string", "jsonPath": ".status.selectors[0].conditions[?(@.type==\"ResolvedRefs\")].status"}"#,
    printcolumn = r#"{"name": "Programmed", "type": "string", "jsonPath": ".status.selectors[0].conditions[?(@.type==\"Programmed\")].status"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.selectors[0].conditions[?(@.type==\"Accepted\")].reason", "priority": 1}"#,
    printcolumn = r#"{"name": "Message", "type": "string", "jsonPath": ".status.selectors[0].conditions[?(@.status==\"False\")].message", "priority": 1}"#
)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<RouteSpec>()))]
pub struct RouteSpec {
    /// Takes the Route out of the table.
    #[serde(default)]
    pub suspend: bool,
    /// The Selectors whose traffic the Route handles.
    #[schemars(length(min = 1, max = 16))]
    pub selectors: Vec<SelectorReference>,
    /// What to do with which requests; the most specific match wins, not the first.
    #[schemars(length(min = 1, max = 64))]
    pub rules: Vec<RouteRule>,
}

/// A Selector by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SelectorReference {
    /// The Selector's name.
    #[schemars(schema_with = "fields::object_name")]
    pub name: String,
    /// The Selector's namespace; the Route's own when absent. Another one must let the Route in by its `allowedRoutes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::label_name")]
    pub namespace: Option<String>,
}

/// What to do with the requests that match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<RouteRule>()))]
pub struct RouteRule {
    /// The rule's name in metrics, logs and explanations; its index when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::label_name")]
    pub name: Option<String>,
    /// Requests the rule takes: those that fit any of these; all requests when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub matches: Vec<RouteMatch>,
    /// What is done to requests and answers on the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub filters: Vec<Filter>,
    /// Where requests go, each to one of these, in proportion to their weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub backends: Vec<Backend>,
    /// How long things may take; replaces the Selector's block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Box<Timeouts>>,
    /// When a request is sent again; replaces the Selector's block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Box<Retry>>,
    /// Which endpoint of a backend gets a request; replaces the Selector's block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancing: Option<LoadBalancing>,
    /// How much the rule takes; replaces the Selector's block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<Limits>>,
    /// How connections to endpoints are kept; replaces the Selector's block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Box<Upstream>>,
    /// Protocols that connections may change to; replaces the Selector's list and the gateway's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::upgrades")]
    pub upgrades: Option<Vec<UpgradeProtocol>>,
}

/// A request fits when all of this holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct RouteMatch {
    /// The path; any when absent.
    #[serde(default)]
    pub path: PathMatch,
    /// The method is one of these; any when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::methods")]
    pub methods: Vec<String>,
    /// Headers of the request, all of which have to fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub headers: Vec<HeaderMatch>,
    /// Query parameters, all of which have to fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub query: Vec<QueryMatch>,
    /// Conditions on other parts of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
}

/// What became of a Route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteStatus {
    /// What became of it at each of its Selectors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        extend(
            "x-kubernetes-list-type" = "map",
            "x-kubernetes-list-map-keys" = ["namespace", "name", "controllerName"]
        )
    )]
    pub selectors: Vec<RouteSelectorStatus>,
}

/// What became of a Route at one Selector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteSelectorStatus {
    /// The Selector's namespace.
    #[schemars(schema_with = "fields::label_name")]
    pub namespace: String,
    /// The Selector's name.
    #[schemars(schema_with = "fields::object_name")]
    pub name: String,
    /// Which gateway wrote this.
    #[schemars(length(min = 1, max = 253))]
    pub controller_name: String,
    /// Accepted, `ResolvedRefs`, Programmed, and Shadowed where others take its requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::status_conditions")]
    pub conditions: Vec<StatusCondition>,
}
