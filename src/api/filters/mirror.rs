//! Copies of requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{BackendReference, fields, rules};

/// Sends copies of requests to another backend, whose answers nobody sees. It never delays a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<RequestMirror>()))]
pub struct RequestMirror {
    /// Where the copies go.
    pub backend: BackendReference,
    /// The share of requests that are copied, in percent; all when neither it nor `fraction` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::percent")]
    pub percent: Option<u32>,
    /// The share of requests that are copied, as a fraction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<Fraction>,
}

/// A share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<Fraction>()))]
pub struct Fraction {
    /// This many of `denominator`.
    #[schemars(schema_with = "fields::numerator")]
    pub numerator: u32,
    /// The whole.
    #[serde(default = "Fraction::hundred")]
    #[schemars(schema_with = "fields::denominator")]
    pub denominator: u32,
}

impl Fraction {
    const fn hundred() -> u32 {
        100
    }
}
