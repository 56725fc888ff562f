//! Selectors: where they stand in the table.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::api::reason::{ACCEPTED, HOSTNAME_CONFLICT, INVALID, SUSPENDED, UNSUPPORTED_VALUE};
use crate::api::{MatchMode, NamespacesFrom, SelectorSpec, TlsMode};
use crate::ir::{ConditionSet, Finding, Hostname, Mode};

use super::conditions::condition;
use super::report::{Field, Report};
use super::{Listener, SelectorSubject, Settings, policy};

/// What a Selector covers.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Names of listeners, sorted; empty for all.
    pub listeners: Vec<Arc<str>>,
    /// Hostnames, sorted; never empty.
    pub hostnames: Vec<Hostname>,
    /// What a request must fulfil besides.
    pub conditions: ConditionSet,
}

/// What became of a Selector.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its place in the table, if it has one.
    pub place: Option<Place>,
    report: Report,
}

/// A hostname that belongs to another namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The listener on which it does; `None` where both Selectors mean all listeners.
    pub listener: Option<Arc<str>>,
    /// The namespace that it belongs to.
    pub owner: Arc<str>,
}

impl Standing {
    /// The verdict on the Selector itself.
    pub fn accepted(&self) -> Finding {
        self.report.finding(ACCEPTED)
    }

    /// The same Selector without the hostnames that belong to other namespaces. What remains is served, and the
    /// verdict is false nevertheless: an owner who looks for a missing host finds the reason.
    #[must_use]
    pub fn without(&self, lost: &BTreeMap<Hostname, Conflict>) -> Self {
        let mut standing = self.clone();
        let Some(place) = standing.place.as_mut().filter(|_| !lost.is_empty()) else { return standing };
        place.hostnames.retain(|hostname| !lost.contains_key(hostname));
        let rest = if place.hostnames.is_empty() { "none is left" } else { "the others are served" };
        if place.hostnames.is_empty() {
            standing.place = None;
        }
        let one = |(hostname, conflict): (&Hostname, &Conflict)| {
            let on = conflict.listener.as_ref().map(|name| format!(" on listener {name}")).unwrap_or_default();
            let host = if *hostname == Hostname::Any { "any host".to_owned() } else { hostname.to_string() };
            format!("{host} belongs to namespace {}{on}", conflict.owner)
        };
        let lost: Vec<String> = lost.iter().map(one).collect();
        let what = format!("{}, whose Selector for it is older; {rest}", lost.join(", "));
        standing.report.put_first(HOSTNAME_CONFLICT, &Field::SPEC.member("hostnames"), what);
        standing
    }
}

/// Where a Selector stands, the hostnames of other namespaces aside.
pub fn standing(subject: &SelectorSubject, settings: &Settings) -> Standing {
    let (spec, field) = (&subject.spec, Field::SPEC);
    let mut report = Report::default();
    if spec.suspend {
        report.add(SUSPENDED, &field.member("suspend"), "the Selector is taken out of the table");
        return Standing { place: None, report };
    }
    let passes = passes_tls(spec);
    let listeners = if passes {
        passing_listeners(spec, settings, &field, &mut report)
    } else {
        listeners(spec, settings, &field, &mut report)
    };
    let hostnames = hostnames(spec, &field, &mut report);
    let conditions = conditions(spec, &field, &mut report);
    if !passes {
        terminate(spec, settings, &field, &mut report);
    }
    if let Some(policy) = &spec.policy {
        policy::check(policy, &field.member("policy"), &mut report);
    }
    allowed_routes(spec, &field, &mut report);
    let place = listeners.zip(hostnames).zip(conditions);
    let place = place.map(|((listeners, hostnames), conditions)| Place { listeners, hostnames, conditions });
    Standing { place, report }
}

fn listeners(
    spec: &SelectorSpec,
    settings: &Settings,
    field: &Field<'_>,
    report: &mut Report,
) -> Option<Vec<Arc<str>>> {
    let mut known = Vec::with_capacity(spec.listeners.len());
    for (index, name) in spec.listeners.iter().enumerate() {
        if let Some(listener) = settings.listeners.iter().find(|listener| *listener.name == **name) {
            known.push(Arc::clone(&listener.name));
        } else {
            let names: Vec<&str> = settings.listeners.iter().map(|listener| &*listener.name).collect();
            let what = format!("the gateway has no listener {name}; it has {}", names.join(", "));
            report.add(INVALID, &field.entry("listeners", index), what);
        }
    }
    known.sort();
    known.dedup();
    // Without this, a Selector of unknown listeners would serve all of them.
    (spec.listeners.is_empty() || !known.is_empty()).then_some(known)
}

fn hostnames(spec: &SelectorSpec, field: &Field<'_>, report: &mut Report) -> Option<Vec<Hostname>> {
    if spec.hostnames.is_empty() {
        return Some(vec![Hostname::Any]);
    }
    let mut good = Vec::with_capacity(spec.hostnames.len());
    for (index, name) in spec.hostnames.iter().enumerate() {
        match Hostname::parse(name) {
            Ok(hostname) => good.push(hostname),
            Err(error) => report.add(INVALID, &field.entry("hostnames", index), error),
        }
    }
    good.sort();
    good.dedup();
    (!good.is_empty()).then_some(good)
}

