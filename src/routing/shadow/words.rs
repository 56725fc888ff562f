//! Reports for people.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use super::{Extent, Found, MatchRef, SelectorShadow, Shadow, Winner, Witness};
use crate::ir::{Kind, ObjectName, Shadowed};

/// Shadowed matches of one Route that its message tells of; the others are counted.
const TOLD: usize = 3;
/// Bytes of a message, but for the count at its end.
const MESSAGE: usize = 900;

impl fmt::Display for MatchRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route {} rule {} match {}", self.route, self.rule, self.matching)
    }
}

impl fmt::Display for Winner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Match(matched) => matched.fmt(f),
            Self::Selector(selector) => write!(f, "Selector {selector}, which has no match for it,"),
        }
    }
}

/// One line: `GET http://shop.example.com/a?v=2 with x-user: beta`.
impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secure = *self.listener_name == *"https";
        let scheme = if secure { "https" } else { "http" };
        write!(f, "{} {scheme}://{}{}", self.method, self.host, self.path)?;
        if let Some(query) = &self.query {
            write!(f, "?{query}")?;
        }
        let mut word = "with";
        for (name, value) in self.headers.iter().filter(|(name, _)| *name != http::header::HOST) {
            write!(f, " {word} {name}: {}", String::from_utf8_lossy(value.as_bytes()))?;
            word = "and";
        }
        if let Some(address) = self.client_ip {
            write!(f, " from {address}")?;
        }
        if let Some(time) = self.time.and_then(|time| jiff::Timestamp::from_second(time).ok()) {
            write!(f, " at {time}")?;
        }
        if !secure && *self.listener_name != *"http" {
            write!(f, " on listener {}", self.listener_name)?;
        }
        Ok(())
    }
}

impl Shadow {
    /// The report without the loser's Route and Selector, for a place where those are known.
    pub fn in_route(&self) -> String {
        let MatchRef { rule, matching, selector, .. } = &self.loser;
        let Self { winner, witness, .. } = self;
        let first = match winner {
            Winner::Match(matched) if matched.selector != *selector => format!(" (at Selector {})", matched.selector),
            _ => String::new(),
        };
        let loses = match self.extent {
            Extent::Whole => "never wins",
            Extent::Part => "loses a part of its requests",
        };
        format!("rule {rule} match {matching} {loses}: {winner}{first} takes {witness}")
    }
}

impl fmt::Display for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route {} at Selector {}: {}", self.loser.route, self.loser.selector, self.in_route())
    }
}

impl SelectorShadow {
    /// The report without the Selector itself.
    pub fn in_selector(&self) -> String {
        format!("no request reaches it: Selector {} is asked first and takes {}", self.winner, self.witness)
    }
}

impl fmt::Display for SelectorShadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selector {}: {}", self.selector, self.in_selector())
    }
}

/// What is found, object by object: sorted, and with one entry for each Selector, and for each Route at each of its
/// Selectors.
pub fn told(found: &[Arc<Found>]) -> Vec<Shadowed> {
    let mut routes: BTreeMap<(&ObjectName, &ObjectName), Vec<&Shadow>> = BTreeMap::new();
    for shadow in found.iter().flat_map(|found| &found.matches) {
        routes.entry((&shadow.loser.route, &shadow.loser.selector)).or_default().push(shadow);
    }
    let selectors = found.iter().filter_map(|found| found.selector.as_ref());
    let mut told: Vec<Shadowed> = selectors
        .map(|shadow| Shadowed {
            kind: Kind::Selector,
            object: shadow.selector.clone(),
            parent: None,
            extent: Extent::Whole,
            message: limited(shadow.in_selector()).into(),
        })
        .chain(routes.into_iter().map(|((route, selector), mut shadows)| {
            shadows.sort_by_key(|s| (s.extent, s.loser.rule_index, s.loser.matching));
            Shadowed {
                kind: Kind::Route,
                object: route.clone(),
                parent: Some(selector.clone()),
                extent: shadows.first().map_or(Extent::Part, |worst| worst.extent),
                message: message(&shadows).into(),
            }
        }))
        .collect();
    told.sort();
    told
}

/// The first few reports and the number of the others.
fn message(shadows: &[&Shadow]) -> String {
    let mut message = String::new();
    let mut told = 0;
    for shadow in shadows.iter().take(TOLD) {
        let next = shadow.in_route();
        if told > 0 && message.len() + next.len() > MESSAGE {
            break;
        }
        if told > 0 {
            message.push_str("; ");
        }
        message.push_str(&next);
        told += 1;
    }
    let mut message = limited(message);
    if told < shadows.len() {
        // Writing to a String cannot fail.
        let _ = write!(message, "; and {} more", shadows.len() - told);
    }
    message
}

fn limited(mut message: String) -> String {
    if message.len() > MESSAGE {
        message.truncate(message.floor_char_boundary(MESSAGE));
        message.push_str("...");
    }
    message
}
