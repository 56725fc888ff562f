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
///
/// Everything that a walk reads lies in one allocation, each state beside the first state it leads to: what a lookup
/// costs in a large table is how many places of memory it has to wait for.
#[derive(Debug)]
pub(super) struct Tree {
    /// The records of the states, the root's first. A record is [`Header`], then for each of its ends the three ranks
    /// of [`Ends`], then for each of its edges target, length of the label in bytes, and the label in whole words.
    words: Box<[u32]>,
    wide: Option<Box<Wide>>,
}

/// Edges of states that have many.
#[derive(Debug, Default)]
struct Wide {
    /// Places of edges, by state and label. No client chooses the seed.
    edges: HashTable<u32>,
    hasher: RandomState,
}

/// How the record of a state begins.
#[derive(Clone, Copy, Debug)]
struct Header {
    /// Where any other non-empty segment leads.
    other: u32,
    /// How many ends there are.
    ends: u32,
    /// How many edges there are.
    edges: u32,
    /// Words of the whole record.
    size: u32,
}

impl Header {
    const WORDS: usize = 4;

    fn edges_at(self, state: u32) -> usize {
        state as usize + Self::WORDS + Ends::WORDS * self.ends as usize
    }
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

impl Ends {
    const WORDS: usize = 3;
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
            for ends in self.ends(state) {
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

    fn header(&self, state: u32) -> Header {
        let words = &self.words[state as usize..][..Header::WORDS];
        Header { other: words[0], ends: words[1], edges: words[2], size: words[3] }
    }

    fn ends(&self, state: u32) -> impl Iterator<Item = Ends> {
        let count = self.header(state).ends as usize;
        let words = &self.words[state as usize + Header::WORDS..][..Ends::WORDS * count];
        words.chunks_exact(Ends::WORDS).map(|ends| Ends { pattern: ends[0], prefix: ends[1], end: ends[2] })
    }

    fn step(&self, state: u32, segment: &str) -> u32 {
        let header = self.header(state);
        let found = match &self.wide {
            Some(wide) if header.edges as usize > NARROW => {
                let range = state..state + header.size;
                let own = |edge: &u32| range.contains(edge) && self.follow(*edge as usize, segment).is_ok();
                let edge = wide.edges.find(wide.hasher.hash_one((state, segment)), own);
                edge.map(|edge| self.words[*edge as usize])
            }
            _ => {
                let mut at = header.edges_at(state);
                (0..header.edges).find_map(|_| match self.follow(at, segment) {
                    Ok(target) => Some(target),
                    Err(next) => {
                        at = next;
                        None
                    }
                })
            }
        };
        match found {
            Some(target) => target,
            None if segment.is_empty() => NONE,
            None => header.other,
        }
    }

    /// Where the edge at `at` leads if `segment` is its label; else where the next edge is.
    fn follow(&self, at: usize, segment: &str) -> Result<u32, usize> {
        let len = self.words[at + 1] as usize;
        let label = &self.words[at + 2..][..len.div_ceil(4)];
        let is_same = len == segment.len() && label.iter().copied().eq(packed(segment));
        if is_same { Ok(self.words[at]) } else { Err(at + 2 + label.len()) }
    }

    /// How many states a lookup of this path looks at.
    #[cfg(test)]
    pub(super) fn visits(&self, path: &str) -> usize {
        self.walk(path).len
    }

    /// How many states and edges there are.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let (mut at, mut states, mut edges) = (0, 0, 0);
        while (at as usize) < self.words.len() {
            let header = self.header(at);
            (at, states, edges) = (at + header.size, states + 1, edges + header.edges as usize);
        }
        (states, edges)
    }
}

/// A label in whole words, the last filled up with zeros.
fn packed(label: &str) -> impl Iterator<Item = u32> {
    label.as_bytes().chunks(4).map(|bytes| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_le_bytes(word)
    })
}

#[cfg(test)]
mod tests;
