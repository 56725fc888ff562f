//! From sorted paths to a trie, from the trie to states.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::ops::Range;

use super::{Ends, Header, NARROW, NONE, Path, Tree, Wide, packed};
use crate::routing::order::Step;

/// How much larger than the trie the states may get, in entries (states, edges and members of sets): a factor and
/// what small tries have on top.
const GROWTH: usize = 32;
const FREE: usize = 256;

impl Tree {
    /// Builds the states of `paths`, which are sorted and different; `None` when they would be too many.
    pub(in crate::routing) fn new(paths: &[Path<'_>]) -> Option<Self> {
        let mut trie = Trie::default();
        trie.add(paths, 0);
        let sets = Sets::new(&trie).explore()?;
        Some(sets.finish())
    }
}

/// A trie of steps.
#[derive(Default)]
struct Trie<'a> {
    nodes: Vec<Node<'a>>,
}

#[derive(Default)]
struct Node<'a> {
    /// By literal, sorted.
    children: Vec<(&'a str, u32)>,
    one: Option<u32>,
    ends: Option<Ends>,
}

impl<'a> Trie<'a> {
    /// Adds a node for `paths`, all the same before `depth`, and what is below it.
    fn add(&mut self, paths: &[Path<'a>], depth: usize) -> u32 {
        let id = index(self.nodes.len());
        self.nodes.push(Node::default());
        let mut node = Node::default();
        for same in paths.chunk_by(|a, b| a.steps[depth] == b.steps[depth]) {
            let ranks = &same[0].ranks;
            match same[0].steps[depth] {
                Step::Literal(text) => node.children.push((text, self.add(same, depth + 1))),
                Step::One => node.one = Some(self.add(same, depth + 1)),
                Step::PatternEnd => {
                    node.ends = Some(Ends { pattern: ranks.start, prefix: ranks.end, end: ranks.end });
                }
                // The order puts these right behind the Pattern's end.
                Step::PrefixEnd | Step::Rest => {
                    let start = Ends { pattern: ranks.start, prefix: ranks.start, end: ranks.end };
                    node.ends = Some(Ends { end: ranks.end, ..node.ends.unwrap_or(start) });
                }
            }
        }
        self.nodes[id as usize] = node;
        id
    }
}

/// The subset construction.
struct Sets<'t, 'a> {
    trie: &'t Trie<'a>,
    /// The set of nodes of each state, sorted.
    members: Vec<Set>,
    /// The states of single nodes.
    single: Vec<u32>,
    /// The states of larger sets.
    many: HashMap<Box<[u32]>, u32>,
    states: Vec<State>,
    edges: Vec<(&'a str, u32)>,
    ends: Vec<Ends>,
    /// Entries that may still be made.
    budget: usize,
}

/// A state whose place in memory is not yet known.
struct State {
    /// The state that any other non-empty segment leads to.
    other: u32,
    /// Its places in [`Sets::edges`] and [`Sets::ends`].
    edges: Range<usize>,
    ends: Range<usize>,
}

/// One node needs no allocation, and most sets have one.
#[derive(Clone)]
enum Set {
    Single([u32; 1]),
    Many(Box<[u32]>),
}

impl Set {
    fn nodes(&self) -> &[u32] {
        match self {
            Self::Single(node) => node,
            Self::Many(nodes) => nodes,
        }
    }
}

impl<'t, 'a> Sets<'t, 'a> {
    fn new(trie: &'t Trie<'a>) -> Self {
        Self {
            trie,
            members: Vec::with_capacity(trie.nodes.len()),
            single: vec![NONE; trie.nodes.len()],
            many: HashMap::new(),
            states: Vec::with_capacity(trie.nodes.len()),
            edges: Vec::with_capacity(trie.nodes.len()),
            ends: Vec::new(),
            budget: trie.nodes.len().saturating_mul(GROWTH).saturating_add(FREE),
        }
    }

    /// Makes every state that the root leads to; `None` when the budget does not allow it.
    fn explore(mut self) -> Option<Self> {
        self.state(&[0])?;
        let mut at = 0;
        while let Some(set) = self.members.get(at) {
            let set = set.clone();
            self.expand(set.nodes())?;
            at += 1;
        }
        Some(self)
    }

