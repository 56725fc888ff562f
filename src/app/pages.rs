//! What the operator port tells of the table that is served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use tokio::sync::watch;

use crate::admin::{Ask, Handler, Page, Shown};
use crate::explain::live::{Live, wants_text};
use crate::explain::{Gateway, Question};
use crate::ir::{Fragment, Served};
use crate::proxy::Shared;
use crate::upstream::Clusters;

/// `/clusters`, `/explain`, `/objects`, `/routes` and `/state`.
pub(super) fn pages(
    shared: &Arc<Shared>,
    clusters: &Arc<Clusters>,
    served: watch::Receiver<Option<Arc<Fragment>>>,
    examined: watch::Receiver<Option<Arc<Served>>>,
) -> BTreeMap<&'static str, Page> {
    let live = Arc::new(Live {
        gateway: Gateway::from(&shared.settings),
        published: Arc::clone(&shared.published),
        clusters: Arc::clone(clusters),
        lifecycle: Arc::clone(&shared.lifecycle),
        metrics: Arc::clone(&shared.metrics),
        served,
        examined,
        class_name: shared.settings.class_name.clone(),
        started: Instant::now(),
    });
    let page = |takes_body, answer: fn(&Live, &Ask) -> Result<Shown, String>| {
        let live = Arc::clone(&live);
        let handler: Handler = Arc::new(move |ask: &Ask| answer(&live, ask));
        Page { takes_body, handler }
    };
    BTreeMap::from([
        ("clusters", page(false, |live, ask| json(&live.clusters(&ask.query)?))),
        ("explain", page(true, explain)),
        ("objects", page(false, |live, ask| json(&live.objects(&ask.query)?))),
        ("routes", page(false, routes)),
        ("state", page(false, |live, _| json(&live.state()))),
    ])
}

fn explain(live: &Live, ask: &Ask) -> Result<Shown, String> {
    let answer = live.answer(&question(ask)?)?;
    show(ask, &answer, || answer.to_text())
}

fn routes(live: &Live, ask: &Ask) -> Result<Shown, String> {
    let page = live.routes(&ask.query)?;
    show(ask, &page, || page.to_text())
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
    json(value)
}

fn json(value: &impl Serialize) -> Result<Shown, String> {
    serde_json::to_value(value).map(Shown::Json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
