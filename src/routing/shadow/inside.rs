//! What a match loses to better ones of its own Selector.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::ops::Range;

use foldhash::fast::RandomState;

use super::across::Case;
use super::automaton::Relation;
use super::implied::Facts;
use super::paths::{FILLERS, Shape, fits, literal_front, relation, sample};
use super::trie::{Path, Trie};
use super::{Extent, Shadow};
use crate::ir::{HeaderMatch, HeaderTest, Match, PathMatch};
use crate::routing::order::Step;

/// Of the better matches on the same path, so many of the first and of the last are looked at, beside those that ask
/// for the same but methods.
const EDGE: u32 = 8;
/// Regexes that a path is compared with.
const REGEXES: usize = 32;
/// Exact paths that a regex is compared with.
const EXACTS: usize = 256;
/// Matches that a request is looked for with, for each loser.
const ATTEMPTS: usize = 4;

/// What the matches of a Selector are looked up by.
pub(super) struct Index<'c> {
    /// Matches on the same path: for each rank where they begin.
    groups: Vec<u32>,
    exact: Range<u32>,
    regexes: Range<u32>,
    /// What all paths of each regex begin with.
    fronts: Vec<String>,
    trie: OnceCell<Trie<'c>>,
    /// In large groups: matches that differ in their methods at most.
    alike: HashMap<(u32, u64), Vec<u32>, RandomState>,
}

/// A match that overlaps another one.
struct Rival {
    rank: u32,
    relation: Relation,
    /// A path that fits both.
    path: Option<String>,
}

impl Index<'_> {
    pub(super) fn new(case: &Case<'_>) -> Self {
        let lines = case.lines;
        let mut groups: Vec<u32> = Vec::with_capacity(lines.len());
        for (rank, line) in (0_u32..).zip(lines) {
            let same = rank.checked_sub(1).is_some_and(|before| match (&lines[before as usize].shape, &line.shape) {
                (Some(Shape::Steps(a)), Some(Shape::Steps(b))) => {
                    a == b && line.is_exact() == lines[before as usize].is_exact()
                }
                _ => false,
            });
            groups.push(if same { groups[rank as usize - 1] } else { rank });
        }
        let count = |kind: fn(&Match) -> bool| {
            u32::try_from(lines.iter().take_while(|line| kind(line.matching)).count()).unwrap_or(0)
        };
        let exact = count(|m| matches!(m.path, PathMatch::Exact(_)));
        let regexes = exact..count(|m| matches!(m.path, PathMatch::Exact(_) | PathMatch::Regex(_)));
        let fronts = regexes.clone().map(|rank| literal_front(&lines[rank as usize].matching.path)).collect();
        Self { groups, exact: 0..exact, regexes, fronts, trie: OnceCell::new(), alike: HashMap::default() }
    }

    /// Whether a match has many others on its path.
    fn is_crowded(&self, rank: u32) -> bool {
        let group = self.groups[rank as usize];
        rank - group > 2 * EDGE || self.groups.get((group + 2 * EDGE + 1) as usize) == Some(&group)
    }
}

/// The shadow of the match of a rank inside its Selector: whole, or else the part that `part` asks for.
pub(super) struct Inside {
    rivals: Vec<Rival>,
}

impl<'c> Case<'c> {
    /// Whether better matches take everything; what was found on the way serves [`Case::part_inside`].
    pub(super) fn whole_inside(&mut self, index: &mut Index<'c>, rank: u32) -> (Inside, Option<Shadow>) {
        let rivals = self.regex_rivals(index, rank);
        let mut whole = self.is_covered(index, rank, &rivals);
        let key = index.is_crowded(rank).then(|| (index.groups[rank as usize], self.signature(index, rank)));
        if let Some(key) = key.filter(|_| !whole) {
            whole = index.alike.get(&key).is_some_and(|alike| self.covers(rank, alike.iter().copied()));
            if !whole {
                index.alike.entry(key).or_default().push(rank);
            }
        }
        let shadow = whole.then(|| self.prove_whole(rank)).flatten();
        (Inside { rivals }, shadow)
    }

