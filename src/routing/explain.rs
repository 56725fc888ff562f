//! Why a rule takes a request, and why every other one does not.
//!
//! The decision is [`RouteTable::find`]'s own; everything else here is told around it. A lookup stops at the first
//! that fits, an explanation goes on to what it would have asked next, so it costs what the Selector's matches cost.

mod mismatch;
mod nearest;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::mismatch::{Mismatch, Part};
use self::mismatch::{describe, failing, of_set};
pub use self::nearest::NearHost;
use super::order::Key;
use super::phrase::{self, MatchText};
use super::selector::Compiled;
use super::{Criterion, Found, ListenerIndex, Miss, Now, Request, RouteTable};
use crate::ir;

/// How much is told where there is much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Most losers, most Selectors and most less specific hosts.
    pub losers: usize,
    /// Most runners-up.
    pub runners_up: usize,
}

impl Extent {
    /// Everything.
    pub const ALL: Self = Self { losers: usize::MAX, runners_up: usize::MAX };
}

impl Default for Extent {
    fn default() -> Self {
        Self { losers: 50, runners_up: 1000 }
    }
}

/// The first entries of a list, and how many more it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed<T> {
    /// Those told.
    pub shown: Vec<T>,
    /// How many were left out.
    pub more: usize,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { shown: Vec::new(), more: 0 }
    }
}

impl<T> Listed<T> {
    /// Adds an entry, or counts it where `most` are there.
    fn push(&mut self, most: usize, entry: impl FnOnce() -> Option<T>) {
        if self.shown.len() >= most {
            self.more += 1;
        } else {
            self.shown.extend(entry());
        }
    }

    /// How many entries the list has.
    pub fn total(&self) -> usize {
        self.shown.len() + self.more
    }
}

/// What the table says of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What became of it.
    pub outcome: Outcome,
    /// Which hostname took it.
    pub host: HostDecision,
    /// The Selectors of that hostname, in the order in which they are asked.
    pub selectors: Listed<SelectorTrial>,
    /// The match that takes the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub winner: Option<Winner>,
    /// The other matches of the Selector that fit, in their order.
    pub runners_up: Listed<RunnerUp>,
    /// The matches of the Selector that do not fit, in their order.
    pub losers: Listed<Loser>,
    /// Where no match fits, those that come nearest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<Loser>,
}

/// What becomes of a request at the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// A rule takes it.
    Rule,
    /// No Selector of the listener serves the host: 404.
    NoHost,
    /// The conditions of no Selector of the host hold: 404.
    NoSelector,
    /// No match of the Selector fits: 404.
    NoMatch,
}

impl From<Miss> for Outcome {
    fn from(miss: Miss) -> Self {
        match miss {
            Miss::NoHost => Self::NoHost,
            Miss::NoSelector => Self::NoSelector,
            Miss::NoMatch => Self::NoMatch,
        }
    }
}

/// How the host was decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostDecision {
    /// The most specific hostname that takes the host; its Selectors alone are asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Hostnames that would take it too, the most specific first. They are not asked.
    pub less_specific: Listed<LessSpecific>,
    /// Where no hostname takes it, those that come nearest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<NearHost>,
}

/// A hostname that is not asked because a more specific one takes the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LessSpecific {
    /// The hostname.
    pub hostname: String,
    /// How many Selectors it has.
    pub selectors: usize,
    /// What would take the request, were the more specific hostnames not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_take: Option<Would>,
}

/// What would take a request if it were asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Would {
    /// The Selector.
    pub selector: String,
    /// The Route.
    pub route: String,
    /// The rule's name.
    pub rule: String,
}

/// A Selector of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelectorTrial {
    /// `namespace/name`.
    pub selector: String,
    /// Its priority.
    pub priority: i32,
    /// How many conditions count.
    pub conditions: usize,
    /// How many matches its Routes have.
    pub matches: usize,
    /// What came of it.
    pub result: Trial,
    /// What keeps its conditions from holding.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mismatches: Vec<Mismatch>,
    /// For one that is not asked, what of it would take the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_take: Option<Would>,
}

/// What came of a Selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Trial {
    /// Its conditions do not hold.
    Failed,
    /// It took the request.
    Took,
    /// One before it took the request.
    NotAsked,
}

