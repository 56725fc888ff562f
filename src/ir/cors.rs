//! Which origins, methods and header fields CORS lets in.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use serde::{Serialize, Serializer};

/// What pages of other origins may do, with the values of answer fields prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cors {
    /// The origins that are let in.
    pub origins: Origins,
    /// Whether requests may carry credentials.
    pub credentials: bool,
    /// The methods that are let in.
    pub methods: Allowed,
    /// The request header fields that are let in.
    pub headers: Allowed,
    /// The value of `access-control-expose-headers`, if there is to be one.
    #[serde(serialize_with = "as_text")]
    pub expose: Option<HeaderValue>,
    /// Seconds that the answer to a preflight may be kept.
    pub max_age: u32,
}

#[expect(clippy::ref_option, reason = "serde hands out references")]
fn as_text<S: Serializer>(value: &Option<HeaderValue>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes())).serialize(serializer)
}

/// Origins that are let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Origins {
    /// Every origin, also those that are opaque.
    All,
    /// Those that one of these matches.
    Some(Vec<OriginPattern>),
}

/// Methods or header fields that are let in, besides those that always are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// No others.
    None,
    /// Whatever is asked for.
    All,
    /// These: the value of the answer's field.
    Listed(HeaderValue),
}

impl Serialize for Allowed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_none(),
            Self::All => serializer.serialize_str("*"),
            Self::Listed(value) => serializer.collect_str(&String::from_utf8_lossy(value.as_bytes())),
        }
    }
}

/// A pattern of origins: a scheme, a host or its end, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginPattern {
    https: bool,
    host: HostPattern,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Any,
    /// One or more labels before this.
    Below(Arc<str>),
    Exact(Arc<str>),
}

/// Why a text is no pattern of origins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an origin such as https://example.com, https://*.example.com:8443 or http://*")]
pub struct InvalidOrigin(String);

impl OriginPattern {
    /// Reads `scheme://host` or `scheme://host:port`, where the host may be `*` or begin with `*.`.
    pub fn parse(text: &str) -> Result<Self, InvalidOrigin> {
        let invalid = || InvalidOrigin(text.to_owned());
        let (https, host, port) = split(text).ok_or_else(invalid)?;
        let lower = host.to_ascii_lowercase();
        let host = match (&*lower, lower.strip_prefix("*.")) {
            ("*", _) => HostPattern::Any,
            (_, Some(rest)) if is_name(rest) => HostPattern::Below(rest.into()),
            (name, None) if is_name(name) => HostPattern::Exact(name.into()),
            _ => return Err(invalid()),
        };
        Ok(Self { https, host, port })
    }

    /// Whether the value of an `Origin` field is one of these (RFC 6454, section 6.2).
    pub fn matches(&self, origin: &str) -> bool {
        let Some((https, host, port)) = split(origin) else { return false };
        https == self.https
            && port == self.port
            && match &self.host {
                HostPattern::Any => !host.is_empty(),
                HostPattern::Exact(name) => host.eq_ignore_ascii_case(name),
                HostPattern::Below(rest) => host
                    .len()
                    .checked_sub(rest.len() + 1)
                    .filter(|at| *at > 0)
                    .and_then(|at| Some((host.as_bytes().get(at)?, host.get(at + 1..)?)))
                    .is_some_and(|(dot, end)| *dot == b'.' && end.eq_ignore_ascii_case(rest)),
            }
    }
}

/// Scheme, host and port of an origin, the port its scheme's where none is written.
fn split(origin: &str) -> Option<(bool, &str, u16)> {
    let (scheme, rest) = origin.split_once("://")?;
    let (https, usual) = match scheme {
        "https" => (true, 443),
        "http" => (false, 80),
        _ => return None,
    };
    let host_len = if rest.starts_with('[') { rest.find(']')? + 1 } else { rest.find(':').unwrap_or(rest.len()) };
    let (host, port) = rest.split_at(host_len);
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => usual,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
        _ => return None,
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]*".contains(&byte);
    (!host.is_empty() && host.bytes().all(is_host)).then_some((https, host, port))
}

fn is_name(name: &str) -> bool {
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    name.split('.').all(is_label)
}

impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.https { "https://" } else { "http://" })?;
        match &self.host {
            HostPattern::Any => f.write_str("*")?,
            HostPattern::Below(rest) => write!(f, "*.{rest}")?,
            HostPattern::Exact(name) => f.write_str(name)?,
        }
        write!(f, ":{}", self.port)
    }
}

impl Serialize for OriginPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_match_by_scheme_host_and_port() {
        for (pattern, origin, expected) in [
            ("https://www.foo.com", "https://www.foo.com", true),
            ("https://www.foo.com", "https://www.foo.com:443", true),
            ("https://www.foo.com:443", "https://www.foo.com", true),
            ("https://WWW.foo.com", "https://www.foo.com", true),
            ("https://www.foo.com", "http://www.foo.com", false),
            ("https://www.foo.com", "https://www.foo.com:8443", false),
            ("http://www.foo.com:8080", "http://www.foo.com:8080", true),
            ("https://www.foo.com", "https://foo.com", false),
            ("https://www.foo.com", "https://www.foo.com.evil.example", false),
            ("https://www.foo.com", "https://www.foo.com@evil.example", false),
            ("https://*.bar.com", "https://www.bar.com", true),
            ("https://*.bar.com", "https://a.b.c.bar.com", true),
            ("https://*.bar.com", "https://bar.com", false),
            ("https://*.bar.com", "https://.bar.com", false),
            ("https://*.bar.com", "https://evilbar.com", false),
            ("https://*.bar.com", "https://a.bar.com.evil.example", false),
            ("https://*.bar.com", "https://evil.example/.bar.com", false),
            ("https://*.bar.com", "https://evil.example?.bar.com", false),
            ("https://*.bar.com", "https://evil.example\\.bar.com", false),
            ("https://*.bar.com", "https://\u{fc}.bar.com", false),
            ("https://*.bar.com:8443", "https://www.bar.com", false),
            ("https://*", "https://any.example", true),
            ("https://*", "https://any.example:8443", false),
            ("http://*:3000", "http://[::1]:3000", true),
            ("http://*", "null", false),
            ("http://*", "", false),
            ("http://*", "http://", false),
            ("http://*", "chrome-extension://abcdef", false),
        ] {
            assert_eq!(OriginPattern::parse(pattern).unwrap().matches(origin), expected, "{pattern} {origin}");
        }
    }

    #[test]
    fn other_texts_are_no_origins() {
        for text in [
            "",
            "*",
            "foo.com",
            "ftp://foo.com",
            "https://",
            "https://foo.com/",
            "https://foo.com:",
            "https://foo.com:65536",
            "https://foo.*",
            "https://*foo.com",
            "https://a.*.com",
            "https://foo..com",
            "https://u@foo.com",
        ] {
            assert!(OriginPattern::parse(text).is_err(), "{text}");
        }
    }
}
