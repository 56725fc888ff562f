//! One Selector: what it loses to Selectors that are asked first, and the order in which losses are looked for.

use std::sync::Arc;

use super::implied::Facts;
use super::inside::Index;
use super::paths::{Automata, FILLERS, Shape, fits, sample};
use super::surroundings::Way;
use super::witness::{Asks, Demand, Entry, is_normal};
use super::{Extent, Found, MatchRef, Matcher, SelectorShadow, Shadow, Winner, Witness, witness};
use crate::ir::{Condition, ConditionSet, Hostname, Match, Mode, PathMatch, Rule, Selector};
use crate::routing::{Request, condition, host};

/// Ways into a Selector that are tried for a witness.
const WAYS: usize = 3;
/// Selectors that a witness for a later one is led around.
const DETOURS: usize = 3;

/// What may still be spent on one Selector. When it ends, nothing more is found.
pub(super) struct Budget {
    /// Pairs of matches, or of a match and a Selector.
    pub(super) pairs: usize,
    /// Requests that are made up and tried.
    pub(super) trials: usize,
    /// Transitions of automata.
    pub(super) work: usize,
}

/// A match in its rank.
pub(super) struct Line<'c> {
    pub(super) rule: &'c Arc<Rule>,
    pub(super) matching: &'c Match,
    pub(super) shape: Option<Shape<'c>>,
    /// Whether it asks for nothing but the path.
    pub(super) plain: bool,
}

impl Line<'_> {
    pub(super) fn is_exact(&self) -> bool {
        matches!(self.matching.path, PathMatch::Exact(_))
    }
}

/// One Selector under examination.
pub(super) struct Case<'c> {
    table: &'c dyn Matcher,
    at: u32,
    pub(super) selector: &'c Arc<Selector>,
    selectors: &'c [&'c Arc<Selector>],
    ways: &'c [Way<'c>],
    /// Of each way the Selector that takes all its requests.
    closed: Vec<Option<u32>>,
    pub(super) lines: &'c [Line<'c>],
    pub(super) automata: &'c mut Automata,
    pub(super) budget: Budget,
    asks: Asks,
}

