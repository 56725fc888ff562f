//! Whether the cluster's definitions have the fields that this gateway reads.
//!
//! An older definition makes the API server drop what it does not know, without a word unless somebody asks for strict
//! validation: a limit that a Route sets would read as no limit. What the API server publishes of its schemas every
//! account may read, so that this needs no right.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use tracing::{debug, info, warn};

use super::Hooks;
use crate::api;

/// How often it is looked: definitions may be replaced while the gateway runs.
const INTERVAL: Duration = Duration::from_mins(10);
/// How soon after a failure.
const RETRY: Duration = Duration::from_secs(30);
/// How long one look may take.
const REQUEST: Duration = Duration::from_secs(30);
/// How many fields are named in a line.
const NAMED: usize = 12;

/// Looks again and again, and tells in the log and to `hooks` what is missing. Never ends.
pub async fn watch(client: Client, hooks: Arc<dyn Hooks>) {
    let mut known = Vec::new();
    loop {
        let pause = match tokio::time::timeout(REQUEST, look(&client)).await {
            Ok(Ok(missing)) => {
                hooks.fields_missing(missing.len());
                if missing != known {
                    tell(&missing);
                    known = missing;
                }
                INTERVAL
            }
            Ok(Err(error)) => {
                debug!(%error, "the schemas of the cluster's definitions cannot be read");
                RETRY
            }
            Err(_) => RETRY,
        };
        tokio::time::sleep(pause).await;
    }
}

fn tell(missing: &[String]) {
    if missing.is_empty() {
        info!("the cluster's definitions of Selector and Route have every field again");
        return;
    }
    let more = missing.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    warn!(
        "the cluster's definitions of Selector and Route are older than this gateway: the API server drops {}{more} from \
         objects, as if they were not set; apply the definitions of this version (`lockgate crds`, crds/)",
        missing[..missing.len().min(NAMED)].join(", ")
    );
}

async fn look(client: &Client) -> anyhow::Result<Vec<String>> {
    let path = format!("/openapi/v3/apis/{}/{}", api::GROUP, api::VERSION);
    let published: Value = client.request(http::Request::get(path).body(Vec::new())?).await?;
    let mut missing = Vec::new();
    for crd in api::crds()? {
        let kind = crd.spec.names.kind.as_str();
        let own = serde_json::to_value(&crd.spec.versions)?;
        let schemas = published["components"]["schemas"].as_object().into_iter().flatten();
        let is_kind = |schema: &Value| {
            let names = schema["x-kubernetes-group-version-kind"].as_array();
            names.is_some_and(|names| names.iter().any(|name| name["kind"] == kind && name["group"] == api::GROUP))
        };
        let Some((_, theirs)) = schemas.into_iter().find(|(_, schema)| is_kind(schema)) else {
            anyhow::bail!("no schema of {kind} is published");
        };
        let own = &own[0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            compare(&own[part], &theirs["properties"][part], &format!("{kind} {part}"), &mut missing);
        }
    }
    Ok(missing)
}

/// The fields of `own` that `theirs` lacks, without what is inside of them.
fn compare(own: &Value, theirs: &Value, path: &str, missing: &mut Vec<String>) {
    for (name, field) in own["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match theirs["properties"].get(name) {
            Some(known) => compare(field, known, &path, missing),
            None => missing.push(path),
        }
    }
    for (inner, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if own[inner].is_object() && theirs[inner].is_object() {
            compare(&own[inner], &theirs[inner], &format!("{path}{suffix}"), missing);
        }
    }
}

#[cfg(test)]
mod tests;
