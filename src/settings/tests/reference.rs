//! `docs/reference/settings.md`, made of the struct and of what it refuses.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::super::*;
use super::overrides;

const FILE: &str = "docs/reference/settings.md";

/// Values of which some are wrong for most settings.
const ODD: [&str; 9] =
    ["0", "1", "2147483648", "4294967295", "99999999999999", "0s", "100ms", "10.0.0.1:1", "Not/A/Name"];

/// What the gateway says of values that this setting cannot have.
fn bounds(leaf: &Leaf) -> BTreeSet<String> {
    let field = leaf.field();
    let mut bounds = BTreeSet::new();
    for value in ODD {
        let Ok(settings) = load(None, &Overrides::new(), &overrides(&[(&field, value)])) else { continue };
        let problems = settings.problems();
        let told = problems.iter().filter_map(|p| p.strip_prefix(&format!("{field}: ")));
        // Words about the very value are no bounds of all.
        bounds.extend(told.filter(|told| !told.contains(value) || value.len() < 3).map(str::to_owned));
    }
    bounds
}

/// The values of an enumeration, each with what it is.
fn choices(schema: &Value) -> Vec<String> {
    let one = |value: &Value, description: &Value| {
        let is = description.as_str().map(|text| format!(": {}", text.trim_end_matches('.'))).unwrap_or_default();
        value.as_str().map(|value| format!("`{value}`{is}"))
    };
    let plain = schema["enum"].as_array().into_iter().flatten().filter_map(|value| one(value, &Value::Null));
    let told = schema["oneOf"].as_array().into_iter().flatten().filter_map(|s| one(&s["const"], &s["description"]));
    let items = if schema["items"].is_object() { choices(&schema["items"]) } else { Vec::new() };
    plain.chain(told).chain(items).collect()
}

fn default_of(leaf: &Leaf, defaults: &Value) -> String {
    let value = leaf.path.iter().fold(defaults, |value, part| &value[part]);
    if leaf.field() == "listeners" {
        let short = |l: &Listener| format!("`{}={}{}`", l.name, l.address, if l.tls { "+tls" } else { "" });
        return Settings::default().listeners.iter().map(short).collect::<Vec<_>>().join(" ");
    }
    match value {
        Value::Null => String::new(),
        Value::String(text) => format!("`{text}`"),
        value => format!("`{value}`"),
    }
}

fn page() -> String {
    let generator = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true).into_generator();
    let schema = generator.into_root_schema_for::<Settings>().to_value();
    let defaults = serde_json::to_value(Settings::default()).unwrap();
    let mut page = "# Settings\n\n<!-- Made of src/settings.rs by `UPDATE_REFERENCE=1 cargo test -p lockgate reference`; do not edit. -->\n\n\
         A setting is a flag of `lockgate serve`, else an environment variable, else a line of the file that `--config` or `LOCKGATE_CONFIG` \
         names (`lockgate.yaml`; in the chart all of `config`), else its default. `drain.delay` stands in the file as `drain: {delay: 5s}`. \
         Lists are given to flags and variables with commas. Durations are such as `500ms`, `2s` or `1h30m`, sizes such as `64Ki` or `10Mi`.\n"
        .to_owned();
    let mut group = None;
    let mut all = leaves();
    all.sort_by_key(|leaf| (leaf.path.len() > 1, leaf.path.clone()));
    for leaf in all {
        let (head, _) = leaf.path.split_at(leaf.path.len() - 1);
        if group.as_deref() != Some(head) {
            let place = head.iter().fold(&schema, |schema, part| &schema["properties"][part]);
            let title = if head.is_empty() { "The gateway".to_owned() } else { format!("`{}`", head.join(".")) };
            let says = if head.is_empty() { "" } else { place["description"].as_str().unwrap_or_default() };
            let _ = write!(page, "\n## {title}\n\n{}", says.replace('\n', " "));
            let _ =
                writeln!(page, "{}| setting | default | |\n|---|---|---|", if says.is_empty() { "" } else { "\n\n" });
            group = Some(head.to_vec());
        }
        let node = leaf.path.iter().fold(&schema, |schema, part| &schema["properties"][part]);
        let mut says = vec![leaf.description.trim_end_matches('.').to_owned()];
        let choices = choices(node);
        if !choices.is_empty() {
            says.push(choices.join("; "));
        }
        let bounds: Vec<String> = bounds(&leaf).into_iter().collect();
        if !bounds.is_empty() {
            says.push(format!("Bounds: {}", bounds.join("; ")));
        }
        let _ = writeln!(
            page,
            "| `{}`<br>`--{}`<br>`{}` | {} | {}. |",
            leaf.field(),
            leaf.flag(),
            leaf.variable(),
            default_of(&leaf, &defaults),
            says.join(". ").replace('|', "\\|").replace('\n', " "),
        );
    }
    page
}

#[test]
fn the_reference_of_settings_is_what_the_struct_gives() {
    let (path, wanted) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE), page());
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "{FILE} is old: run UPDATE_REFERENCE=1 cargo test -p lockgate reference");
    assert!(wanted.contains("Bounds: at most 1024"), "bounds are found");
}
