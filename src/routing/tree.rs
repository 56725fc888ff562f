//! Pattern and Prefix, determinised: one state per segment of the path, however large the table.
//!
//! A trie alone would have to try the literal child and then the `*` child of every node, which over all patterns of
//! `a` and `*` visits every node there is. So the subset construction is done at compile time: a state stands for all
//! the nodes that the same segments reach. Where a node has no `*` child its state is that node, so tables without
//! `*` cost nothing more, and equal sets share one state.
//!
//! The construction is exponential at worst (`n` patterns with one literal each, at different places among `*`, need
//! `2^n` states). [`Tree::new`] gives up beyond a bound that is linear in the size of the trie; the Selector then uses
//! a [`super::matrix::Matrix`]. That was chosen over a walk with backtracking since its cost has no exponent either:
//! segments times matches / 64 words, whatever the path.

mod build;

use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::order::Step;
use crate::ir::MAX_SEGMENTS;

/// No state.
const NONE: u32 = u32::MAX;

/// States with more edges than this find them by hash, others by looking at each.
const NARROW: usize = 8;

/// The matches of one path: their ranks follow each other.
#[derive(Clone, Debug)]
pub(super) struct Path<'a> {
    pub(super) steps: &'a [Step<'a>],
    pub(super) ranks: Range<u32>,
}

/// All Patterns and Prefixes of a Selector.
#[derive(Debug)]
pub(super) struct Tree {
    /// The root first; one more at the end that bounds the last one's edges and ends.
    states: Box<[State]>,
    edges: Box<[Edge]>,
    ends: Box<[Ends]>,
    /// The texts of the edges.
    labels: Box<str>,
    /// Positions of the edges of wide states, by state and label. No client chooses the seed.
    wide: HashTable<u32>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Where its edges begin.
    edges: u32,
    /// Where its ends begin.
    ends: u32,
    /// Where any other non-empty segment leads.
    other: u32,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    label: u32,
    len: u32,
    target: u32,
}

/// The matches that end at a node of the trie, as ranks: Patterns, then Prefixes and `**`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    /// From here to `end` when the path ends here.
    pattern: u32,
    /// From here to `end` when the path goes on.
    prefix: u32,
    end: u32,
}

/// The states that a path goes through.
struct Walk {
    states: [u32; MAX_SEGMENTS + 1],
    len: usize,
    /// Whether the last state stands for the whole path.
    complete: bool,
}

impl Tree {
    /// The smallest rank whose path fits and for which `holds`.
    pub(super) fn best(&self, path: &str, mut holds: impl FnMut(u32) -> bool) -> Option<u32> {
        let walk = self.walk(path);
        let mut best = NONE;
        let mut ended = walk.complete;
        // What ends deeper is mostly better, and the better the first find, the fewer are asked after it.
        for &state in walk.states[..walk.len].iter().rev() {
            let [from, to] = [state, state + 1].map(|s| self.states[s as usize].ends as usize);
            for ends in &self.ends[from..to] {
                let first = if ended { ends.pattern } else { ends.prefix };
                if let Some(rank) = (first..ends.end.min(best)).find(|rank| holds(*rank)) {
                    best = rank;
                }
            }
            ended = false;
        }
        (best != NONE).then_some(best)
    }

    fn walk(&self, path: &str) -> Walk {
        let mut walk = Walk { states: [0; MAX_SEGMENTS + 1], len: 1, complete: false };
        let mut state = 0;
        let mut rest = path;
        while let Some(start) = rest.strip_prefix('/') {
            let end = start.bytes().position(|b| b == b'/').unwrap_or(start.len());
            let (segment, after) = start.split_at(end);
            state = self.step(state, segment);
            let Some(slot) = walk.states.get_mut(walk.len) else { return walk };
            if state == NONE {
                return walk;
            }
            *slot = state;
            walk.len += 1;
            rest = after;
        }
        walk.complete = walk.len > 1 && rest.is_empty();
        walk
    }

    fn step(&self, state: u32, segment: &str) -> u32 {
        let State { edges: from, other, .. } = self.states[state as usize];
        let to = self.states[state as usize + 1].edges;
        let edges = &self.edges[from as usize..to as usize];
        let found = if edges.len() <= NARROW {
            edges.iter().find(|edge| self.label(edge) == segment)
        } else {
            let own = |position: &u32| {
                (from..to).contains(position) && self.label(&self.edges[*position as usize]) == segment
            };
            self.wide.find(self.hasher.hash_one((state, segment)), own).map(|at| &self.edges[*at as usize])
        };
        match found {
            Some(edge) => edge.target,
            None if segment.is_empty() => NONE,
            None => other,
        }
    }

    fn label(&self, edge: &Edge) -> &str {
        &self.labels[edge.label as usize..(edge.label + edge.len) as usize]
    }

    /// How many states a lookup of this path looks at.
    #[cfg(test)]
    pub(super) fn visits(&self, path: &str) -> usize {
        self.walk(path).len
    }
}

#[cfg(test)]
mod tests;
