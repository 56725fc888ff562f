//! Filters of a rule, and the answers that the gateway makes by itself.

use std::fmt;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};

use crate::api::reason::INVALID;
use crate::api::{self, FilterType, PathModifier, PathModifierType, RedirectScheme};
use crate::ir::{Action, DirectResponse, Filter, HeaderEdit, Hostname, PathRewrite, Redirect};

use super::report::{Field, Report};

/// What a rule's filters amount to.
#[derive(Default)]
pub(super) struct Filters {
    pub(super) changes: Vec<Filter>,
    /// The answer, where the gateway makes it by itself.
    pub(super) answer: Option<Action>,
    /// Whether a filter is broken, so that the rule cannot be served.
    pub(super) is_broken: bool,
}

/// A filter cannot be used; the report says why.
struct Broken;

type Outcome<T> = Result<T, Broken>;

enum Step {
    Change(Filter),
    Answer(Action),
}

/// Reads the filters of a rule in their order.
pub(super) fn filters(filters: &[api::Filter], rule: &Field<'_>, report: &mut Report) -> Filters {
    let mut result = Filters::default();
    for (index, filter) in filters.iter().enumerate() {
        let field = rule.entry("filters", index);
        match step(filter, &field, report) {
            Ok(Step::Change(filter)) => result.changes.push(filter),
            Ok(Step::Answer(answer)) if result.answer.is_none() => result.answer = Some(answer),
            Ok(Step::Answer(_)) => {
                report.add(INVALID, &field, "a rule answers only once: RequestRedirect or DirectResponse");
                result.is_broken = true;
            }
            Err(Broken) => result.is_broken = true,
        }
    }
    result
}

fn step(filter: &api::Filter, field: &Field<'_>, report: &mut Report) -> Outcome<Step> {
    Ok(match filter.r#type {
        FilterType::RequestHeaderModifier => {
            let field = field.member("requestHeaderModifier");
            let modifier = given(filter.request_header_modifier.as_ref(), &field, report)?;
            Step::Change(Filter::RequestHeaders(header_edit(modifier, &field, report)?))
        }
        FilterType::ResponseHeaderModifier => {
            let field = field.member("responseHeaderModifier");
            let modifier = given(filter.response_header_modifier.as_ref(), &field, report)?;
            Step::Change(Filter::ResponseHeaders(header_edit(modifier, &field, report)?))
        }
        FilterType::UrlRewrite => {
            let field = field.member("urlRewrite");
            let rewrite = given(filter.url_rewrite.as_ref(), &field, report)?;
            let (hostname, path) = target(rewrite.hostname.as_deref(), rewrite.path.as_ref(), &field, report)?;
            Step::Change(Filter::Rewrite { hostname, path })
        }
        FilterType::RequestRedirect => {
            let field = field.member("requestRedirect");
            let redirect = given(filter.request_redirect.as_ref(), &field, report)?;
            Step::Answer(Action::Redirect(request_redirect(redirect, &field, report)?))
        }
        FilterType::DirectResponse => {
            let field = field.member("directResponse");
            let response = given(filter.direct_response.as_ref(), &field, report)?;
            Step::Answer(Action::DirectResponse(direct_response(response, &field, report)?))
        }
    })
}

fn broken<T>(report: &mut Report, field: &Field<'_>, what: impl fmt::Display) -> Outcome<T> {
    report.add(INVALID, field, what);
    Err(Broken)
}

fn given<'a, T>(member: Option<&'a T>, field: &Field<'_>, report: &mut Report) -> Outcome<&'a T> {
    member.map_or_else(|| broken(report, field, "is required with this type"), Ok)
}

// === headers ===

fn header_edit(modifier: &api::HeaderModifier, field: &Field<'_>, report: &mut Report) -> Outcome<HeaderEdit> {
    let names = modifier.remove.iter().enumerate();
    let remove = every(names.map(|(index, name)| header_name(name, &field.entry("remove", index), report)));
    let set = header_fields(&modifier.set, "set", field, report);
    let add = header_fields(&modifier.add, "add", field, report);
    Ok(HeaderEdit { remove: remove?, set: set?, add: add? })
}

fn header_fields(
    headers: &[api::Header],
    list: &'static str,
    field: &Field<'_>,
    report: &mut Report,
) -> Outcome<Vec<(HeaderName, HeaderValue)>> {
    every(headers.iter().enumerate().map(|(index, header)| {
        let field = field.entry(list, index);
        let name = header_name(&header.name, &field.member("name"), report);
        let value = header_value(&header.value, &field.member("value"), report);
        Ok((name?, value?))
    }))
}

/// All outcomes, looked at to the last so that every problem is told.
fn every<T>(outcomes: impl Iterator<Item = Outcome<T>>) -> Outcome<Vec<T>> {
    let outcomes: Vec<Outcome<T>> = outcomes.collect();
    outcomes.into_iter().collect()
}

