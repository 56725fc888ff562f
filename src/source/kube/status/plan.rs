//! From verdicts and the status that stands there to the status to write, if any. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::Seen;
use super::statuses::Status;
use crate::api::{RouteSelectorStatus, RouteStatus, SelectorStatus, condition, reason};
use crate::ir::{Finding, ObjectName, Verdict};

/// The longest message that the schema takes, in bytes at most.
const MAX_MESSAGE: usize = 32 * 1024;

/// The status that we apply to an object, or nothing where what stands there says the same.
///
/// Verdicts on another generation than the one seen say nothing yet: those on this one will follow.
pub(super) fn plan(verdicts: &[Verdict], seen: &Seen, controller: &str, now: &Time) -> Option<Status> {
    if verdicts.iter().any(|verdict| verdict.generation != seen.generation) {
        return None;
    }
    match &seen.status {
        Status::Selector(status) => selector(verdicts.first()?, status, now).map(Status::Selector),
        Status::Route(status) => route(verdicts, seen, status, controller, now).map(Status::Route),
    }
}

fn selector(verdict: &Verdict, stands: &SelectorStatus, now: &Time) -> Option<SelectorStatus> {
    let wanted = SelectorStatus {
        observed_generation: Some(verdict.generation),
        attached_routes: i32::try_from(verdict.attached_routes).unwrap_or(i32::MAX),
        conditions: conditions(verdict, &stands.conditions, now),
    };
    let same = wanted.observed_generation == stands.observed_generation
        && wanted.attached_routes == stands.attached_routes
        && wanted.conditions.iter().all(|condition| stands.conditions.contains(condition));
    (!same).then_some(wanted)
}

fn route(verdicts: &[Verdict], seen: &Seen, stands: &RouteStatus, controller: &str, now: &Time) -> Option<RouteStatus> {
    let ours = |entry: &&RouteSelectorStatus| entry.controller_name == controller;
    let mut selectors = Vec::with_capacity(verdicts.len());
    for verdict in verdicts {
        // A verdict without a parent is on the Route as a whole: the same at each of its parents.
        let parents = verdict.parent.as_ref().map_or(seen.parents.as_slice(), std::slice::from_ref);
        for parent in parents {
            selectors.push(entry(verdict, parent, stands.selectors.iter().filter(ours), controller, now));
        }
    }
    selectors.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    selectors.dedup_by(|b, a| a.namespace == b.namespace && a.name == b.name);
    let same = selectors.len() == stands.selectors.iter().filter(ours).count()
        && selectors.iter().all(|wanted| stands.selectors.iter().filter(ours).any(|stands| covers(stands, wanted)));
    (!same).then_some(RouteStatus { selectors })
}

fn entry<'a>(
    verdict: &Verdict,
    parent: &ObjectName,
    mut stands: impl Iterator<Item = &'a RouteSelectorStatus>,
    controller: &str,
    now: &Time,
) -> RouteSelectorStatus {
    let before = stands.find(|entry| entry.namespace == *parent.namespace && entry.name == *parent.name);
    RouteSelectorStatus {
        namespace: parent.namespace.to_string(),
        name: parent.name.to_string(),
        controller_name: controller.to_owned(),
        conditions: conditions(verdict, before.map_or(&[], |entry| &entry.conditions), now),
    }
}

/// Whether an entry says all that is wanted; it may say more, in conditions of others.
fn covers(stands: &RouteSelectorStatus, wanted: &RouteSelectorStatus) -> bool {
    stands.namespace == wanted.namespace
        && stands.name == wanted.name
        && wanted.conditions.iter().all(|condition| stands.conditions.contains(condition))
}

/// The three conditions of a verdict. Their time moves only when their status does.
fn conditions(verdict: &Verdict, before: &[Condition], now: &Time) -> Vec<Condition> {
    let programmed = if verdict.accepted.ok {
        Finding { ok: true, reason: reason::PROGRAMMED, message: String::new(), problems: Vec::new() }
    } else if verdict.in_table {
        let message = "in use without what is not accepted".to_owned();
        Finding { ok: true, reason: reason::PROGRAMMED, message, problems: Vec::new() }
    } else {
        let message = format!("not accepted: {}", verdict.accepted.reason);
        Finding { ok: false, reason: reason::NOT_PROGRAMMED, message, problems: Vec::new() }
    };
    let findings = [
        (condition::ACCEPTED, &verdict.accepted),
        (condition::RESOLVED_REFS, &verdict.resolved_refs),
        (condition::PROGRAMMED, &programmed),
    ];
    findings.map(|(type_, finding)| one(type_, finding, verdict.generation, before, now)).into()
}

fn one(type_: &str, finding: &Finding, generation: i64, before: &[Condition], now: &Time) -> Condition {
    let status = if finding.ok { "True" } else { "False" };
    let unchanged = before.iter().find(|condition| condition.type_ == type_ && condition.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: finding.reason.to_owned(),
        message: finding.message[..finding.message.floor_char_boundary(MAX_MESSAGE)].to_owned(),
        observed_generation: Some(generation),
        last_transition_time: unchanged.map_or_else(|| now.clone(), |condition| condition.last_transition_time.clone()),
    }
}

#[cfg(test)]
mod tests;