/// Where a match stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The Route, `namespace/name`.
    pub route: String,
    /// The rule's name; its index where it has none.
    pub rule: String,
    /// Position of the rule in its Route.
    pub rule_index: u16,
    /// Position of the match in its rule.
    pub match_index: u16,
    /// Position among all matches of the Selector, from 0; absent for one that no request can fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// What it asks for.
    #[serde(rename = "match")]
    pub matching: MatchText,
}

/// The match that takes the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Winner {
    /// The Selector.
    pub selector: String,
    /// Where it stands.
    #[serde(flatten)]
    pub place: Place,
    /// How many matches the Selector has.
    pub of: usize,
    /// What its rank is made of.
    pub standing: Standing,
}

/// What the rank of a match is made of, in the order in which it decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// `Exact`, `Regex`, `Pattern` or `Prefix`.
    pub path_type: String,
    /// Whether it names methods.
    pub methods: bool,
    /// How many headers.
    pub headers: usize,
    /// How many of them are compared for equality.
    pub exact_headers: usize,
    /// How many query parameters.
    pub query: usize,
    /// How many other conditions.
    pub conditions: usize,
    /// When the Route was created, in seconds since the epoch; 0 where that is not known.
    pub route_created: i64,
}

/// A match that fits, too, and is not the one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunnerUp {
    /// Where it stands.
    #[serde(flatten)]
    pub place: Place,
    /// What decided.
    pub criterion: Criterion,
    /// The same in words.
    pub because: String,
}

/// A match that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loser {
    /// Where it stands.
    #[serde(flatten)]
    pub place: Place,
    /// The first part that does not hold.
    pub mismatch: Mismatch,
}

/// A decision with its explanation.
pub struct Explained<'a, P> {
    /// What [`RouteTable::find`] says.
    pub found: Result<Found<'a, P>, Miss>,
    /// Why.
    pub explanation: Explanation,
}

