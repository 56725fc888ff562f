//! Requests of pages of other origins, in Gateway API's form.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{fields, rules};

/// Which pages of other origins may send requests and read answers. Preflights are answered by the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<Cors>()))]
pub struct Cors {
    /// Origins that are let in: `https://host`, with a port unless it is the scheme's usual one; `*` as the first label of
    /// a host stands for one or more labels, `*` as the host for any, a lone `*` for every origin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::cors_origins")]
    pub allow_origins: Vec<String>,
    /// Whether requests may carry cookies and other credentials.
    pub allow_credentials: bool,
    /// Methods that are let in besides GET, HEAD and POST, which always are; `*` for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::methods")]
    pub allow_methods: Vec<String>,
    /// Request headers that are let in besides those that always are; `*` for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::cors_headers")]
    pub allow_headers: Vec<String>,
    /// Answer headers that a page may read besides those that it always may; `*` for all, which has no meaning with
    /// `allowCredentials`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::cors_headers")]
    pub expose_headers: Vec<String>,
    /// For how many seconds a browser may keep the answer to a preflight.
    #[schemars(schema_with = "fields::max_age")]
    pub max_age: u32,
}

impl Default for Cors {
    fn default() -> Self {
        Self {
            allow_origins: Vec::new(),
            allow_credentials: false,
            allow_methods: Vec::new(),
            allow_headers: Vec::new(),
            expose_headers: Vec::new(),
            max_age: 5,
        }
    }
}
