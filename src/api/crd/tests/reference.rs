//! `docs/reference/`: the pages on Route and Selector, made of their schemas.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::super::*;

/// Objects with the same members as one before are not shown again.
#[derive(Default)]
struct Page {
    text: String,
    shown: Vec<(Value, String)>,
}

fn text<'a>(schema: &'a Value, field: &str) -> &'a str {
    schema[field].as_str().unwrap_or_default()
}

/// In a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `1 to 16 items`; nothing where there are no limits.
fn range(schema: &Value, (least, most): (&str, &str), unit: &str) -> Option<String> {
    let number = |field: &str| schema[field].as_f64();
    let text = match (number(least), number(most)) {
        (Some(least), Some(most)) if least.total_cmp(&most).is_eq() => format!("{most}"),
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (None, Some(most)) => format!("at most {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, None) => return None,
    };
    Some(format!("{text}{unit}"))
}

fn limits(schema: &Value) -> Vec<String> {
    let mut limits = Vec::new();
    limits.extend(range(schema, ("minItems", "maxItems"), " items"));
    limits.extend(range(schema, ("minProperties", "maxProperties"), " entries"));
    limits.extend(range(schema, ("minLength", "maxLength"), " characters"));
    limits.extend(range(schema, ("minimum", "maximum"), ""));
    if let Some(pattern) = schema["pattern"].as_str() {
        limits.push(format!("of the form `{pattern}`"));
    }
    if schema["x-kubernetes-list-type"] == "set" {
        limits.push("none twice".to_owned());
    }
    for inner in [&schema["items"], &schema["additionalProperties"]] {
        if inner["type"] != "object" && inner.is_object() {
            let each = self::limits(inner);
            if !each.is_empty() {
                limits.push(format!("each {}", each.join(", ")));
            }
        }
    }
    limits
}

fn kind(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values.iter().filter_map(Value::as_str).map(|value| format!("`{value}`")).collect();
        return values.join(", ");
    }
    match text(schema, "type") {
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map of {}", kind(&schema["additionalProperties"]))
        }
        "string" if schema["format"] == "date-time" => "time".to_owned(),
        other => other.to_owned(),
    }
}

impl Page {
    /// An object and, behind it, those inside of it.
    fn object(&mut self, path: &str, schema: &Value) {
        let Some(fields) = schema["properties"].as_object() else { return };
        let _ = writeln!(self.text, "\n## `{path}`\n");
        if let Some((_, place)) = self.shown.iter().find(|(shown, _)| *shown == schema["properties"]) {
            let _ = writeln!(self.text, "As `{place}`.");
            self.rules(schema);
            return;
        }
        self.shown.push((schema["properties"].clone(), path.to_owned()));
        self.text.push_str("| field | type | default | |\n|---|---|---|---|\n");
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, field) in fields {
            let default = match &field["default"] {
                Value::Null if required.contains(&name.as_str()) => "required".to_owned(),
                Value::Null => String::new(),
                value => format!("`{value}`"),
            };
            let mut says = vec![text(field, "description").trim_end_matches('.').to_owned()];
            let limits = limits(field);
            if !limits.is_empty() {
                let limits = limits.join("; ");
                let (first, rest) = limits.split_at(1);
                says.push(first.to_ascii_uppercase() + rest);
            }
            let kind = kind(field);
            let _ = writeln!(
                self.text,
                "| `{name}` | {} | {} | {}. |",
                cell(&kind),
                cell(&default),
                cell(&says.join(". "))
            );
        }
        self.rules(schema);
        for (name, field) in fields {
            match text(field, "type") {
                "array" => self.object(&format!("{path}.{name}[]"), &field["items"]),
                _ => self.object(&format!("{path}.{name}"), field),
            }
        }
    }

    /// What is refused besides.
    fn rules(&mut self, schema: &Value) {
        let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
        let messages: Vec<&str> = rules.map(|rule| text(rule, "message")).collect();
        if !messages.is_empty() {
            self.text.push_str("\nThe API server refuses an object with these words:\n\n");
        }
        for message in messages {
            let _ = writeln!(self.text, "- {}", message.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
}

fn page(crd: &CustomResourceDefinition) -> String {
    let names = &crd.spec.names;
    let version = serde_json::to_value(&crd.spec.versions[0]).unwrap();
    let schema = &version["schema"]["openAPIV3Schema"];
    let mut page = Page::default();
    let short = names.short_names.as_ref().and_then(|names| names.first()).unwrap();
    let _ = writeln!(
        page.text,
        "# {}\n\n<!-- Made of the schema by `UPDATE_REFERENCE=1 cargo test -p lockgate reference`; do not edit. -->\n\n{} \
         `apiVersion: {}/{}`, namespaced; `kubectl get {short}`, `kubectl explain {}.spec`.\n\nA field without a default may be \
         left out unless it is required. [Settings](settings.md) are those of the gateway; [metrics](metrics.md) tell what \
         becomes of requests.",
        names.kind,
        text(schema, "description"),
        crd.spec.group,
        text(&version, "name"),
        names.singular.as_ref().unwrap(),
    );
    for part in ["spec", "status"] {
        page.object(part, &schema["properties"][part]);
    }
    page.text
}

#[test]
fn reference_pages_are_what_the_types_give() {
    for crd in crds().unwrap() {
        let name = format!("docs/reference/{}.md", crd.spec.names.singular.as_ref().unwrap());
        let (path, wanted) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(&name), page(&crd));
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, &wanted).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == wanted, "{name} is old: run UPDATE_REFERENCE=1 cargo test -p lockgate reference");
    }
}
