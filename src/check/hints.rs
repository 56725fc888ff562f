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
    if let Some((_, form)) = problem.reason.split_once("does not have the form ") {
        return form_in_words(form).map(str::to_owned);
    }
    problem.reason.starts_with("cannot be read").then(|| "check the path and its permissions".to_owned())
}

/// What a regular expression of the schema stands for.
fn form_in_words(form: &str) -> Option<&'static str> {
    const FORMS: [(&str, &str); 6] = [
        ("(h|m|s|ms)", "a duration, such as 500ms, 2s or 1m30s"),
        ("(k|M|G|T|Ki", "a size in bytes, such as 512, 64Ki or 10Mi"),
        (
            "^(\\*\\.)?[a-z0-9]",
            "a name such as shop.example.com, or *.example.com for all below it; lower case, no port",
        ),
        ("^[A-Za-z0-9!#$%&'*+", "letters, digits and - for most names"),
        ("^(/[", "a path begins with / and has visible ASCII alone"),
        ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?", "lower case letters, digits and -, with a letter or digit at each end"),
    ];
    FORMS.iter().find(|(mark, _)| form.contains(mark)).map(|(_, words)| *words)
}

/// About what the translation found.
pub(super) fn of_problem(known: &Known<'_>, problem: &FieldProblem) -> Option<String> {
    let text = match problem.reason {
        BACKEND_NOT_FOUND if problem.field.ends_with(".service") => {
            let name = problem.what.strip_prefix("Service ")?.split(' ').next()?;
            let (namespace, name) = name.split_once('/')?;
            return Some(missing("Service", &ObjectName::new(namespace, name), known.names("Service")));
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
pub(super) fn missing<'a>(kind: &str, name: &ObjectName, known: impl Iterator<Item = &'a ObjectName>) -> String {
    let names: Vec<String> = known.map(ToString::to_string).collect();
    let same_name = names.iter().find(|other| other.rsplit('/').next() == Some(&*name.name));
    if let Some(other) = same_name {
        return format!("there is {kind} {other}; another namespace has to be named");
    }
    let own = format!("{}/", name.namespace);
    let neighbours = names.iter().filter_map(|other| other.strip_prefix(&own));
    match nearest(&name.name, neighbours) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("fine where the cluster has this {kind}; otherwise add its manifest"),
    }
}
