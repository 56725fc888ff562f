//! From verdicts and the status that stands there to the status to write, if any. Pure.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::Seen;
use super::statuses::Status;
use crate::api::{RouteSelectorStatus, RouteStatus, SelectorAddress, SelectorStatus, condition, reason};
use crate::ir::{Extent, Finding, Shadowed, Verdict};

/// The longest message that the schema takes, in bytes at most.
const MAX_MESSAGE: usize = 32 * 1024;

/// The status that we apply to an object, or nothing where what stands there says the same. `addresses` are the gateway's;
/// `None` as long as they are not known.
///
/// Verdicts on another generation than the one seen say nothing yet: those on this one will follow.
pub(super) fn plan(
    verdicts: &[Arc<Verdict>],
    shadows: &[Shadowed],
    seen: &Seen,
    (controller, addresses): (&str, Option<&[SelectorAddress]>),
    now: &Time,
) -> Option<Status> {
    if verdicts.iter().any(|verdict| verdict.generation != seen.generation) {
        return None;
    }
    match &seen.status {
        Status::Selector(status) => {
            selector(verdicts.first()?, shadows.first(), (status, addresses), now).map(Status::Selector)
        }
        Status::Route(status) => {
            let entries = entries(verdicts, shadows, seen, status, controller, now);
            route(entries, status, controller).map(Status::Route)
        }
    }
}

fn selector(
    verdict: &Verdict,
    shadow: Option<&Shadowed>,
    (stands, addresses): (&SelectorStatus, Option<&[SelectorAddress]>),
    now: &Time,
) -> Option<SelectorStatus> {
    let addresses = match addresses {
        // Not known yet: what the writer before wrote is better than nothing.
        None => &stands.addresses,
        Some(known) if verdict.accepted.ok || verdict.in_table => known,
        Some(_) => &[],
    };
    let wanted = SelectorStatus {
        observed_generation: Some(verdict.generation),
        attached_routes: i32::try_from(verdict.attached_routes).unwrap_or(i32::MAX),
        addresses: addresses.to_vec(),
        conditions: conditions(verdict, shadow, &stands.conditions, now),
    };
    let same = wanted.observed_generation == stands.observed_generation
        && wanted.attached_routes == stands.attached_routes
        && wanted.addresses == stands.addresses
        && says(&stands.conditions, &wanted.conditions);
    (!same).then_some(wanted)
}

fn route(entries: Vec<RouteSelectorStatus>, stands: &RouteStatus, controller: &str) -> Option<RouteStatus> {
    let ours = || stands.selectors.iter().filter(|entry| entry.controller_name == controller);
    let same =
        entries.len() == ours().count() && entries.iter().all(|wanted| ours().any(|stands| covers(stands, wanted)));
    (!same).then_some(RouteStatus { selectors: entries })
}

/// What should be said at each of the parents.
fn entries(
    verdicts: &[Arc<Verdict>],
    shadows: &[Shadowed],
    seen: &Seen,
    stands: &RouteStatus,
    controller: &str,
    now: &Time,
) -> Vec<RouteSelectorStatus> {
    let ours = |entry: &&RouteSelectorStatus| entry.controller_name == controller;
    let mut selectors = Vec::with_capacity(verdicts.len());
    for verdict in verdicts {
        // A verdict without a parent is on the Route as a whole: the same at each of its parents.
        let parents = verdict.parent.as_ref().map_or(seen.parents.as_slice(), std::slice::from_ref);
        for parent in parents {
            let shadow = shadows.iter().find(|shadow| shadow.parent.as_ref() == Some(parent));
            let mut stands = stands.selectors.iter().filter(ours);
            let before = stands.find(|entry| entry.namespace == *parent.namespace && entry.name == *parent.name);
            let before = before.map_or(&[][..], |entry| &entry.conditions);
            selectors.push(RouteSelectorStatus {
                namespace: parent.namespace.to_string(),
                name: parent.name.to_string(),
                controller_name: controller.to_owned(),
                conditions: conditions(verdict, shadow, before, now),
            });
        }
    }
    selectors.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    selectors.dedup_by(|b, a| a.namespace == b.namespace && a.name == b.name);
    selectors
}

/// Whether an entry says all that is wanted; it may say more, in conditions of others.
fn covers(stands: &RouteSelectorStatus, wanted: &RouteSelectorStatus) -> bool {
    stands.namespace == wanted.namespace && stands.name == wanted.name && says(&stands.conditions, &wanted.conditions)
}

/// Whether all conditions that are wanted stand there, and none of ours that is not.
fn says(stands: &[Condition], wanted: &[Condition]) -> bool {
    let shadowed = |conditions: &[Condition]| conditions.iter().any(|c| c.type_ == condition::SHADOWED);
    wanted.iter().all(|condition| stands.contains(condition)) && (shadowed(wanted) || !shadowed(stands))
}

/// The three conditions of a verdict, and `Shadowed` where it is true. Their time moves only when their status does.
fn conditions(verdict: &Verdict, shadow: Option<&Shadowed>, before: &[Condition], now: &Time) -> Vec<Condition> {
    let programmed = if verdict.accepted.ok {
        Finding { ok: true, reason: reason::PROGRAMMED, message: String::new(), problems: Vec::new() }
    } else if verdict.in_table {
        let message = "in use without what is not accepted".to_owned();
        Finding { ok: true, reason: reason::PROGRAMMED, message, problems: Vec::new() }
    } else {
        let message = format!("not accepted: {}", verdict.accepted.reason);
        Finding { ok: false, reason: reason::NOT_PROGRAMMED, message, problems: Vec::new() }
    };
    let shadowed = shadow.map(|shadow| {
        let reason = match shadow.extent {
            Extent::Whole => reason::NEVER_WINS,
            Extent::Part => reason::PARTLY_TAKEN,
        };
        Finding { ok: true, reason, message: shadow.message.to_string(), problems: Vec::new() }
    });
    let findings = [
        (condition::ACCEPTED, &verdict.accepted),
        (condition::RESOLVED_REFS, &verdict.resolved_refs),
        (condition::PROGRAMMED, &programmed),
    ];
    let findings = findings.into_iter().chain(shadowed.iter().map(|finding| (condition::SHADOWED, finding)));
    findings.map(|(type_, finding)| one(type_, finding, verdict.generation, before, now)).collect()
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
