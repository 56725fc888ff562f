//! Finite automata over the bytes of a path or a value, and shortest texts in their product.
//!
//! Requests have only ASCII in their normalised paths, and witnesses only ASCII in their values, so bytes above 127
//! have no transitions here.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use foldhash::fast::RandomState;
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::{primitives::StateID, start, syntax};
use regex_automata::{Anchored, MatchKind};

use crate::routing::order::Step;

/// No state: nothing that goes on from here is accepted.
const DEAD: u32 = u32::MAX;
/// Of [`Linear`]: everything is accepted from here on.
const ALL: u32 = u32::MAX - 1;
/// Most automata in one product.
pub(super) const MAX_MACHINES: usize = 8;
/// What it costs to begin a product, in transitions.
const BEGIN: usize = 200;
/// Bytes that an automaton of a regex may take; larger ones count as unknown.
const DFA_LIMIT: usize = 128 << 10;
const NFA_LIMIT: usize = 1 << 20;

/// Every path in the form of [`crate::routing::path::normalise`].
pub(super) static PATHS: LazyLock<Option<Table>> = LazyLock::new(|| {
    let plain = r#"!"$&-\-0-\[\]-~"#; // without the dot
    let escape = "%(?:0[1-9A-F]|1[0-9A-F]|2[0-9A-C]|3[A-F]|40|5[BDE]|60|7[BCDF]|[89A-F][0-9A-F])";
    let (other, any) = (format!("[{plain}&&[^?]]|{escape}"), format!("(?:[.{plain}&&[^?]]|{escape})"));
    Table::new(&format!(r"(?:/(?:(?:{other}){any}*|\.(?:(?:{other}){any}*|\.{any}+))?)+"))
});

/// Values of header fields and query parameters that a person can type.
pub(super) static VALUES: LazyLock<Option<Table>> = LazyLock::new(|| Table::new("(?:[!-~](?:[ -~]*[!-~])?)?"));

/// Values of cookies (RFC 6265, section 4.1.1).
pub(super) static COOKIES: LazyLock<Option<Table>> = LazyLock::new(|| Table::new(r"[!#-+\--:<-\[\]-~]*"));

/// Bytes in the order in which witnesses use them.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes: Vec<u8> = (b'a'..=b'z').chain(b'0'..=b'9').chain(*b"/-_.").chain(b'A'..=b'Z').collect();
    let rest: Vec<u8> = (0..128).filter(|byte| !bytes.contains(byte)).collect();
    bytes.extend(rest);
    bytes
});

/// The automaton of a regex, state 0 first.
#[derive(Debug)]
pub(super) struct Table {
    classes: [u8; 128],
    width: usize,
    next: Vec<u32>,
    accepts: Vec<bool>,
}

impl Table {
    /// The automaton of a regex that must match whole texts; `None` when it would be too large.
    pub(super) fn new(source: &str) -> Option<Self> {
        let whole = format!("^(?:{source})$");
        // On ASCII both modes say the same, and the automaton without Unicode is far smaller. Letters beyond ASCII,
        // however written, may fold to ASCII ones.
        let plain = source.is_ascii() && !["\\x", "\\u", "\\U"].iter().any(|escape| source.contains(escape));
        let dfa = plain.then(|| dfa(&whole, false)).flatten().or_else(|| dfa(&whole, true))?;
        Self::of(&dfa)
    }

    fn of(dfa: &dense::DFA<Vec<u32>>) -> Option<Self> {
        let mut classes = [0; 128];
        let mut samples: Vec<u8> = Vec::new();
        for (byte, slot) in (0_u8..128).zip(&mut classes) {
            let class = dfa.byte_classes().get(byte);
            let known = samples.iter().position(|sample| dfa.byte_classes().get(*sample) == class);
            *slot = u8::try_from(known.unwrap_or(samples.len())).ok()?;
            if known.is_none() {
                samples.push(byte);
            }
        }
        let first = dfa.start_state(&start::Config::new().anchored(Anchored::Yes)).ok()?;
        let mut ids: HashMap<StateID, u32, RandomState> = HashMap::default();
        ids.insert(first, 0);
        let mut order = vec![first];
        let mut table = Self { classes, width: samples.len(), next: Vec::new(), accepts: Vec::new() };
        let mut at = 0;
        while let Some(&state) = order.get(at) {
            at += 1;
            table.accepts.push(dfa.is_match_state(dfa.next_eoi_state(state)));
            for &byte in &samples {
                let next = dfa.next_state(state, byte);
                if dfa.is_quit_state(next) {
                    return None;
                }
                table.next.push(if dfa.is_dead_state(next) {
                    DEAD
                } else {
                    let new = u32::try_from(order.len()).ok()?;
                    *ids.entry(next).or_insert_with(|| {
                        order.push(next);
                        new
                    })
                });
            }
        }
        Some(table)
    }

