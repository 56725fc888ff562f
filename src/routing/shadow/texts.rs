//! Tests of texts as regexes, and texts that pass them.

use std::fmt::Write as _;

use crate::ir::{Condition, HeaderTest, PathPattern, Predicate, Segment, StringTest};

/// A test of a value, from a match or a condition.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field<'a> {
    Header(&'a HeaderTest),
    Text(&'a StringTest),
    Present,
}

impl<'a> Field<'a> {
    /// Whether one value alone passes, or none.
    pub(super) fn is_exact(self) -> bool {
        matches!(self, Self::Header(HeaderTest::Exact(_) | HeaderTest::Absent) | Self::Text(StringTest::Exact(_)))
    }

    /// The text that it asks for.
    fn text(self) -> Option<&'a str> {
        match self {
            Self::Header(
                HeaderTest::Exact(text)
                | HeaderTest::Prefix(text)
                | HeaderTest::Suffix(text)
                | HeaderTest::Contains(text),
            )
            | Self::Text(
                StringTest::Exact(text)
                | StringTest::Prefix(text)
                | StringTest::Suffix(text)
                | StringTest::Contains(text),
            ) => Some(text),
            _ => None,
        }
    }

    fn regex(self) -> String {
        let escaped = |text: &str| regex::escape(text);
        match self {
            Self::Header(HeaderTest::Exact(t)) | Self::Text(StringTest::Exact(t)) => escaped(t),
            Self::Header(HeaderTest::Prefix(t)) | Self::Text(StringTest::Prefix(t)) => format!("{}(?s:.*)", escaped(t)),
            Self::Header(HeaderTest::Suffix(t)) | Self::Text(StringTest::Suffix(t)) => format!("(?s:.*){}", escaped(t)),
            Self::Header(HeaderTest::Contains(t)) | Self::Text(StringTest::Contains(t)) => {
                format!("(?s:.*){}(?s:.*)", escaped(t))
            }
            Self::Header(HeaderTest::Regex(r)) | Self::Text(StringTest::Regex(r)) => format!("(?:{})", r.source()),
            Self::Text(StringTest::Pattern(pattern)) => of_pattern(pattern),
            Self::Header(HeaderTest::Present) | Self::Present => "(?s:.*)".to_owned(),
            Self::Header(HeaderTest::Absent) => "[a&&b]".to_owned(),
        }
    }
}

fn of_pattern(pattern: &PathPattern) -> String {
    let mut text = String::new();
    for segment in pattern.segments() {
        match segment {
            Segment::Literal(literal) => {
                text.push('/');
                text.push_str(&regex::escape(literal));
            }
            Segment::One(_) => text.push_str("/[^/]+"),
            Segment::Rest => text.push_str("(?:/(?s:.*))?"),
        }
    }
    text
}

/// A regex for what passes one of the tests.
pub(super) fn regex<'a>(tests: impl Iterator<Item = Field<'a>>) -> String {
    tests.map(|test| format!("(?:{})", test.regex())).collect::<Vec<_>>().join("|")
}

/// Values that may pass one test of each list.
pub(super) fn guesses(wanted: &[Vec<Field<'_>>], variant: usize) -> Vec<String> {
    let mut texts: Vec<String> = wanted.iter().flatten().filter_map(|test| test.text()).map(str::to_owned).collect();
    if let [first, .., last] = &texts[..] {
        let (ahead, behind) = (format!("{first}{last}"), format!("{last}{first}"));
        texts.extend([ahead, behind]);
    }
    texts.extend(if variant == 0 { ["1", "x"] } else { ["other", "0"] }.map(str::to_owned));
    texts
}

/// The texts that a condition names.
pub(super) fn of_condition(condition: &Condition) -> Vec<&str> {
    match &condition.predicate {
        Predicate::Text(tests) => tests.iter().filter_map(|test| Field::Text(test).text()).collect(),
        _ => Vec::new(),
    }
}

/// A text as part of a query string.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Regex;

    #[test]
    fn tests_become_regexes_that_say_the_same() {
        let pattern = |text: &str| StringTest::Pattern(PathPattern::parse(text).unwrap());
        for (test, passes, fails) in [
            (StringTest::Exact("a.b".into()), "a.b", "axb"),
            (StringTest::Prefix("a".into()), "a/b", "ba"),
            (StringTest::Suffix(".js".into()), "/x.js", ".jsx"),
            (StringTest::Contains("a+".into()), "xa+y", "aa"),
            (StringTest::Regex(Regex::new("a|b").unwrap()), "b", "ab"),
            (pattern("/a/{x}/**"), "/a/b", "/a/"),
            (pattern("/a/*"), "/a/b", "/a/b/c"),
        ] {
            let regex = Regex::new(&regex([Field::Text(&test)].into_iter())).unwrap();
            assert!(regex.is_match(passes) && !regex.is_match(fails), "{regex:?}");
        }
        assert_eq!(encoded("a b&c=ü~"), "a%20b%26c%3D%C3%BC~");
    }
}
