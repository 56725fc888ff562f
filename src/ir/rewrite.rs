//! Replacements by regular expression.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::regex::Program;

/// A replacement of the first match of a regular expression, with captures. Linear in time: only one match is looked
/// for, because looking for all of them can take the square of it. Equal when its texts are.
#[derive(Clone, Serialize)]
pub struct RegexRewrite {
    #[serde(rename = "pattern", serialize_with = "as_text")]
    program: Program,
    substitution: Arc<str>,
    #[serde(skip)]
    parts: Box<[Part]>,
}

/// A part of a substitution.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Group(usize),
}

/// Why there is no such replacement.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidRewrite {
    /// The pattern is no regular expression, or too large.
    #[error(transparent)]
    Pattern(#[from] regex::Error),
    /// The pattern has no such capture.
    #[error("there is no capture {0} in the pattern")]
    UnknownGroup(String),
    /// A dollar sign that means nothing.
    #[error("a $ is followed by neither a number, {{name}} nor another $")]
    LoneDollar,
    /// The way that others write captures.
    #[error("a capture is written $1, not \\1")]
    Backslash,
}

/// The result would be longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the result is longer than {0} bytes")]
pub struct TooLong(pub usize);

impl RegexRewrite {
    /// Compiles `pattern`, and `substitution` with `$1`, `${name}`, `$0` for the whole match and `$$` for a dollar sign.
    pub fn new(pattern: &str, substitution: &str) -> Result<Self, InvalidRewrite> {
        let program = Program::new(pattern)?;
        let parts = parse(substitution, &program)?.into();
        Ok(Self { program, substitution: substitution.into(), parts })
    }

    /// The regular expression as it was written.
    pub fn pattern(&self) -> &str {
        self.program.text()
    }

    /// The substitution as it was written.
    pub fn substitution(&self) -> &str {
        &self.substitution
    }

    /// The text with its first match replaced, at most `max` bytes; `None` where nothing matches.
    pub fn apply(&self, text: &str, max: usize) -> Result<Option<String>, TooLong> {
        let Some(captures) = self.program.captures(text) else { return Ok(None) };
        let whole = captures.get(0).map_or(0..0, |found| found.range());
        let value = |part: &'_ Part| match part {
            Part::Text(text) => text.len(),
            Part::Group(index) => captures.get(*index).map_or(0, |group| group.len()),
        };
        let kept = text.len() - whole.len();
        let length = self.parts.iter().map(value).sum::<usize>() + kept;
        if length > max {
            return Err(TooLong(max));
        }
        let mut result = String::with_capacity(length);
        result.push_str(&text[..whole.start]);
        for part in &self.parts {
            match part {
                Part::Text(text) => result.push_str(text),
                Part::Group(index) => result.push_str(captures.get(*index).map_or("", |group| group.as_str())),
            }
        }
        result.push_str(&text[whole.end..]);
        Ok(Some(result))
    }
}

fn as_text<S: serde::Serializer>(program: &Program, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(program.text())
}

fn parse(substitution: &str, program: &regex::Regex) -> Result<Vec<Part>, InvalidRewrite> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut rest = substitution;
    while let Some(at) = rest.find(['$', '\\']) {
        text.push_str(&rest[..at]);
        if rest[at..].starts_with('\\') {
            return Err(InvalidRewrite::Backslash);
        }
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            text.push('$');
            rest = after;
            continue;
        }
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (name, after) = match rest.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            Some(named) => named,
            None if digits > 0 => rest.split_at(digits),
            None => return Err(InvalidRewrite::LoneDollar),
        };
        let group = group(name, program).ok_or_else(|| InvalidRewrite::UnknownGroup(name.to_owned()))?;
        if !text.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut text).into()));
        }
        parts.push(Part::Group(group));
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        parts.push(Part::Text(text.into()));
    }
    Ok(parts)
}

