//! Validated matching primitives: hostnames, path patterns, regexes.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// Most segments a path pattern may have; also the most segments of a request path that a Pattern or Prefix looks at.
pub const MAX_SEGMENTS: usize = 64;

/// A hostname to match, lower case, without a port or a trailing dot.
///
/// The order is that of precedence: exact, then wildcards with more labels, then any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Hostname {
    /// This very host.
    Exact(Arc<str>),
    /// One or more labels before this suffix; `*.example.com` has the suffix `example.com`.
    Wildcard(Arc<str>),
    /// Any host.
    Any,
}

/// Why a text is no hostname.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a DNS name of lower-case labels, optionally behind a leading \"*.\"")]
pub struct InvalidHostname(String);

impl Hostname {
    /// Reads `example.com` or `*.example.com`; case is folded. Anything but an RFC 1123 name is an error.
    pub fn parse(text: &str) -> Result<Self, InvalidHostname> {
        let lower = text.to_ascii_lowercase();
        let (wildcard, name) = match lower.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, lower.as_str()),
        };
        let label_ok = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if name.len() > 253 || !name.split('.').all(label_ok) {
            return Err(InvalidHostname(text.to_owned()));
        }
        Ok(if wildcard { Self::Wildcard(name.into()) } else { Self::Exact(name.into()) })
    }

    /// Whether `host` (lower case, no port) is meant.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => **name == *host,
            Self::Wildcard(suffix) => {
                host.strip_suffix(&**suffix).and_then(|h| h.strip_suffix('.')).is_some_and(|h| !h.is_empty())
            }
            Self::Any => true,
        }
    }

    fn rank(&self) -> (u8, std::cmp::Reverse<usize>, &str) {
        let (class, name) = match self {
            Self::Exact(name) => (0, &**name),
            Self::Wildcard(suffix) => (1, &**suffix),
            Self::Any => (2, ""),
        };
        (class, std::cmp::Reverse(name.split('.').count()), name)
    }
}

impl Ord for Hostname {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Hostname {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Wildcard(suffix) => write!(f, "*.{suffix}"),
            Self::Any => f.write_str("*"),
        }
    }
}

impl Serialize for Hostname {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One segment of a path pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Segment {
    /// This very text.
    Literal(Arc<str>),
    /// One non-empty segment: `{name}`, or `*` (no name).
    One(Option<Arc<str>>),
    /// The rest of the path, also empty: a last `**`.
    Rest,
}

/// A path pattern: segments that are literal, `{name}`, `*`, or a last `**`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathPattern(Vec<Segment>);

/// Why a text is no path pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    /// It does not begin with a slash.
    #[error("pattern {0:?} does not start with \"/\"")]
    NoSlash(String),
    /// Too many segments.
    #[error("pattern {0:?} has more than {MAX_SEGMENTS} segments")]
    TooLong(String),
    /// `**` before the end.
    #[error("pattern {0:?} has \"**\" before its end")]
    RestNotLast(String),
    /// A segment mixes literals with `*` or braces.
    #[error(
        "pattern {pattern:?} has the segment {segment:?}: a segment is a literal, \"{{name}}\", \"*\", or a last \"**\""
    )]
    BadSegment {
        /// The whole pattern.
        pattern: String,
        /// The segment at fault.
        segment: String,
    },
    /// The same variable twice.
    #[error("pattern {pattern:?} names {{{name}}} twice")]
    DuplicateName {
        /// The whole pattern.
        pattern: String,
        /// The name at fault.
        name: String,
    },
}

impl PathPattern {
    /// Reads a pattern; see [`InvalidPattern`] for what is refused.
    pub fn parse(text: &str) -> Result<Self, InvalidPattern> {
        let rest = text.strip_prefix('/').ok_or_else(|| InvalidPattern::NoSlash(text.to_owned()))?;
        let mut segments = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        let pieces: Vec<&str> = rest.split('/').collect();
        if pieces.len() > MAX_SEGMENTS {
            return Err(InvalidPattern::TooLong(text.to_owned()));
        }
        for (index, piece) in pieces.iter().enumerate() {
            let segment = match *piece {
                "**" if index + 1 == pieces.len() => Segment::Rest,
                "**" => return Err(InvalidPattern::RestNotLast(text.to_owned())),
                "*" => Segment::One(None),
                piece => match piece.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
                    Some(name) if is_identifier(name) => {
                        if names.contains(&name) {
                            return Err(InvalidPattern::DuplicateName {
                                pattern: text.to_owned(),
                                name: name.to_owned(),
                            });
                        }
                        names.push(name);
                        Segment::One(Some(name.into()))
                    }
                    None if !piece.contains(['*', '{', '}']) => Segment::Literal(piece.into()),
                    _ => {
                        return Err(InvalidPattern::BadSegment { pattern: text.to_owned(), segment: piece.to_owned() });
                    }
                },
            };
            segments.push(segment);
        }
        Ok(Self(segments))
    }

    /// Its segments.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }
}

fn is_identifier(name: &str) -> bool {
    name.bytes()
        .enumerate()
        .all(|(i, b)| b.is_ascii_alphabetic() || b == b'_' || (i > 0 && (b.is_ascii_digit() || b == b'-')))
        && !name.is_empty()
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.0 {
            match segment {
                Segment::Literal(text) => write!(f, "/{text}")?,
                Segment::One(Some(name)) => write!(f, "/{{{name}}}")?,
                Segment::One(None) => f.write_str("/*")?,
                Segment::Rest => f.write_str("/**")?,
            }
        }
        Ok(())
    }
}

impl Serialize for PathPattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
