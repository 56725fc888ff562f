//! One compiled Selector.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::matrix::Matrix;
use super::names::Names;
use super::order::{Key, PathKey};
use super::regexes::Regexes;
use super::tree::{Path, Tree};
use super::{Found, Request, RuleKey, condition};
use crate::ir;

/// A Selector with its matches in their order.
#[derive(Debug)]
pub(super) struct Compiled<P> {
    selector: Arc<ir::Selector>,
    /// Whether its conditions need not be asked.
    unconditional: bool,
    /// The Selector's rules. Named here again so that a lookup need not touch the Selector.
    rules: Box<[Entry<P>]>,
    /// The position of a match here is its rank.
    matches: Box<[Position]>,
    /// The ranks of each Exact path.
    exact: Names,
    regexes: Regexes,
    segments: Segments,
}

/// A rule with what was made of it.
#[derive(Debug)]
pub(super) struct Entry<P> {
    pub(super) rule: Arc<ir::Rule>,
    pub(super) payload: P,
}

/// The Patterns and Prefixes of a Selector.
#[derive(Debug)]
enum Segments {
    None,
    Tree(Tree),
    /// Rare and large.
    Matrix(Box<Matrix>),
}

/// Where a match stands in the Selector, with what is asked of it first.
#[derive(Clone, Copy, Debug)]
struct Position {
    rule: u32,
    matching: u32,
    methods: Methods,
    /// Whether there is anything to test besides path and methods.
    plain: bool,
}

impl<P> Compiled<P> {
    pub(super) fn new(
        selector: Arc<ir::Selector>,
        former: Option<&Self>,
        payload: &mut impl FnMut(&Arc<ir::Selector>, &Arc<ir::Rule>, Option<&P>) -> P,
    ) -> Self {
        let former = former.into_iter().flat_map(|former| &former.rules);
        let former: HashMap<*const ir::Rule, &P, RandomState> =
            former.map(|entry| (Arc::as_ptr(&entry.rule), &entry.payload)).collect();
        let entry = |rule: &Arc<ir::Rule>| {
            let former = former.get(&Arc::as_ptr(rule)).copied();
            Entry { rule: Arc::clone(rule), payload: payload(&selector, rule, former) }
        };
        let rules = selector.rules.iter().map(entry).collect();
        let ranked = rank(&selector);
        let matches = ranked.iter().map(|(_, position)| *position).collect();
        let (exact, regexes, segments) = index_paths(&selector, &ranked);
        drop(ranked);
        let unconditional = selector.conditions.conditions.is_empty();
        Self { selector, unconditional, rules, matches, exact, regexes, segments }
    }

    pub(super) fn selector(&self) -> &Arc<ir::Selector> {
        &self.selector
    }

    pub(super) fn rules(&self) -> &[Entry<P>] {
        &self.rules
    }

    /// Whether the Selector's conditions hold.
    pub(super) fn takes(&self, request: &Request<'_>) -> bool {
        self.unconditional || condition::set_holds(&self.selector.conditions, request)
    }

    /// How many matches there are.
    pub(super) fn len(&self) -> usize {
        self.matches.len()
    }