    fn next(&self, state: u32, byte: u8) -> u32 {
        let class = self.classes.get(usize::from(byte)).copied().unwrap_or(0);
        self.next.get(state as usize * self.width + usize::from(class)).copied().unwrap_or(DEAD)
    }
}

fn dfa(source: &str, unicode: bool) -> Option<dense::DFA<Vec<u32>>> {
    let config = dense::Config::new()
        .match_kind(MatchKind::All)
        .start_kind(StartKind::Anchored)
        .accelerate(false)
        .dfa_size_limit(Some(DFA_LIMIT))
        .determinize_size_limit(Some(DFA_LIMIT));
    let nfa = thompson::Config::new().utf8(unicode).which_captures(WhichCaptures::None).nfa_size_limit(Some(NFA_LIMIT));
    dense::Builder::new()
        .configure(config)
        .syntax(syntax::Config::new().unicode(unicode).utf8(unicode))
        .thompson(nfa)
        .build(source)
        .ok()
}

/// The automaton of an Exact path, a Prefix or a Pattern.
#[derive(Debug)]
pub(super) struct Linear {
    items: Vec<Item>,
    /// Whether a slash and anything may follow.
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Item {
    Byte(u8),
    /// One non-empty segment.
    One,
}

impl Linear {
    pub(super) fn new(steps: &[Step<'_>]) -> Self {
        let mut items = Vec::new();
        let mut open = false;
        for step in steps {
            match step {
                Step::Literal(text) => {
                    items.push(Item::Byte(b'/'));
                    items.extend(text.bytes().map(Item::Byte));
                }
                Step::One => items.extend([Item::Byte(b'/'), Item::One]),
                Step::PatternEnd => {}
                Step::PrefixEnd | Step::Rest => open = true,
            }
        }
        Self { items, open }
    }

    // A state is twice the position of the next item, odd inside a segment that began.
    fn next(&self, state: u32, byte: u8) -> u32 {
        let inside = state % 2 == 1;
        if state == ALL || (inside && byte != b'/') {
            return state;
        }
        let at = state.div_ceil(2);
        match self.items.get(at as usize) {
            Some(Item::Byte(expected)) if *expected == byte => 2 * at + 2,
            Some(Item::One) if byte != b'/' => 2 * at + 1,
            None if self.open && byte == b'/' => ALL,
            _ => DEAD,
        }
    }

    fn accepts(&self, state: u32) -> bool {
        state == ALL || state.div_ceil(2) as usize == self.items.len()
    }
}

/// An automaton.
#[derive(Debug)]
pub(super) enum Machine<'a> {
    Table(&'a Table),
    Linear(&'a Linear),
}

impl Machine<'_> {
    fn next(&self, state: u32, byte: u8) -> u32 {
        match self {
            _ if state == DEAD => DEAD,
            Self::Table(table) => table.next(state, byte),
            Self::Linear(linear) => linear.next(state, byte),
        }
    }

    fn accepts(&self, state: u32) -> bool {
        match self {
            _ if state == DEAD => false,
            Self::Table(table) => table.accepts.get(state as usize).is_some_and(|accepts| *accepts),
            Self::Linear(linear) => linear.accepts(state),
        }
    }

    /// Bytes of one class go the same way from every state.
    fn class(&self, byte: u8) -> u8 {
        match self {
            Self::Table(table) => table.classes.get(usize::from(byte)).copied().unwrap_or(0),
            Self::Linear(_) if byte == b'/' => byte,
            Self::Linear(linear) => {
                if linear.items.contains(&Item::Byte(byte)) {
                    byte
                } else {
                    0
                }
            }
        }
    }
}

type State = [u32; MAX_MACHINES];

/// The states of several automata that the same texts reach, breadth first, so that texts are the shortest.
struct Product<'m> {
    machines: &'m [Machine<'m>],
    alphabet: Vec<u8>,
    states: Vec<State>,
    /// Where a state was reached from, and by which byte.
    from: Vec<(u32, u8)>,
    known: HashSet<State, RandomState>,
    at: usize,
}