fn header_name(name: &str, field: &Field<'_>, report: &mut Report) -> Outcome<HeaderName> {
    match HeaderName::from_bytes(name.as_bytes()) {
        Ok(name) if api::OWN_HEADERS.contains(&name.as_str()) => {
            broken(report, field, format!("{name} is the gateway's own and cannot be changed"))
        }
        Ok(name) => Ok(name),
        Err(_) => broken(report, field, format!("{name:?} is not the name of a header")),
    }
}

fn header_value(value: &str, field: &Field<'_>, report: &mut Report) -> Outcome<HeaderValue> {
    HeaderValue::from_str(value).or_else(|_| broken(report, field, format!("{value:?} cannot be sent in a header")))
}

// === targets ===

fn target(
    hostname: Option<&str>,
    path: Option<&PathModifier>,
    field: &Field<'_>,
    report: &mut Report,
) -> Outcome<(Option<Arc<str>>, Option<PathRewrite>)> {
    let hostname = hostname.map(|name| match Hostname::parse(name) {
        Ok(Hostname::Exact(name)) => Ok(name),
        _ => broken(report, &field.member("hostname"), format!("{name:?} is not a DNS name")),
    });
    let path = path.map(|path| path_rewrite(path, &field.member("path"), report));
    Ok((hostname.transpose()?, path.transpose()?))
}

fn path_rewrite(path: &PathModifier, field: &Field<'_>, report: &mut Report) -> Outcome<PathRewrite> {
    let (name, value) = match path.r#type {
        PathModifierType::ReplaceFullPath => ("replaceFullPath", &path.replace_full_path),
        PathModifierType::ReplacePrefixMatch => ("replacePrefixMatch", &path.replace_prefix_match),
    };
    let field = field.member(name);
    let value = given(value.as_ref(), &field, report)?;
    let is_path = value.is_empty() || value.starts_with('/');
    if !is_path || !value.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#')) {
        return broken(report, &field, format!("{value:?} is not a path of visible ASCII without ? and #"));
    }
    Ok(match path.r#type {
        PathModifierType::ReplaceFullPath if value.is_empty() => PathRewrite::Full("/".into()),
        PathModifierType::ReplaceFullPath => PathRewrite::Full(value.as_str().into()),
        PathModifierType::ReplacePrefixMatch => PathRewrite::Prefix(value.as_str().into()),
    })
}

// === answers ===

fn request_redirect(redirect: &api::RequestRedirect, field: &Field<'_>, report: &mut Report) -> Outcome<Redirect> {
    let code = redirect.status_code;
    let status = match StatusCode::from_u16(code) {
        Ok(status) if matches!(code, 301 | 302 | 303 | 307 | 308) => Ok(status),
        _ => broken(report, &field.member("statusCode"), format!("{code} is not one of 301, 302, 303, 307, 308")),
    };
    let (hostname, path) = target(redirect.hostname.as_deref(), redirect.path.as_ref(), field, report)?;
    let scheme = redirect.scheme.map(|scheme| match scheme {
        RedirectScheme::Http => "http".into(),
        RedirectScheme::Https => "https".into(),
    });
    Ok(Redirect { scheme, hostname, port: redirect.port, path, status: status? })
}

fn direct_response(response: &api::DirectResponse, field: &Field<'_>, report: &mut Report) -> Outcome<DirectResponse> {
    let code = response.status;
    let status = match StatusCode::from_u16(code) {
        Ok(status) if (200..600).contains(&code) => Ok(status),
        _ => broken(report, &field.member("status"), format!("{code} is not a status from 200 to 599")),
    };
    // RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5.
    if matches!(code, 204 | 205 | 304) && !response.body.is_empty() {
        return broken(report, &field.member("body"), format!("an answer with status {code} has no body"));
    }
    let mut headers = header_fields(&response.headers, "headers", field, report)?;
    headers.extend(content_type(response, &headers, field, report)?.map(|value| (CONTENT_TYPE, value)));
    Ok(DirectResponse { status: status?, headers, body: response.body.as_str().into() })
}

/// The content type to add: the one given, else that of a text where there is a body and no header says otherwise.
fn content_type(
    response: &api::DirectResponse,
    headers: &[(HeaderName, HeaderValue)],
    field: &Field<'_>,
    report: &mut Report,
) -> Outcome<Option<HeaderValue>> {
    let is_set = headers.iter().any(|(name, _)| name == CONTENT_TYPE);
    let field = field.member("contentType");
    match &response.content_type {
        Some(_) if is_set => broken(report, &field, "is also given in headers"),
        Some(text) => header_value(text, &field, report).map(Some),
        None if is_set || response.body.is_empty() => Ok(None),
        None => Ok(Some(HeaderValue::from_static("text/plain; charset=utf-8"))),
    }
}