pub(super) fn conditions(spec: &SelectorSpec, field: &Field<'_>, report: &mut Report) -> Option<ConditionSet> {
    let Some(matching) = &spec.matching else { return Some(ConditionSet::default()) };
    let field = field.member("match");
    if passes_tls(spec) {
        report.add(INVALID, &field, "is not allowed with tls.mode Passthrough: nothing inside the connection is seen");
        return None;
    }
    let mode = match matching.mode {
        MatchMode::All => Mode::All,
        MatchMode::Any => Mode::Any,
    };
    let one = |(index, entry)| condition(entry, &field.entry("conditions", index), report);
    let conditions: Vec<_> = matching.conditions.iter().enumerate().filter_map(one).collect();
    (conditions.len() == matching.conditions.len()).then_some(ConditionSet { mode, conditions })
}

/// Whether a Selector's backends end the TLS connections of its clients.
pub(super) fn passes_tls(spec: &SelectorSpec) -> bool {
    spec.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::Passthrough)
}

/// The listeners of a Selector that passes TLS through: only where connections begin with TLS is there anything to pass.
fn passing_listeners(
    spec: &SelectorSpec,
    settings: &Settings,
    field: &Field<'_>,
    report: &mut Report,
) -> Option<Vec<Arc<str>>> {
    let named = listeners(spec, settings, field, report)?;
    let of_tls = |name: &str| settings.listeners.iter().any(|listener| listener.tls && *listener.name == *name);
    for (index, name) in spec.listeners.iter().enumerate() {
        if named.iter().any(|known| **known == **name) && !of_tls(name) {
            let what = format!("listener {name} has no tls, without which there is nothing to pass through");
            report.add(UNSUPPORTED_VALUE, &field.entry("listeners", index), what);
        }
    }
    if spec.listeners.is_empty() {
        let mut all: Vec<Arc<str>> = settings
            .listeners
            .iter()
            .filter(|listener| listener.tls)
            .map(|listener| Arc::clone(&listener.name))
            .collect();
        all.sort();
        if all.is_empty() {
            let what = "the gateway has no listener with tls, without which there is nothing to pass through";
            report.add(UNSUPPORTED_VALUE, &field.member("tls"), what);
        }
        return (!all.is_empty()).then_some(all);
    }
    let named: Vec<Arc<str>> = named.into_iter().filter(|name| of_tls(name)).collect();
    (!named.is_empty()).then_some(named)
}

/// What cannot be done about TLS. Plain HTTP for the same hostnames is served.
fn terminate(spec: &SelectorSpec, settings: &Settings, field: &Field<'_>, report: &mut Report) {
    let is_named =
        |listener: &Listener| spec.listeners.is_empty() || spec.listeners.iter().any(|name| **name == *listener.name);
    if spec.tls.is_some() && !settings.listeners.iter().any(|listener| listener.tls && is_named(listener)) {
        let who = if spec.listeners.is_empty() { "the gateway has no" } else { "the Selector names no" };
        let what = format!("{who} listener that ends TLS, so the certificate is of no use");
        report.add(UNSUPPORTED_VALUE, &field.member("tls"), what);
    }
}

const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

fn allowed_routes(spec: &SelectorSpec, field: &Field<'_>, report: &mut Report) {
    let namespaces = &spec.allowed_routes.namespaces;
    if namespaces.from != NamespacesFrom::Selector {
        return;
    }
    let allowed = field.member("allowedRoutes");
    let parent = allowed.member("namespaces");
    let field = parent.member("selector");
    let Some(selector) = &namespaces.selector else {
        report.add(INVALID, &field, "is required with from: Selector; no Route is let in");
        return;
    };
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        if !OPERATORS.contains(&requirement.operator.as_str()) {
            let what = format!("{} is not one of {}; no Route is let in", requirement.operator, OPERATORS.join(", "));
            report.add(INVALID, &field.entry("matchExpressions", index).member("operator"), what);
        }
    }
}

/// Whether Routes of this namespace may attach to a Selector. `labels` are the namespace's.
pub(super) fn admits<'a>(
    subject: &SelectorSubject,
    namespace: &str,
    labels: impl FnOnce() -> Option<&'a BTreeMap<String, String>>,
) -> bool {
    let namespaces = &subject.spec.allowed_routes.namespaces;
    match namespaces.from {
        NamespacesFrom::All => true,
        NamespacesFrom::Same => *subject.origin.object.namespace == *namespace,
        NamespacesFrom::Selector => {
            let labels = labels();
            // What the API server puts on every namespace.
            let label = |key: &str| match key {
                "kubernetes.io/metadata.name" => Some(namespace),
                key => labels.and_then(|labels| labels.get(key)).map(String::as_str),
            };
            namespaces.selector.as_ref().is_some_and(|selector| is_selected(selector, label))
        }
    }
}

fn is_selected<'a>(selector: &LabelSelector, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    let fits = |requirement: &LabelSelectorRequirement| {
        let value = label(&requirement.key);
        let listed = value.is_some_and(|value| requirement.values.iter().flatten().any(|listed| listed == value));
        match requirement.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    };
    selector.match_labels.iter().flatten().all(|(key, value)| label(key) == Some(value.as_str()))
        && selector.match_expressions.iter().flatten().all(fits)
}