impl<'m> Product<'m> {
    fn new(machines: &'m [Machine<'m>]) -> Self {
        let mut seen: HashSet<[u8; MAX_MACHINES], RandomState> = HashSet::default();
        let mut class = |byte: &u8| {
            let mut classes = [0; MAX_MACHINES];
            classes.iter_mut().zip(machines).for_each(|(class, machine)| *class = machine.class(*byte));
            seen.insert(classes)
        };
        let alphabet = BYTES.iter().copied().filter(|byte| class(byte)).collect();
        let start = [0; MAX_MACHINES];
        let known = HashSet::from_iter([start]);
        Self { machines, alphabet, states: vec![start], from: vec![(0, 0)], known, at: 0 }
    }

    /// The next state, which is also expanded into those that `live` lets pass; `None` after the last one.
    fn advance(&mut self, work: &mut usize, live: impl Fn(&State) -> bool) -> Option<Result<usize, Exhausted>> {
        let at = self.at;
        let state = *self.states.get(at)?;
        self.at += 1;
        let Some(left) = work.checked_sub(self.alphabet.len()) else { return Some(Err(Exhausted)) };
        *work = left;
        for &byte in &self.alphabet {
            let mut next = [0; MAX_MACHINES];
            for (slot, (machine, state)) in next.iter_mut().zip(self.machines.iter().zip(state)) {
                *slot = machine.next(state, byte);
            }
            if live(&next) && self.known.insert(next) {
                self.states.push(next);
                self.from.push((u32::try_from(at).unwrap_or(u32::MAX), byte));
            }
        }
        Some(Ok(at))
    }

    fn accepts(&self, at: usize, machine: usize) -> bool {
        self.states.get(at).zip(self.machines.get(machine)).is_some_and(|(state, m)| m.accepts(state[machine]))
    }

    /// The text that leads to a state.
    fn text(&self, mut at: usize) -> String {
        let mut bytes = Vec::new();
        while at != 0 {
            let (from, byte) = self.from[at];
            bytes.push(char::from(byte));
            at = from as usize;
        }
        bytes.iter().rev().collect()
    }
}

/// The work was more than allowed.
#[derive(Debug)]
pub(super) struct Exhausted;

/// How two sets of paths lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Same,
    /// The first lies inside the second.
    Inside,
    /// The first contains the second.
    Around,
    /// Each has what the other has not, and some both have.
    Cross,
    /// They have nothing in common.
    Apart,
}

impl Relation {
    /// `inside`: the first has nothing that the second has not; `around`: the other way round.
    pub(super) fn overlapping(inside: bool, around: bool) -> Self {
        match (inside, around) {
            (true, true) => Self::Same,
            (true, false) => Self::Inside,
            (false, true) => Self::Around,
            (false, false) => Self::Cross,
        }
    }

    /// Whether the first contains the second.
    pub(super) fn contains(self) -> bool {
        matches!(self, Self::Same | Self::Around)
    }

    /// Whether the first lies inside the second.
    pub(super) fn is_inside(self) -> bool {
        matches!(self, Self::Same | Self::Inside)
    }
}

/// How the paths of two automata lie to each other, among normalised paths, with one that both have.
pub(super) fn relate(
    first: Machine<'_>,
    second: Machine<'_>,
    work: &mut usize,
) -> Result<(Relation, Option<String>), Exhausted> {
    let paths = PATHS.as_ref().ok_or(Exhausted)?;
    *work = work.checked_sub(BEGIN).ok_or(Exhausted)?;
    let machines = [Machine::Table(paths), first, second];
    let mut product = Product::new(&machines);
    let (mut both, mut only_first, mut only_second) = (None, false, false);
    loop {
        let live = |s: &State| {
            let open = |found: bool, state: u32| !found && state != DEAD;
            let common = both.is_none() && s[1] != DEAD && s[2] != DEAD;
            s[0] != DEAD && (common || open(only_first, s[1]) || open(only_second, s[2]))
        };
        let Some(at) = product.advance(work, live) else { break };
        let at = at?;
        if product.accepts(at, 0) {
            match (product.accepts(at, 1), product.accepts(at, 2)) {
                (true, true) if both.is_none() => both = Some(at),
                (true, false) => only_first = true,
                (false, true) => only_second = true,
                _ => {}
            }
        }
        if both.is_some() && only_first && only_second {
            break;
        }
    }
    Ok(match both {
        Some(at) => (Relation::overlapping(!only_first, !only_second), Some(product.text(at))),
        None => (Relation::Apart, None),
    })
}

/// A shortest text that the automata accept, or refuse where the flag is false.
pub(super) fn shortest(machines: &[Machine<'_>], wanted: &[bool], work: &mut usize) -> Option<String> {
    if machines.len() > MAX_MACHINES {
        return None;
    }
    *work = work.checked_sub(BEGIN)?;
    let mut product = Product::new(machines);
    let live = |s: &State| wanted.iter().zip(s).all(|(wanted, state)| !wanted || *state != DEAD);
    while let Some(Ok(at)) = product.advance(work, live) {
        if wanted.iter().enumerate().all(|(machine, wanted)| product.accepts(at, machine) == *wanted) {
            return Some(product.text(at));
        }
    }
    None
}

#[cfg(test)]
mod tests;
