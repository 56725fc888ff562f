//! Matches of a rule.

use http::{HeaderName, Method};

use crate::api::reason::INVALID;
use crate::api::{self, PathMatchType, RouteMatch, ValueMatchType};
use crate::ir::{HeaderMatch, HeaderTest, Match, PathMatch, QueryMatch, Regex};

use super::conditions::condition;
use super::path;
use super::report::{Field, Report, regex_error};

/// The matches of a rule; those that do not compile are left out with a problem in the report. A rule without
/// `matches` takes every path.
pub(super) fn matches(matches: &[RouteMatch], rule: &Field<'_>, report: &mut Report) -> Vec<Match> {
    if matches.is_empty() {
        return route_match(0, &RouteMatch::default(), &rule.entry("matches", 0), report).into_iter().collect();
    }
    let one = |(index, matching)| route_match(index, matching, &rule.entry("matches", index), report);
    let mut matches: Vec<Match> = matches.iter().enumerate().filter_map(one).collect();
    // Most rules have one, and room for four would stay with each.
    matches.shrink_to_fit();
    matches
}

fn route_match(index: usize, matching: &RouteMatch, field: &Field<'_>, report: &mut Report) -> Option<Match> {
    // Every part is read even after a broken one, so that the verdict names all problems.
    let path = path_match(&matching.path, &field.member("path"), report);
    let methods = all(&matching.methods, |index, method| {
        let parsed = Method::from_bytes(method.as_bytes()).ok();
        if parsed.is_none() {
            report.add(INVALID, &field.entry("methods", index), format!("{method:?} is not a method"));
        }
        parsed
    });
    let headers = all(&matching.headers, |i, header| header_match(header, &field.entry("headers", i), report));
    let query = all(&matching.query, |i, query| query_match(query, &field.entry("query", i), report));
    let conditions = all(&matching.conditions, |i, c| condition(c, &field.entry("conditions", i), report));
    Some(Match {
        index: u16::try_from(index).unwrap_or(u16::MAX),
        path: path?,
        methods: methods?,
        headers: headers?,
        query: query?,
        conditions: conditions?,
    })
}

/// Reads all items; `None` when one of them is wrong.
fn all<T, U>(items: &[T], mut read: impl FnMut(usize, &T) -> Option<U>) -> Option<Vec<U>> {
    let good: Vec<U> = items.iter().enumerate().filter_map(|(index, item)| read(index, item)).collect();
    (good.len() == items.len()).then_some(good)
}

fn path_match(matching: &api::PathMatch, field: &Field<'_>, report: &mut Report) -> Option<PathMatch> {
    let value = matching.value.as_str();
    let path = match matching.r#type {
        PathMatchType::Exact => path::normal(value).map(|path| PathMatch::Exact(path.into())),
        PathMatchType::Prefix => {
            path::normal(value).map(|path| PathMatch::Prefix(path.strip_suffix('/').unwrap_or(&path).into()))
        }
        PathMatchType::Pattern => path::pattern(value).map(PathMatch::Pattern),
        PathMatchType::Regex => Regex::new(value).map(PathMatch::Regex).map_err(|error| regex_error(&error)),
    };
    path.map_err(|what| report.add(INVALID, field, what)).ok()
}

fn header_match(matching: &api::HeaderMatch, field: &Field<'_>, report: &mut Report) -> Option<HeaderMatch> {
    let name = HeaderName::from_bytes(matching.name.as_bytes()).ok();
    if name.is_none() {
        report.add(INVALID, &field.member("name"), format!("{:?} is not the name of a header", matching.name));
    }
    let test = value_test(matching.r#type, matching.value.as_deref(), field, report);
    Some(HeaderMatch { name: name?, test: test? })
}

fn query_match(matching: &api::QueryMatch, field: &Field<'_>, report: &mut Report) -> Option<QueryMatch> {
    let test = value_test(matching.r#type, matching.value.as_deref(), field, report)?;
    Some(QueryMatch { name: matching.name.as_str().into(), test })
}

fn value_test(kind: ValueMatchType, value: Option<&str>, field: &Field<'_>, report: &mut Report) -> Option<HeaderTest> {
    match kind {
        ValueMatchType::Present => return Some(HeaderTest::Present),
        ValueMatchType::Absent => return Some(HeaderTest::Absent),
        _ => {}
    }
    let Some(value) = value else {
        report.add(INVALID, &field.member("value"), format!("is required with type {kind:?}"));
        return None;
    };
    Some(match kind {
        ValueMatchType::Regex => match Regex::new(value) {
            Ok(regex) => HeaderTest::Regex(regex),
            Err(error) => {
                report.add(INVALID, &field.member("value"), regex_error(&error));
                return None;
            }
        },
        ValueMatchType::Prefix => HeaderTest::Prefix(value.into()),
        ValueMatchType::Suffix => HeaderTest::Suffix(value.into()),
        ValueMatchType::Contains => HeaderTest::Contains(value.into()),
        ValueMatchType::Exact | ValueMatchType::Present | ValueMatchType::Absent => HeaderTest::Exact(value.into()),
    })
}
