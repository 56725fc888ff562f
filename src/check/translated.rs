//! What the translation says of objects, brought back to their fields in the files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use super::{Finding, Known, Settings, Severity, hints, warnings};
use crate::api::reason::{
    BACKEND_NOT_FOUND, CERTIFICATE_NOT_VALID_NOW, HOSTNAME_NOT_COVERED, INVALID, INVALID_CA_CERTIFICATE_REF,
    INVALID_CERTIFICATE_REF, REF_NOT_PERMITTED, SUSPENDED, UNSUPPORTED_VALUE,
};
use crate::api::{self, DEFAULT_CLASS};
use crate::ir::{FieldProblem, Fragment, Kind, ObjectName, Verdict};
use crate::source::file::Declared;
use crate::source::index::{self, Content, Index, Object};
use crate::source::translate::{self, Listener};

/// What the translation finds in every class of gateways that the manifests have Selectors for. Of an object that is
/// refused, what can be made of it is translated, so that all that is wrong with it is told at once.
pub(super) fn findings(known: &Known<'_>, settings: &Settings) -> Vec<Finding> {
    let objects: Vec<&Object> = known.first.values().map(|declared| &declared.object).collect();
    let readable: Vec<&Object> = known.first.values().map(|declared| readable(declared)).collect();
    let classes = classes(&objects);
    let listeners = listeners(&readable, settings);
    let unserved = unserved(&readable, &classes);
    let missing = unserved.iter().filter(|(_, parent)| known.get("Selector", parent).is_none());
    let mut findings: Vec<Finding> =
        missing.filter_map(|(route, parent)| no_selector(known, settings, route, parent)).collect();
    let mut stand_ins: BTreeSet<&ObjectName> = unserved.iter().map(|(_, parent)| parent).collect();
    for (class, selectors) in &classes {
        let of_class = translation(class, &listeners, settings);
        // A Route whose Selector is elsewhere, or broken, is checked all the same, once.
        let here = std::mem::take(&mut stand_ins);
        let (mut index, fragment) = (Index::new(of_class), Arc::default());
        if let Some(now) = settings.now {
            index.set_now(now);
        }
        let mut class = Class { known, settings, index, fragment, name: class, selectors };
        findings.extend(class.findings(&here));
        findings.extend(class.warnings(&listeners));
    }
    let drafts = known.first.values().filter_map(|declared| Some((*declared, declared.draft.as_ref()?)));
    for (declared, draft) in drafts {
        let Content::Selector(selector) = &draft.object.content else { continue };
        let of_class = translation(&selector.spec.class_name, &listeners, settings);
        let problems = translate::standing(selector, &of_class).accepted().problems;
        findings.extend(of_problems(known, settings, declared, Kind::Selector, &problems));
    }
    findings
}

fn translation(class: &str, listeners: &[Listener], settings: &Settings) -> translate::Settings {
    translate::Settings {
        class_name: class.to_owned(),
        listeners: listeners.to_vec(),
        host_backends: settings.host_backends.clone(),
        default_certificate: None,
        reads_secrets: true,
    }
}

/// The object, or what can be made of it.
fn readable(declared: &Declared) -> &Object {
    declared.draft.as_ref().map_or(&declared.object, |draft| &draft.object)
}

/// The gateways of one class.
struct Class<'a> {
    known: &'a Known<'a>,
    settings: &'a Settings,
    index: Index,
    /// What the index gave last.
    fragment: Arc<Fragment>,
    name: &'a str,
    /// The Selectors of the class that decode.
    selectors: &'a BTreeSet<ObjectName>,
}

