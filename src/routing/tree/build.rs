//! From sorted paths to a trie, from the trie to states.

use std::collections::HashMap;
use std::hash::BuildHasher;

use super::{Edge, Ends, NARROW, NONE, Path, RandomState, State, Tree};
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
    labels: HashMap<&'a str, (u32, u32)>,
    text: String,
    states: Vec<State>,
    edges: Vec<Edge>,
    ends: Vec<Ends>,
    /// Entries that may still be made.
    budget: usize,
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
            labels: HashMap::new(),
            text: String::new(),
            states: Vec::with_capacity(trie.nodes.len() + 1),
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
        self.states.push(State { edges: index(self.edges.len()), ends: index(self.ends.len()), other: NONE });
        Some(self)
    }

    /// Makes the state of a set whose turn it is.
    fn expand(&mut self, set: &[u32]) -> Option<()> {
        let trie = self.trie;
        let nodes = || set.iter().map(|node| &trie.nodes[*node as usize]);
        let mut state = State { edges: index(self.edges.len()), ends: index(self.ends.len()), other: NONE };
        let first = self.ends.len();
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
            let (label, len) = self.intern(text);
            let target = self.state(&target)?;
            self.edges.push(Edge { label, len, target });
        }
        if !ones.is_empty() {
            target.clear();
            target.extend(&ones);
            target.sort_unstable();
            state.other = self.state(&target)?;
        }
        self.states.push(state);
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

    fn intern(&mut self, text: &'a str) -> (u32, u32) {
        let buffer = &mut self.text;
        *self.labels.entry(text).or_insert_with(|| {
            let start = index(buffer.len());
            buffer.push_str(text);
            (start, index(text.len()))
        })
    }

    fn finish(self) -> Tree {
        let mut tree = Tree {
            states: self.states.into(),
            edges: self.edges.into(),
            ends: self.ends.into(),
            labels: self.text.into(),
            wide: hashbrown::HashTable::new(),
            hasher: RandomState::default(),
        };
        let mut wide: Vec<(u64, u32)> = Vec::new();
        for (state, bounds) in (0_u32..).zip(tree.states.windows(2)) {
            let (from, to) = (bounds[0].edges, bounds[1].edges);
            if (to - from) as usize > NARROW {
                let hash = |at: u32| tree.hasher.hash_one((state, tree.label(&tree.edges[at as usize])));
                wide.extend((from..to).map(|at| (hash(at), at)));
            }
        }
        if !wide.is_empty() {
            // Capacity is given, so no entry is ever hashed again.
            tree.wide = hashbrown::HashTable::with_capacity(wide.len());
            for (hash, at) in wide {
                tree.wide.insert_unique(hash, at, |_| hash);
            }
        }
        tree
    }
}

/// A position as it is stored. A Selector of four thousand million parts does not fit into memory.
fn index(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(NONE)
}
