//! A structural schema of Kubernetes, applied to a JSON value: what the API server checks, for files. It also refuses
//! what the API server drops: fields that the schema does not know.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use regex::Regex;
use serde_json::Value;

use super::validate::Problem;

mod check;
mod mend;

/// Why a custom resource definition has no schema to check with.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The derived definition is none that Kubernetes knows.
    #[error("the derived definition does not decode")]
    Derived(#[source] serde_json::Error),
    /// No version holds a schema.
    #[error("the definition of {0} has no schema")]
    Missing(String),
    /// A pattern is not a regular expression.
    #[error("the schema's pattern {0:?} is not a regular expression")]
    Pattern(String, #[source] Box<regex::Error>),
}

/// A schema ready to check values with.
#[derive(Debug)]
pub struct Schema {
    root: Node,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    /// `enum`; anything when empty.
    values: Vec<Value>,
}

#[derive(Debug)]
enum Kind {
    /// `x-kubernetes-preserve-unknown-fields`, or no type at all.
    Any,
    Boolean,
    Integer(Range),
    Text(Text),
    IntOrText(Range, Text),
    List {
        items: Box<Node>,
        min: usize,
        max: usize,
        keys: Keys,
    },
    Map {
        values: Box<Node>,
        max: usize,
    },
    Object {
        fields: BTreeMap<String, Node>,
        required: Vec<String>,
    },
}

#[derive(Debug)]
struct Range {
    min: f64,
    max: f64,
}

#[derive(Debug)]
struct Text {
    min: usize,
    max: usize,
    pattern: Option<Regex>,
    is_time: bool,
}

/// What may not occur twice in a list.
#[derive(Debug)]
enum Keys {
    Free,
    Whole,
    Fields(Vec<String>),
}

impl Schema {
    /// The schema of a definition's first version, without its status.
    pub fn of(crd: &CustomResourceDefinition) -> Result<Self, SchemaError> {
        let missing = || SchemaError::Missing(crd.spec.names.kind.clone());
        let version = crd.spec.versions.first().ok_or_else(missing)?;
        let props =
            version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).ok_or_else(missing)?;
        let mut root = Node::compile(props)?;
        if let Kind::Object { fields, .. } = &mut root.kind {
            for name in ["apiVersion", "kind", "metadata", "status"] {
                fields.insert(name.to_owned(), Node { kind: Kind::Any, values: Vec::new() });
            }
        }
        Ok(Self { root })
    }

    /// Everything that is wrong with a whole object, unknown fields included. `metadata` and `status` are not looked at.
    pub fn check(&self, object: &Value) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.root.check(object, "", &mut problems);
        problems
    }
}

impl Node {
    fn compile(props: &JSONSchemaProps) -> Result<Self, SchemaError> {
        Ok(Self { kind: kind(props)?, values: props.enum_.iter().flatten().map(|value| value.0.clone()).collect() })
    }
}

fn kind(props: &JSONSchemaProps) -> Result<Kind, SchemaError> {
    if props.x_kubernetes_int_or_string == Some(true) {
        return Ok(Kind::IntOrText(range(props), text(props)?));
    }
    if props.x_kubernetes_preserve_unknown_fields == Some(true) {
        return Ok(Kind::Any);
    }
    Ok(match props.type_.as_deref() {
        Some("boolean") => Kind::Boolean,
        Some("integer") => Kind::Integer(range(props)),
        Some("string") => Kind::Text(text(props)?),
        Some("array") => list(props)?,
        Some("object") => object(props)?,
        _ => Kind::Any,
    })
}

fn size(limit: Option<i64>, otherwise: usize) -> usize {
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(otherwise)
}

fn range(props: &JSONSchemaProps) -> Range {
    let (min, max) = match props.format.as_deref() {
        Some("int32") => (f64::from(i32::MIN), f64::from(i32::MAX)),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    Range { min: props.minimum.unwrap_or(min), max: props.maximum.unwrap_or(max) }
}

fn text(props: &JSONSchemaProps) -> Result<Text, SchemaError> {
    let compile =
        |pattern: &String| Regex::new(pattern).map_err(|error| SchemaError::Pattern(pattern.clone(), Box::new(error)));
    Ok(Text {
        min: size(props.min_length, 0),
        max: size(props.max_length, usize::MAX),
        pattern: props.pattern.as_ref().map(compile).transpose()?,
        is_time: props.format.as_deref() == Some("date-time"),
    })
}

fn list(props: &JSONSchemaProps) -> Result<Kind, SchemaError> {
    let items = match &props.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Node::compile(items)?,
        _ => Node { kind: Kind::Any, values: Vec::new() },
    };
    let keys = match props.x_kubernetes_list_type.as_deref() {
        Some("set") => Keys::Whole,
        Some("map") => Keys::Fields(props.x_kubernetes_list_map_keys.clone().unwrap_or_default()),
        _ => Keys::Free,
    };
    Ok(Kind::List {
        items: Box::new(items),
        min: size(props.min_items, 0),
        max: size(props.max_items, usize::MAX),
        keys,
    })
}

fn object(props: &JSONSchemaProps) -> Result<Kind, SchemaError> {
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &props.additional_properties {
        return Ok(Kind::Map { values: Box::new(Node::compile(values)?), max: size(props.max_properties, usize::MAX) });
    }
    let fields = props.properties.iter().flatten();
    let fields: Result<_, SchemaError> =
        fields.map(|(name, field)| Ok((name.clone(), Node::compile(field)?))).collect();
    Ok(Kind::Object { fields: fields?, required: props.required.clone().unwrap_or_default() })
}
