//! Matches of a Selector whose paths overlap that of another one and rank better.

use std::ops::Range;

use crate::ir::MAX_SEGMENTS;
use crate::routing::order::Step;

/// Candidates for one match.
const CANDIDATES: usize = 16;
/// Nodes that are looked at for one match.
const VISITS: usize = 256;
/// Of the matches on one path, so many of the best are candidates, and the last one, which asks for least.
const OF_ONE_PATH: u32 = 3;

/// Exact paths, Patterns and Prefixes, segment by segment.
#[derive(Debug)]
pub(super) struct Trie<'a> {
    nodes: Vec<Node<'a>>,
}

#[derive(Debug, Default)]
struct Node<'a> {
    /// By literal, sorted.
    children: Vec<(&'a str, u32)>,
    one: Option<u32>,
    /// The ranks of what ends here.
    exact: Range<u32>,
    pattern: Range<u32>,
    prefix: Range<u32>,
    rest: Range<u32>,
}

/// The matches of one path.
#[derive(Debug)]
pub(super) struct Path<'a> {
    pub(super) steps: &'a [Step<'a>],
    pub(super) exact: bool,
    pub(super) ranks: Range<u32>,
}

impl<'a> Trie<'a> {
    pub(super) fn new(mut paths: Vec<Path<'a>>) -> Self {
        paths.retain(|path| path.steps.len() <= MAX_SEGMENTS + 1);
        paths.sort_by_key(|path| path.steps);
        let mut trie = Self { nodes: Vec::with_capacity(paths.len()) };
        trie.add(&paths, 0);
        trie
    }

    /// Adds a node for `paths`, all the same before `depth`, and what is below it.
    fn add(&mut self, paths: &[Path<'a>], depth: usize) -> u32 {
        let id = self.nodes.len();
        self.nodes.push(Node::default());
        let mut node = Node::default();
        for same in paths.chunk_by(|a, b| a.steps[depth] == b.steps[depth]) {
            match same[0].steps[depth] {
                Step::Literal(text) => node.children.push((text, self.add(same, depth + 1))),
                Step::One => node.one = Some(self.add(same, depth + 1)),
                Step::PatternEnd => {
                    for path in same {
                        let slot = if path.exact { &mut node.exact } else { &mut node.pattern };
                        *slot = path.ranks.clone();
                    }
                }
                Step::PrefixEnd => node.prefix = same[0].ranks.clone(),
                Step::Rest => node.rest = same[0].ranks.clone(),
            }
        }
        self.nodes[id] = node;
        u32::try_from(id).unwrap_or(u32::MAX)
    }

    /// Ranks of matches that may take requests from one with the path `steps`, but for those on the very same path.
    /// `plain` says that it asks for nothing but the path: then what lies inside it is no loss.
    pub(super) fn candidates(&self, steps: &[Step<'_>], plain: bool) -> Vec<u32> {
        let mut walk = Walk { trie: self, plain, found: Vec::new(), visits: VISITS };
        walk.at(0, steps, false, false);
        walk.found
    }
}

struct Walk<'w, 'a> {
    trie: &'w Trie<'a>,
    plain: bool,
    found: Vec<u32>,
    visits: usize,
}

impl<'a> Walk<'_, 'a> {
    fn visit(&mut self, node: u32) -> Option<&Node<'a>> {
        if self.found.len() >= CANDIDATES {
            return None;
        }
        self.visits = self.visits.checked_sub(1)?;
        self.trie.nodes.get(node as usize)
    }

    /// `diverged`: the nodes up to here rank better, whatever follows. `crossed`: they have what the match has not.
    fn at(&mut self, node: u32, steps: &[Step<'_>], diverged: bool, crossed: bool) {
        let trie = self.trie;
        let (Some((step, rest)), Some(_)) = (steps.split_first(), self.visit(node)) else { return };
        let Some(node) = trie.nodes.get(node as usize) else { return };
        match step {
            Step::Literal(text) => {
                if let Ok(child) = node.children.binary_search_by_key(text, |(label, _)| label) {
                    self.at(node.children[child].1, rest, diverged, crossed);
                }
                if diverged {
                    if let (Some(one), false) = (node.one, text.is_empty()) {
                        self.at(one, rest, true, true);
                    }
                    self.push(&node.prefix);
                    self.push(&node.rest);
                }
            }
            Step::One => {
                for (_, child) in node.children.iter().filter(|(label, _)| !label.is_empty()) {
                    self.at(*child, rest, true, crossed);
                }
                if let Some(one) = node.one {
                    self.at(one, rest, diverged, crossed);
                }
                if diverged {
                    self.push(&node.prefix);
                    self.push(&node.rest);
                }
            }
            _ if self.plain && !crossed => {}
            Step::PatternEnd => {
                self.push(&node.exact);
                if diverged {
                    self.push(&node.pattern);
                    self.push(&node.prefix);
                    self.push(&node.rest);
                }
            }
            Step::PrefixEnd | Step::Rest => {
                self.below(node);
                self.push(&node.exact);
                self.push(&node.pattern);
                if diverged || *step == Step::Rest {
                    self.push(&node.prefix);
                }
                if diverged {
                    self.push(&node.rest);
                }
            }
        }
    }

    /// Everything that goes on from a node.
    fn below(&mut self, node: &Node<'a>) {
        let trie = self.trie;
        for child in node.children.iter().map(|(_, child)| *child).chain(node.one) {
            if self.visit(child).is_none() {
                return;
            }
            let Some(child) = trie.nodes.get(child as usize) else { return };
            self.below(child);
            for ranks in [&child.exact, &child.pattern, &child.prefix, &child.rest] {
                self.push(ranks);
            }
        }
    }

    fn push(&mut self, ranks: &Range<u32>) {
        let first = ranks.clone().take(OF_ONE_PATH as usize);
        let last = ranks.clone().skip(OF_ONE_PATH as usize).last();
        self.found.extend(first.chain(last));
    }
}
