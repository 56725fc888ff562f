//! What the translation says of objects, brought back to their fields in the files.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::{Finding, Known, Settings, Severity, hints, warnings};
use crate::api::reason::{BACKEND_NOT_FOUND, REF_NOT_PERMITTED, SUSPENDED, UNSUPPORTED_VALUE};
use crate::api::{self, DEFAULT_CLASS};
use crate::ir::{FieldProblem, Kind, ObjectName, Verdict};
use crate::source::index::{Content, Index, Object};
use crate::source::translate::{self, Listener};

/// What the translation finds in every class of gateways that the manifests have Selectors for.
pub(super) fn findings(known: &Known<'_>, settings: &Settings) -> Vec<Finding> {
    let objects: Vec<&Object> = known.first.values().map(|declared| &declared.object).collect();
    let classes = classes(&objects);
    let listeners = listeners(&objects, settings);
    let unserved = unserved(&objects, &classes);
    let missing = unserved.iter().filter(|(_, parent)| known.get("Selector", parent).is_none());
    let mut findings: Vec<Finding> =
        missing.filter_map(|(route, parent)| no_selector(known, settings, route, parent)).collect();
    let mut stand_ins: BTreeSet<&ObjectName> = unserved.iter().map(|(_, parent)| parent).collect();
    for (class, selectors) in &classes {
        let mut index = Index::new(translate::Settings {
            class_name: class.clone(),
            listeners: listeners.clone(),
            host_backends: settings.host_backends.clone(),
        });
        for object in &objects {
            index.apply((*object).clone());
        }
        // A Route whose Selector is elsewhere, or broken, is checked all the same, once.
        let here = std::mem::take(&mut stand_ins);
        for stand_in in here.iter().zip(0..).filter_map(|(name, number)| stand_in(number, name, class)) {
            index.apply(stand_in);
        }
        let Some((fragment, _)) = index.take_table() else { continue };
        let concerned = |verdict: &&Verdict| match (verdict.kind, &verdict.parent) {
            (Kind::Selector, _) => selectors.contains(&verdict.object),
            (Kind::Route, Some(parent)) => selectors.contains(parent) || here.contains(&parent),
            (Kind::Route, None) => false,
        };
        for verdict in fragment.verdicts.iter().filter(concerned) {
            findings.extend(of_verdict(known, settings, verdict));
        }
        findings.extend(warnings::of_table(known, &fragment, &listeners, selectors));
    }
    findings
}

/// The Selectors of every class. One that does not decode belongs to none; what is wrong with it has been told.
fn classes(objects: &[&Object]) -> BTreeMap<String, BTreeSet<ObjectName>> {
    let mut classes: BTreeMap<String, BTreeSet<ObjectName>> = BTreeMap::new();
    for object in objects {
        if let Content::Selector(selector) = &object.content {
            classes.entry(selector.spec.class_name.clone()).or_default().insert(object.name.clone());
        }
    }
    if classes.is_empty() {
        classes.insert(DEFAULT_CLASS.to_owned(), BTreeSet::new());
    }
    classes
}

/// The gateway's listeners; all that are named where they are not known.
fn listeners(objects: &[&Object], settings: &Settings) -> Vec<Listener> {
    if let Some(listeners) = &settings.listeners {
        return listeners.clone();
    }
    let lists = objects.iter().filter_map(|object| match &object.content {
        Content::Selector(selector) => Some(&selector.spec.listeners),
        _ => None,
    });
    let names: BTreeSet<&str> = lists.flatten().map(String::as_str).chain(["http"]).collect();
    names.into_iter().map(|name| Listener { name: name.into(), tls: false }).collect()
}

/// Routes with Selectors that they name, and that are not there or do not decode.
fn unserved(objects: &[&Object], classes: &BTreeMap<String, BTreeSet<ObjectName>>) -> Vec<(ObjectName, ObjectName)> {
    let mut unserved = Vec::new();
    for object in objects {
        let Content::Route(route) = &object.content else { continue };
        for parent in &route.spec.selectors {
            let own = &*object.name.namespace;
            let parent = ObjectName::new(parent.namespace.as_deref().unwrap_or(own), parent.name.as_str());
            if !classes.values().any(|selectors| selectors.contains(&parent)) {
                unserved.push((object.name.clone(), parent));
            }
        }
    }
    unserved
}

fn no_selector(known: &Known<'_>, settings: &Settings, route: &ObjectName, parent: &ObjectName) -> Option<Finding> {
    let declared = known.get("Route", route)?;
    let reason = format!("Selector {parent} is not among the manifests");
    let hint = Some(hints::missing("Selector", parent, known.names("Selector")));
    Some(known.finding(declared, of_absence(settings), "spec.selectors", reason, hint))
}

const fn of_absence(settings: &Settings) -> Severity {
    if settings.complete { Severity::Error } else { Severity::Warning }
}

/// A Selector in place of one that is elsewhere, which lets everybody in and takes nobody's hostname.
fn stand_in(number: usize, name: &ObjectName, class: &str) -> Option<Object> {
    let selector = json!({
        "apiVersion": format!("{}/{}", api::GROUP, api::VERSION),
        "kind": "Selector",
        "metadata": {"namespace": &*name.namespace, "name": &*name.name},
        "spec": {
            "className": class,
            "hostnames": [format!("{number}.invalid")],
            "allowedRoutes": {"namespaces": {"from": "All"}},
        },
    });
    serde_json::from_value::<api::Selector>(selector).ok().map(Object::from)
}

fn of_verdict(known: &Known<'_>, settings: &Settings, verdict: &Verdict) -> Vec<Finding> {
    let Some(declared) = known.get(&verdict.kind.to_string(), &verdict.object) else { return Vec::new() };
    let problems = verdict.accepted.problems.iter().chain(&verdict.resolved_refs.problems);
    let finding = |problem: &FieldProblem| {
        let severity = severity(settings, verdict, problem)?;
        let hint = hints::of_problem(known, problem);
        Some(known.finding(declared, severity, &problem.field, problem.what.clone(), hint))
    };
    problems.filter_map(finding).collect()
}

/// How bad a problem is; `None` where it is meant to be so.
fn severity(settings: &Settings, verdict: &Verdict, problem: &FieldProblem) -> Option<Severity> {
    Some(match problem.reason {
        SUSPENDED => return None,
        BACKEND_NOT_FOUND if problem.field.ends_with(".service") => of_absence(settings),
        // A grant, or labels of a namespace, may be elsewhere.
        REF_NOT_PERMITTED if problem.field.ends_with(']') => of_absence(settings),
        // Plain HTTP is served.
        UNSUPPORTED_VALUE if verdict.kind == Kind::Selector && problem.field == "spec.tls" => Severity::Warning,
        _ => Severity::Error,
    })
}
