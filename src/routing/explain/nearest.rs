//! What comes nearest where nothing fits.

use serde::{Deserialize, Serialize};

use super::mismatch::describe;
use super::{Loser, Part, place};
use crate::ir::{Hostname, Match, PathMatch, Rule, Segment};
use crate::nearby::distance;
use crate::routing::{ListenerIndex, Request, RouteTable};

/// Most candidates that are told.
const MOST: usize = 5;
/// Most hostnames that are compared letter by letter.
const COMPARED: usize = 20_000;

/// A hostname that comes near the one asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NearHost {
    /// The hostname.
    pub hostname: String,
    /// A Selector that has it.
    pub selector: String,
    /// Why it does not take the host.
    pub because: String,
}

impl<P> RouteTable<P> {
    /// Hostnames that come near `host`, which no Selector of the listener has.
    pub(super) fn nearest_hosts(&self, listener: ListenerIndex, host: &str) -> Vec<NearHost> {
        let name = self.listeners().nth(listener.0).cloned().unwrap_or_default();
        let served =
            |selector: &crate::ir::Selector| selector.listeners.is_empty() || selector.listeners.contains(&name);
        let mut near: Vec<(usize, NearHost)> = Vec::new();
        let all = self.selectors().flat_map(|selector| selector.hostnames.iter().map(move |host| (selector, host)));
        for (selector, hostname) in all.take(COMPARED) {
            let (distance, because) = if hostname.matches(host) {
                if served(selector) {
                    continue;
                }
                (0, format!("is served on other listeners: {}", selector.listeners.join(", ")))
            } else if matches!(hostname, Hostname::Wildcard(suffix) if **suffix == *host) {
                (1, "a wildcard wants at least one label before its suffix".to_owned())
            } else {
                match distance(host, &hostname.to_string()) {
                    Some(distance) => (1 + distance, "is spelt differently".to_owned()),
                    None => continue,
                }
            };
            let selector = selector.origin.object.to_string();
            near.push((distance, NearHost { hostname: hostname.to_string(), selector, because }));
        }
        near.sort_by(|a, b| (a.0, &a.1.hostname, &a.1.selector).cmp(&(b.0, &b.1.hostname, &b.1.selector)));
        near.into_iter().take(MOST).map(|(_, near)| near).collect()
    }
}

/// The matches that come nearest: those that fail late, then those whose path comes nearest.
pub(super) struct Matches<'a> {
    request: &'a Request<'a>,
    /// The best first.
    best: Vec<Candidate<'a>>,
}

struct Candidate<'a> {
    score: (Part, usize),
    rule: &'a Rule,
    matching: &'a Match,
    rank: usize,
    at: (Part, usize),
}

impl<'a> Matches<'a> {
    pub(super) const fn new(request: &'a Request<'a>) -> Self {
        Self { request, best: Vec::new() }
    }

    /// Considers a match that fails at `at`. Of equals the one of the better rank stays.
    pub(super) fn see(&mut self, rule: &'a Rule, matching: &'a Match, rank: usize, at: (Part, usize)) {
        let near = if at.0 == Part::Path { nearness(&matching.path, self.request.path) } else { 0 };
        // Nothing in common is not near.
        if at.0 == Part::Path && near == 0 {
            return;
        }
        let score = (at.0, near);
        let position = self.best.partition_point(|candidate| candidate.score >= score);
        if position < MOST {
            self.best.insert(position, Candidate { score, rule, matching, rank, at });
            self.best.truncate(MOST);
        }
    }

    pub(super) fn finish(self) -> Vec<Loser> {
        let request = self.request;
        let told = self.best.into_iter().filter_map(|candidate| {
            let mismatch = describe(candidate.matching, candidate.at, request)?;
            Some(Loser { place: place(candidate.rule, candidate.matching, Some(candidate.rank)), mismatch })
        });
        told.collect()
    }
}

/// How near a path match is to a path: two for every segment at the front that they have in common, and one where the
/// segments behind differ by a slip.
fn nearness<'a>(path: &'a PathMatch, given: &str) -> usize {
    let given: Vec<&str> = given.split('/').skip(1).collect();
    let of = |wanted: Vec<Wanted<'_>>| {
        let same = wanted.iter().zip(&given).take_while(|(own, its)| own.is_none_or(|own| own == **its)).count();
        let slip = match (wanted.get(same), given.get(same)) {
            (Some(Some(own)), Some(its)) => distance(own, its).is_some(),
            _ => false,
        };
        2 * same + usize::from(slip)
    };
    let literals = |text| -> Vec<Wanted<'_>> { str::split(text, '/').skip(1).map(Some).collect() };
    match path {
        PathMatch::Exact(text) | PathMatch::Prefix(text) => of(literals(text)),
        PathMatch::Pattern(pattern) => {
            let segments = pattern.segments().iter().filter(|segment| **segment != Segment::Rest);
            let wanted = |segment: &'a Segment| match segment {
                Segment::Literal(text) => Some(&**text),
                Segment::One(_) | Segment::Rest => None,
            };
            of(segments.map(wanted).collect())
        }
        // A regular expression has no segments; what is plain at its front counts.
        PathMatch::Regex(regex) => of(literals(regex.source())),
    }
}

/// A segment; `None` for any.
type Wanted<'a> = Option<&'a str>;
