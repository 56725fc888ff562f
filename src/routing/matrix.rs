//! Pattern and Prefix as rows of bits: for Selectors whose states would be too many (see [`super::tree`]).
//!
//! Path `n` is bit `n` of every row, and paths are sorted by rank. For each place in a path there is a row of those that
//! take any segment there, and for each literal at that place a sparse row of those that ask for it; for each number
//! of segments a row of those that can have it. Their intersection, word by word from the front, yields the paths that
//! fit, the best first. Memory is linear: a path has a bit in at most three rows per place and 16 bytes per literal.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::order::Step;
use super::tree::Path;
use crate::ir::MAX_SEGMENTS;

/// All Patterns and Prefixes of a Selector.
#[derive(Debug)]
pub(super) struct Matrix {
    /// Most segments that a path asks for.
    depth: usize,
    /// Dense rows, those of the first 64 paths first. Of each block: `depth + 2` words by the number of segments (the
    /// last for more than `depth`), then `depth` words of paths that take any segment at a place, the empty one too,
    /// then `depth` words of those that take any but the empty one.
    blocks: Box<[u64]>,
    literals: HashTable<Literal>,
    sparse: Box<[Word]>,
    /// The texts of the literals.
    text: Box<str>,
    /// Where the ranks of each path begin, and where those of the last end.
    ranks: Box<[u32]>,
    hasher: RandomState,
}

/// A literal at a place.
#[derive(Debug)]
struct Literal {
    place: usize,
    text: Range<usize>,
    words: Range<usize>,
}

/// A word of a sparse row.
#[derive(Clone, Copy, Debug)]
struct Word {
    block: usize,
    bits: u64,
}

impl Matrix {
    /// Builds the rows of `paths`, which are sorted and different.
    pub(super) fn new(paths: &[Path<'_>]) -> Self {
        let length = |path: &Path<'_>| path.steps.len() - 1;
        let depth = paths.iter().map(length).max().unwrap_or(0);
        let stride = 3 * depth + 2;
        let mut blocks = vec![0_u64; stride * paths.len().div_ceil(64)].into_boxed_slice();
        let mut literals: BTreeMap<(usize, &str), Vec<Word>> = BTreeMap::new();
        for (number, path) in paths.iter().enumerate() {
            let (block, bit) = (number / 64, 1_u64 << (number % 64));
            let rows = &mut blocks[block * stride..][..stride];
            let (lengths, places) = rows.split_at_mut(depth + 2);
            let (any, filled) = places.split_at_mut(depth);
            let open = path.steps.last() != Some(&Step::PatternEnd);
            for (count, row) in lengths.iter_mut().enumerate() {
                let fits = count == length(path) || open && count > length(path);
                *row |= if fits { bit } else { 0 };
            }
            for place in 0..depth {
                match path.steps.get(place) {
                    Some(Step::Literal(text)) => {
                        let row = literals.entry((place, text)).or_default();
                        match row.last_mut() {
                            Some(word) if word.block == block => word.bits |= bit,
                            _ => row.push(Word { block, bits: bit }),
                        }
                    }
                    Some(Step::One) => filled[place] |= bit,
                    _ => {
                        any[place] |= bit;
                        filled[place] |= bit;
                    }
                }
            }
        }
        let starts = paths.iter().map(|path| path.ranks.start);
        let ranks = starts.chain(paths.last().map(|path| path.ranks.end)).collect();
        Self::with_literals(depth, blocks, ranks, &literals)
    }

    fn with_literals(
        depth: usize,
        blocks: Box<[u64]>,
        ranks: Box<[u32]>,
        literals: &BTreeMap<(usize, &str), Vec<Word>>,
    ) -> Self {
        let hasher = RandomState::default();
        let mut table = HashTable::with_capacity(literals.len());
        let mut sparse = Vec::new();
        let mut text = String::new();
        for ((place, label), words) in literals {
            let literal = Literal {
                place: *place,
                text: text.len()..text.len() + label.len(),
                words: sparse.len()..sparse.len() + words.len(),
            };
            text.push_str(label);
            sparse.extend(words);
            let hash = hasher.hash_one((*place, *label));
            // Capacity is given, so no entry is ever hashed again.
            table.insert_unique(hash, literal, |_| hash);
        }
        Self { depth, blocks, literals: table, sparse: sparse.into(), text: text.into(), ranks, hasher }
    }

    /// The smallest rank whose path fits and for which `holds`.
    pub(super) fn best(&self, path: &str, mut holds: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut literals: [&[Word]; MAX_SEGMENTS] = [&[]; MAX_SEGMENTS];
        let mut empty = [false; MAX_SEGMENTS];
        let mut count = 0;
        for segment in path.strip_prefix('/')?.split('/').take(self.depth + 1) {
            if count < self.depth {
                literals[count] = self.literal(count, segment);
                empty[count] = segment.is_empty();
            }
            count += 1;
        }
        let places = count.min(self.depth);
        for (number, block) in self.blocks.chunks_exact(3 * self.depth + 2).enumerate() {
            let (lengths, rows) = block.split_at(self.depth + 2);
            let (any, filled) = rows.split_at(self.depth);
            let mut fits = lengths[count];
            for place in 0..places {
                if fits == 0 {
                    break;
                }
                let dense = if empty[place] { any[place] } else { filled[place] };
                fits &= dense | next_bits(&mut literals[place], number);
            }
            while fits != 0 {
                let path = number * 64 + fits.trailing_zeros() as usize;
                if let Some(rank) = (self.ranks[path]..self.ranks[path + 1]).find(|rank| holds(*rank)) {
                    return Some(rank);
                }
                fits &= fits - 1;
            }
        }
        None
    }

    fn literal(&self, place: usize, text: &str) -> &[Word] {
        let own = |literal: &Literal| literal.place == place && self.text[literal.text.clone()] == *text;
        let literal = self.literals.find(self.hasher.hash_one((place, text)), own);
        literal.map(|literal| &self.sparse[literal.words.clone()]).unwrap_or_default()
    }
}

/// The bits of a sparse row in `block`; moves the row on to it.
fn next_bits(row: &mut &[Word], block: usize) -> u64 {
    while let Some((word, rest)) = row.split_first() {
        if word.block > block {
            break;
        }
        if word.block == block {
            return word.bits;
        }
        *row = rest;
    }
    0
}
