//! Matches and conditions in words, as the objects write them.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::ir::{Condition, HeaderTest, Match, PathMatch, Predicate, Source, StringTest, TimePoint};

/// What a match asks for, each part in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MatchText {
    /// Such as `Prefix /cart`.
    pub path: String,
    /// Empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Such as `x-user Exact "beta"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Such as `v Present`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<String>,
    /// Such as `not ClientIP Cidr 10.0.0.0/8`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
}

impl MatchText {
    /// Puts a match into words.
    pub fn new(matching: &Match) -> Self {
        let named = |name: &str, test: &HeaderTest| phrase(name, &header_test(test));
        Self {
            path: path(&matching.path),
            methods: matching.methods.iter().map(ToString::to_string).collect(),
            headers: matching.headers.iter().map(|header| named(header.name.as_str(), &header.test)).collect(),
            query: matching.query.iter().map(|query| named(&query.name, &query.test)).collect(),
            conditions: matching.conditions.iter().map(condition).collect(),
        }
    }
}

impl std::fmt::Display for MatchText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.path)?;
        if !self.methods.is_empty() {
            write!(f, ", {}", self.methods.join("|"))?;
        }
        for (what, parts) in [("header", &self.headers), ("query", &self.query), ("", &self.conditions)] {
            for part in parts {
                let gap = if what.is_empty() { "" } else { " " };
                write!(f, ", {what}{gap}{part}")?;
            }
        }
        Ok(())
    }
}

/// An operator with its values, as they stand in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// Such as `Exact`.
    pub operator: &'static str,
    /// Any of them.
    pub values: Vec<String>,
}

fn test(operator: &'static str, values: impl IntoIterator<Item = impl ToString>) -> Test {
    Test { operator, values: values.into_iter().map(|value| value.to_string()).collect() }
}

fn phrase(name: &str, test: &Test) -> String {
    let values: Vec<String> = test.values.iter().map(|value| format!("{value:?}")).collect();
    let gap = if values.is_empty() { "" } else { " " };
    format!("{name} {}{gap}{}", test.operator, values.join(" or "))
}

/// A path, such as `Prefix /cart`.
pub fn path(path: &PathMatch) -> String {
    let (operator, value) = path_test(path);
    format!("{operator} {value}")
}

/// The type and value of a path.
pub fn path_test(path: &PathMatch) -> (&'static str, String) {
    match path {
        PathMatch::Exact(text) => ("Exact", text.to_string()),
        PathMatch::Prefix(text) if text.is_empty() => ("Prefix", "/".to_owned()),
        PathMatch::Prefix(text) => ("Prefix", text.to_string()),
        PathMatch::Pattern(pattern) => ("Pattern", pattern.to_string()),
        PathMatch::Regex(regex) => ("Regex", regex.source().to_owned()),
    }
}

/// The test of a header or query parameter.
pub fn header_test(of: &HeaderTest) -> Test {
    match of {
        HeaderTest::Exact(value) => test("Exact", [value]),
        HeaderTest::Regex(regex) => test("Regex", [regex.source()]),
        HeaderTest::Present => test("Present", [""; 0]),
        HeaderTest::Absent => test("Absent", [""; 0]),
        HeaderTest::Prefix(value) => test("Prefix", [value]),
        HeaderTest::Suffix(value) => test("Suffix", [value]),
        HeaderTest::Contains(value) => test("Contains", [value]),
    }
}

/// A condition, such as `not Header x-user Exact "beta"`.
pub fn condition(condition: &Condition) -> String {
    let not = if condition.negate { "not " } else { "" };
    format!("{not}{}", phrase(&source(&condition.source), &predicate(&condition.predicate)))
}

/// What a condition looks at, such as `Header x-user`.
pub fn source(source: &Source) -> String {
    match source {
        Source::Path => "Path".to_owned(),
        Source::Method => "Method".to_owned(),
        Source::Host => "Host".to_owned(),
        Source::Header(name) => format!("Header {name}"),
        Source::Query(name) => format!("Query {name}"),
        Source::Cookie(name) => format!("Cookie {name}"),
        Source::ClientIp => "ClientIP".to_owned(),
        Source::Time => "Time".to_owned(),
    }
}

