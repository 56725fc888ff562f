//! Whether the conditions, headers and queries of [`crate::ir`] hold for a request.
//!
//! Values are compared as bytes, so a header field that is not UTF-8 still has a prefix; only a regex asks for UTF-8.
//! A test that does not suit its source (a network for a header, a text for the time) never holds, negated or not.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::COOKIE;
use ipnet::IpNet;

use super::{Request, query};
use crate::ir::{
    Condition, ConditionSet, HeaderMatch, HeaderTest, MAX_SEGMENTS, Mode, PathPattern, Predicate, QueryMatch, Segment,
    Source, StringTest, TimePoint,
};

/// Whether a set of conditions holds; an empty one does.
pub fn set_holds(set: &ConditionSet, request: &Request<'_>) -> bool {
    let mut conditions = set.conditions.iter();
    match set.mode {
        Mode::All => conditions.all(|c| holds(c, request)),
        Mode::Any => set.conditions.is_empty() || conditions.any(|c| holds(c, request)),
    }
}

/// Whether one condition holds.
pub fn holds(condition: &Condition, request: &Request<'_>) -> bool {
    let outcome = match &condition.predicate {
        Predicate::Text(tests) => {
            any_value(&condition.source, request, |value| tests.iter().any(|t| text_passes(t, value)))
        }
        Predicate::Present => match condition.source {
            Source::ClientIp | Source::Time => Some(true),
            _ => any_value(&condition.source, request, |_| true),
        },
        Predicate::Cidr(networks) => (condition.source == Source::ClientIp)
            .then(|| networks.iter().any(|network| network_contains(network, request.client_ip))),
        Predicate::Before(points) => time(&condition.source, request, points, |now, point| now < point),
        Predicate::After(points) => time(&condition.source, request, points, |now, point| now >= point),
    };
    outcome.is_some_and(|outcome| outcome != condition.negate)
}

/// Whether the header fields fulfil a match: one line of the name passes, or for `Absent` there is none.
pub fn header_holds(header: &HeaderMatch, headers: &HeaderMap) -> bool {
    match header.test {
        HeaderTest::Absent => !headers.contains_key(&header.name),
        HeaderTest::Present => headers.contains_key(&header.name),
        _ => headers.get_all(&header.name).iter().any(|value| value_passes(&header.test, value.as_bytes())),
    }
}

/// Whether the query fulfils a match: one value of the key passes, or for `Absent` there is none.
pub fn query_holds(expected: &QueryMatch, query: Option<&str>) -> bool {
    let mut values = query::values(query, &expected.name);
    match expected.test {
        HeaderTest::Absent => values.next().is_none(),
        _ => values.any(|value| value_passes(&expected.test, &value)),
    }
}

/// Whether a path (or any text that begins with `/`) fits a pattern.
pub fn pattern_matches(pattern: &PathPattern, path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let mut segments = rest.split('/');
    for expected in pattern.segments() {
        let fits = match (expected, segments.next()) {
            (Segment::Rest, _) => return true,
            (_, None) => false,
            (Segment::Literal(text), Some(segment)) => **text == *segment,
            (Segment::One(_), Some(segment)) => !segment.is_empty(),
        };
        if !fits {
            return false;
        }
    }
    debug_assert!(pattern.segments().len() <= MAX_SEGMENTS, "PathPattern::parse refuses longer ones");
    segments.next().is_none()
}

/// Whether `passes` takes one of the texts of `source`; `None` where the source has no text.
fn any_value(source: &Source, request: &Request<'_>, mut passes: impl FnMut(&[u8]) -> bool) -> Option<bool> {
    Some(match source {
        Source::Path => passes(request.path.as_bytes()),
        Source::Method => passes(request.method.as_str().as_bytes()),
        Source::Host => passes(request.host.as_bytes()),
        Source::Header(name) => request.headers.get_all(name).iter().any(|value| passes(value.as_bytes())),
        Source::Query(name) => query::values(request.query, name).any(|value| passes(&value)),
        Source::Cookie(name) => cookies(request.headers, name).any(passes),
        Source::ClientIp => {
            let text = AddressText::new(request.client_ip);
            passes(text.as_bytes())
        }
        Source::Time => return None,
    })
}

