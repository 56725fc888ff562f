//! The routing table: pure compilation of [`crate::ir`] and the lookup that requests run.
//!
//! [`path::normalise`] and [`host::parse`] bring a request into the form that is matched, [`RouteTable::find`]
//! decides. A lookup allocates nothing (but where a condition must decode an escaped query value), takes no lock and
//! looks at the table in this order:
//!
//! 1. `hosts`: one hash lookup for the exact host, one per wildcard length in use, then the hosts of `*`;
//! 2. the Selectors of that host in their precedence; the first whose conditions hold decides;
//! 3. `selector`: its matches, numbered at compile time in the one order of `order`; Exact by hash, Regex in order,
//!    then Pattern and Prefix in a determinised trie (`tree`) or, where that would grow too large, a bit matrix
//!    (`matrix`).

pub mod condition;
pub mod explain;
pub mod host;
mod hosts;
mod matrix;
mod names;
mod order;
pub mod path;
pub mod phrase;
pub mod preflight;
pub mod query;
mod regexes;
mod selector;
pub mod shadow;
mod table;
#[cfg(test)]
mod testing;
mod tree;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

pub use self::order::Criterion;
pub use self::table::{CompiledRule, RouteTable};
use crate::ir;

/// Position of a listener in the list that a table was compiled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerIndex(pub usize);

/// The time of a request.
#[derive(Clone, Copy, Debug)]
pub enum Now {
    /// This time.
    At(SystemTime),
    /// Asked for only when a condition needs it.
    Ask(fn() -> SystemTime),
}

impl Now {
    /// The time.
    pub fn get(self) -> SystemTime {
        match self {
            Self::At(time) => time,
            Self::Ask(ask) => ask(),
        }
    }
}

/// What a lookup sees of a request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a http::Method,
    /// The host as [`host::parse`] gives it; empty when the request names none.
    pub host: &'a str,
    /// The path as [`path::normalise`] gives it.
    pub path: &'a str,
    /// The query without its `?`, as sent.
    pub query: Option<&'a str>,
    /// The header fields.
    pub headers: &'a http::HeaderMap,
    /// The client's address.
    pub client_ip: IpAddr,
    /// The time of the request.
    pub now: Now,
}

/// Names a rule inside one table, for whoever keeps the table but cannot keep a borrow of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleKey {
    selector: u32,
    rule: u32,
}

/// The rule that takes a request.
#[derive(Debug)]
pub struct Found<'a, P> {
    /// Where [`RouteTable::rule`] finds the rule again.
    pub key: RuleKey,
    /// The Selector.
    pub selector: &'a Arc<ir::Selector>,
    /// Its rule.
    pub rule: &'a Arc<ir::Rule>,
    /// What was made of the rule when the table was compiled.
    pub payload: &'a P,
    /// The position in the rule's matches.
    matching: u32,
}

impl<'a, P> Found<'a, P> {
    /// The match of the rule.
    pub fn matched(&self) -> &'a ir::Match {
        // The position comes from this very list.
        &self.rule.matches[self.matching as usize]
    }

    /// How many bytes at the front of the path a prefix rewrite replaces: the prefix, the whole path for Exact, the
    /// literal segments at the front of a Pattern, nothing for Regex.
    pub fn matched_prefix_len(&self) -> usize {
        match &self.matched().path {
            ir::PathMatch::Exact(text) | ir::PathMatch::Prefix(text) => text.len(),
            ir::PathMatch::Pattern(pattern) => pattern
                .segments()
                .iter()
                .map_while(|segment| match segment {
                    ir::Segment::Literal(text) => Some(text.len() + 1),
                    ir::Segment::One(_) | ir::Segment::Rest => None,
                })
                .sum(),
            ir::PathMatch::Regex(_) => 0,
        }
    }
}

/// Why no rule takes a request. Each is a 404.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Miss {
    /// No Selector of this listener serves the host.
    #[error("no Selector serves this host on this listener")]
    NoHost,
    /// The conditions of no Selector of the host hold.
    #[error("the conditions of no Selector of this host hold")]
    NoSelector,
    /// No match of the Selector fits.
    #[error("no match of the Selector fits")]
    NoMatch,
}

impl Miss {
    /// A short name for metrics and logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoHost => "no_host",
            Self::NoSelector => "no_selector",
            Self::NoMatch => "no_match",
        }
    }
}

#[cfg(any(test, fuzzing))]
pub mod reference;
#[cfg(test)]
mod tests;