/// The test of a condition.
pub fn predicate(predicate: &Predicate) -> Test {
    match predicate {
        Predicate::Text(tests) => {
            let operator = tests.first().map_or("Exact", |test| text_test(test).0);
            // The tests of one condition share its operator.
            test(operator, tests.iter().map(|test| text_test(test).1))
        }
        Predicate::Present => test("Present", [""; 0]),
        // Exact addresses are kept as the networks of one address.
        Predicate::Cidr(networks) if networks.iter().all(|n| n.prefix_len() == n.max_prefix_len()) => {
            test("Exact", networks.iter().map(ipnet::IpNet::addr))
        }
        Predicate::Cidr(networks) => test("Cidr", networks),
        Predicate::Before(points) => test("Before", points.iter().map(point)),
        Predicate::After(points) => test("After", points.iter().map(point)),
    }
}

fn text_test(test: &StringTest) -> (&'static str, String) {
    match test {
        StringTest::Exact(value) => ("Exact", value.to_string()),
        StringTest::Prefix(value) => ("Prefix", value.to_string()),
        StringTest::Suffix(value) => ("Suffix", value.to_string()),
        StringTest::Contains(value) => ("Contains", value.to_string()),
        StringTest::Regex(regex) => ("Regex", regex.source().to_owned()),
        StringTest::Pattern(pattern) => ("Pattern", pattern.to_string()),
    }
}

fn point(point: &TimePoint) -> String {
    match *point {
        TimePoint::Instant(at) => jiff::Timestamp::from_second(at).map_or_else(|_| at.to_string(), |at| at.to_string()),
        TimePoint::Daily(second) => {
            let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
            if seconds == 0 {
                format!("{hours:02}:{minutes:02}")
            } else {
                format!("{hours:02}:{minutes:02}:{seconds:02}")
            }
        }
    }
}

/// A time in RFC 3339, whole seconds.
pub fn time(at: SystemTime) -> String {
    let seconds = match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        // Down to the second before, as conditions do.
        Err(before) => {
            i64::try_from((before.duration() + Duration::from_nanos(999_999_999)).as_secs()).map_or(i64::MIN, |s| -s)
        }
    };
    jiff::Timestamp::from_second(seconds).map_or_else(|_| format!("{seconds} s"), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::PathPattern;

    #[test]
    fn matches_read_as_they_are_written() {
        let negated = Condition {
            source: Source::ClientIp,
            predicate: Predicate::Cidr(vec!["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]),
            negate: true,
        };
        let hours = Condition {
            source: Source::Time,
            predicate: Predicate::After(vec![TimePoint::Instant(0), TimePoint::Daily(30_600)]),
            negate: false,
        };
        let matching = Match {
            index: 0,
            path: PathMatch::Pattern(PathPattern::parse("/a/{id}/**").unwrap()),
            methods: vec![http::Method::GET, http::Method::HEAD],
            headers: vec![],
            query: vec![],
            conditions: vec![negated, hours],
        };
        let matching = matching.header("x", HeaderTest::Exact("1".into())).query("v", HeaderTest::Present);
        assert_eq!(
            MatchText::new(&matching).to_string(),
            "Pattern /a/{id}/**, GET|HEAD, header x Exact \"1\", query v Present, \
             not ClientIP Cidr \"10.0.0.0/8\" or \"::1/128\", \
             Time After \"1970-01-01T00:00:00Z\" or \"08:30\""
        );
        assert_eq!(path(&PathMatch::Prefix("".into())), "Prefix /");
    }

    #[test]
    fn times_are_whole_seconds() {
        let at = SystemTime::UNIX_EPOCH;
        assert_eq!(time(at + Duration::from_millis(1_500)), "1970-01-01T00:00:01Z");
        assert_eq!(time(at - Duration::from_millis(500)), "1969-12-31T23:59:59Z");
    }
}
