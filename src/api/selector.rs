//! The Selector: which traffic there is, for Routes to attach to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as StatusCondition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Condition, Policy, fields, rules};

/// What the Selector asks for: which traffic, and what holds for all of it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "lockgate.dev",
    version = "v1alpha1",
    kind = "Selector",
    namespaced,
    status = "SelectorStatus",
    derive = "PartialEq",
    shortname = "lsel",
    category = "lockgate",
    doc = "A Selector says which traffic there is, by listener, hostname and coarse conditions. Routes attach to it and say what happens to that traffic.",
    printcolumn = r#"{"name": "Hostnames", "type": "string", "jsonPath": ".spec.hostnames"}"#,
    printcolumn = r#"{"name": "Priority", "type": "integer", "jsonPath": ".spec.priority"}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name": "Resolved", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"ResolvedRefs\")].status"}"#,
    printcolumn = r#"{"name": "Programmed", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Programmed\")].status"}"#,
    printcolumn = r#"{"name": "Routes", "type": "integer", "jsonPath": ".status.attachedRoutes"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name": "Class", "type": "string", "jsonPath": ".spec.className", "priority": 1}"#,
    printcolumn = r#"{"name": "Address", "type": "string", "jsonPath": ".status.addresses[0].value", "priority": 1}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].reason", "priority": 1}"#
)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<SelectorSpec>()))]
pub struct SelectorSpec {
    /// Which installations of the gateway serve it.
    #[serde(default = "SelectorSpec::class")]
    #[schemars(schema_with = "fields::label_name")]
    pub class_name: String,
    /// Takes the Selector and its Routes out of the table.
    #[serde(default)]
    pub suspend: bool,
    /// Names of the gateway's listeners; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::listeners")]
    pub listeners: Vec<String>,
    /// Hostnames, lower case; a first label of `*` stands for one or more labels; any host when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::hostnames")]
    pub hostnames: Vec<String>,
    /// Conditions on the request; all traffic of the hostnames when absent.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub matching: Option<SelectorMatch>,
    /// Among Selectors of a namespace the higher one is asked first.
    #[serde(default)]
    #[schemars(schema_with = "fields::priority")]
    pub priority: i32,
    /// What happens with TLS connections to the hostnames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<SelectorTls>,
    /// Which Routes may attach.
    #[serde(default)]
    pub allowed_routes: AllowedRoutes,
    /// Policies of all Routes; a rule's block replaces the block of the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
}

impl SelectorSpec {
    fn class() -> String {
        super::DEFAULT_CLASS.to_owned()
    }
}

impl Default for SelectorSpec {
    fn default() -> Self {
        Self {
            class_name: Self::class(),
            suspend: false,
            listeners: Vec::new(),
            hostnames: Vec::new(),
            matching: None,
            priority: 0,
            tls: None,
            allowed_routes: AllowedRoutes::default(),
            policy: None,
        }
    }
}

/// How conditions combine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum MatchMode {
    /// All conditions hold.
    #[default]
    All,
    /// At least one condition holds; counts as one condition when Selectors are ordered.
    Any,
}

/// Conditions of a Selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::selector_match()))]
pub struct SelectorMatch {
    /// How the conditions combine.
    #[serde(default)]
    pub mode: MatchMode,
    /// The conditions.
    #[schemars(length(min = 1, max = 16))]
    pub conditions: Vec<Condition>,
}

/// Who ends a TLS connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TlsMode {
    /// The gateway, with the Selector's certificate.
    #[default]
    Terminate,
    /// The backend; the gateway passes the bytes on.
    Passthrough,
}

/// What happens with TLS connections to a Selector's hostnames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<SelectorTls>()))]
pub struct SelectorTls {
    /// Who ends the TLS connection.
    #[serde(default)]
    pub mode: TlsMode,
    /// A Secret of type `kubernetes.io/tls` in the Selector's namespace: the certificate of the hostnames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::object_name")]
    pub secret_name: Option<String>,
    /// What is asked of clients besides: nothing when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificates: Option<ClientCertificates>,
}

/// Whether clients have to show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ClientCertificateMode {
    /// None is asked for.
    None,
    /// One is asked for; a client without is served. One that does not verify is refused.
    Optional,
    /// A client without one that verifies is refused, and the hostnames are not served on listeners without TLS.
    #[default]
    Required,
}

/// Certificates of clients. What verified goes to backends in the header `Client-Cert` (RFC 9440).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<ClientCertificates>()))]
pub struct ClientCertificates {
    /// Whether clients have to show one.
    #[serde(default)]
    pub mode: ClientCertificateMode,
    /// A Secret in the Selector's namespace whose key `ca.crt` holds, in PEM, who may have issued them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::object_name")]
    pub ca_secret_name: Option<String>,
    /// The same in a `ConfigMap` in place of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::object_name")]
    pub ca_config_map_name: Option<String>,
}

/// Which Routes may attach to a Selector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AllowedRoutes {
    /// The namespaces of the Routes.
    #[serde(default)]
    pub namespaces: AllowedNamespaces,
}

/// Where namespaces come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum NamespacesFrom {
    /// The Selector's own.
    #[default]
    Same,
    /// Every namespace.
    All,
    /// Namespaces whose labels fit.
    Selector,
}

/// The namespaces whose Routes may attach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<AllowedNamespaces>()))]
pub struct AllowedNamespaces {
    /// Where namespaces come from.
    #[serde(default)]
    pub from: NamespacesFrom,
    /// The labels of the namespaces; only with `from: Selector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::label_selector")]
    pub selector: Option<LabelSelector>,
}

/// What became of a Selector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectorStatus {
    /// The generation of the Selector that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::generation")]
    pub observed_generation: Option<i64>,
    /// The number of Routes that are attached and accepted.
    #[serde(default)]
    #[schemars(schema_with = "fields::attached_routes")]
    pub attached_routes: i32,
    /// Where clients reach the gateway that serves the Selector: the addresses for DNS records of its hostnames. Empty while
    /// it is not programmed, and where the gateway is not told which Service is its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub addresses: Vec<SelectorAddress>,
    /// Accepted, `ResolvedRefs`, Programmed, and Shadowed where others take its requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::status_conditions")]
    pub conditions: Vec<StatusCondition>,
}

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AddressType {
    /// An IPv4 or IPv6 address.
    IPAddress,
    /// A DNS name.
    Hostname,
}

/// An address of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SelectorAddress {
    /// What the value is.
    #[serde(rename = "type")]
    pub kind: AddressType,
    /// The IP address or the DNS name.
    #[schemars(length(min = 1, max = 253))]
    pub value: String,
}
