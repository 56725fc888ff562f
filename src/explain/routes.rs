//! What is in a table: Selectors, Routes, rules and matches in the order of ranks, a page at a time.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::question::pairs;
use super::text::table;
use crate::ir::{Action, Rule, Selector, Tls};
use crate::routing::RouteTable;
use crate::routing::phrase::{self, MatchText};

/// Rows of a page where no limit is asked for.
const LIMIT: usize = 200;
/// Most rows of a page.
const MAX_LIMIT: usize = 10_000;

/// A part of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// The table's generation.
    pub generation: u64,
    /// The listeners.
    pub listeners: Vec<String>,
    /// How many Selectors the table has, of those asked for.
    pub total_selectors: usize,
    /// How many matches they have.
    pub total_matches: usize,
    /// Rows before this page; a row is a Selector or a match.
    pub offset: usize,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
    /// The Selectors, in the order of precedence. The first may be the rest of one that the page before began.
    pub selectors: Vec<SelectorRow>,
}

/// A Selector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelectorRow {
    /// `namespace/name`.
    pub selector: String,
    /// Its hostnames.
    pub hostnames: Vec<String>,
    /// Its listeners; empty for all.
    pub listeners: Vec<String>,
    /// Its priority.
    pub priority: i32,
    /// Whether one of its conditions is enough.
    pub any: bool,
    /// Its conditions.
    pub conditions: Vec<String>,
    /// What becomes of TLS connections to its hostnames, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// Its matches on this page, in the order of ranks.
    pub matches: Vec<MatchRow>,
}

/// A match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MatchRow {
    /// Its rank in the Selector, from 0.
    pub rank: usize,
    /// The Route, `namespace/name`.
    pub route: String,
    /// The rule's name.
    pub rule: String,
    /// Position of the match in its rule.
    pub match_index: u16,
    /// What it asks for.
    #[serde(rename = "match")]
    pub matching: MatchText,
    /// What its rule does, in words.
    pub action: String,
}

/// Which part of a table.
#[derive(Debug)]
struct Ask {
    offset: usize,
    limit: usize,
    selector: Option<String>,
    route: Option<String>,
    host: Option<String>,
}

impl Ask {
    fn read(query: &str) -> Result<Self, String> {
        let mut ask = Self { offset: 0, limit: LIMIT, selector: None, route: None, host: None };
        for (name, value) in pairs(query) {
            let number = || value.parse::<usize>().map_err(|_| format!("{name}: {value:?} is no number"));
            match name.as_str() {
                "offset" => ask.offset = number()?,
                "limit" => ask.limit = number()?.clamp(1, MAX_LIMIT),
                "selector" => ask.selector = Some(value),
                "route" => ask.route = Some(value),
                "host" => ask.host = Some(value.to_ascii_lowercase()),
                "o" => {}
                other => {
                    return Err(format!("{other:?} is not known; offset, limit, selector, route, host and o are"));
                }
            }
        }
        Ok(ask)
    }

    fn wants(&self, selector: &Selector) -> bool {
        let is_named = self.selector.as_ref().is_none_or(|name| *name == selector.origin.object.to_string());
        is_named && self.host.as_ref().is_none_or(|host| selector.hostnames.iter().any(|own| own.matches(host)))
    }

    fn wants_rule(&self, rule: &Rule) -> bool {
        self.route.as_ref().is_none_or(|name| *name == rule.origin.object.to_string())
    }
}

