//! The one order of the matches of a Selector: which of two that both fit takes the request.
//!
//! The smallest [`Key`] wins. Field order and variant order are the precedence; nothing else in the table decides.

mod criterion;

use std::cmp::Reverse;

pub use self::criterion::Criterion;

use crate::ir::{HeaderTest, MAX_SEGMENTS, Match, Origin, PathMatch, Rule, Segment};

/// The rank of a match among all matches of its Selector.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key<'a> {
    pub(super) path: PathKey<'a>,
    /// Matches with methods first.
    any_method: bool,
    headers: Reverse<usize>,
    exact_headers: Reverse<usize>,
    query: Reverse<usize>,
    conditions: Reverse<usize>,
    route: &'a Origin,
    rule: u16,
    matching: u16,
}

/// The rank of a path.
///
/// The texts in it never decide between two paths that fit the same request, for there they are equal; they bring
/// equal paths together, so that the matches of a path have consecutive ranks.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathKey<'a> {
    Exact(&'a str),
    /// The longest source first.
    Regex(Reverse<usize>),
    /// Pattern and Prefix together, segment by segment.
    Steps(Vec<Step<'a>>),
}

/// One step of a Pattern or Prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step<'a> {
    Literal(&'a str),
    /// `{name}` or `*`.
    One,
    /// The path ends here.
    PatternEnd,
    /// The path ends here or goes on; a Prefix.
    PrefixEnd,
    /// The path ends here or goes on; a `**`.
    Rest,
}

impl<'a> Key<'a> {
    /// The key of a match; `None` for a Prefix that no path begins with: without a
    /// leading slash, or with more than [`MAX_SEGMENTS`] segments.
    pub(super) fn new(rule: &'a Rule, matching: &'a Match) -> Option<Self> {
        let exact = |test: &HeaderTest| matches!(test, HeaderTest::Exact(_));
        Some(Self {
            path: PathKey::new(&matching.path)?,
            any_method: matching.methods.is_empty(),
            headers: Reverse(matching.headers.len()),
            exact_headers: Reverse(matching.headers.iter().filter(|h| exact(&h.test)).count()),
            query: Reverse(matching.query.len()),
            conditions: Reverse(matching.conditions.len()),
            route: &rule.origin,
            rule: rule.index,
            matching: matching.index,
        })
    }
}

impl<'a> PathKey<'a> {
    pub(super) fn new(path: &'a PathMatch) -> Option<Self> {
        let steps: Vec<Step<'a>> = match path {
            PathMatch::Exact(text) => return Some(Self::Exact(text)),
            PathMatch::Regex(regex) => return Some(Self::Regex(Reverse(regex.source().len()))),
            PathMatch::Prefix(text) => {
                let rest = if text.is_empty() { None } else { Some(text.strip_prefix('/')?) };
                let literals = rest.into_iter().flat_map(|rest| rest.split('/'));
                literals.map(Step::Literal).chain([Step::PrefixEnd]).collect()
            }
            PathMatch::Pattern(pattern) => {
                let segments = pattern.segments();
                let end = (segments.last() != Some(&Segment::Rest)).then_some(Step::PatternEnd);
                let steps = segments.iter().map(|segment| match segment {
                    Segment::Literal(text) => Step::Literal(text),
                    Segment::One(_) => Step::One,
                    Segment::Rest => Step::Rest,
                });
                steps.chain(end).collect()
            }
        };
        (steps.len() <= MAX_SEGMENTS + 1).then_some(Self::Steps(steps))
    }
}
