//! Objects that decode or fail to one by one, so that an undecodable one never fails the list it stands in.
//!
//! kube's `DeserializeGuard` does the same, but does not say at which field decoding failed, forgets the status of what
//! did not decode, and copies every object once more.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::ir::ObjectName;

/// An object as the API server sent it, without what nobody reads.
#[derive(Clone, Debug)]
pub(super) struct Guard<K> {
    /// The object without its status, or why it does not decode.
    pub(super) object: Result<K, Box<Invalid>>,
    /// Its status.
    pub(super) status: Option<Value>,
}

/// An object that does not decode.
#[derive(Clone, Debug)]
pub(super) struct Invalid {
    /// What could be read of its metadata.
    pub(super) metadata: ObjectMeta,
    /// The field, and what is wrong with it.
    pub(super) error: String,
    /// The Selectors that it names, if it is a Route.
    pub(super) parents: Vec<ObjectName>,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        let status = fields.remove("status");
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.remove("managedFields");
            metadata.remove("annotations");
        }
        let value = Value::Object(fields);
        let object = match K::deserialize(&value) {
            Ok(object) => Ok(object),
            Err(_) => match serde_path_to_error::deserialize::<_, K>(&value) {
                Ok(object) => Ok(object),
                Err(error) => {
                    let metadata = identity(&value).ok_or_else(|| D::Error::custom("an object without a name"))?;
                    let parents = parents(&value, metadata.namespace.as_deref().unwrap_or_default());
                    Err(Box::new(Invalid { metadata, error: describe(&error), parents }))
                }
            },
        };
        Ok(Self { object, status })
    }
}

fn describe(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    match error.path().to_string().as_str() {
        "." | "" => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    }
}

/// What is needed to speak of an object, whatever else in its metadata does not decode.
fn identity(object: &Value) -> Option<ObjectMeta> {
    let metadata = object.get("metadata")?;
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(ObjectMeta {
        name: Some(text("name")?),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        generation: metadata.get("generation").and_then(Value::as_i64),
        creation_timestamp: text("creationTimestamp").and_then(|time| time.parse().ok()).map(Time),
        ..ObjectMeta::default()
    })
}

/// What `spec.selectors` names, as far as it can be read.
fn parents(object: &Value, own_namespace: &str) -> Vec<ObjectName> {
    let selectors = object.pointer("/spec/selectors").and_then(Value::as_array);
    let parent = |selector: &Value| {
        let namespace = selector.get("namespace").and_then(Value::as_str).unwrap_or(own_namespace);
        Some(ObjectName::new(namespace, selector.get("name")?.as_str()?))
    };
    selectors.into_iter().flatten().filter_map(parent).collect()
}

impl<K: Resource> Resource for Guard<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.object {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.object {
            Ok(object) => object.meta_mut(),
            Err(invalid) => &mut invalid.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::Route;

    fn guard(spec: &Value) -> Guard<Route> {
        let object = json!({
            "apiVersion": "lockgate.dev/v1alpha1",
            "kind": "Route",
            "metadata": {
                "name": "r", "namespace": "n", "uid": "u", "generation": 3, "resourceVersion": "7",
                "creationTimestamp": "2026-01-02T03:04:05Z",
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
                "managedFields": [{"manager": "kubectl"}],
            },
            "spec": spec,
            "status": {"selectors": "not a list"},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_good_object_decodes_without_its_bulk() {
        let guard = guard(&json!({"selectors": [{"name": "s"}], "rules": []}));
        let route = guard.object.unwrap();
        assert_eq!(route.spec.selectors[0].name, "s");
        assert_eq!(route.metadata.managed_fields, None);
        assert_eq!(route.metadata.annotations, None);
        assert_eq!(guard.status, Some(json!({"selectors": "not a list"})));
    }

    #[test]
    fn a_bad_object_keeps_its_identity_and_names_the_field() {
        let guard = guard(&json!({"selectors": [{"name": "s"}], "rules": [{"backends": [{"service": 7}]}]}));
        let invalid = guard.object.unwrap_err();
        assert!(invalid.error.starts_with("spec.rules[0].backends[0].service: invalid type"), "{}", invalid.error);
        assert_eq!(invalid.metadata.generation, Some(3));
        assert_eq!(invalid.metadata.resource_version.as_deref(), Some("7"));
        assert!(invalid.metadata.creation_timestamp.is_some());
        assert_eq!(invalid.parents, [ObjectName::new("n", "s")]);
        assert!(guard.status.is_some());
    }

    #[test]
    fn one_bad_object_does_not_fail_its_list() {
        let list: Vec<Guard<Route>> = serde_json::from_value(json!([
            {"metadata": {"name": "bad"}, "spec": 1},
            {"metadata": {"name": "worse", "labels": 3}, "spec": {"selectors": [], "rules": []}},
            {"metadata": {"name": "good"}, "spec": {"selectors": [], "rules": []}},
        ]))
        .unwrap();
        assert_eq!(list.iter().map(|guard| guard.object.is_ok()).collect::<Vec<_>>(), [false, false, true]);
    }
}
