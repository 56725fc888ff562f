//! What the operator port tells of the table that is served.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::watch;

use crate::admin::{Ask, Page, Shown};
use crate::explain::live::{Live, wants_text};
use crate::explain::{Gateway, Question};
use crate::ir::Fragment;
use crate::proxy::Shared;
use crate::upstream::Clusters;

/// `/explain` and `/routes`.
pub(super) fn pages(
    shared: &Arc<Shared>,
    clusters: &Arc<Clusters>,
    served: watch::Receiver<Option<Arc<Fragment>>>,
) -> BTreeMap<&'static str, Page> {
    let gateway = Gateway::from(&shared.settings);
    let (published, lifecycle) = (Arc::clone(&shared.published), Arc::clone(&shared.lifecycle));
    let live = Arc::new(Live { gateway, published, clusters: Arc::clone(clusters), lifecycle });
    let routes = Arc::clone(&live);
    let explain = move |ask: &Ask| {
        let question = question(ask)?;
        let fragment = served.borrow().clone();
        let answer = live.answer(&question, fragment.as_deref())?;
        show(ask, &answer, || answer.to_text())
    };
    let routes = move |ask: &Ask| {
        let page = routes.routes(&ask.query)?;
        show(ask, &page, || page.to_text())
    };
    BTreeMap::from([
        ("explain", Page { takes_body: true, handler: Arc::new(explain) }),
        ("routes", Page { takes_body: false, handler: Arc::new(routes) }),
    ])
}

fn question(ask: &Ask) -> Result<Question, String> {
    match &ask.body {
        Some(body) => serde_json::from_slice(body).map_err(|error| format!("the body is no question: {error}")),
        None => Question::from_query(&ask.query).map_err(|error| error.to_string()),
    }
}

fn show(ask: &Ask, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<Shown, String> {
    if wants_text(&ask.query, ask.accepts_text)? {
        return Ok(Shown::Text(text()));
    }
    serde_json::to_value(value).map(Shown::Json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
