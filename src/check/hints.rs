//! What to do about a problem.

use super::Known;
use crate::api::reason::{BACKEND_NOT_FOUND, HOSTNAME_CONFLICT, NOT_ALLOWED_BY_SELECTOR, REF_NOT_PERMITTED};
use crate::ir::{FieldProblem, ObjectName};
use crate::nearby::nearest;
use crate::source::file::Problem;

/// About what was found while reading.
pub(super) fn of_reading(problem: &Problem) -> Option<String> {
    let kind = problem.object.as_ref().map(|(kind, _)| kind.as_str());
    if problem.field == "kind" {
        return kind
            .and_then(|kind| nearest(kind, ["Route", "Selector"]))
            .map(|meant| format!("did you mean {meant}?"));
    }
    problem.reason.starts_with("cannot be read").then(|| "check the path and its permissions".to_owned())
}

/// About what the translation found.
pub(super) fn of_problem(known: &Known<'_>, problem: &FieldProblem) -> Option<String> {
    let text = match problem.reason {
        BACKEND_NOT_FOUND if problem.field.ends_with(".service") => {
            let name = problem.what.strip_prefix("Service ")?.split(' ').next()?;
            let (namespace, name) = name.split_once('/')?;
            return missing("Service", &ObjectName::new(namespace, name), known.names("Service"));
        }
        REF_NOT_PERMITTED if problem.field.ends_with(']') => {
            "a ReferenceGrant in the Service's namespace has to name the Route's namespace"
        }
        HOSTNAME_CONFLICT => {
            "a hostname belongs to the namespace of its oldest Selector; allowedRoutes of that one lets other namespaces in"
        }
        NOT_ALLOWED_BY_SELECTOR => "allowedRoutes of the Selector decides which namespaces may attach",
        _ if problem.field.starts_with("spec.listeners[") => {
            "--listeners or --config tell which listeners the gateway has"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// About an object that the manifests lack.
pub(super) fn missing<'a>(
    kind: &str,
    name: &ObjectName,
    known: impl Iterator<Item = &'a ObjectName>,
) -> Option<String> {
    let names: Vec<String> = known.map(ToString::to_string).collect();
    let same_name = names.iter().find(|other| other.rsplit('/').next() == Some(&*name.name));
    if let Some(other) = same_name {
        return Some(format!("there is {kind} {other}; another namespace has to be named"));
    }
    match nearest(&name.to_string(), names.iter().map(String::as_str)) {
        Some(meant) => Some(format!("did you mean {meant}?")),
        None => Some(format!("fine where the cluster has this {kind}; otherwise add its manifest")),
    }
}
