//! The CORS filter.

use http::HeaderValue;

use crate::api;
use crate::ir::{Allowed, Cors, OriginPattern, Origins};

use super::filters::{Outcome, broken, every};
use super::report::{Field, Report};

/// Reads the filter and prepares the values of the fields that it sends.
pub(super) fn cors(cors: &api::Cors, field: &Field<'_>, report: &mut Report) -> Outcome<Cors> {
    let origins = origins(&cors.allow_origins, field, report);
    let methods = allowed(&cors.allow_methods, "allowMethods", field, report);
    let headers = allowed(&cors.allow_headers, "allowHeaders", field, report);
    // With credentials `*` is the name of a field that nobody has (Fetch, section 3.3.4).
    let exposed = cors.expose_headers.iter().map(String::as_str).filter(|name| !cors.allow_credentials || *name != "*");
    let expose = list(exposed, "exposeHeaders", field, report);
    Ok(Cors {
        origins: origins?,
        credentials: cors.allow_credentials,
        methods: methods?,
        headers: headers?,
        expose: expose?,
        max_age: cors.max_age,
    })
}

fn origins(origins: &[String], field: &Field<'_>, report: &mut Report) -> Outcome<Origins> {
    if alone(origins, "allowOrigins", field, report)? {
        return Ok(Origins::All);
    }
    let patterns = origins.iter().enumerate().map(|(index, origin)| {
        OriginPattern::parse(origin).or_else(|error| broken(report, &field.entry("allowOrigins", index), error))
    });
    every(patterns).map(Origins::Some)
}

fn allowed(names: &[String], member: &'static str, field: &Field<'_>, report: &mut Report) -> Outcome<Allowed> {
    if alone(names, member, field, report)? {
        return Ok(Allowed::All);
    }
    let listed = list(names.iter().map(String::as_str), member, field, report)?;
    Ok(listed.map_or(Allowed::None, Allowed::Listed))
}

/// Whether the list is `*`; an error where it says something else besides.
fn alone(entries: &[String], member: &'static str, field: &Field<'_>, report: &mut Report) -> Outcome<bool> {
    let all = entries.iter().any(|entry| entry == "*");
    if all && entries.len() > 1 {
        return broken(report, &field.member(member), "cannot contain * beside others");
    }
    Ok(all)
}

/// The names as one field value; `None` without any.
fn list<'a>(
    names: impl Iterator<Item = &'a str>,
    member: &'static str,
    field: &Field<'_>,
    report: &mut Report,
) -> Outcome<Option<HeaderValue>> {
    let text = names.collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        return Ok(None);
    }
    let what = "has what cannot be sent in a header";
    HeaderValue::from_str(&text).map(Some).or_else(|_| broken(report, &field.member(member), what))
}
