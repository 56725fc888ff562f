//! The precedence text as plain code: every match is looked at, nothing is indexed. Tests and fuzz targets compare the
//! table with it.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{ListenerIndex, Miss, Request, condition};
use crate::ir::{HeaderTest, Hostname, MAX_SEGMENTS, Match, PathMatch, Rule, Segment, Selector};

/// The Selector, rule and match that take a request.
pub fn find<'a>(
    listeners: &[Arc<str>],
    selectors: &'a [Arc<Selector>],
    listener: ListenerIndex,
    request: &Request<'_>,
) -> Result<(&'a Selector, &'a Rule, &'a Match), Miss> {
    // 1. Listener, then the most specific hostname.
    let listener = &listeners[listener.0];
    let served = |s: &&Arc<Selector>| s.listeners.is_empty() || s.listeners.contains(listener);
    let hostnames = selectors.iter().filter(served).flat_map(|s| &s.hostnames);
    let host = hostnames.filter(|h| h.matches(request.host)).max_by_key(|h| specificity(h)).ok_or(Miss::NoHost)?;

    // 2. The first Selector whose conditions hold.
    let mut of_host: Vec<&Arc<Selector>> =
        selectors.iter().filter(served).filter(|s| s.hostnames.contains(host)).collect();
    of_host.sort_by(|a, b| {
        b.priority
            .cmp(&a.priority)
            .then(b.conditions.count().cmp(&a.conditions.count()))
            .then(a.origin.created.cmp(&b.origin.created))
            .then(a.origin.object.cmp(&b.origin.object))
    });
    let mut of_host = of_host.into_iter();
    let selector = of_host.find(|s| condition::set_holds(&s.conditions, request)).ok_or(Miss::NoSelector)?;

    // 3. The best of all matches that fit.
    let all = selector.rules.iter().flat_map(|rule| rule.matches.iter().map(move |m| (&**rule, m)));
    let fitting = all.filter(|(_, m)| path_fits(&m.path, request.path) && rest_fits(m, request));
    let (rule, matched) = fitting.min_by(compare).ok_or(Miss::NoMatch)?;
    Ok((selector, rule, matched))
}

/// Whether a request fulfils the conditions of a Selector and fits a match.
pub fn fits(selector: &Selector, matching: &Match, request: &Request<'_>) -> bool {
    condition::set_holds(&selector.conditions, request)
        && path_fits(&matching.path, request.path)
        && rest_fits(matching, request)
}

fn specificity(hostname: &Hostname) -> (u8, usize) {
    match hostname {
        Hostname::Exact(_) => (2, 0),
        Hostname::Wildcard(suffix) => (1, suffix.split('.').count()),
        Hostname::Any => (0, 0),
    }
}

/// Whether a path in its normal form fits.
pub fn path_fits(path: &PathMatch, given: &str) -> bool {
    let segments: Vec<&str> = given[1..].split('/').collect();
    match path {
        PathMatch::Exact(text) => **text == *given,
        PathMatch::Regex(regex) => regex.is_match(given),
        PathMatch::Prefix(text) => {
            text.split('/').count() <= MAX_SEGMENTS + 1 && (given == &**text || given.starts_with(&format!("{text}/")))
        }
        PathMatch::Pattern(pattern) => {
            let expected = pattern.segments();
            let open = expected.last() == Some(&Segment::Rest);
            let fixed = &expected[..expected.len() - usize::from(open)];
            let count_fits = if open { segments.len() >= fixed.len() } else { segments.len() == fixed.len() };
            count_fits
                && fixed.iter().zip(segments).all(|(expected, given)| match expected {
                    Segment::Literal(text) => **text == *given,
                    _ => !given.is_empty(),
                })
        }
    }
}

/// Whether everything but the path of a match fits.
pub fn rest_fits(matching: &Match, request: &Request<'_>) -> bool {
    (matching.methods.is_empty() || matching.methods.contains(request.method))
        && matching.headers.iter().all(|h| condition::header_holds(h, request.headers))
        && matching.query.iter().all(|q| condition::query_holds(q, request.query))
        && matching.conditions.iter().all(|c| condition::holds(c, request))
}

/// `Less` is the one that takes the request, of two that fit the same one.
pub fn compare((a_rule, a): &(&Rule, &Match), (b_rule, b): &(&Rule, &Match)) -> Ordering {
    let exact_headers = |m: &Match| m.headers.iter().filter(|h| matches!(h.test, HeaderTest::Exact(_))).count();
    compare_paths(&a.path, &b.path)
        .then(a.methods.is_empty().cmp(&b.methods.is_empty()))
        .then(b.headers.len().cmp(&a.headers.len()))
        .then(exact_headers(b).cmp(&exact_headers(a)))
        .then(b.query.len().cmp(&a.query.len()))
        .then(b.conditions.len().cmp(&a.conditions.len()))
        .then(a_rule.origin.created.cmp(&b_rule.origin.created))
        .then(a_rule.origin.object.cmp(&b_rule.origin.object))
        .then(a_rule.index.cmp(&b_rule.index))
        .then(a.index.cmp(&b.index))
}

fn compare_paths(a: &PathMatch, b: &PathMatch) -> Ordering {
    let class = |path: &PathMatch| match path {
        PathMatch::Exact(_) => 0,
        PathMatch::Regex(_) => 1,
        PathMatch::Pattern(_) | PathMatch::Prefix(_) => 2,
    };
    match (a, b) {
        (PathMatch::Regex(a), PathMatch::Regex(b)) => b.source().len().cmp(&a.source().len()),
        _ => class(a).cmp(&class(b)).then_with(|| weights(a).cmp(&weights(b))),
    }
}

/// Segment by segment: literal, then one segment, then a Pattern's end, then a Prefix's end, then `**`.
fn weights(path: &PathMatch) -> Vec<u8> {
    match path {
        PathMatch::Prefix(text) => text.matches('/').map(|_| 0).chain([3]).collect(),
        PathMatch::Pattern(pattern) => {
            let weight = |segment: &Segment| match segment {
                Segment::Literal(_) => 0,
                Segment::One(_) => 1,
                Segment::Rest => 4,
            };
            pattern.segments().iter().map(weight).chain([2]).collect()
        }
        _ => Vec::new(),
    }
}
