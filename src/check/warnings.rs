//! What a table serves and may surprise.

use std::collections::BTreeSet;

use super::{Finding, Known, Severity};
use crate::ir::{Fragment, Kind, ObjectName, Verdict};

/// Warnings on the table that a gateway would make of the manifests. `selectors` are those of its class.
pub(super) fn of_table(known: &Known<'_>, fragment: &Fragment, selectors: &BTreeSet<ObjectName>) -> Vec<Finding> {
    without_routes(known, fragment, selectors)
}

/// Selectors that no Route attaches to, while there are Routes: they take requests and answer every one with 404.
fn without_routes(known: &Known<'_>, fragment: &Fragment, selectors: &BTreeSet<ObjectName>) -> Vec<Finding> {
    if known.names("Route").next().is_none() {
        return Vec::new();
    }
    let idle = |verdict: &&Verdict| {
        let is_ours = verdict.kind == Kind::Selector && selectors.contains(&verdict.object);
        is_ours && verdict.in_table && verdict.attached_routes == 0
    };
    let finding = |verdict: &Verdict| {
        let declared = known.get("Selector", &verdict.object)?;
        let reason = "no Route attaches to it: every request that it takes is answered with 404";
        let hint = "name it in spec.selectors of a Route, or suspend it".to_owned();
        Some(known.finding(declared, Severity::Warning, "", reason.to_owned(), Some(hint)))
    };
    fragment.verdicts.iter().filter(idle).filter_map(finding).collect()
}
