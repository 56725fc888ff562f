//! What a `ServiceAccount` asked of the API server, from its audit log, beside what it was granted.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cluster::Cluster;

/// One right, of the role and in the namespace that it comes from; no namespace is the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    role: String,
    namespace: String,
    group: String,
    resource: String,
    verb: String,
}

/// What was asked.
#[derive(Debug, Default)]
pub struct Asked {
    /// The rights that let requests pass.
    pub used: BTreeSet<Right>,
    /// Requests that were denied, or let pass by something that is no role.
    pub denied: Vec<String>,
}

/// Reads what an account asked so far.
pub fn asked(namespace: &str, account: &str) -> Result<Asked> {
    let folder = std::env::var_os("CLUSTER_DIR").context("CLUSTER_DIR is not set")?;
    let log = std::fs::read_to_string(Path::new(&folder).join("audit.log")).context("the API server's audit log")?;
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let mut asked = Asked::default();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line)?;
        if event["user"]["username"] != user.as_str() {
            continue;
        }
        match right(&event) {
            // What every account may read of the API itself.
            Some(_) if event["objectRef"].is_null() => {}
            Some(right) => drop(asked.used.insert(right)),
            None => asked.denied.push(line.to_owned()),
        }
    }
    Ok(asked)
}

/// The right that let a request pass; `RBAC: allowed by RoleBinding "b/ns" of Role "r" to …` in the API server's words.
fn right(event: &Value) -> Option<Right> {
    let annotation = |name: &str| event["annotations"][format!("authorization.k8s.io/{name}")].as_str();
    if annotation("decision") != Some("allow") {
        return None;
    }
    let mut quoted = annotation("reason")?.strip_prefix("RBAC: allowed by ")?.split('"').skip(1).step_by(2);
    let (binding, role) = (quoted.next()?, quoted.next()?);
    let object = &event["objectRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let subresource = object["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
    Some(Right {
        role: role.to_owned(),
        namespace: binding.split_once('/').map(|(_, namespace)| namespace.to_owned()).unwrap_or_default(),
        group: text(&object["apiGroup"]),
        resource: text(&object["resource"]) + &subresource,
        verb: text(&event["verb"]),
    })
}

/// The rights that a `ServiceAccount` has by roles of its own.
pub async fn granted(cluster: &Cluster, namespace: &str, account: &str) -> Result<BTreeSet<Right>> {
    let list = async |kind: &str| -> Result<Vec<Value>> {
        let mut list = cluster.get(&["-A", kind]).await?;
        Ok(serde_json::from_value(list["items"].take())?)
    };
    let mut bindings = list("rolebindings").await?;
    bindings.extend(list("clusterrolebindings").await?);
    let mut roles = list("roles").await?;
    roles.extend(list("clusterroles").await?);
    let is_subject = |binding: &&Value| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        subjects
            .into_iter()
            .any(|s| s["kind"] == "ServiceAccount" && s["name"] == account && s["namespace"] == namespace)
    };
    let mut rights = BTreeSet::new();
    for binding in bindings.iter().filter(is_subject) {
        let place = &binding["metadata"]["namespace"];
        let of = &binding["roleRef"];
        let is_role = |role: &&Value| {
            let here = of["kind"] == "ClusterRole" || role["metadata"]["namespace"] == *place;
            role["kind"] == of["kind"] && role["metadata"]["name"] == of["name"] && here
        };
        let role = roles.iter().find(is_role).with_context(|| format!("no role of {binding}"))?;
        for rule in role["rules"].as_array().into_iter().flatten() {
            expand(rule, &of["name"], place, &mut rights);
        }
    }
    Ok(rights)
}

fn expand(allowed: &Value, role: &Value, namespace: &Value, all: &mut BTreeSet<Right>) {
    let texts = |field: &str| allowed[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    let owned = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            for verb in texts("verbs") {
                let (group, resource, verb) = (group.to_owned(), resource.to_owned(), verb.to_owned());
                all.insert(Right { role: owned(role), namespace: owned(namespace), group, resource, verb });
            }
        }
    }
}
