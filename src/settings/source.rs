//! Where settings come from, and which place wins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::Settings;

/// Why settings cannot be used. Each names the setting and where its value came from.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("settings file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no YAML mapping.
    #[error("settings file {path}: {reason}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why, with the line.
        reason: String,
    },
    /// A value is of the wrong form.
    #[error("setting {field}{place}: {reason}")]
    Value {
        /// The field, such as `drain.delay`.
        field: String,
        /// ` (from …)`, or empty.
        place: String,
        /// Why.
        reason: String,
    },
}

/// One setting that has no settings inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its place, such as `["drain", "maxDelay"]`.
    pub path: Vec<String>,
    /// What it is.
    pub description: String,
    /// Whether it is a text, so that a value needs no quotes.
    text: bool,
    /// Whether it is a list: a value that is no YAML list is one of its items, or several with commas.
    list: bool,
    /// Whether the items of the list are texts.
    texts: bool,
}

/// Values that came with flags or variables, by [`Leaf::field`], each with where it came from.
pub type Overrides = BTreeMap<String, (String, String)>;

impl Leaf {
    /// Its name in the file: `drain.maxDelay`.
    pub fn field(&self) -> String {
        self.path.join(".")
    }

    /// Its flag without dashes: `drain-max-delay`.
    pub fn flag(&self) -> String {
        self.words("-")
    }

    /// Its variable: `LOCKGATE_DRAIN_MAX_DELAY`.
    pub fn variable(&self) -> String {
        format!("LOCKGATE_{}", self.words("_").to_ascii_uppercase())
    }

    fn words(&self, between: &str) -> String {
        let mut words = String::new();
        for part in &self.path {
            if !words.is_empty() {
                words.push_str(between);
            }
            for c in part.chars() {
                if c.is_ascii_uppercase() {
                    words.push_str(between);
                }
                words.push(c.to_ascii_lowercase());
            }
        }
        words
    }

    fn parse(&self, text: &str) -> Value {
        if self.text {
            return Value::String(text.to_owned());
        }
        let value = serde_saphyr::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        if self.list && !value.is_array() {
            let item = |t: &str| match serde_saphyr::from_str(t) {
                Ok(value @ Value::Number(_)) if !self.texts => value,
                _ => Value::String(t.to_owned()),
            };
            return text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(item).collect();
        }
        value
    }
}

/// Every setting, in the order of the struct.
pub fn leaves() -> Vec<Leaf> {
    let generator = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true).into_generator();
    let schema = generator.into_root_schema_for::<Settings>();
    let mut leaves = Vec::new();
    collect(&mut Vec::new(), schema.as_value(), &mut leaves);
    leaves
}

fn collect(path: &mut Vec<String>, schema: &Value, leaves: &mut Vec<Leaf>) {
    if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
        for (name, field) in fields {
            path.push(name.clone());
            collect(path, field, leaves);
            path.pop();
        }
        return;
    }
    let has_type = |wanted: &str| match schema.get("type") {
        Some(Value::String(name)) => name == wanted,
        Some(Value::Array(names)) => names.iter().any(|n| n == wanted),
        _ => false,
    };
    let is_enum = schema.get("enum").is_some() || schema.get("oneOf").is_some();
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    leaves.push(Leaf {
        path: path.clone(),
        description: description.replace('\n', " "),
        text: has_type("string") || is_enum,
        list: has_type("array"),
        texts: schema.pointer("/items/type").is_some_and(|t| t == "string"),
    });
}

/// Puts settings together. Flags win over variables, variables over the file, the file over defaults.
pub fn load(file: Option<&Path>, variables: &Overrides, flags: &Overrides) -> Result<Settings, SettingsError> {
    let mut value = match file {
        Some(path) => read(path)?,
        None => Value::Object(Map::new()),
    };
    let leaves = leaves();
    let mut places = BTreeMap::new();
    for (overrides, leaf) in [variables, flags].into_iter().flat_map(|o| leaves.iter().map(move |l| (o, l))) {
        if let Some((text, place)) = overrides.get(&leaf.field()) {
            set(&mut value, &leaf.path, leaf.parse(text));
            places.insert(leaf.field(), place.clone());
        }
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let field = error.path().to_string();
        let known = |f: &str| places.iter().find(|(name, _)| f.starts_with(*name)).map(|(_, place)| place.clone());
        let place = known(&field).or_else(|| file.map(|f| f.display().to_string()));
        SettingsError::Value {
            field,
            place: place.map(|p| format!(" (from {p})")).unwrap_or_default(),
            reason: error.into_inner().to_string(),
        }
    })
}

fn read(path: &Path) -> Result<Value, SettingsError> {
    let text = std::fs::read_to_string(path).map_err(|source| SettingsError::Read { path: path.to_owned(), source })?;
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let parse = |reason: String| SettingsError::Parse { path: path.to_owned(), reason };
    match serde_saphyr::from_str(&text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        // A file of comments only.
        Ok(Value::Null) => Ok(Value::Object(Map::new())),
        Ok(_) => Err(parse("is no mapping of settings".to_owned())),
        Err(error) => Err(parse(error.to_string())),
    }
}

fn set(target: &mut Value, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        *target = value;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(fields) = target {
        set(fields.entry(first).or_insert(Value::Null), rest, value);
    }
}
