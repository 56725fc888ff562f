//! Shadowed matches: those that can never win, or that lose part of their requests to a match that is not simply a more
//! specific one.
//!
//! Every report has a witness, a request that fits the loser and that the matcher gives to the winner; a report whose
//! witness the matcher does not confirm is not made. What is found is true; not everything is found, for the search has
//! a budget that is linear in the size of the table (see `docs/adr/0007-shadowing.md`).
//!
//! - `surroundings`: which Selectors are asked before a Selector, host by host;
//! - `across`: what a Selector loses to those;
//! - `inside`: what a match loses to other matches of its Selector, with candidates from `trie`;
//! - `implied`, `paths`, `automaton`: whether one thing contains another;
//! - `witness`, `texts`: requests that fulfil several things at once;
//! - `words`: reports for people.

mod across;
mod automaton;
mod implied;
mod inside;
mod paths;
mod surroundings;
mod texts;
mod trie;
mod witness;
mod words;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use foldhash::fast::RandomState;
use http::{HeaderMap, Method};

use self::paths::Automata;
use self::surroundings::Surroundings;
pub use self::words::told;
use super::hosts::Hosts;
use super::{ListenerIndex, Now, Request, RouteTable};
pub use crate::ir::Extent;
use crate::ir::{self, ObjectName, RuleName};

/// The time of a witness for which time does not matter: noon of 1 January 2026, UTC, in seconds since the epoch.
const DEFAULT_TIME: i64 = 1_767_268_800;

/// Names a match of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MatchRef {
    /// The Selector.
    pub selector: ObjectName,
    /// The Route.
    pub route: ObjectName,
    /// The position of the rule in the Route.
    pub rule_index: u16,
    /// The rule's name.
    pub rule: RuleName,
    /// The position of the match in the rule.
    pub matching: u16,
}

/// What takes the requests of a loser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Winner {
    /// A match, of the same Selector or of one that is asked first.
    Match(MatchRef),
    /// A Selector that is asked first and has no match for the witness: 404.
    Selector(ObjectName),
}

impl Winner {
    /// The Selector that takes the witness.
    pub fn selector(&self) -> &ObjectName {
        match self {
            Self::Match(matched) => &matched.selector,
            Self::Selector(selector) => selector,
        }
    }
}

/// A shadowed match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// The match that loses.
    pub loser: MatchRef,
    /// What takes the witness.
    pub winner: Winner,
    /// How much it loses.
    pub extent: Extent,
    /// A request that fits the loser and goes to the winner.
    pub witness: Witness,
}

/// A Selector that no request reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorShadow {
    /// The Selector.
    pub selector: ObjectName,
    /// A Selector that is asked first.
    pub winner: ObjectName,
    /// A request that fits the Selector and goes to the winner.
    pub witness: Witness,
}

/// What is found at one Selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Set when no request reaches the Selector.
    pub selector: Option<SelectorShadow>,
    /// Its shadowed matches, the best rank first.
    pub matches: Vec<Shadow>,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.selector.is_none() && self.matches.is_empty()
    }
}

/// A request, with data of its own, that proves a shadow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// The listener that it comes in on.
    pub listener: ListenerIndex,
    /// That listener's name.
    pub listener_name: Arc<str>,
    /// The method.
    pub method: Method,
    /// The host in its normal form.
    pub host: String,
    /// The path in its normal form.
    pub path: String,
    /// The query without its `?`.
    pub query: Option<String>,
    /// Header fields that matter.
    pub headers: HeaderMap,
    /// The client's address; `None` where it does not matter.
    pub client_ip: Option<IpAddr>,
    /// The time in seconds since the epoch; `None` where it does not matter.
    pub time: Option<i64>,
}

impl Witness {
    /// The request as a lookup sees it.
    pub fn request(&self) -> Request<'_> {
        let time = u64::try_from(self.time.unwrap_or(DEFAULT_TIME)).unwrap_or(0);
        Request {
            method: &self.method,
            host: &self.host,
            path: &self.path,
            query: self.query.as_deref(),
            headers: &self.headers,
            client_ip: self.client_ip.unwrap_or(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
            now: Now::At(SystemTime::UNIX_EPOCH + Duration::from_secs(time)),
        }
    }
}

/// All shadows of a table, Selector by Selector in their order of precedence.
pub fn find<P>(table: &RouteTable<P>) -> Vec<Arc<Found>> {
    Detector::default().update(table)
}

/// Finds shadows, and remembers what it found at Selectors whose surroundings do not change.
#[derive(Debug, Default)]
pub struct Detector {
    /// By the address of the Selector.
    known: HashMap<usize, Known, RandomState>,
    automata: Automata,
    hasher: RandomState,
}

#[derive(Debug)]
struct Known {
    /// Keeps the address from being used again.
    selector: Arc<ir::Selector>,
    /// Stands for everything else that the findings depend on.
    surroundings: u64,
    found: Arc<Found>,
}

impl Detector {
    /// All shadows of a table, Selector by Selector in their order of precedence.
    ///
    /// What an edit costs is what the edited Selector and those behind it on its hostnames cost, and one pass over all
    /// hostnames.
    pub fn update<P>(&mut self, table: &RouteTable<P>) -> Vec<Arc<Found>> {
        self.update_with(table)
    }

    fn update_with(&mut self, table: &dyn Matcher) -> Vec<Arc<Found>> {
        self.automata.next_round();
        let selectors = table.selectors();
        let mut known = HashMap::with_capacity_and_hasher(selectors.len(), RandomState::default());
        let mut all = Vec::new();
        let mut surroundings = Surroundings::new(table, &self.hasher);
        for (at, selector) in (0..).zip(&selectors) {
            let hash = surroundings.visit(selector);
            let former = self
                .known
                .remove(&Arc::as_ptr(selector).addr())
                .filter(|former| Arc::ptr_eq(&former.selector, selector) && former.surroundings == hash);
            let found = match former {
                Some(former) => former.found,
                None => {
                    Arc::new(across::analyse(table, at, &selectors, &surroundings.ways(selector), &mut self.automata))
                }
            };
            if !found.is_empty() {
                all.push(Arc::clone(&found));
            }
            surroundings.leave(at, selector);
            known.insert(
                Arc::as_ptr(selector).addr(),
                Known { selector: Arc::clone(selector), surroundings: hash, found },
            );
        }
        self.known = known;
        all
    }
}

/// What detection asks of a table, whatever its payload.
pub(super) trait Matcher {
    /// The listeners in the order of their indices.
    fn listeners(&self) -> Vec<(&Arc<str>, &Arc<Hosts>)>;
    /// The Selectors in the order of precedence.
    fn selectors(&self) -> Vec<&Arc<ir::Selector>>;
    /// The matches of a Selector in the order of their ranks.
    fn ranked(&self, selector: u32) -> Vec<(&Arc<ir::Rule>, &ir::Match)>;
    /// The Selector that takes a request.
    fn choose(&self, listener: ListenerIndex, request: &Request<'_>) -> Option<u32>;
    /// The match of a Selector that takes a request.
    fn best(&self, selector: u32, request: &Request<'_>) -> Option<(u32, &Arc<ir::Rule>, &ir::Match)>;
}

#[cfg(test)]
mod tests;