    /// The best match that fits; `at` is this Selector's position in its table.
    pub(super) fn find(&self, at: u32, request: &Request<'_>) -> Option<Found<'_, P>> {
        let rank = self.best(request)?;
        let Position { rule, matching, .. } = *self.matches.get(rank as usize)?;
        let key = RuleKey { selector: at, rule };
        let Entry { rule, payload } = self.rules.get(rule as usize)?;
        Some(Found { key, selector: &self.selector, rule, payload, matching })
    }

    /// The rank of the best match that fits.
    pub(super) fn best(&self, request: &Request<'_>) -> Option<u32> {
        let method = Methods::of(request.method);
        let holds = |rank: u32| self.holds(rank, method, request);
        let exact = self.exact.get(request.path).and_then(|ranks| ranks.clone().find(|rank| holds(*rank)));
        exact.or_else(|| self.find_regex(method, request)).or_else(|| match &self.segments {
            Segments::None => None,
            Segments::Tree(tree) => tree.best(request.path, holds),
            Segments::Matrix(matrix) => matrix.best(request.path, holds),
        })
    }

    /// The matches with their rules in the order of their ranks.
    pub(super) fn ranked(&self) -> impl Iterator<Item = (&Arc<ir::Rule>, &ir::Match)> {
        // Positions were made from these rules, so none is left out.
        (0..).take(self.matches.len()).filter_map(|rank| self.by_rank(rank))
    }

    /// The match of a rank with its rule.
    pub(super) fn by_rank(&self, rank: u32) -> Option<(&Arc<ir::Rule>, &ir::Match)> {
        let position = *self.matches.get(rank as usize)?;
        Some((&self.rules.get(position.rule as usize)?.rule, self.at(position)?))
    }

    fn find_regex(&self, method: Methods, request: &Request<'_>) -> Option<u32> {
        self.regexes.candidates(request.path).find(|rank| {
            // Most conditions cost less than a regex, so they come first.
            self.holds(*rank, method, request)
                && self.matches.get(*rank as usize).and_then(|position| self.at(*position)).is_some_and(
                    |matched| matches!(&matched.path, ir::PathMatch::Regex(regex) if regex.is_match(request.path)),
                )
        })
    }

    /// Whether everything but the path of a match fits.
    fn holds(&self, rank: u32, method: Methods, request: &Request<'_>) -> bool {
        let Some(position) = self.matches.get(rank as usize) else { return false };
        if !position.methods.meets(method) {
            return false;
        }
        if position.plain {
            return true;
        }
        self.at(*position).is_some_and(|matched| {
            (position.methods == Methods::ANY || matched.methods.contains(request.method))
                && matched.headers.iter().all(|header| condition::header_holds(header, request.headers))
                && matched.query.iter().all(|query| condition::query_holds(query, request.query))
                && matched.conditions.iter().all(|c| condition::holds(c, request))
        })
    }

    fn at(&self, position: Position) -> Option<&ir::Match> {
        self.rules.get(position.rule as usize)?.rule.matches.get(position.matching as usize)
    }
}

/// The matches of a Selector in their order.
fn rank(selector: &ir::Selector) -> Vec<(Key<'_>, Position)> {
    let mut ranked = Vec::new();
    for (rule_at, rule) in (0..).zip(&selector.rules) {
        for (match_at, matching) in (0..).zip(&rule.matches) {
            if let Some(key) = Key::new(rule, matching) {
                let methods = Methods::all(&matching.methods);
                let plain = matching.headers.is_empty()
                    && matching.query.is_empty()
                    && matching.conditions.is_empty()
                    && (methods == Methods::ANY || !methods.meets(Methods::OTHER));
                ranked.push((key, Position { rule: rule_at, matching: match_at, methods, plain }));
            }
        }
    }
    ranked.sort_by(|a, b| a.0.cmp(&b.0));
    ranked
}

/// The indexes of the paths of ranked matches, where matches with the same path follow each other.
fn index_paths(selector: &ir::Selector, ranked: &[(Key<'_>, Position)]) -> (Names, Regexes, Segments) {
    let mut exact = Names::default();
    let mut regexes = Regexes::default();
    let mut paths: Vec<Path<'_>> = Vec::new();
    for (rank, (key, position)) in (0_u32..).zip(ranked) {
        let matched = &selector.rules[position.rule as usize].matches[position.matching as usize];
        match (&key.path, &matched.path) {
            (PathKey::Steps(steps), _) => match paths.last_mut() {
                Some(last) if last.steps == steps => last.ranks.end = rank + 1,
                _ => paths.push(Path { steps, ranks: rank..rank + 1 }),
            },
            (_, ir::PathMatch::Exact(text)) => {
                let ranks: &mut Range<u32> = exact.entry(text);
                *ranks = if ranks.start == ranks.end { rank..rank + 1 } else { ranks.start..rank + 1 };
            }
            (_, ir::PathMatch::Regex(regex)) => regexes.push(rank, regex),
            _ => {}
        }
    }
    exact.shrink();
    regexes.shrink();
    let segments = match Tree::new(&paths) {
        _ if paths.is_empty() => Segments::None,
        Some(tree) => Segments::Tree(tree),
        None => Segments::Matrix(Box::new(Matrix::new(&paths))),
    };
    (exact, regexes, segments)
}

/// A set of methods: a bit for each that HTTP defines, one for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Methods(u16);

impl Methods {
    const ANY: Self = Self(u16::MAX);
    const OTHER: Self = Self(1 << 15);

    fn of(method: &http::Method) -> Self {
        match method.as_str() {
            "GET" => Self(1),
            "POST" => Self(1 << 1),
            "PUT" => Self(1 << 2),
            "DELETE" => Self(1 << 3),
            "HEAD" => Self(1 << 4),
            "OPTIONS" => Self(1 << 5),
            "PATCH" => Self(1 << 6),
            "CONNECT" => Self(1 << 7),
            "TRACE" => Self(1 << 8),
            _ => Self::OTHER,
        }
    }

    /// The methods of a match, where none stands for any.
    fn all(methods: &[http::Method]) -> Self {
        if methods.is_empty() { Self::ANY } else { Self(methods.iter().fold(0, |bits, m| bits | Self::of(m).0)) }
    }

    fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
