//! The filters of a rule and of a backend, in the one order that translation has given them.

use std::borrow::Cow;

use http::Uri;
use http::header::{self, HeaderMap, HeaderValue};

use super::error::Failure;
use super::target::{self, RequestTarget};
use super::{headers, query};
use crate::ir::{Filter, Rule};
use crate::telemetry::metrics::Refusal;

/// The target that a backend gets; `None` where it is the client's own.
pub(super) fn rewritten(rule: &Rule, request: &RequestTarget<'_>, own: &Uri) -> Result<Option<Uri>, Failure> {
    let mut path = Cow::Borrowed(request.path);
    let mut query = request.query.map(Cow::Borrowed);
    let mut query_changed = false;
    for filter in &rule.filters {
        match filter {
            Filter::Rewrite { path: Some(rewrite), .. } => {
                path = target::rewrite_path(request.path, request.matched, rewrite, request.max_path)
                    .map_err(|error| Failure::because(Refusal::BadPath, error))?;
            }
            Filter::RequestQuery(edit) => {
                if let Some(edited) = query::edit(request.query, edit) {
                    query = edited.map(Cow::Owned);
                    query_changed = true;
                }
            }
            _ => {}
        }
    }
    if !query_changed && *path == *own.path() && own.authority().is_none() {
        return Ok(None);
    }
    let uri = target::origin_form(&path, query.as_deref());
    uri.map(Some).map_err(|error| Failure::because(Refusal::BadRequest, error))
}

/// Changes the head of a request.
pub(super) fn edit_request(headers: &mut HeaderMap, filters: &[Filter]) {
    for filter in filters {
        match filter {
            Filter::RequestHeaders(edit) => headers::edit(headers, edit),
            Filter::Rewrite { hostname: Some(hostname), .. } => {
                if let Ok(value) = HeaderValue::from_str(hostname) {
                    headers.insert(header::HOST, value);
                }
            }
            _ => {}
        }
    }
}

/// Changes the head of an answer.
pub(super) fn edit_answer(headers: &mut HeaderMap, filters: &[Filter]) {
    for filter in filters {
        if let Filter::ResponseHeaders(edit) = filter {
            headers::edit(headers, edit);
        }
    }
}
