//! What a table serves and may surprise.

use std::collections::BTreeSet;

use super::{Finding, Known, Severity};
use crate::ir::{Fragment, ObjectName};
use crate::source::index::Content;

/// Warnings on the table that a gateway would make of the manifests. `selectors` are those of its class.
pub(super) fn of_table(known: &Known<'_>, fragment: &Fragment, selectors: &BTreeSet<ObjectName>) -> Vec<Finding> {
    without_routes(known, fragment, selectors)
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