/// The part of a table that a query asks for: `offset`, `limit`, `selector`, `route`, `host`.
pub(super) fn page<P>(table: &RouteTable<P>, generation: u64, query: &str) -> Result<Page, String> {
    let ask = Ask::read(query)?;
    let mut page = Page {
        generation,
        listeners: table.listeners().map(ToString::to_string).collect(),
        total_selectors: 0,
        total_matches: 0,
        offset: ask.offset,
        next: None,
        selectors: Vec::new(),
    };
    let mut at = 0;
    let shown = ask.offset..ask.offset.saturating_add(ask.limit);
    for (selector, matches) in table.ranked().filter(|(selector, _)| ask.wants(selector)) {
        let mut row = None;
        if shown.contains(&at) {
            row = Some(selector_row(selector));
        }
        at += 1;
        page.total_selectors += 1;
        for (rank, (rule, matching)) in matches.enumerate() {
            if !ask.wants_rule(rule) {
                continue;
            }
            if shown.contains(&at) {
                let row = row.get_or_insert_with(|| selector_row(selector));
                row.matches.push(MatchRow {
                    rank,
                    route: rule.origin.object.to_string(),
                    rule: rule.name.to_string(),
                    match_index: matching.index,
                    matching: MatchText::new(matching),
                    action: action(&rule.action),
                });
            }
            at += 1;
            page.total_matches += 1;
        }
        page.selectors.extend(row);
    }
    page.next = (at > shown.end).then_some(shown.end);
    Ok(page)
}

fn selector_row(selector: &Selector) -> SelectorRow {
    SelectorRow {
        selector: selector.origin.object.to_string(),
        hostnames: selector.hostnames.iter().map(ToString::to_string).collect(),
        listeners: selector.listeners.iter().map(ToString::to_string).collect(),
        priority: selector.priority,
        any: selector.conditions.mode == crate::ir::Mode::Any,
        conditions: selector.conditions.conditions.iter().map(phrase::condition).collect(),
        tls: selector.tls.as_ref().map(tls),
        matches: Vec::new(),
    }
}

fn tls(tls: &Tls) -> String {
    let Tls::Terminate(termination) = tls else { return "passed on to the backend".to_owned() };
    let certificate = match &termination.certificate {
        Ok(certificate) => format!("certificate of {}", certificate.source),
        Err(reason) => format!("no certificate ({reason})"),
    };
    let clients = termination.clients.as_ref().map(|clients| match (&clients.authorities, clients.required) {
        (Err(reason), _) => format!(", no client can be verified ({reason})"),
        (Ok(authorities), true) => format!(", clients need one of {}", authorities.source),
        (Ok(authorities), false) => format!(", clients may have one of {}", authorities.source),
    });
    certificate + &clients.unwrap_or_default()
}

fn action(action: &Action) -> String {
    match action {
        Action::Forward(backends) => {
            let one = |backend: &crate::ir::Backend| match &backend.target {
                crate::ir::BackendTarget::Cluster(id) => format!("{id} x{}", backend.weight),
                crate::ir::BackendTarget::Invalid { reason } => format!("500 {reason} x{}", backend.weight),
            };
            backends.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        Action::Redirect(redirect) => format!("redirect {}", redirect.status.as_u16()),
        Action::DirectResponse(direct) => format!("response {}", direct.status.as_u16()),
        Action::Invalid { reason } => format!("500 {reason}"),
    }
}

impl Page {
    /// As text for a terminal.
    pub fn to_text(&self) -> String {
        let mut out = format!(
            "generation {}, {} Selectors with {} matches\n",
            self.generation, self.total_selectors, self.total_matches
        );
        for selector in &self.selectors {
            let listeners =
                if selector.listeners.is_empty() { "all".to_owned() } else { selector.listeners.join(", ") };
            let _ = writeln!(
                out,
                "\n{}  {}  listeners {listeners}, priority {}",
                selector.selector,
                selector.hostnames.join(", "),
                selector.priority
            );
            let between = if selector.any { " or " } else { " and " };
            if !selector.conditions.is_empty() {
                let _ = writeln!(out, "  if {}", selector.conditions.join(between));
            }
            if let Some(tls) = &selector.tls {
                let _ = writeln!(out, "  TLS: {tls}");
            }
            let rows = selector.matches.iter().map(|row| {
                let name = format!("{} rule {} matches[{}]", row.route, row.rule, row.match_index);
                vec![format!("#{}", row.rank + 1), name, row.matching.to_string(), row.action.clone()]
            });
            table(&mut out, &rows.collect::<Vec<_>>());
        }
        if let Some(next) = self.next {
            let _ = writeln!(out, "\nmore: ?offset={next}");
        }
        out
    }
}
