//! The chart's `config` is `lockgate.yaml`: what it may hold, and its defaults, are those of the gateway.

use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::super::*;
use super::overrides;

fn chart(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/lockgate").join(file)
}

/// The settings as a schema of the draft that every Helm reads.
fn schema() -> Value {
    let generator = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true).into_generator();
    let mut schema = generator.into_root_schema_for::<Settings>().to_value();
    if let Some(root) = schema.as_object_mut() {
        root.remove("$schema");
        root.remove("title");
    }
    tidy(&mut schema);
    // The schema of the command line knows the short form alone.
    *schema.pointer_mut("/properties/listeners/items").unwrap() = json!({"type": ["string", "object"]});
    schema
}

/// Leaves out formats that are Rust's own.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("format").is_some_and(Value::is_string) {
                members.remove("format");
            }
            members.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// `UPDATE_CHART=1` writes the file instead.
#[test]
fn the_schema_of_config_is_that_of_the_settings() {
    let path = chart("values.schema.json");
    let found = std::fs::read_to_string(&path).unwrap();
    let mut values: Value = serde_json::from_str(&found).unwrap();
    values["properties"]["config"] = schema();
    let wanted = format!("{values:#}\n");
    if std::env::var_os("UPDATE_CHART").is_some() {
        std::fs::write(&path, &wanted).unwrap();
        return;
    }
    assert!(
        found == wanted,
        "charts/lockgate/values.schema.json is not what the settings give: run UPDATE_CHART=1 cargo test -p lockgate settings"
    );
}

#[test]
fn the_defaults_of_config_are_those_of_the_settings() {
    let values = std::fs::read_to_string(chart("values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    let config: Settings = serde_json::from_value(values["config"].clone()).unwrap();
    // The one difference: a cluster's logs are read by programs.
    let wanted = load(None, &Overrides::new(), &overrides(&[("log.format", "json")])).unwrap();
    assert_eq!(config, wanted);
}

#[test]
fn the_chart_installs_this_version() {
    let chart = std::fs::read_to_string(chart("Chart.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&chart).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}
