//! Selectors and Routes with what is said of them, and their traffic.

use std::collections::HashMap;

use serde::Serialize;

use super::Live;
use super::part::Part;
use super::state::Traffic;
use crate::ir::{Extent, Finding, Fragment, Kind, ObjectName, Selector, Served, Shadowed, Verdict};
use crate::telemetry::metrics::RuleTotals;

/// A part of the objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Objects {
    /// Generation of the table that is served.
    pub generation: u64,
    /// Seconds since the gateway's start.
    pub uptime_seconds: f64,
    /// Upper bounds in seconds of the buckets of traffic.
    pub bounds: Vec<f64>,
    /// Selectors there are.
    pub selectors: usize,
    /// Routes there are; one that names several Selectors counts, and has a row, for each of them.
    pub routes: usize,
    /// Rows of which something is said to be wrong.
    pub troubled: usize,
    /// Rows that were found.
    pub found: usize,
    /// Rows found before this part.
    pub offset: usize,
    /// Where the next part begins; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
    /// Selectors, then Routes, by name.
    pub rows: Vec<ObjectRow>,
}

/// A Selector, or a Route at one of its Selectors.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRow {
    /// `Selector` or `Route`.
    pub kind: Kind,
    /// `namespace/name`.
    pub object: String,
    /// For a Route, the Selector that the row is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The hostnames of the Selector, where it has a place in the table.
    pub hostnames: Vec<String>,
    /// For a Selector, how many Routes attach to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_routes: Option<u32>,
    /// `metadata.generation` that was judged; 0 for files.
    pub judged_generation: i64,
    /// The condition `Accepted`.
    pub accepted: FindingTold,
    /// The condition `ResolvedRefs`.
    pub resolved_refs: FindingTold,
    /// Whether the table that is served holds it.
    pub programmed: bool,
    /// What others take of its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadowed: Option<ShadowedTold>,
    /// Its requests.
    pub traffic: Traffic,
}

/// What others take of an object's requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShadowedTold {
    /// Whether they take all, or a part.
    pub extent: Extent,
    /// What takes which requests.
    pub message: String,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FindingTold {
    /// Whether it is true.
    pub ok: bool,
    /// Its reason.
    pub reason: &'static str,
    /// What is wrong and where; may be empty.
    pub message: String,
}

impl From<&Finding> for FindingTold {
    fn from(finding: &Finding) -> Self {
        Self { ok: finding.ok, reason: finding.reason, message: finding.message.clone() }
    }
}

/// A row before it is told.
struct Row<'a> {
    verdict: &'a Verdict,
    /// The Selector itself, or the Route's.
    selector: Option<&'a Selector>,
    shadowed: Option<&'a Shadowed>,
}

type Subject<'a> = (Kind, &'a ObjectName, Option<&'a ObjectName>);

impl Row<'_> {
    fn programmed(&self) -> bool {
        self.verdict.accepted.ok && self.verdict.in_table
    }

    fn troubled(&self) -> bool {
        let findings = [&self.verdict.accepted, &self.verdict.resolved_refs];
        self.shadowed.is_some() || !self.programmed() || findings.iter().any(|f| !f.ok || !f.message.is_empty())
    }

    fn wanted(&self, part: &Part) -> bool {
        let kind = match self.verdict.kind {
            Kind::Selector => "Selector",
            Kind::Route => "Route",
        };
        if part.get("kind").is_some_and(|wanted| wanted != kind)
            || part.get("state").is_some_and(|state| state == "trouble" && !self.troubled())
        {
            return false;
        }
        let Verdict { object, parent, accepted, resolved_refs, .. } = self.verdict;
        let mut texts = vec![object.to_string()];
        texts.extend(parent.as_ref().map(ToString::to_string));
        texts.extend(self.hostnames());
        for finding in [accepted, resolved_refs] {
            texts.extend([finding.reason.to_owned(), finding.message.clone()]);
        }
        texts.extend(self.shadowed.map(|shadowed| shadowed.message.to_string()));
        part.found_in(&texts)
    }

    fn hostnames(&self) -> impl Iterator<Item = String> {
        self.selector.into_iter().flat_map(|selector| &selector.hostnames).map(ToString::to_string)
    }

    fn told(&self, traffic: RuleTotals) -> ObjectRow {
        let verdict = self.verdict;
        ObjectRow {
            kind: verdict.kind,
            object: verdict.object.to_string(),
            selector: verdict.parent.as_ref().map(ToString::to_string),
            hostnames: self.hostnames().collect(),
            attached_routes: (verdict.kind == Kind::Selector).then_some(verdict.attached_routes),
            judged_generation: verdict.generation,
            accepted: (&verdict.accepted).into(),
            resolved_refs: (&verdict.resolved_refs).into(),
            programmed: self.programmed(),
            shadowed: self
                .shadowed
                .map(|shadowed| ShadowedTold { extent: shadowed.extent, message: shadowed.message.to_string() }),
            traffic: traffic.into(),
        }
    }
}

