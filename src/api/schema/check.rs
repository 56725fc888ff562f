//! The walk over a value.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Keys, Kind, Node, Range, Text};
use crate::api::validate::Problem;
use crate::nearby::nearest;

impl Node {
    pub(super) fn check(&self, value: &Value, path: &str, problems: &mut Vec<Problem>) {
        match (&self.kind, value) {
            (Kind::Any, _) | (Kind::Boolean, Value::Bool(_)) => {}
            (Kind::Integer(range) | Kind::IntOrText(range, _), Value::Number(number)) => {
                check_number(range, number, path, problems);
            }
            (Kind::Text(rules) | Kind::IntOrText(_, rules), Value::String(text)) => {
                // The values of an enum say more than its length.
                if self.values.is_empty() {
                    check_text(rules, text, path, problems);
                }
            }
            (Kind::List { items, min, max, keys }, Value::Array(list)) => {
                check_list(items, *min..=*max, keys, list, path, problems);
            }
            (Kind::Map { values, max }, Value::Object(members)) => {
                if members.len() > *max {
                    problems
                        .push(Problem::new(path, format!("has {} members, at most {max} are allowed", members.len())));
                }
                members.iter().for_each(|(name, member)| values.check(member, &join(path, name), problems));
            }
            (Kind::Object { fields, required }, Value::Object(members)) => {
                check_object(fields, required, members, path, problems);
            }
            (kind, value) => {
                problems.push(Problem::new(path, format!("must be {}, not {}", kind.name(), name_of(value))));
                return;
            }
        }
        if !self.values.is_empty() && !self.values.contains(value) {
            let known: Vec<String> = self.values.iter().map(plain).collect();
            let meant = value.as_str().and_then(|value| nearest(value, known.iter().map(String::as_str)));
            let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            problems.push(Problem::new(path, format!("{} is not one of {}{meant}", plain(value), known.join(", "))));
        }
    }
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Self::Any => "anything",
            Self::Boolean => "true or false",
            Self::Integer(_) => "a whole number",
            Self::Text(_) => "a string",
            Self::IntOrText(..) => "a whole number or a string",
            Self::List { .. } => "a list",
            Self::Map { .. } | Self::Object { .. } => "an object",
        }
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn check_number(range: &Range, number: &serde_json::Number, path: &str, problems: &mut Vec<Problem>) {
    let is_beyond = |value: f64| value < range.min || value > range.max;
    if number.is_f64() && number.as_f64().is_some_and(|value| value.fract() == 0.0 && is_beyond(value)) {
        problems.push(Problem::new(path, format!("is out of range: {} to {} are allowed", range.min, range.max)));
    } else if number.is_f64() {
        problems.push(Problem::new(path, format!("{number} is not a whole number")));
    } else if number.as_f64().is_none_or(|number| number < range.min) {
        problems.push(Problem::new(path, format!("{number} is less than {}", range.min)));
    } else if number.as_f64().is_none_or(|number| number > range.max) {
        problems.push(Problem::new(path, format!("{number} is more than {}", range.max)));
    }
}

fn check_text(rules: &Text, text: &str, path: &str, problems: &mut Vec<Problem>) {
    // Kubernetes counts code points.
    let length = text.chars().count();
    if length < rules.min {
        problems.push(Problem::new(path, format!("has {length} characters, at least {} are needed", rules.min)));
    } else if length > rules.max {
        problems.push(Problem::new(path, format!("has {length} characters, at most {} are allowed", rules.max)));
    } else if let Some(pattern) = rules.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        problems.push(Problem::new(path, format!("{text:?} does not have the form {pattern}")));
    } else if rules.is_time && text.parse::<jiff::Timestamp>().is_err() {
        problems.push(Problem::new(path, format!("{text:?} is not an RFC 3339 time")));
    }
}

fn check_list(
    items: &Node,
    sizes: std::ops::RangeInclusive<usize>,
    keys: &Keys,
    list: &[Value],
    path: &str,
    problems: &mut Vec<Problem>,
) {
    if list.len() < *sizes.start() {
        problems.push(Problem::new(path, format!("has {} entries, at least {} are needed", list.len(), sizes.start())));
    }
    if list.len() > *sizes.end() {
        // What is beyond the limit is not looked at: the list may be of any size.
        problems.push(Problem::new(path, format!("has {} entries, at most {} are allowed", list.len(), sizes.end())));
        return;
    }
    for (index, item) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if list[..index].iter().any(|other| is_same(keys, item, other)) {
            problems.push(Problem::new(&path, "is there twice".to_owned()));
        }
        items.check(item, &path, problems);
    }
}

fn is_same(keys: &Keys, a: &Value, b: &Value) -> bool {
    match keys {
        Keys::Free => false,
        Keys::Whole => a == b,
        Keys::Fields(names) => names.iter().all(|name| a.get(name) == b.get(name)),
    }
}

fn check_object(
    fields: &BTreeMap<String, Node>,
    required: &[String],
    members: &serde_json::Map<String, Value>,
    path: &str,
    problems: &mut Vec<Problem>,
) {
    for (name, member) in members {
        let path = join(path, name);
        match fields.get(name) {
            Some(field) if !member.is_null() => field.check(member, &path, problems),
            Some(_) => {}
            None => problems.push(Problem::new(&path, unknown(name, fields))),
        }
    }
    // The API server drops a null where a field is not nullable, and none of ours is.
    for name in required.iter().filter(|name| members.get(*name).is_none_or(Value::is_null)) {
        problems.push(Problem::new(&join(path, name), "is required".to_owned()));
    }
}

/// Says that a field is unknown, and which one may be meant.
fn unknown(name: &str, fields: &BTreeMap<String, Node>) -> String {
    let fold = |name: &str| name.to_ascii_lowercase().trim_end_matches('s').replace(['-', '_'], "");
    let folded = || fields.keys().find(|known| fold(known) == fold(name)).map(String::as_str);
    match folded().or_else(|| nearest(name, fields.keys().map(String::as_str))) {
        Some(known) => format!("is not a known field; did you mean {known}?"),
        None => "is not a known field".to_owned(),
    }
}