    /// Whether matches that take all paths of this one, of those that are looked at, take all its requests.
    fn is_covered(&mut self, index: &Index<'c>, rank: u32, rivals: &[Rival]) -> bool {
        let regexes = rivals.iter().filter(|rival| rival.relation.contains()).map(|rival| rival.rank);
        let twins = self.twins(index, rank).into_iter().flat_map(edges);
        let all: Vec<u32> = regexes.chain(twins).collect();
        !all.is_empty() && self.covers(rank, all.into_iter())
    }

    /// Better ranks whose path has all paths of this one, but for regexes.
    fn twins(&self, index: &Index<'c>, rank: u32) -> Vec<Range<u32>> {
        let group = index.groups[rank as usize];
        let mut twins = Vec::new();
        let line = &self.lines[rank as usize];
        if let (Some(Shape::Steps(steps)), false) = (&line.shape, line.is_exact()) {
            match steps.split_last() {
                // The same path as an Exact one.
                Some((Step::PatternEnd, literals)) if literals.iter().all(|s| matches!(s, Step::Literal(_))) => {
                    let text: String = literal_front(&line.matching.path);
                    twins.extend(self.exact_group(index, &text));
                }
                // A Prefix, which ranks right before.
                Some((Step::Rest, front)) if group > 0 => {
                    let before = group - 1;
                    if let Some(Shape::Steps(other)) = &self.lines[before as usize].shape
                        && other.split_last() == Some((&Step::PrefixEnd, front))
                    {
                        twins.push(index.groups[before as usize]..group);
                    }
                }
                _ => {}
            }
        }
        twins.push(group..rank);
        twins
    }

    fn exact_group(&self, index: &Index<'c>, text: &str) -> Option<Range<u32>> {
        let lines = self.lines.get(..index.exact.end as usize)?;
        let path = |at: usize| match &lines[at].matching.path {
            PathMatch::Exact(path) => &**path,
            _ => "",
        };
        let start = lines.partition_point(|line| matches!(&line.matching.path, PathMatch::Exact(p) if **p < *text));
        let length = (start..lines.len()).take_while(|at| path(*at) == text).count();
        let range = u32::try_from(start).ok()?..u32::try_from(start + length).ok()?;
        (length > 0).then_some(range)
    }

    /// Whether these, which have all paths of a match, take all its requests: one alone, or together by method.
    fn covers(&mut self, rank: u32, others: impl Iterator<Item = u32>) -> bool {
        let line = &self.lines[rank as usize];
        let facts = Facts::new(self.only_hostname(), Some(line.matching), &self.selector.conditions);
        let wanted = &line.matching.methods;
        let mut covered: Vec<&http::Method> = Vec::new();
        for other in others {
            let Some(left) = self.budget.pairs.checked_sub(1) else { return false };
            self.budget.pairs = left;
            let other = self.lines[other as usize].matching;
            if clash(line.matching, other) || !facts.imply_rest(other) {
                continue;
            }
            if facts.imply_methods(other) {
                return true;
            }
            covered.extend(&other.methods);
            if !wanted.is_empty() && wanted.iter().all(|method| covered.contains(&method)) {
                return true;
            }
        }
        false
    }

    fn prove_whole(&mut self, rank: u32) -> Option<Shadow> {
        let matching = self.lines[rank as usize].matching;
        self.open_ways().into_iter().find_map(|way| {
            let witness = self.propose_here(&[matching], &self.sample(rank), way, 0)?;
            self.confirm(rank, witness, Extent::Whole).map(|(shadow, _)| shadow)
        })
    }

    /// A better match that takes some of the requests and does not simply ask for more.
    pub(super) fn part_inside(&mut self, index: &Index<'c>, rank: u32, inside: Inside) -> Option<Shadow> {
        let mut attempts = ATTEMPTS;
        for rival in inside.rivals {
            if let Some(shadow) = self.try_part(rank, &rival, &mut attempts) {
                return Some(shadow);
            }
        }
        let line = &self.lines[rank as usize];
        let mut others: Vec<u32> = match &line.shape {
            Some(Shape::Regex(_)) if !line.plain => self.exacts_of(index, rank),
            Some(Shape::Steps(steps)) if !line.is_exact() && (!line.plain || steps.contains(&Step::One)) => {
                index.trie.get_or_init(|| self.trie(index)).candidates(steps, line.plain)
            }
            _ => Vec::new(),
        };
        if !line.plain {
            others.extend(self.twins(index, rank).into_iter().flat_map(edges));
        }
        others.sort_unstable();
        others.dedup();
        for other in others.into_iter().filter(|other| *other < rank) {
            self.budget.pairs = self.budget.pairs.checked_sub(1)?;
            if let Some(rival) = self.rival(rank, other)
                && let Some(shadow) = self.try_part(rank, &rival, &mut attempts)
            {
                return Some(shadow);
            }
        }
        None
    }

