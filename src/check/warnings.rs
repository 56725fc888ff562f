//! What a table serves and may surprise.

use std::collections::BTreeSet;

use super::{Finding, Known, Severity};
use crate::ir::{Extent, Fragment, ObjectName};
use crate::routing::RouteTable;
use crate::routing::shadow::{self, SelectorShadow, Shadow};
use crate::source::index::Content;
use crate::source::translate::Listener;

/// Warnings on the table that a gateway with these listeners would make of the manifests. `selectors` are those of its
/// class.
pub(super) fn of_table(
    known: &Known<'_>,
    fragment: &Fragment,
    listeners: &[Listener],
    selectors: &BTreeSet<ObjectName>,
) -> Vec<Finding> {
    let mut findings = without_routes(known, fragment, selectors);
    let names: Vec<_> = listeners.iter().map(|listener| listener.name.clone()).collect();
    let table = RouteTable::compile(&names, &fragment.selectors, None, |_, _, _| ());
    for found in shadow::find(&table) {
        findings.extend(found.selector.as_ref().and_then(|shadow| unreached(known, shadow)));
        findings.extend(found.matches.iter().filter_map(|shadow| shadowed(known, shadow)));
    }
    findings
}

/// A Selector that no request reaches.
fn unreached(known: &Known<'_>, shadow: &SelectorShadow) -> Option<Finding> {
    let declared = known.get("Selector", &shadow.selector)?;
    let hint = format!("give it a higher priority than {}, more conditions, or hostnames of its own", shadow.winner);
    Some(known.finding(declared, Severity::Warning, "", shadow.in_selector(), Some(hint)))
}

/// A match that loses requests to one which is not simply more specific.
fn shadowed(known: &Known<'_>, shadow: &Shadow) -> Option<Finding> {
    let loser = &shadow.loser;
    // At a stand-in for a Selector that is elsewhere, nobody knows what else is there.
    known.get("Selector", &loser.selector)?;
    let declared = known.get("Route", &loser.route)?;
    let field = format!("spec.rules[{}].matches[{}]", loser.rule_index, loser.matching);
    let hint = match shadow.extent {
        Extent::Whole => "take it away, or let it ask for more than what beats it",
        Extent::Part => "where that is not meant, let one of them ask for more, or put both into one match",
    };
    let reason = format!("at Selector {}: {}", loser.selector, shadow.in_route());
    Some(known.finding(declared, Severity::Warning, &field, reason, Some(hint.to_owned())))
}

/// Selectors that no Route names, while there are Routes: they take requests and answer every one with 404.
fn without_routes(known: &Known<'_>, fragment: &Fragment, selectors: &BTreeSet<ObjectName>) -> Vec<Finding> {
    let Some(parents) = parents(known).filter(|parents| !parents.is_empty()) else { return Vec::new() };
    let served = fragment.selectors.iter().map(|selector| &selector.origin.object);
    let idle = served.filter(|name| selectors.contains(name) && !parents.contains(name));
    let finding = |name: &ObjectName| {
        let declared = known.get("Selector", name)?;
        let reason = "no Route attaches to it: every request that it takes is answered with 404";
        let hint = "name it in spec.selectors of a Route, or suspend it".to_owned();
        Some(known.finding(declared, Severity::Warning, "", reason.to_owned(), Some(hint)))
    };
    idle.filter_map(finding).collect()
}

/// The Selectors that Routes name; `None` where a Route does not decode, for it may name any.
fn parents(known: &Known<'_>) -> Option<BTreeSet<ObjectName>> {
    let mut parents = BTreeSet::new();
    for name in known.names("Route") {
        let Content::Route(route) = &known.get("Route", name)?.object.content else { return None };
        for parent in &route.spec.selectors {
            let namespace = parent.namespace.as_deref().unwrap_or(&name.namespace);
            parents.insert(ObjectName::new(namespace, parent.name.as_str()));
        }
    }
    Some(parents)
}
