//! The first part of a match, or condition of a Selector, that a request does not fulfil.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ir::{Condition, ConditionSet, MAX_SEGMENTS, Match, Mode, PathMatch, Source};
use crate::routing::{Request, condition, phrase, query};

/// Most values of a request that one mismatch shows.
const MAX_VALUES: usize = 8;
/// Most bytes of each.
const MAX_VALUE: usize = 256;

/// A part of a match, in the order in which they are looked at here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// `path`.
    Path,
    /// `methods`.
    Method,
    /// One of `headers`.
    Header,
    /// One of `query`.
    Query,
    /// One of `conditions`.
    Condition,
}

/// A part that does not hold, with what it asks for and what the request has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mismatch {
    /// Which part.
    pub part: Part,
    /// Its position in the list of its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// What is looked at, such as `Path`, `Header x-user`, `ClientIP`.
    pub field: String,
    /// Such as `Exact`.
    pub operator: String,
    /// Whether the outcome is inverted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub negated: bool,
    /// Any of these would do; empty for operators without a value.
    pub expected: Vec<String>,
    /// What the request has; empty for nothing. Long values and lists are cut.
    pub actual: Vec<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |values: &[String]| values.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>();
        let not = if self.negated { "not " } else { "" };
        write!(f, "{}: wants {not}{}", self.field, self.operator)?;
        if !self.expected.is_empty() {
            write!(f, " {}", quoted(&self.expected).join(" or "))?;
        }
        match &self.actual[..] {
            [] => f.write_str(", has none"),
            values => write!(f, ", has {}", quoted(values).join(", ")),
        }
    }
}

/// The first part of a match that fails, by kind and position.
pub(super) fn failing(matching: &Match, request: &Request<'_>) -> Option<(Part, usize)> {
    if !path_fits(&matching.path, request.path) {
        return Some((Part::Path, 0));
    }
    if !matching.methods.is_empty() && !matching.methods.contains(request.method) {
        return Some((Part::Method, 0));
    }
    let header = matching.headers.iter().position(|header| !condition::header_holds(header, request.headers));
    let query = || matching.query.iter().position(|query| !condition::query_holds(query, request.query));
    let condition = || matching.conditions.iter().position(|c| !condition::holds(c, request));
    header
        .map(|at| (Part::Header, at))
        .or_else(|| query().map(|at| (Part::Query, at)))
        .or_else(|| condition().map(|at| (Part::Condition, at)))
}

/// Whether a path fits, all rules of the table's indexes told alone.
pub(super) fn path_fits(path: &PathMatch, given: &str) -> bool {
    match path {
        PathMatch::Exact(text) => **text == *given,
        PathMatch::Regex(regex) => regex.is_match(given),
        PathMatch::Pattern(pattern) => condition::pattern_matches(pattern, given),
        PathMatch::Prefix(text) => {
            let rest = given.strip_prefix(&**text);
            text.matches('/').count() <= MAX_SEGMENTS
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
    }
}

/// Describes a part that [`failing`] named.
pub(super) fn describe(matching: &Match, (part, at): (Part, usize), request: &Request<'_>) -> Option<Mismatch> {
    let named = |field: String, test: phrase::Test, actual: Vec<String>| Mismatch {
        part,
        index: Some(at),
        field,
        operator: test.operator.to_owned(),
        negated: false,
        expected: test.values,
        actual,
    };
    Some(match part {
        Part::Path => {
            let (operator, value) = phrase::path_test(&matching.path);
            let test = phrase::Test { operator, values: vec![value] };
            Mismatch { index: None, ..named("Path".to_owned(), test, vec![cut(request.path.as_bytes())]) }
        }
        Part::Method => {
            let values = matching.methods.iter().map(ToString::to_string).collect();
            let test = phrase::Test { operator: "Exact", values };
            Mismatch { index: None, ..named("Method".to_owned(), test, vec![cut(request.method.as_str().as_bytes())]) }
        }
        Part::Header => {
            let header = matching.headers.get(at)?;
            let values = request.headers.get_all(&header.name).iter().map(http::HeaderValue::as_bytes);
            named(format!("Header {}", header.name), phrase::header_test(&header.test), cut_all(values))
        }
        Part::Query => {
            let wanted = matching.query.get(at)?;
            let values = cut_all(query::values(request.query, &wanted.name));
            named(format!("Query {}", wanted.name), phrase::header_test(&wanted.test), values)
        }
        Part::Condition => of_condition(matching.conditions.get(at)?, at, request),
    })
}

/// What keeps a set from holding: the first condition that fails, or of an `Any` set each of them. Empty when it holds.
pub(super) fn of_set(set: &ConditionSet, request: &Request<'_>) -> Vec<Mismatch> {
    if condition::set_holds(set, request) {
        return Vec::new();
    }
    let failing = set.conditions.iter().enumerate().filter(|(_, condition)| !condition::holds(condition, request));
    let count = match set.mode {
        Mode::All => 1,
        Mode::Any => usize::MAX,
    };
    failing.take(count).map(|(at, condition)| of_condition(condition, at, request)).collect()
}

fn of_condition(condition: &Condition, at: usize, request: &Request<'_>) -> Mismatch {
    let test = phrase::predicate(&condition.predicate);
    Mismatch {
        part: Part::Condition,
        index: Some(at),
        field: phrase::source(&condition.source),
        operator: test.operator.to_owned(),
        negated: condition.negate,
        expected: test.values,
        actual: actual(&condition.source, request),
    }
}

fn actual(source: &Source, request: &Request<'_>) -> Vec<String> {
    let mut values = Vec::new();
    let has_text = condition::each_value(source, request, |value| {
        if values.len() < MAX_VALUES {
            values.push(cut(value));
        }
    });
    if has_text { values } else { vec![phrase::time(request.now.get())] }
}

fn cut_all<'a>(values: impl Iterator<Item = impl Into<Cow<'a, [u8]>>>) -> Vec<String> {
    values.take(MAX_VALUES).map(|value| cut(&value.into())).collect()
}

/// A value as text, cut where it is long.
fn cut(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    if text.len() <= MAX_VALUE {
        return text.into_owned();
    }
    let end = text.floor_char_boundary(MAX_VALUE);
    format!("{}\u{2026}", &text[..end])
}