    /// Makes the state of a set whose turn it is.
    fn expand(&mut self, set: &[u32]) -> Option<()> {
        let trie = self.trie;
        let nodes = || set.iter().map(|node| &trie.nodes[*node as usize]);
        let (first_edge, first) = (self.edges.len(), self.ends.len());
        self.ends.extend(nodes().filter_map(|node| node.ends));
        self.ends[first..].sort_unstable_by_key(|ends| ends.pattern);

        let ones: Vec<u32> = nodes().filter_map(|node| node.one).collect();
        let mut children: Vec<(&'a str, u32)> = nodes().flat_map(|node| &node.children).copied().collect();
        if set.len() > 1 {
            children.sort_unstable();
        }
        let mut target: Vec<u32> = Vec::new();
        for same in children.chunk_by(|a, b| a.0 == b.0) {
            let text = same[0].0;
            target.clear();
            target.extend(same.iter().map(|child| child.1));
            if !text.is_empty() {
                target.extend(&ones);
            }
            target.sort_unstable();
            let target = self.state(&target)?;
            self.edges.push((text, target));
        }
        let other = if ones.is_empty() {
            NONE
        } else {
            target.clear();
            target.extend(&ones);
            target.sort_unstable();
            self.state(&target)?
        };
        self.states.push(State { other, edges: first_edge..self.edges.len(), ends: first..self.ends.len() });
        Some(())
    }

    /// The state of a set, which gets its turn later when it is new.
    fn state(&mut self, set: &[u32]) -> Option<u32> {
        let known = match *set {
            [node] => self.single[node as usize],
            _ => self.many.get(set).copied().unwrap_or(NONE),
        };
        // An edge costs one; a new state its members, too.
        let cost = if known == NONE { 2 + set.len() } else { 1 };
        self.budget = self.budget.checked_sub(cost)?;
        if known != NONE {
            return Some(known);
        }
        let new = index(self.members.len());
        if let [node] = *set {
            self.single[node as usize] = new;
            self.members.push(Set::Single([node]));
        } else {
            self.many.insert(set.into(), new);
            self.members.push(Set::Many(set.into()));
        }
        Some(new)
    }

    /// Lays the states out in memory.
    fn finish(self) -> Tree {
        let order = self.preorder();
        let mut places = vec![NONE; self.states.len()];
        let mut size = 0;
        for &state in &order {
            places[state as usize] = index(size);
            size += self.words(&self.states[state as usize]);
        }
        let place = |state: u32| places.get(state as usize).copied().unwrap_or(NONE);
        let mut words = Vec::with_capacity(size);
        let mut wide = Wide::default();
        let mut hashed: Vec<(u64, u32)> = Vec::new();
        for &number in &order {
            let state = &self.states[number as usize];
            let edges = &self.edges[state.edges.clone()];
            words.extend([place(state.other), index(state.ends.len()), index(edges.len()), index(self.words(state))]);
            for ends in &self.ends[state.ends.clone()] {
                words.extend([ends.pattern, ends.prefix, ends.end]);
            }
            for (label, target) in edges {
                if edges.len() > NARROW {
                    hashed.push((wide.hasher.hash_one((place(number), *label)), index(words.len())));
                }
                words.extend([place(*target), index(label.len())]);
                words.extend(packed(label));
            }
        }
        // Capacity is given, so no entry is ever hashed again.
        wide.edges.reserve(hashed.len(), |_| 0);
        for &(hash, at) in &hashed {
            wide.edges.insert_unique(hash, at, |_| hash);
        }
        Tree { words: words.into(), wide: (!hashed.is_empty()).then(|| Box::new(wide)) }
    }

    /// Words of a state's record.
    fn words(&self, state: &State) -> usize {
        let edges = self.edges[state.edges.clone()].iter().map(|(label, _)| 2 + label.len().div_ceil(4));
        Header::WORDS + Ends::WORDS * state.ends.len() + edges.sum::<usize>()
    }

    /// All states, each right behind the one that leads to it first where that is possible.
    fn preorder(&self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.states.len());
        let mut seen = vec![false; self.states.len()];
        let mut next = vec![0_u32];
        while let Some(number) = next.pop() {
            // `NONE` is no position.
            let Some(seen) = seen.get_mut(number as usize) else { continue };
            if std::mem::replace(seen, true) {
                continue;
            }
            order.push(number);
            let state = &self.states[number as usize];
            next.push(state.other);
            next.extend(self.edges[state.edges.clone()].iter().rev().map(|(_, target)| *target));
        }
        order
    }
}

/// A position as it is stored. A Selector of four thousand million parts does not fit into memory.
fn index(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(NONE)
}
