//! All objects, listed once.

use kube::Client;
use kube::api::ListParams;

use super::kinds::Observed;
use super::{Failure, PAGE, with_causes};
use crate::api::{ReferenceGrant, Route, Selector};
use crate::source::index::{Kind, Object};
use crate::source::kube::label;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// Why the objects of a kind cannot be listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot list {kind}{scope}: {failure} ({detail})")]
pub struct ListError {
    kind: &'static str,
    /// ` in namespace …`, or nothing.
    scope: String,
    failure: Failure,
    detail: String,
}

/// Lists every kind that makes a table, in these namespaces; all for none.
pub async fn list(client: Client, namespaces: &[String]) -> Result<Vec<Object>, ListError> {
    let scopes = if namespaces.is_empty() { vec![None] } else { namespaces.iter().map(|n| Some(n.as_str())).collect() };
    let mut objects = Vec::new();
    for scope in scopes {
        of_kind::<Route>(&client, scope, &mut objects).await?;
        of_kind::<Selector>(&client, scope, &mut objects).await?;
        of_kind::<Service>(&client, scope, &mut objects).await?;
        of_kind::<EndpointSlice>(&client, scope, &mut objects).await?;
        of_kind::<Namespace>(&client, scope, &mut objects).await?;
        of_kind::<ReferenceGrant>(&client, scope, &mut objects).await?;
    }
    Ok(objects)
}

async fn of_kind<K: Observed>(
    client: &Client,
    scope: Option<&str>,
    objects: &mut Vec<Object>,
) -> Result<(), ListError> {
    let api = K::api(client, scope);
    let config = K::config(scope);
    let mut page = ListParams { field_selector: config.field_selector, limit: Some(PAGE), ..ListParams::default() };
    loop {
        let list = match api.list(&page).await {
            Ok(list) => list,
            Err(error) => {
                let failure = Failure::of(&error);
                // Neither need be there: the kind is not installed, or a Role cannot permit it.
                let may_lack = match K::KIND {
                    Kind::ReferenceGrant => failure == Failure::Absent,
                    Kind::Namespace => failure == Failure::Denied && scope.is_some(),
                    _ => false,
                };
                if may_lack {
                    objects.extend(K::stand_in(scope));
                    return Ok(());
                }
                let scope = scope.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
                return Err(ListError { kind: label(K::KIND), scope, failure, detail: with_causes(&error) });
            }
        };
        // One that does not decode and has no status tells nothing: it is left out, as by a watch.
        objects.extend(list.items.into_iter().filter_map(|guard| K::reduce(guard).content.ok()));
        match list.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => page.continue_token = Some(more),
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::source::kube::mock;

    fn named(name: &str) -> serde_json::Value {
        json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"selectors": [], "rules": []}})
    }

    #[tokio::test]
    async fn every_kind_is_listed_page_by_page() {
        let (client, mut server) = mock::pair();
        let listed = tokio::spawn(async move { list(client, &["n".to_owned()]).await });
        let routes = server.list().await;
        assert_eq!(routes.path, "/apis/lockgate.dev/v1alpha1/namespaces/n/routes");
        routes.page("1", "more", &[named("a")]);
        let rest = server.list().await;
        assert!(rest.query.contains("continue=more"), "{}", rest.query);
        rest.items("1", &[named("b")]);
        for _ in ["selectors", "services", "endpointslices"] {
            server.list().await.items("1", &[]);
        }
        server.list().await.fail(403, "Forbidden", 0);
        server.list().await.fail(404, "NotFound", 0);
        let objects = listed.await.unwrap().unwrap();
        let names: Vec<String> = objects.iter().map(|o| format!("{:?} {}", o.kind(), o.name)).collect();
        assert_eq!(names, ["Route n/a", "Route n/b", "Namespace /n"]);
    }

    #[tokio::test]
    async fn what_cannot_be_listed_is_named() {
        let (client, mut server) = mock::pair();
        let listed = tokio::spawn(async move { list(client, &[]).await });
        server.list().await.fail(403, "Forbidden", 0);
        let error = listed.await.unwrap().unwrap_err().to_string();
        assert!(error.starts_with("cannot list Route: the API server does not permit it ("), "{error}");
    }
}
