//! What is told of requests that ask to go on in another protocol.

use std::sync::Arc;

use http::request::Parts;

use crate::ir::{Action, BackendTarget, ClusterId, Protocol, Rule};
use crate::proxy::preview;

/// What becomes of a request's `Upgrade`, in words; nothing where it has none or the rule answers by itself.
pub(super) fn notes(rule: &Rule, parts: &Parts, usual: &[Arc<str>]) -> Vec<String> {
    let Action::Forward(backends) = &rule.action else { return Vec::new() };
    let Some(upgrade) = preview::upgrade(rule, parts, usual) else { return Vec::new() };
    let mut notes = Vec::new();
    if upgrade.asked_for.is_empty() && upgrade.dropped.is_empty() {
        notes.push("Upgrade is dropped: Connection does not name it".to_owned());
    }
    if !upgrade.dropped.is_empty() {
        let list = if rule.upgrades.is_some() { "the rule's upgrades" } else { "the setting upgrades" };
        notes.push(format!("Upgrade to {} is dropped: {list} does not allow it", upgrade.dropped.join(", ")));
    }
    if upgrade.asked_for.is_empty() {
        return notes;
    }
    let asked_for = upgrade.asked_for.join(", ");
    let clusters = backends.iter().filter_map(|backend| match &backend.target {
        BackendTarget::Cluster(id) => Some(id),
        BackendTarget::Invalid { .. } => None,
    });
    let (asked, not_asked): (Vec<&ClusterId>, Vec<_>) = clusters.partition(|id| id.protocol() == Protocol::Http1);
    if !asked.is_empty() {
        notes.push(format!(
            "the backend is asked to go on in {asked_for}; if it answers 101, the connection is a tunnel"
        ));
    }
    for id in not_asked {
        notes.push(format!("Upgrade to {asked_for} is dropped for {id}, which speaks HTTP/2"));
    }
    notes
}