impl Live {
    /// A part of the objects. The query has `q` (words of names, hostnames, reasons or messages), `kind` (`Selector` or
    /// `Route`), `state` (`trouble`: those of which something is said to be wrong), `offset`, `limit`.
    pub fn objects(&self, query: &str) -> Result<Objects, String> {
        let part = Part::read(query, &[("kind", &["Selector", "Route"]), ("state", &["all", "trouble"])])?;
        let (fragment, examined) = (self.served.borrow().clone(), self.examined.borrow().clone());
        let fragment = fragment.unwrap_or_default();
        let rows = rows(&fragment, examined.as_deref());
        let (shown, found, next) = part.of(rows.iter().filter(|row| row.wanted(&part)));
        let traffic = self.traffic(&shown);
        let count = |kind| rows.iter().filter(|row| row.verdict.kind == kind).count();
        Ok(Objects {
            generation: self.published.generation(),
            uptime_seconds: self.uptime_seconds(),
            bounds: self.metrics.bounds().to_vec(),
            selectors: count(Kind::Selector),
            routes: count(Kind::Route),
            troubled: rows.iter().filter(|row| row.troubled()).count(),
            found,
            offset: part.offset,
            next,
            rows: shown.iter().zip(traffic).map(|(row, traffic)| row.told(traffic)).collect(),
        })
    }

    /// What the rules of each row have counted.
    fn traffic(&self, rows: &[&Row<'_>]) -> Vec<RuleTotals> {
        let mut totals = vec![RuleTotals::default(); rows.len()];
        let snapshot = self.published.load();
        let places: HashMap<Subject<'_>, usize> =
            rows.iter().enumerate().map(|(place, row)| (subject(row.verdict), place)).collect();
        for (selector, rule, runtime) in snapshot.table.payloads() {
            let (selector, route) = (&selector.origin.object, &rule.origin.object);
            for subject in [(Kind::Selector, selector, None), (Kind::Route, route, Some(selector))] {
                if let Some(totals) = places.get(&subject).and_then(|place| totals.get_mut(*place)) {
                    runtime.state.metrics.add_to(totals);
                }
            }
        }
        totals
    }
}

fn subject(verdict: &Verdict) -> Subject<'_> {
    (verdict.kind, &verdict.object, verdict.parent.as_ref())
}

fn rows<'a>(fragment: &'a Fragment, examined: Option<&'a Served>) -> Vec<Row<'a>> {
    let selectors: HashMap<&ObjectName, &Selector> =
        fragment.selectors.iter().map(|selector| (&selector.origin.object, &**selector)).collect();
    let shadowed = examined.map(|examined| &examined.shadowed[..]).unwrap_or_default();
    let shadowed: HashMap<Subject<'_>, &Shadowed> =
        shadowed.iter().map(|one| ((one.kind, &one.object, one.parent.as_ref()), one)).collect();
    let row = |verdict: &'a Verdict| Row {
        verdict,
        selector: selectors.get(verdict.parent.as_ref().unwrap_or(&verdict.object)).copied(),
        shadowed: shadowed.get(&subject(verdict)).copied(),
    };
    fragment.verdicts.iter().map(|verdict| row(verdict)).collect()
}