fn group(name: &str, program: &regex::Regex) -> Option<usize> {
    match name.parse() {
        Ok(index) => (index < program.captures_len()).then_some(index),
        Err(_) => program.capture_names().position(|known| known == Some(name)),
    }
}

impl fmt::Debug for RegexRewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegexRewrite({:?} -> {:?})", self.pattern(), self.substitution)
    }
}

impl PartialEq for RegexRewrite {
    fn eq(&self, other: &Self) -> bool {
        (self.pattern(), self.substitution()) == (other.pattern(), other.substitution())
    }
}

impl Eq for RegexRewrite {}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(pattern: &str, substitution: &str, text: &str) -> Option<String> {
        RegexRewrite::new(pattern, substitution).unwrap().apply(text, 64).unwrap()
    }

    #[test]
    fn the_first_match_is_replaced_with_its_captures() {
        for (pattern, substitution, text, expected) in [
            ("^/service/([^/]+)(/.*)$", "$2/instance/$1", "/service/foo/v1/api", "/v1/api/instance/foo"),
            ("one", "two", "/xxx/one/yyy/one/zzz", "/xxx/two/yyy/one/zzz"),
            ("(?i)/xxx/", "/yyy/", "/aaa/XxX/bbb", "/aaa/yyy/bbb"),
            ("/(?<user>[a-z]+)/(?<id>[0-9]+)", "/${id}-${user}", "/bob/17/x", "/17-bob/x"),
            ("/(a)(b)?", "/$1$2c${1}0", "/a", "/aca0"),
            ("^", "/pre", "/a", "/pre/a"),
            ("/a$", "", "/x/a", "/x"),
            ("a", "$$1", "/a", "/$1"),
            ("a+", "[$0]", "/aa", "/[aa]"),
            ("(a)", "$1{1}", "/a", "/a{1}"),
        ] {
            assert_eq!(rewritten(pattern, substitution, text).as_deref(), Some(expected), "{pattern} {substitution}");
        }
        assert_eq!(rewritten("b", "c", "/a"), None);
    }

    #[test]
    fn what_the_pattern_does_not_capture_is_refused() {
        let error = |pattern: &str, substitution: &str| RegexRewrite::new(pattern, substitution).unwrap_err();
        assert_eq!(error("(a)", "$2"), InvalidRewrite::UnknownGroup("2".to_owned()));
        assert_eq!(error("(a)", "${b}"), InvalidRewrite::UnknownGroup("b".to_owned()));
        assert_eq!(error("(a)", "$10"), InvalidRewrite::UnknownGroup("10".to_owned()));
        assert_eq!(error("(a)", "${}"), InvalidRewrite::UnknownGroup(String::new()));
        assert_eq!(error("(a)", "$99999999999999999999"), InvalidRewrite::UnknownGroup("9".repeat(20)));
        for lone in ["$", "/$a", "${1", "$-"] {
            assert_eq!(error("(a)", lone), InvalidRewrite::LoneDollar, "{lone}");
        }
        assert_eq!(error("(a)", "\\1"), InvalidRewrite::Backslash);
        assert!(matches!(error("(a", ""), InvalidRewrite::Pattern(_)));
        assert!(matches!(error("(?:a{1000}){1000}", ""), InvalidRewrite::Pattern(_)));
    }

    #[test]
    fn long_results_are_refused_before_they_are_made() {
        let rewrite = RegexRewrite::new(".*", &"$0".repeat(500)).unwrap();
        assert_eq!(rewrite.apply(&"a".repeat(8192), 8192), Err(TooLong(8192)));
    }

    /// Looking for every match of these would take the square of the text's length.
    #[test]
    fn hostile_paths_take_no_longer_than_others() {
        let path = format!("/{}", "A".repeat(8191));
        for pattern in [".*[^A-Z]|[A-Z]", "(A|A)*$", "(.*)+x", "(A*)*B"] {
            RegexRewrite::new(pattern, "/$0").unwrap().apply(&path, 1 << 20).unwrap();
        }
    }
}
