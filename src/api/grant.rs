//! Gateway API's `ReferenceGrant`, as far as it is read: leave to name an object of another namespace.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who may refer to what in the grant's own namespace.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1beta1",
    kind = "ReferenceGrant",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct ReferenceGrantSpec {
    /// Who may refer.
    #[serde(default)]
    pub from: Vec<ReferenceGrantFrom>,
    /// What may be referred to.
    #[serde(default)]
    pub to: Vec<ReferenceGrantTo>,
}

/// A kind of object in a namespace that may refer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ReferenceGrantFrom {
    /// The API group; empty is the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
}

/// A kind of object that may be referred to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ReferenceGrantTo {
    /// The API group; empty is the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The object's name; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_what_gateway_api_defines() {
        let grant: ReferenceGrant = serde_json::from_value(serde_json::json!({
            "apiVersion": "gateway.networking.k8s.io/v1beta1",
            "kind": "ReferenceGrant",
            "metadata": {"name": "a", "namespace": "b"},
            "spec": {
                "from": [{"group": "lockgate.dev", "kind": "Route", "namespace": "c"}],
                "to": [{"group": "", "kind": "Service"}, {"group": "", "kind": "Service", "name": "d"}],
            },
        }))
        .unwrap();
        assert_eq!(grant.spec.from[0].namespace, "c");
        assert_eq!(grant.spec.to.iter().map(|to| to.name.as_deref()).collect::<Vec<_>>(), [None, Some("d")]);
    }
}