    fn try_part(&mut self, rank: u32, rival: &Rival, attempts: &mut usize) -> Option<Shadow> {
        let (line, other) = (&self.lines[rank as usize], &self.lines[rival.rank as usize]);
        let (matching, better) = (line.matching, other.matching);
        if *attempts == 0 || clash(matching, better) || self.refines(rank, rival.rank, rival.relation) {
            return None;
        }
        *attempts -= 1;
        let mut paths: [Vec<String>; 2] = [&rival.path, &rival.path].map(|path| path.iter().cloned().collect());
        if let (Some(Shape::Steps(a)), Some(Shape::Steps(b))) = (&line.shape, &other.shape) {
            paths = FILLERS.map(|filler| vec![sample(a, b, filler)]);
        }
        // What takes the witness may be yet another match; it counts if it is no refinement either.
        for way in self.open_ways() {
            for (variant, paths) in paths.iter().enumerate() {
                if let Some(witness) = self.propose_here(&[matching, better], paths, way, variant)
                    && let Some((shadow, Some(winner))) = self.confirm(rank, witness, Extent::Part)
                    && !self.relation(winner, rank).is_none_or(|relation| self.refines(rank, winner, relation))
                {
                    return Some(shadow);
                }
            }
        }
        None
    }

    /// Whether a better match simply asks for more than this one.
    fn refines(&self, rank: u32, better: u32, relation: Relation) -> bool {
        let (matching, better) = (self.lines[rank as usize].matching, self.lines[better as usize].matching);
        let facts = Facts::new(self.only_hostname(), Some(better), &self.selector.conditions);
        relation.is_inside()
            && facts.imply_rest(matching)
            // Everybody expects the more specific path to win, whatever the methods.
            && (relation == Relation::Inside || facts.imply_methods(matching))
    }

    fn relation(&mut self, first: u32, second: u32) -> Option<Relation> {
        let [a, b] = [first, second].map(|rank| &self.lines[rank as usize]);
        let (Some(a), Some(b)) = (&a.shape, &b.shape) else { return None };
        relation(a, b, FILLERS[0], self.automata, &mut self.budget.work).ok().map(|(relation, _)| relation)
    }

    fn rival(&mut self, rank: u32, other: u32) -> Option<Rival> {
        let (line, better) = (&self.lines[rank as usize], &self.lines[other as usize]);
        if clash(line.matching, better.matching) {
            return None;
        }
        let (Some(own), Some(shape)) = (&line.shape, &better.shape) else { return None };
        if let (PathMatch::Exact(text), Shape::Regex(_)) = (&better.matching.path, own) {
            let inside = fits(&line.matching.path, text);
            return inside.then(|| Rival { rank: other, relation: Relation::Inside, path: Some(text.to_string()) });
        }
        let found = relation(shape, own, FILLERS[0], self.automata, &mut self.budget.work);
        let (relation, path) = found.ok().filter(|(relation, _)| *relation != Relation::Apart)?;
        Some(Rival { rank: other, relation, path })
    }

    /// Better regexes that overlap a match which is no Exact one.
    fn regex_rivals(&mut self, index: &Index<'c>, rank: u32) -> Vec<Rival> {
        let mut rivals = Vec::new();
        let ranks = index.regexes.start..index.regexes.end.min(rank);
        if self.lines[rank as usize].is_exact() || ranks.is_empty() {
            return rivals;
        }
        let front = literal_front(&self.lines[rank as usize].matching.path);
        let mut compared = 0;
        for (other, other_front) in ranks.zip(&index.fronts) {
            let Some(left) = self.budget.pairs.checked_sub(1).filter(|_| compared < REGEXES) else { break };
            self.budget.pairs = left;
            if front.starts_with(&**other_front) || other_front.starts_with(&*front) {
                compared += 1;
                rivals.extend(self.rival(rank, other));
            }
        }
        rivals
    }

