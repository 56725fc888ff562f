use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::source::kube::mock;

#[derive(Default)]
struct Counts(Mutex<Vec<usize>>);

impl Hooks for Counts {
    fn fields_missing(&self, count: usize) {
        self.0.lock().push(count);
    }
}

/// What an API server publishes of definitions from which these fields are gone.
fn published(without: &[&str]) -> Value {
    let mut schemas = serde_json::Map::new();
    for crd in api::crds().unwrap() {
        let versions = serde_json::to_value(&crd.spec.versions).unwrap();
        let mut schema = versions[0]["schema"]["openAPIV3Schema"].clone();
        let kind = &crd.spec.names.kind;
        schema["x-kubernetes-group-version-kind"] =
            json!([{"group": "lockgate.dev", "version": "v1alpha1", "kind": kind}]);
        for path in without.iter().filter_map(|path| path.strip_prefix(&format!("{kind} "))) {
            let (parent, name) = path.rsplit_once('.').unwrap();
            let pointer =
                format!("/properties/{}/properties", parent.replace("[]", "/items").replace('.', "/properties/"));
            let fields = schema.pointer_mut(&pointer).unwrap().as_object_mut().unwrap();
            assert!(fields.remove(name).is_some(), "{path}");
        }
        schemas.insert(format!("dev.lockgate.v1alpha1.{kind}"), schema);
    }
    schemas.insert("io.k8s.meta".to_owned(), json!({"type": "object"}));
    json!({"components": {"schemas": schemas}})
}

#[tokio::test(start_paused = true)]
async fn fields_that_an_older_definition_lacks_are_named_by_their_place() {
    let (client, mut server) = mock::pair();
    let gone = ["Route spec.rules[].limits", "Route spec.rules[].backends[].tls.protocol", "Selector status.addresses"];
    let looked = tokio::spawn(async move { look(&client).await });
    let call = server.next().await;
    assert_eq!(call.path, "/openapi/v3/apis/lockgate.dev/v1alpha1");
    call.json(200, &published(&gone));
    let mut missing = looked.await.unwrap().unwrap();
    missing.sort();
    let mut wanted = gone.map(str::to_owned);
    wanted.sort();
    assert_eq!(missing, wanted);
}

#[tokio::test(start_paused = true)]
async fn it_is_looked_again_until_nothing_is_missing_and_after_that() {
    let (client, mut server) = mock::pair();
    let counts = Arc::new(Counts::default());
    tokio::spawn(watch(client, Arc::clone(&counts) as _));
    server.next().await.fail(403, "Forbidden", 0);
    server.next().await.json(200, &published(&["Route spec.suspend"]));
    server.next().await.json(200, &published(&[]));
    server.next().await.json(200, &published(&[]));
    server.next().await;
    assert_eq!(*counts.0.lock(), [1, 0, 0]);
}