impl Class<'_> {
    /// What is wrong with Selectors and with their Routes. `absent` are Selectors in whose place others stand.
    fn findings(&mut self, absent: &BTreeSet<&ObjectName>) -> Vec<Finding> {
        for declared in self.known.first.values() {
            let is_route = declared.object.kind() == index::Kind::Route;
            self.index.apply(if is_route { readable(declared) } else { &declared.object }.clone());
        }
        self.stand_in(absent);
        let fragment = self.translate();
        let concerned = |verdict: &&Arc<Verdict>| match (verdict.kind, &verdict.parent) {
            (Kind::Selector, _) => self.selectors.contains(&verdict.object),
            (Kind::Route, Some(parent)) => self.selectors.contains(parent) || absent.contains(&parent),
            (Kind::Route, None) => false,
        };
        let verdicts = fragment.verdicts.iter().filter(concerned);
        let mut findings: Vec<Finding> = verdicts.flat_map(|verdict| self.of_verdict(verdict)).collect();
        findings.extend(self.at_placeless(&fragment));
        findings
    }

    /// What is wrong with the Routes of Selectors that have no place, which keeps them from being looked at.
    fn at_placeless(&mut self, fragment: &Fragment) -> Vec<Finding> {
        let selectors = fragment.verdicts.iter().filter(|verdict| verdict.kind == Kind::Selector && !verdict.in_table);
        let placeless = selectors.map(|verdict| &verdict.object).filter(|name| self.selectors.contains(name));
        let placeless: BTreeSet<&ObjectName> = placeless.collect();
        self.stand_in(&placeless);
        let fragment = self.translate();
        let is_theirs =
            |verdict: &&Arc<Verdict>| verdict.parent.as_ref().is_some_and(|parent| placeless.contains(parent));
        let findings =
            fragment.verdicts.iter().filter(is_theirs).flat_map(|verdict| self.of_verdict(verdict)).collect();
        for declared in placeless.iter().filter_map(|name| self.known.get("Selector", name)) {
            self.index.apply(declared.object.clone());
        }
        findings
    }

    fn translate(&mut self) -> Arc<Fragment> {
        if let Some((fragment, _)) = self.index.take_table() {
            self.fragment = fragment;
        }
        Arc::clone(&self.fragment)
    }

    /// Puts others in the place of Selectors.
    fn stand_in(&mut self, names: &BTreeSet<&ObjectName>) {
        for stand_in in names.iter().zip(0..).filter_map(|(name, number)| stand_in(number, name, self.name)) {
            self.index.apply(stand_in);
        }
    }

    /// Warnings on what is served.
    fn warnings(&mut self, listeners: &[Listener]) -> Vec<Finding> {
        let drafts = self.known.first.values().filter(|declared| declared.draft.is_some());
        for declared in drafts.filter(|declared| declared.object.kind() == index::Kind::Route) {
            self.index.apply(declared.object.clone());
        }
        let fragment = self.translate();
        warnings::of_table(self.known, &fragment, listeners, self.selectors)
    }

    fn of_verdict(&self, verdict: &Verdict) -> Vec<Finding> {
        let Some(declared) = self.known.get(&verdict.kind.to_string(), &verdict.object) else { return Vec::new() };
        let problems = verdict.accepted.problems.iter().chain(&verdict.resolved_refs.problems);
        of_problems(self.known, self.settings, declared, verdict.kind, problems)
    }
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
    let names: BTreeSet<&str> = lists.flatten().map(String::as_str).chain(["http", "https"]).collect();
    // Of the gateway's own names one is known to be plain; any other may well end TLS.
    names.into_iter().map(|name| Listener { name: name.into(), tls: name != "http" }).collect()
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
    let told = declared.draft.as_ref().map_or(&[][..], |draft| &draft.told);
    if api::Problem::is_told("spec.selectors", told) {
        return None;
    }
    let reason = format!("Selector {parent} is not among the manifests");
    let hint = Some(hints::missing("Selector", parent, known.names("Selector"), settings));
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

fn of_problems<'a>(
    known: &Known<'_>,
    settings: &Settings,
    declared: &Declared,
    kind: Kind,
    problems: impl IntoIterator<Item = &'a FieldProblem>,
) -> Vec<Finding> {
    let finding = |problem: &FieldProblem| {
        let severity = severity(settings, kind, problem).filter(|_| !is_told(declared, problem))?;
        let hint = hints::of_problem(known, settings, problem);
        Some(known.finding(declared, severity, &problem.field, problem.what.clone(), hint))
    };
    problems.into_iter().filter_map(finding).collect()
}

/// Whether a problem is one that the object was refused for.
fn is_told(declared: &Declared, problem: &FieldProblem) -> bool {
    let Some(draft) = declared.draft.as_ref().filter(|_| !problem.field.is_empty()) else { return false };
    // A rule tells of an object as a whole what the translation tells of one of its members.
    let is_member = |told: &api::Problem| {
        let rest = problem.field.strip_prefix(&*told.field).and_then(|rest| rest.strip_prefix('.'));
        told.field != "spec" && rest.is_some_and(|member| !member.contains('.'))
    };
    // Where it is not known what something is, nothing that it holds can be judged.
    let is_of_unknown = |told: &api::Problem| {
        let kinds = [".source", ".operator", ".type"].iter();
        let mut wholes = kinds.filter_map(|kind| told.field.strip_suffix(kind));
        wholes.any(|whole| problem.field.strip_prefix(whole).is_some_and(|rest| rest.starts_with('.')))
    };
    api::Problem::is_told(&problem.field, &draft.told)
        || draft.told.iter().any(is_of_unknown)
        || problem.reason == INVALID && draft.told.iter().any(is_member)
}

/// How bad a problem is; `None` where it is meant to be so.
fn severity(settings: &Settings, kind: Kind, problem: &FieldProblem) -> Option<Severity> {
    Some(match problem.reason {
        SUSPENDED => return None,
        BACKEND_NOT_FOUND if problem.field.ends_with(".service") => of_absence(settings),
        // A grant, or labels of a namespace, may be elsewhere.
        REF_NOT_PERMITTED if problem.field.ends_with(']') => of_absence(settings),
        // Plain HTTP is served.
        UNSUPPORTED_VALUE if kind == Kind::Selector && problem.field == "spec.tls" => Severity::Warning,
        // Secrets are seldom among the manifests.
        INVALID_CERTIFICATE_REF | INVALID_CA_CERTIFICATE_REF if problem.what.contains(" does not exist") => {
            of_absence(settings)
        }
        CERTIFICATE_NOT_VALID_NOW | HOSTNAME_NOT_COVERED => Severity::Warning,
        _ => Severity::Error,
    })
}
