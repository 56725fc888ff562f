//! Filters: what is done to requests and answers on their way, and answers that the gateway makes.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::rule::as_strings;
use super::{ClusterId, Cors, RegexRewrite};

/// A change to the request or the answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Filter {
    /// Answers preflights, and lets pages of other origins read answers.
    Cors(Box<Cors>),
    /// Changes request header fields.
    RequestHeaders(HeaderEdit),
    /// Changes query parameters.
    RequestQuery(QueryEdit),
    /// Changes the request's target before it is forwarded.
    Rewrite {
        /// The new `Host`.
        hostname: Option<Arc<str>>,
        /// The new path.
        path: Option<PathRewrite>,
    },
    /// Copies the request as it is forwarded.
    Mirror(Mirror),
    /// Changes answer header fields.
    ResponseHeaders(HeaderEdit),
}

impl Filter {
    /// When it comes among others, whatever their order in the object: the smallest first.
    pub fn stage(&self) -> u8 {
        match self {
            Self::Cors(_) => 0,
            Self::RequestHeaders(_) => 1,
            Self::RequestQuery(_) => 2,
            Self::Rewrite { .. } => 3,
            Self::Mirror(_) => 4,
            Self::ResponseHeaders(_) => 5,
        }
    }
}

/// Where copies go, and of which share of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mirror {
    /// The Cluster that gets the copies.
    pub cluster: ClusterId,
    /// This many of `denominator`.
    pub numerator: u32,
    /// Never 0.
    pub denominator: u32,
}

/// Query changes, done in the order remove, set, add. Names are decoded, pairs are encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueryEdit {
    /// Names of parameters that go.
    pub remove: Vec<Arc<str>>,
    /// Names, and the pairs that replace all of the name.
    pub set: Vec<(Arc<str>, Arc<str>)>,
    /// Pairs that join the others.
    pub add: Vec<Arc<str>>,
}

/// Header changes, done in the order remove, set, add.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeaderEdit {
    /// Fields that go.
    #[serde(serialize_with = "as_strings")]
    pub remove: Vec<http::HeaderName>,
    /// Fields that replace all of their name.
    #[serde(serialize_with = "as_fields")]
    pub set: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Fields that join those of their name.
    #[serde(serialize_with = "as_fields")]
    pub add: Vec<(http::HeaderName, http::HeaderValue)>,
}

fn as_fields<S: Serializer>(
    fields: &[(http::HeaderName, http::HeaderValue)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(fields.iter().map(|(n, v)| format!("{n}: {}", String::from_utf8_lossy(v.as_bytes()))))
}

/// How a path is rewritten; the query stays. Texts are in the normal form of paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum PathRewrite {
    /// The whole path.
    Full(Arc<str>),
    /// The matched prefix (the matched path for Exact; the literal segments at the front of a Pattern).
    Prefix(Arc<str>),
    /// The first part that a regular expression matches.
    Regex(Box<RegexRewrite>),
}

/// A redirect; what is `None` stays as in the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Redirect {
    /// `http` or `https`.
    pub scheme: Option<Arc<str>>,
    /// The host.
    pub hostname: Option<Arc<str>>,
    /// The port; `None` follows Gateway API: the scheme's own when the scheme changes, else the request's.
    pub port: Option<u16>,
    /// The path.
    pub path: Option<PathRewrite>,
    /// 301, 302, 303, 307 or 308.
    #[serde(serialize_with = "as_code")]
    pub status: http::StatusCode,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn as_code<S: Serializer>(status: &http::StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

/// An answer made by the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DirectResponse {
    /// The status.
    #[serde(serialize_with = "as_code")]
    pub status: http::StatusCode,
    /// Header fields besides those of framing.
    #[serde(serialize_with = "as_fields")]
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
    /// The body; empty for none.
    pub body: Arc<str>,
}