    /// Exact paths that a regex may fit.
    fn exacts_of(&self, index: &Index<'c>, rank: u32) -> Vec<u32> {
        let front = literal_front(&self.lines[rank as usize].matching.path);
        let exacts = &self.lines[..index.exact.end as usize];
        let text = |at: usize| match &exacts[at].matching.path {
            PathMatch::Exact(path) => &**path,
            _ => "",
        };
        let start =
            exacts.partition_point(|line| matches!(&line.matching.path, PathMatch::Exact(path) if **path < *front));
        let ranks = (start..exacts.len()).take_while(|at| text(*at).starts_with(&front)).take(EXACTS);
        ranks.filter_map(|at| u32::try_from(at).ok()).collect()
    }

    fn trie(&self, index: &Index<'c>) -> Trie<'c> {
        let mut paths: Vec<Path<'_>> = Vec::new();
        for (rank, (line, group)) in (0_u32..).zip(self.lines.iter().zip(&index.groups)) {
            let Some(Shape::Steps(steps)) = &line.shape else { continue };
            match paths.last_mut() {
                Some(last) if last.ranks.start == *group => last.ranks.end = rank + 1,
                _ => paths.push(Path { steps, exact: line.is_exact(), ranks: rank..rank + 1 }),
            }
        }
        Trie::new(paths)
    }

    /// Equal for matches that ask for the same but methods.
    fn signature(&self, index: &Index<'c>, rank: u32) -> u64 {
        let matching = self.lines[rank as usize].matching;
        let hasher = index.alike.hasher();
        let field = |kind: u8, name: &str, test: &HeaderTest| {
            let (way, text) = match test {
                HeaderTest::Exact(text) => (0, &**text),
                HeaderTest::Regex(regex) => (1, regex.source()),
                HeaderTest::Present => (2, ""),
                HeaderTest::Absent => (3, ""),
                HeaderTest::Prefix(text) => (4, &**text),
                HeaderTest::Suffix(text) => (5, &**text),
                HeaderTest::Contains(text) => (6, &**text),
            };
            one(hasher, (kind, name, way, text))
        };
        let headers = matching.headers.iter().map(|h| field(0, h.name.as_str(), &h.test));
        let query = matching.query.iter().map(|q| field(1, &q.name, &q.test));
        let conditions = matching.conditions.iter().map(|c| one(hasher, format!("{c:?}")));
        headers.chain(query).chain(conditions).fold(0, u64::wrapping_add)
    }
}

fn one(hasher: &RandomState, value: impl Hash) -> u64 {
    hasher.hash_one(value)
}

/// The first and the last few of a range.
fn edges(range: Range<u32>) -> impl Iterator<Item = u32> {
    let middle = range.start.saturating_add(EDGE).min(range.end);
    let late = range.end.saturating_sub(EDGE).max(middle);
    (range.start..middle).chain(late..range.end)
}

/// Whether no usual request fits both: disjoint methods, or different values of one header or parameter. (A request may
/// repeat a header with both values; nobody is told of that.)
fn clash(a: &Match, b: &Match) -> bool {
    let methods = !a.methods.is_empty() && !b.methods.is_empty() && !a.methods.iter().any(|m| b.methods.contains(m));
    let differ = |a: &HeaderTest, b: &HeaderTest| match (a, b) {
        (HeaderTest::Exact(a), HeaderTest::Exact(b)) => a != b,
        (HeaderTest::Absent, other) | (other, HeaderTest::Absent) => *other != HeaderTest::Absent,
        _ => false,
    };
    let header = |h: &HeaderMatch| b.headers.iter().any(|other| other.name == h.name && differ(&h.test, &other.test));
    methods
        || a.headers.iter().any(header)
        || a.query.iter().any(|q| b.query.iter().any(|other| other.name == q.name && differ(&q.test, &other.test)))
}
