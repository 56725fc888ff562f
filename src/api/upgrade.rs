//! Protocols that connections may change to.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A name, or a name and a version, each a token (RFC 9110, section 7.8).
const PATTERN: &str = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+(/[A-Za-z0-9!#$%&'*+.^_`|~-]+)?$";
/// Never allowed. A backend that changes to another HTTP would take requests that no rule has seen, and TLS hides them.
const NEVER: [&str; 3] = ["h2c", "http", "tls"];
const NEVER_PATTERN: &str = "^([Hh]2[Cc]|[Hh][Tt][Tt][Pp]|[Tt][Ll][Ss])(/|$)";
const MAX_LENGTH: usize = 64;

/// A protocol that connections may change to, such as `websocket` or `SPDY/3.1`; without a version it is any version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UpgradeProtocol(String);

/// Why a text names no protocol that can be allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeProtocolError {
    /// Not a protocol's name.
    #[error("{0:?} is no protocol: a name such as websocket, or a name and a version such as SPDY/3.1")]
    Form(String),
    /// One that would take requests past the rules.
    #[error("{0:?} cannot be allowed: requests inside of it would pass no rule")]
    Never(String),
}

impl UpgradeProtocol {
    /// The name, and the version behind a slash where there is one.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UpgradeProtocol {
    type Err = UpgradeProtocolError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_token = |part: &str| {
            let is_mark = |b: u8| b"!#$%&'*+.^_`|~-".contains(&b);
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || is_mark(b))
        };
        let (name, version) = text.split_once('/').map_or((text, None), |(name, version)| (name, Some(version)));
        if text.len() > MAX_LENGTH || !is_token(name) || !version.is_none_or(is_token) {
            return Err(UpgradeProtocolError::Form(text.to_owned()));
        }
        if NEVER.iter().any(|never| never.eq_ignore_ascii_case(name)) {
            return Err(UpgradeProtocolError::Never(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for UpgradeProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for UpgradeProtocol {
    type Error = UpgradeProtocolError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<UpgradeProtocol> for String {
    fn from(protocol: UpgradeProtocol) -> Self {
        protocol.0
    }
}

impl JsonSchema for UpgradeProtocol {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "UpgradeProtocol".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_LENGTH,
            "pattern": PATTERN,
            "not": {"pattern": NEVER_PATTERN},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_read_and_other_http_is_refused() {
        for good in ["websocket", "WebSocket", "SPDY/3.1", "tcp", "h2c-like", "httpx"] {
            assert_eq!(good.parse::<UpgradeProtocol>().unwrap().as_str(), good);
        }
        for bad in ["", "/", "a/", "/1", "a b", "a,b", "a/1/2", "w\u{e9}b", &"x".repeat(65)] {
            assert!(matches!(bad.parse::<UpgradeProtocol>(), Err(UpgradeProtocolError::Form(_))), "{bad}");
        }
        for never in ["h2c", "H2C", "TLS/1.0", "tls", "HTTP/2.0", "http"] {
            assert!(matches!(never.parse::<UpgradeProtocol>(), Err(UpgradeProtocolError::Never(_))), "{never}");
        }
    }

    #[test]
    fn the_schema_says_the_same() {
        let (shape, never) = (regex::Regex::new(PATTERN).unwrap(), regex::Regex::new(NEVER_PATTERN).unwrap());
        for text in ["websocket", "SPDY/3.1", "h2c", "H2c", "TLS/1.0", "HTTP", "a/", "a b", "a/b/c", "h2cx", "http2"] {
            let by_schema = shape.is_match(text) && !never.is_match(text);
            assert_eq!(text.parse::<UpgradeProtocol>().is_ok(), by_schema, "{text}");
        }
    }
}
