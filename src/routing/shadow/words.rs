//! Reports for people.

use std::fmt;

use super::{Extent, MatchRef, SelectorShadow, Shadow, Winner, Witness};

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