/// Hands out every text of `source` that its conditions look at; `false` where the source has no text.
pub(super) fn each_value(source: &Source, request: &Request<'_>, mut see: impl FnMut(&[u8])) -> bool {
    let seen = any_value(source, request, |value| {
        see(value);
        false
    });
    seen.is_some()
}

/// The values of every cookie `name` (RFC 6265, section 4.2.1), of all field lines.
fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers.get_all(COOKIE).iter().flat_map(|line| line.as_bytes().split(|b| *b == b';')).filter_map(move |pair| {
        let equals = pair.iter().position(|b| *b == b'=')?;
        (pair[..equals].trim_ascii() == name.as_bytes()).then(|| pair[equals + 1..].trim_ascii())
    })
}

fn text_passes(test: &StringTest, value: &[u8]) -> bool {
    match test {
        StringTest::Exact(wanted) => value == wanted.as_bytes(),
        StringTest::Prefix(wanted) => value.starts_with(wanted.as_bytes()),
        StringTest::Suffix(wanted) => value.ends_with(wanted.as_bytes()),
        StringTest::Contains(wanted) => contains(value, wanted),
        StringTest::Regex(regex) => str::from_utf8(value).is_ok_and(|value| regex.is_match(value)),
        StringTest::Pattern(pattern) => str::from_utf8(value).is_ok_and(|value| pattern_matches(pattern, value)),
    }
}

fn value_passes(test: &HeaderTest, value: &[u8]) -> bool {
    match test {
        HeaderTest::Exact(wanted) => value == wanted.as_bytes(),
        HeaderTest::Prefix(wanted) => value.starts_with(wanted.as_bytes()),
        HeaderTest::Suffix(wanted) => value.ends_with(wanted.as_bytes()),
        HeaderTest::Contains(wanted) => contains(value, wanted),
        HeaderTest::Regex(regex) => str::from_utf8(value).is_ok_and(|value| regex.is_match(value)),
        HeaderTest::Present => true,
        HeaderTest::Absent => false,
    }
}

fn contains(value: &[u8], needle: &str) -> bool {
    match str::from_utf8(value) {
        Ok(value) => value.contains(needle),
        Err(_) => needle.is_empty() || value.windows(needle.len()).any(|window| window == needle.as_bytes()),
    }
}

/// Whether a network holds an address, where an IPv4 address and its IPv4-mapped IPv6 form are the same.
fn network_contains(network: &IpNet, address: IpAddr) -> bool {
    match (network, address.to_canonical()) {
        (IpNet::V4(network), IpAddr::V4(address)) => network.contains(&address),
        (IpNet::V6(network), IpAddr::V6(address)) => network.contains(&address),
        // Below 96 bits the network is wider than the mapped range and means IPv6 alone.
        (IpNet::V6(network), IpAddr::V4(address)) => {
            network.prefix_len() >= 96 && network.contains(&address.to_ipv6_mapped())
        }
        (IpNet::V4(_), IpAddr::V6(_)) => false,
    }
}

/// Whether the time stands in the asked relation to one of the points; `None` where the source is not the time.
fn time(source: &Source, request: &Request<'_>, points: &[TimePoint], relation: fn(i64, i64) -> bool) -> Option<bool> {
    const DAY: i64 = 24 * 60 * 60;
    if *source != Source::Time {
        return None;
    }
    let now = epoch_seconds(request.now.get());
    Some(points.iter().any(|point| match *point {
        TimePoint::Instant(at) => relation(now, at),
        TimePoint::Daily(at) => relation(now.rem_euclid(DAY), i64::from(at)),
    }))
}

/// Whole seconds since the epoch, rounded down.
fn epoch_seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => {
            let before = before.duration();
            let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX - 1);
            -whole - i64::from(before.subsec_nanos() > 0)
        }
    }
}

/// The text of an address, made without allocating.
struct AddressText {
    bytes: [u8; 48],
    len: usize,
}

impl AddressText {
    fn new(address: IpAddr) -> Self {
        let mut text = Self { bytes: [0; 48], len: 0 };
        // The longest text of an address has 45 bytes, so it always fits.
        let fits = write!(text, "{}", address.to_canonical());
        debug_assert!(fits.is_ok());
        text
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl std::fmt::Write for AddressText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
