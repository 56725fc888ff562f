//! What to do about a problem.

use super::{Known, Settings};
use crate::api::reason::{
    BACKEND_NOT_FOUND, HOSTNAME_CONFLICT, INVALID_CA_CERTIFICATE_REF, INVALID_CERTIFICATE_REF, NOT_ALLOWED_BY_SELECTOR,
    REF_NOT_PERMITTED,
};
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
    if let Some(words) = of_mistake(problem) {
        return Some(words.to_owned());
    }
    if let Some((_, form)) = problem.reason.split_once("does not have the form ") {
        return form_in_words(form).map(str::to_owned);
    }
    problem.reason.starts_with("cannot be read").then(|| "check the path and its permissions".to_owned())
}

/// About mistakes whose reason alone does not show what would be right.
fn of_mistake(problem: &Problem) -> Option<&'static str> {
    const MISTAKES: [(&str, &str); 5] = [
        ("a value of Cidr", "such as 10.0.0.0/8; a single address is 192.0.2.7/32"),
        ("a value of Before or After", "such as 2026-01-31T08:30:00Z, or \"08:30\" for every day"),
        ("a value of ClientIP", "such as 192.0.2.7 or 2001:db8::7; networks go with operator Cidr"),
        ("source ClientIP takes", "such as {source: ClientIP, operator: Cidr, values: [10.0.0.0/8]}"),
        ("source Time takes", "such as {source: Time, operator: After, values: [\"08:30\"]}"),
    ];
    let (field, reason) = (problem.field.as_str(), problem.reason.as_str());
    let is_in_path = field.rsplit_once('.').is_some_and(|(parent, _)| parent.ends_with("].path"));
    if field.ends_with("].path") && reason.starts_with("must be an object")
        || is_in_path && reason.contains("known field")
    {
        return Some("write path: {type: Prefix, value: /shop}; type is Exact, Prefix, Pattern or Regex");
    }
    MISTAKES.iter().find(|(start, _)| reason.starts_with(start)).map(|(_, words)| *words)
}

/// What a regular expression of the schema stands for.
fn form_in_words(form: &str) -> Option<&'static str> {
    const FORMS: [(&str, &str); 10] = [
        ("(h|m|s|ms)", "a duration, such as 500ms, 2s or 1m30s"),
        ("(k|M|G|T|Ki", "a size in bytes, such as 512, 64Ki or 10Mi"),
        (
            "^(\\*\\.)?[a-z0-9]",
            "a name such as shop.example.com, or *.example.com for all below it; lower case, no port",
        ),
        (
            "https?://",
            "a scheme and a host, perhaps a port, and no path: https://shop.example.com, https://*.example.com, or *",
        ),
        ("+/[A-Za-z0-9!#$%&'*+", "a media type, such as text/plain or application/json; charset=utf-8"),
        ("^[A-Z0-9!#$%&'*+", "methods are upper case, such as GET"),
        ("^[!-~]+$", "what is blank or not ASCII is percent-encoded in a path, such as %20 for a blank"),
        ("^[A-Za-z0-9!#$%&'*+", "letters, digits and - for most names"),
        ("^(/[", "a path begins with / and has visible ASCII alone"),
        ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?", "lower case letters, digits and -, with a letter or digit at each end"),
    ];
    FORMS.iter().find(|(mark, _)| form.contains(mark)).map(|(_, words)| *words)
}

/// About what the translation found.
pub(super) fn of_problem(known: &Known<'_>, settings: &Settings, problem: &FieldProblem) -> Option<String> {
    let text = match problem.reason {
        BACKEND_NOT_FOUND if problem.field.ends_with(".service") => {
            let name = problem.what.strip_prefix("Service ")?.split(' ').next()?;
            let (namespace, name) = name.split_once('/')?;
            let name = ObjectName::new(namespace, name);
            return Some(missing("Service", &name, known.names("Service"), settings));
        }
        INVALID_CERTIFICATE_REF | INVALID_CA_CERTIFICATE_REF if problem.what.contains(" does not exist") => {
            let (kind, rest) = problem.what.split_once(' ')?;
            let (namespace, name) = rest.split(' ').next()?.split_once('/')?;
            return Some(missing(kind, &ObjectName::new(namespace, name), known.names(kind), settings));
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
    settings: &Settings,
) -> String {
    let names: Vec<String> = known.map(ToString::to_string).collect();
    let same_name = names.iter().find(|other| other.rsplit('/').next() == Some(&*name.name));
    if let Some(other) = same_name {
        return format!("there is {kind} {other}; another namespace has to be named");
    }
    let own = format!("{}/", name.namespace);
    let neighbours = names.iter().filter_map(|other| other.strip_prefix(&own));
    match nearest(&name.name, neighbours) {
        Some(meant) => format!("did you mean {meant}?"),
        None if settings.complete => {
            format!("add the manifest of this {kind}: with --complete, what is not there is missing")
        }
        None => format!("fine where the cluster has this {kind}; otherwise add its manifest"),
    }
}