/// Everything that is found at the Selector at position `at`.
pub(super) fn analyse(
    table: &dyn Matcher,
    at: u32,
    selectors: &[&Arc<Selector>],
    ways: &[Way<'_>],
    automata: &mut Automata,
) -> Found {
    let Some(selector) = selectors.get(at as usize).filter(|_| !ways.is_empty()) else { return Found::default() };
    let ranked = table.ranked(at);
    let line = |(rule, matching)| {
        let Match { path, methods, headers, query, conditions, .. }: &Match = matching;
        let plain = methods.is_empty() && headers.is_empty() && query.is_empty() && conditions.is_empty();
        Line { rule, matching, shape: Shape::new(path), plain }
    };
    let lines: Vec<Line<'_>> = ranked.into_iter().map(line).collect();
    let count = lines.len();
    let budget = Budget { pairs: 4096 + 32 * count, trials: 256 + 4 * count, work: 1_000_000 + 300 * count };
    let closed = vec![None; ways.len()];
    let asks = Asks::default();
    let mut case = Case { table, at, selector, selectors, ways, closed, lines: &lines, automata, budget, asks };
    case.note_asks();
    case.close_ways();
    let mut found = Found { selector: case.selector_shadow(), matches: Vec::new() };
    let mut index = Index::new(&case);
    for rank in (0_u32..).take(count) {
        if let Some(shadow) = case.shadow(&mut index, rank) {
            found.matches.push(shadow);
        }
    }
    found
}

impl<'c> Case<'c> {
    /// A match that never wins is told of before anything else; then what other Selectors take.
    fn shadow(&mut self, index: &mut Index<'c>, rank: u32) -> Option<Shadow> {
        if let Some(shadow) = self.whole_across(rank) {
            return Some(shadow);
        }
        let (inside, shadow) = self.whole_inside(index, rank);
        shadow.or_else(|| self.part_across(rank)).or_else(|| self.part_inside(index, rank, inside))
    }

    fn note_asks(&mut self) {
        let mut earlier: Vec<u32> = self.ways.iter().flat_map(|way| way.earlier.iter().copied()).collect();
        earlier.sort_unstable();
        earlier.dedup();
        for selector in earlier.into_iter().chain([self.at]).filter_map(|at| self.selectors.get(at as usize)) {
            self.asks.note(&selector.conditions.conditions);
            let matches = selector.rules.iter().flat_map(|rule| &rule.matches);
            self.asks.note(matches.flat_map(|matching| &matching.conditions));
        }
    }

    /// Finds the Selectors that take a hostname before this one, whatever the match.
    fn close_ways(&mut self) {
        for (at, way) in self.ways.iter().enumerate() {
            let facts = Facts::new(Some(way.hostname), None, &self.selector.conditions);
            let takes = |earlier: &&u32| self.conditions_of(**earlier).is_some_and(|set| facts.imply_set(set));
            self.closed[at] = way.earlier.iter().find(takes).copied();
        }
    }

    fn conditions_of(&self, at: u32) -> Option<&'c ConditionSet> {
        self.selectors.get(at as usize).map(|selector| &selector.conditions)
    }

    fn selector_shadow(&mut self) -> Option<SelectorShadow> {
        if !self.closed.iter().all(Option::is_some) {
            return None;
        }
        (0..self.ways.len().min(WAYS)).find_map(|way| {
            let witness = self.propose(&[], &[], &["/".to_owned()], way, 0)?;
            let request = witness.request();
            let fits = condition::set_holds(&self.selector.conditions, &request) && is_possible(&witness);
            let winner = self.table.choose(witness.listener, &request).filter(|winner| fits && *winner != self.at)?;
            let winner = self.selectors.get(winner as usize)?.origin.object.clone();
            Some(SelectorShadow { selector: self.selector.origin.object.clone(), winner, witness })
        })
    }

    /// Ways whose requests all go to earlier Selectors, as far as this match goes.
    fn lost_ways(&mut self, rank: u32) -> Vec<usize> {
        let matching = self.lines[rank as usize].matching;
        let mut lost = Vec::new();
        for (at, way) in self.ways.iter().enumerate() {
            let mut takes = self.closed[at].is_some();
            if !takes && !way.earlier.is_empty() {
                let Some(left) = self.budget.pairs.checked_sub(way.earlier.len()) else { break };
                self.budget.pairs = left;
                let facts = Facts::new(Some(way.hostname), Some(matching), &self.selector.conditions);
                takes = way.earlier.iter().any(|at| self.conditions_of(*at).is_some_and(|set| facts.imply_set(set)));
            }
            if takes {
                lost.push(at);
            }
        }
        lost
    }

    fn whole_across(&mut self, rank: u32) -> Option<Shadow> {
        if self.ways.iter().any(|way| way.earlier.is_empty()) {
            return None;
        }
        let lost = self.lost_ways(rank);
        if lost.len() < self.ways.len() { None } else { self.loss(rank, &lost, Extent::Whole) }
    }

    fn part_across(&mut self, rank: u32) -> Option<Shadow> {
        if self.ways.iter().all(|way| way.earlier.is_empty()) {
            return None;
        }
        let lost = self.lost_ways(rank);
        self.loss(rank, &lost, Extent::Part).or_else(|| self.overlap(rank))
    }

    /// A request of a way that is lost.
    fn loss(&mut self, rank: u32, lost: &[usize], extent: Extent) -> Option<Shadow> {
        let matching = self.lines[rank as usize].matching;
        lost.iter().take(WAYS).find_map(|way| {
            let witness = self.propose(&[matching], &[], &self.sample(rank), *way, 0)?;
            self.confirm(rank, witness, extent).filter(|(_, inside)| inside.is_none()).map(|(shadow, _)| shadow)
        })
    }

    /// A request that an earlier Selector takes whose conditions do not simply ask for more than this one's.
    fn overlap(&mut self, rank: u32) -> Option<Shadow> {
        let matching = self.lines[rank as usize].matching;
        for way in 0..self.ways.len().min(WAYS) {
            for earlier in self.ways[way].earlier.clone() {
                self.budget.pairs = self.budget.pairs.checked_sub(1)?;
                let Some(set) = self.conditions_of(earlier).filter(|_| !self.is_refinement(earlier, way)) else {
                    continue;
                };
                let paths = self.sample(rank);
                if let Some(witness) = self.propose(&[matching], &[set], &paths, way, 0)
                    && let Some(winner) = self.table.choose(witness.listener, &witness.request())
                    && !self.is_refinement(winner, way)
                    && let Some((shadow, None)) = self.confirm(rank, witness, Extent::Part)
                {
                    return Some(shadow);
                }
            }
        }
        None
    }

    /// Whether a Selector's conditions imply those of this one.
    fn is_refinement(&self, other: u32, way: usize) -> bool {
        self.conditions_of(other).is_some_and(|set| {
            Facts::new(Some(self.ways[way].hostname), None, set).imply_set(&self.selector.conditions)
        })
    }

    /// The hostname, if there is only one.
    pub(super) fn only_hostname(&self) -> Option<&'c Hostname> {
        let (first, others) = self.ways.split_first()?;
        others.iter().all(|way| way.hostname == first.hostname).then_some(first.hostname)
    }

    /// Ways by which requests reach this Selector, those without earlier Selectors first.
    pub(super) fn open_ways(&self) -> Vec<usize> {
        let open = || (0..self.ways.len()).filter(|way| self.closed[*way].is_none());
        let empty = |way: &usize| self.ways[*way].earlier.is_empty();
        open().filter(empty).chain(open().filter(|way| !empty(way))).take(WAYS).collect()
    }

    /// Paths that fit a match, to begin with; none for a regex.
    pub(super) fn sample(&self, rank: u32) -> Vec<String> {
        match &self.lines[rank as usize].shape {
            Some(Shape::Steps(steps)) => vec![sample(steps, steps, FILLERS[0])],
            _ => Vec::new(),
        }
    }

    fn propose(
        &mut self,
        matches: &[&Match],
        sets: &[&ConditionSet],
        paths: &[String],
        way: usize,
        variant: usize,
    ) -> Option<Witness> {
        self.budget.trials = self.budget.trials.checked_sub(1)?;
        let way = self.ways.get(way)?;
        let entry = Entry { listener: way.listener, listener_name: way.listener_name, hosts: &way.hosts };
        let sets = [&self.selector.conditions].into_iter().chain(sets.iter().copied()).collect();
        let demand = Demand { matches: matches.to_vec(), sets, paths: paths.to_vec(), variant, asks: self.asks };
        witness::find(&demand, &entry, self.automata, &mut self.budget.work)
    }

    /// A request that fits the matches and reaches this Selector.
    pub(super) fn propose_here(
        &mut self,
        matches: &[&Match],
        paths: &[String],
        way: usize,
        variant: usize,
    ) -> Option<Witness> {
        let mut detours: Vec<ConditionSet> = Vec::new();
        loop {
            let sets: Vec<&ConditionSet> = detours.iter().collect();
            let witness = self.propose(matches, &sets, paths, way, variant)?;
            let reached = self.table.choose(witness.listener, &witness.request())?;
            if reached == self.at {
                return Some(witness);
            }
            if detours.len() == DETOURS {
                return None;
            }
            detours.push(opposite(self.conditions_of(reached)?));
        }
    }

    /// The report for a witness, if it fits the match and something better takes it; with the winner's rank where that
    /// is a match of the same Selector.
    pub(super) fn confirm(&self, rank: u32, witness: Witness, extent: Extent) -> Option<(Shadow, Option<u32>)> {
        let line = self.lines.get(rank as usize)?;
        let request = witness.request();
        let fitting = condition::set_holds(&self.selector.conditions, &request) && match_fits(line.matching, &request);
        if !fitting || !is_possible(&witness) {
            return None;
        }
        let position = self.table.choose(witness.listener, &request)?;
        let selector = self.selectors.get(position as usize)?;
        let best = self.table.best(position, &request);
        let inside = if position == self.at { Some(best.as_ref()?.0) } else { None };
        if inside.is_some_and(|winner| winner >= rank) {
            return None;
        }
        let winner = match best {
            Some((_, rule, matched)) => Winner::Match(reference(selector, rule, matched)),
            None => Winner::Selector(selector.origin.object.clone()),
        };
        let loser = reference(self.selector, line.rule, line.matching);
        Some((Shadow { loser, winner, extent, witness }, inside))
    }
}

