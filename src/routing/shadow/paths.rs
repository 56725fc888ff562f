//! Paths of matches: how two of them lie to each other, and paths that fit both.

use std::collections::HashMap;
use std::sync::Arc;

use super::automaton::{Exhausted, Linear, Machine, Relation, Table, relate};
use crate::ir::{PathMatch, Regex};
use crate::routing::condition::pattern_matches;
use crate::routing::order::{PathKey, Step};

/// What stands for a variable segment in a witness, in the order in which they are tried.
pub(super) const FILLERS: [&str; 2] = ["x", "lockgate"];

/// A path in the form that is compared.
#[derive(Debug)]
pub(super) enum Shape<'a> {
    /// Exact, Prefix and Pattern.
    Steps(Vec<Step<'a>>),
    Regex(&'a Regex),
}

impl<'a> Shape<'a> {
    /// `None` for a path that no request has.
    pub(super) fn new(path: &'a PathMatch) -> Option<Self> {
        Some(match path {
            PathMatch::Regex(regex) => Self::Regex(regex),
            PathMatch::Exact(text) => {
                Self::Steps(text.strip_prefix('/')?.split('/').map(Step::Literal).chain([Step::PatternEnd]).collect())
            }
            _ => match PathKey::new(path)? {
                PathKey::Steps(steps) => Self::Steps(steps),
                PathKey::Exact(_) | PathKey::Regex(_) => return None,
            },
        })
    }
}

/// Whether a path fits, as the lookup decides.
pub(super) fn fits(path: &PathMatch, given: &str) -> bool {
    match path {
        PathMatch::Exact(text) => **text == *given,
        PathMatch::Prefix(text) => {
            given.strip_prefix(&**text).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        PathMatch::Pattern(pattern) => pattern_matches(pattern, given),
        PathMatch::Regex(regex) => regex.is_match(given),
    }
}

/// A text that all paths which fit begin with.
pub(super) fn literal_front(path: &PathMatch) -> String {
    match Shape::new(path) {
        Some(Shape::Steps(steps)) => {
            let mut front = String::new();
            for step in steps {
                match step {
                    Step::Literal(text) => {
                        front.push('/');
                        front.push_str(text);
                    }
                    Step::One => {
                        front.push('/');
                        return front;
                    }
                    Step::PatternEnd | Step::PrefixEnd | Step::Rest => return front,
                }
            }
            front
        }
        Some(Shape::Regex(regex)) => crate::routing::regexes::literal_prefix(regex.source()).to_owned(),
        None => String::new(),
    }
}

/// How two paths of segments lie to each other.
pub(super) fn compare(first: &[Step<'_>], second: &[Step<'_>]) -> Relation {
    use Step::{Literal, One, PatternEnd, PrefixEnd, Rest};
    let (mut inside, mut around) = (true, true);
    for (a, b) in first.iter().zip(second) {
        match (a, b) {
            (Literal(a), Literal(b)) if a == b => {}
            (Literal(text), One) if !text.is_empty() => around = false,
            (One, Literal(text)) if !text.is_empty() => inside = false,
            (One, One) => {}
            (PrefixEnd | Rest, PrefixEnd | Rest) | (PatternEnd, PatternEnd) => break,
            (PrefixEnd | Rest, _) => {
                inside = false;
                break;
            }
            (_, PrefixEnd | Rest) => {
                around = false;
                break;
            }
            _ => return Relation::Apart,
        }
    }
    Relation::overlapping(inside, around)
}

/// The shortest path that fits two paths of segments which overlap.
pub(super) fn sample(first: &[Step<'_>], second: &[Step<'_>], filler: &str) -> String {
    let mut path = String::new();
    for at in 0.. {
        let literal = [first, second].iter().find_map(|steps| match steps.get(at) {
            Some(Step::Literal(text)) => Some(*text),
            _ => None,
        });
        let one = [first, second].iter().any(|steps| steps.get(at) == Some(&Step::One));
        match literal {
            Some(text) => {
                path.push('/');
                path.push_str(text);
            }
            None if one => {
                path.push('/');
                path.push_str(filler);
            }
            None => break,
        }
    }
    if path.is_empty() { "/".to_owned() } else { path }
}

/// What it costs to get an automaton, in transitions.
const TABLE: usize = 500;

/// The automata of regexes by source; `None` for those that would be too large.
#[derive(Debug, Default)]
pub(super) struct Automata {
    tables: HashMap<Arc<str>, (Option<Arc<Table>>, u64)>,
    round: u64,
}

impl Automata {
    /// Forgets what the last two rounds did not use.
    pub(super) fn next_round(&mut self) {
        self.round += 1;
        let round = self.round;
        self.tables.retain(|_, (_, used)| *used + 2 > round);
    }

    /// The automaton of a regex. It costs the same whether it is known or not, lest findings depend on what was looked
    /// at before.
    pub(super) fn get(&mut self, source: &str, work: &mut usize) -> Option<Arc<Table>> {
        *work = work.checked_sub(TABLE)?;
        if let Some((table, used)) = self.tables.get_mut(source) {
            *used = self.round;
            return table.clone();
        }
        let table = Table::new(source).map(Arc::new);
        self.tables.insert(source.into(), (table.clone(), self.round));
        table
    }
}

/// How the path of `first` lies to that of `second`, with a path that both have; an error where that is not known.
pub(super) fn relation(
    first: &Shape<'_>,
    second: &Shape<'_>,
    filler: &str,
    automata: &mut Automata,
    work: &mut usize,
) -> Result<(Relation, Option<String>), Exhausted> {
    let mut table = |regex: &Regex, work: &mut usize| automata.get(regex.source(), work).ok_or(Exhausted);
    match (first, second) {
        (Shape::Steps(a), Shape::Steps(b)) => {
            let relation = compare(a, b);
            Ok((relation, (relation != Relation::Apart).then(|| sample(a, b, filler))))
        }
        (Shape::Regex(a), Shape::Regex(b)) => {
            // Equal ones too: a regex that no path fits has nothing in common with itself.
            let (a, b) = (table(a, work)?, table(b, work)?);
            relate(Machine::Table(&a), Machine::Table(&b), work)
        }
        (Shape::Steps(a), Shape::Regex(b)) => {
            let b = table(b, work)?;
            relate(Machine::Linear(&Linear::new(a)), Machine::Table(&b), work)
        }
        (Shape::Regex(a), Shape::Steps(b)) => {
            let a = table(a, work)?;
            relate(Machine::Table(&a), Machine::Linear(&Linear::new(b)), work)
        }
    }
}