impl<P> RouteTable<P> {
    /// What [`RouteTable::find`] says of a request, and why. The time is asked for once.
    pub fn explain(&self, listener: ListenerIndex, request: &Request<'_>, extent: Extent) -> Explained<'_, P> {
        let request = Request { now: Now::At(request.now.get()), ..*request };
        let found = self.find(listener, &request);
        let (host, asked) = self.host_decision(listener, &request, extent);
        let mut explanation = Explanation {
            outcome: found.as_ref().map_or_else(|miss| (*miss).into(), |_| Outcome::Rule),
            host,
            selectors: self.trials(asked, &request, extent),
            winner: None,
            runners_up: Listed::default(),
            losers: Listed::default(),
            nearest: Vec::new(),
        };
        if let Some((_, compiled)) = self.first(asked, &request) {
            tell_matches(compiled, found.as_ref().ok(), &request, extent, &mut explanation);
        }
        Explained { found, explanation }
    }

    /// The hosts, and the positions of the Selectors that are asked.
    fn host_decision(&self, listener: ListenerIndex, request: &Request<'_>, extent: Extent) -> (HostDecision, &[u32]) {
        let mut decision = HostDecision::default();
        let Some(hosts) = self.listeners.get(listener.0).map(|listener| &listener.hosts) else {
            return (decision, &[]);
        };
        let mut all = hosts.all(request.host).into_iter();
        let Some((hostname, asked)) = all.next() else {
            decision.nearest = self.nearest_hosts(listener, request.host);
            return (decision, &[]);
        };
        decision.hostname = Some(hostname.to_string());
        for (hostname, members) in all {
            decision.less_specific.push(extent.losers, || {
                let would_take = self.first(members, request).and_then(|(_, compiled)| would(compiled, request));
                Some(LessSpecific { hostname: hostname.to_string(), selectors: members.len(), would_take })
            });
        }
        (decision, asked)
    }

    fn trials(&self, asked: &[u32], request: &Request<'_>, extent: Extent) -> Listed<SelectorTrial> {
        let mut trials: Listed<SelectorTrial> = Listed::default();
        let mut taken = false;
        for compiled in asked.iter().filter_map(|&at| self.selectors.get(at as usize)) {
            let selector = compiled.selector();
            let took = !taken && super::condition::set_holds(&selector.conditions, request);
            let result = match (taken, took) {
                (true, _) => Trial::NotAsked,
                (false, true) => Trial::Took,
                (false, false) => Trial::Failed,
            };
            taken |= took;
            let trial = || {
                let mismatches = of_set(&selector.conditions, request);
                let would_take = (result == Trial::NotAsked && mismatches.is_empty()).then(|| would(compiled, request));
                Some(SelectorTrial {
                    selector: selector.origin.object.to_string(),
                    priority: selector.priority,
                    conditions: selector.conditions.count(),
                    matches: compiled.len(),
                    result,
                    mismatches,
                    would_take: would_take.flatten(),
                })
            };
            // The one that took it is always told.
            trials.push(if took { usize::MAX } else { extent.losers }, trial);
        }
        trials
    }

    /// Every Selector in the order of precedence, with its matches in the order of ranks.
    pub fn ranked(
        &self,
    ) -> impl ExactSizeIterator<Item = (&Arc<ir::Selector>, impl Iterator<Item = (&Arc<ir::Rule>, &ir::Match)>)> {
        self.selectors.iter().map(|compiled| (compiled.selector(), compiled.ranked()))
    }
}

/// What of a Selector whose conditions hold would take a request.
fn would<P>(compiled: &Compiled<P>, request: &Request<'_>) -> Option<Would> {
    let found = compiled.find(0, request)?;
    Some(Would {
        selector: found.selector.origin.object.to_string(),
        route: found.rule.origin.object.to_string(),
        rule: found.rule.name.to_string(),
    })
}

/// Tells of every match of the Selector that took the request.
fn tell_matches<P>(
    compiled: &Compiled<P>,
    found: Option<&Found<'_, P>>,
    request: &Request<'_>,
    extent: Extent,
    explanation: &mut Explanation,
) {
    let key = found.and_then(|found| Key::new(found.rule, found.matched()));
    let mut near = nearest::Matches::new(request);
    for (rank, (rule, matching)) in compiled.ranked().enumerate() {
        let place = || place(rule, matching, Some(rank));
        if found.is_some_and(|found| std::ptr::eq(found.matched(), matching)) {
            let standing = standing(rule, matching);
            let selector = compiled.selector().origin.object.to_string();
            explanation.winner = Some(Winner { selector, place: place(), of: compiled.len(), standing });
        } else if let Some(at) = failing(matching, request) {
            near.see(rule, matching, rank, at);
            explanation
                .losers
                .push(extent.losers, || Some(Loser { place: place(), mismatch: describe(matching, at, request)? }));
        } else {
            explanation.runners_up.push(extent.runners_up, || {
                let (criterion, because) = key.as_ref()?.beats(&Key::new(rule, matching)?)?;
                Some(RunnerUp { place: place(), criterion, because })
            });
        }
    }
    for (rule, matching) in unranked(compiled.selector()) {
        explanation.losers.push(extent.losers, || {
            let mismatch = describe(matching, (Part::Path, 0), request)?;
            Some(Loser { place: place(rule, matching, None), mismatch })
        });
    }
    if found.is_none() {
        explanation.nearest = near.finish();
    }
}

/// The matches that have no rank, because no request fits them.
fn unranked(selector: &ir::Selector) -> impl Iterator<Item = (&ir::Rule, &ir::Match)> {
    let all = selector.rules.iter().flat_map(|rule| rule.matches.iter().map(move |matching| (&**rule, matching)));
    all.filter(|(_, matching)| super::order::PathKey::new(&matching.path).is_none())
}

fn place(rule: &ir::Rule, matching: &ir::Match, rank: Option<usize>) -> Place {
    Place {
        route: rule.origin.object.to_string(),
        rule: rule.name.to_string(),
        rule_index: rule.index,
        match_index: matching.index,
        rank,
        matching: MatchText::new(matching),
    }
}

fn standing(rule: &ir::Rule, matching: &ir::Match) -> Standing {
    let exact = |header: &&ir::HeaderMatch| matches!(header.test, ir::HeaderTest::Exact(_));
    Standing {
        path_type: phrase::path_test(&matching.path).0.to_owned(),
        methods: !matching.methods.is_empty(),
        headers: matching.headers.len(),
        exact_headers: matching.headers.iter().filter(exact).count(),
        query: matching.query.len(),
        conditions: matching.conditions.len(),
        route_created: rule.origin.created,
    }
}

#[cfg(test)]
mod tests;