fn reference(selector: &Selector, rule: &Rule, matching: &Match) -> MatchRef {
    MatchRef {
        selector: selector.origin.object.clone(),
        route: rule.origin.object.clone(),
        rule_index: rule.index,
        rule: Arc::clone(&rule.name),
        matching: matching.index,
    }
}

/// A set that holds where the other does not.
fn opposite(set: &ConditionSet) -> ConditionSet {
    let flipped = |c: &Condition| Condition { negate: !c.negate, ..c.clone() };
    let mode = match set.mode {
        Mode::All => Mode::Any,
        Mode::Any => Mode::All,
    };
    ConditionSet { mode, conditions: set.conditions.iter().map(flipped).collect() }
}

/// Whether a request fits a match, by the functions that the lookup uses.
fn match_fits(matching: &Match, request: &Request<'_>) -> bool {
    fits(&matching.path, request.path)
        && (matching.methods.is_empty() || matching.methods.contains(request.method))
        && matching.headers.iter().all(|header| condition::header_holds(header, request.headers))
        && matching.query.iter().all(|query| condition::query_holds(query, request.query))
        && matching.conditions.iter().all(|c| condition::holds(c, request))
}

/// Whether a client can send it: host and path are in the form that requests are brought into.
fn is_possible(witness: &Witness) -> bool {
    is_normal(&witness.path) && host::parse(&witness.host).is_ok_and(|parsed| *parsed.host == *witness.host)
}
