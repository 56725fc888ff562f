//! Filters of a rule, and the answers that the gateway makes by itself.

use std::fmt;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};

use crate::api::reason::INVALID;
use crate::api::{self, BackendFilterType, FilterType, PathModifier, PathModifierType, RedirectScheme};
use crate::ir::{
    Action, DirectResponse, Filter, HeaderEdit, Hostname, InvalidRewrite, PathRewrite, Redirect, RegexRewrite,
};

use super::report::{Field, Report, regex_error};
use super::{cors, path, query};

/// What a rule's filters amount to.
#[derive(Default)]
pub(super) struct Filters {
    /// In the order of [`Filter::stage`], without mirrors.
    pub(super) changes: Vec<Filter>,
    /// The answer, where the gateway makes it by itself.
    pub(super) answer: Option<Action>,
    /// Whether a filter is broken, so that the rule cannot be served.
    pub(super) is_broken: bool,
}

/// A filter cannot be used; the report says why.
pub(super) struct Broken;

pub(super) type Outcome<T> = Result<T, Broken>;

enum Step {
    Change(Filter),
    Answer(Action),
    /// A mirror, which is a matter of references.
    Elsewhere,
}

/// Reads the filters of a rule but its mirrors, and brings them into their order.
pub(super) fn filters(filters: &[api::Filter], rule: &Field<'_>, report: &mut Report) -> Filters {
    let mut result = Filters::default();
    for (index, filter) in filters.iter().enumerate() {
        let field = rule.entry("filters", index);
        let outcome = step(filter, &field, report).and_then(|step| result.take(step, filter, &field, report));
        result.is_broken |= outcome.is_err();
    }
    let is_for_backends = |filter: &api::Filter| {
        matches!(filter.r#type, FilterType::UrlRewrite | FilterType::RequestQueryModifier | FilterType::RequestMirror)
    };
    if result.answer.is_some()
        && let Some(index) = filters.iter().position(is_for_backends)
    {
        let what = format!("{} goes with backends, not with an answer of the gateway's own", filters[index].r#type);
        report.add(INVALID, &rule.entry("filters", index), what);
        result.is_broken = true;
    }
    result.changes.sort_by_key(Filter::stage);
    result
}

impl Filters {
    fn take(&mut self, step: Step, filter: &api::Filter, field: &Field<'_>, report: &mut Report) -> Outcome<()> {
        match step {
            Step::Change(change) if self.changes.iter().any(|other| other.stage() == change.stage()) => {
                broken(report, field, format!("{} cannot be repeated in a rule", filter.r#type))
            }
            Step::Answer(_) if self.answer.is_some() => {
                broken(report, field, "a rule answers only once: RequestRedirect or DirectResponse")
            }
            Step::Change(change) => {
                self.changes.push(change);
                Ok(())
            }
            Step::Answer(answer) => {
                self.answer = Some(answer);
                Ok(())
            }
            Step::Elsewhere => Ok(()),
        }
    }
}

/// Reads the filters of a backend, in their order.
pub(super) fn backend_filters(
    filters: &[api::BackendFilter],
    backend: &Field<'_>,
    report: &mut Report,
) -> Outcome<Vec<Filter>> {
    let mut result: Vec<Filter> = every(filters.iter().enumerate().map(|(index, filter)| {
        let field = backend.entry("filters", index);
        match filter.r#type {
            BackendFilterType::RequestHeaderModifier => {
                request_headers(filter.request_header_modifier.as_ref(), &field, report)
            }
            BackendFilterType::ResponseHeaderModifier => {
                response_headers(filter.response_header_modifier.as_ref(), &field, report)
            }
        }
    }))?;
    result.sort_by_key(Filter::stage);
    if result.windows(2).any(|pair| pair[0].stage() == pair[1].stage()) {
        return broken(report, &backend.member("filters"), "a type cannot be repeated");
    }
    Ok(result)
}

fn request_headers(modifier: Option<&api::HeaderModifier>, field: &Field<'_>, report: &mut Report) -> Outcome<Filter> {
    let field = field.member("requestHeaderModifier");
    header_edit(given(modifier, &field, report)?, &field, report).map(Filter::RequestHeaders)
}

fn response_headers(modifier: Option<&api::HeaderModifier>, field: &Field<'_>, report: &mut Report) -> Outcome<Filter> {
    let field = field.member("responseHeaderModifier");
    header_edit(given(modifier, &field, report)?, &field, report).map(Filter::ResponseHeaders)
}

fn step(filter: &api::Filter, field: &Field<'_>, report: &mut Report) -> Outcome<Step> {
    Ok(match filter.r#type {
        FilterType::RequestHeaderModifier => {
            Step::Change(request_headers(filter.request_header_modifier.as_ref(), field, report)?)
        }
        FilterType::ResponseHeaderModifier => {
            Step::Change(response_headers(filter.response_header_modifier.as_ref(), field, report)?)
        }
        FilterType::RequestQueryModifier => {
            let field = field.member("requestQueryModifier");
            let modifier = given(filter.request_query_modifier.as_ref(), &field, report)?;
            Step::Change(Filter::RequestQuery(query::query_edit(modifier)))
        }
        FilterType::Cors => {
            let field = field.member("cors");
            let cors = given(filter.cors.as_ref(), &field, report)?;
            Step::Change(Filter::Cors(Box::new(cors::cors(cors, &field, report)?)))
        }
        FilterType::RequestMirror => Step::Elsewhere,
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

pub(super) fn broken<T>(report: &mut Report, field: &Field<'_>, what: impl fmt::Display) -> Outcome<T> {
    report.add(INVALID, field, what);
    Err(Broken)
}

pub(super) fn given<'a, T>(member: Option<&'a T>, field: &Field<'_>, report: &mut Report) -> Outcome<&'a T> {
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
pub(super) fn every<T>(outcomes: impl Iterator<Item = Outcome<T>>) -> Outcome<Vec<T>> {
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

fn path_rewrite(modifier: &PathModifier, field: &Field<'_>, report: &mut Report) -> Outcome<PathRewrite> {
    match modifier.r#type {
        PathModifierType::ReplaceFullPath => {
            let field = field.member("replaceFullPath");
            let path = replacement(given(modifier.replace_full_path.as_ref(), &field, report)?, &field, report)?;
            Ok(PathRewrite::Full(if path.is_empty() { "/".into() } else { path }))
        }
        PathModifierType::ReplacePrefixMatch => {
            let field = field.member("replacePrefixMatch");
            let path = replacement(given(modifier.replace_prefix_match.as_ref(), &field, report)?, &field, report)?;
            Ok(PathRewrite::Prefix(path))
        }
        PathModifierType::ReplaceRegexMatch => {
            let field = field.member("replaceRegexMatch");
            let replacement = given(modifier.replace_regex_match.as_ref(), &field, report)?;
            regex_rewrite(replacement, &field, report).map(|rewrite| PathRewrite::Regex(Box::new(rewrite)))
        }
    }
}

/// A path in normal form, or nothing. What clients and backends may take for a host is refused.
fn replacement(value: &str, field: &Field<'_>, report: &mut Report) -> Outcome<Arc<str>> {
    match path::normal(value) {
        _ if value.is_empty() => Ok(value.into()),
        Ok(path) if path.starts_with("//") => broken(report, field, format!("{value:?} starts with //")),
        Ok(path) => Ok(path.into()),
        Err(what) => broken(report, field, what),
    }
}

fn regex_rewrite(replacement: &api::RegexReplacement, field: &Field<'_>, report: &mut Report) -> Outcome<RegexRewrite> {
    let substitution = &*replacement.substitution;
    if !substitution.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#')) {
        let what = format!("{substitution:?} is not visible ASCII without ? and #");
        return broken(report, &field.member("substitution"), what);
    }
    RegexRewrite::new(&replacement.pattern, substitution).or_else(|error| match error {
        InvalidRewrite::Pattern(error) => broken(report, &field.member("pattern"), regex_error(&error)),
        error => broken(report, &field.member("substitution"), error),
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
