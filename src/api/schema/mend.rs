//! Makes of a value that is wrong one that decodes, so that the rest of it can be checked.

use serde_json::{Map, Number, Value};

use super::{Kind, Node, Range, Schema, Text};

impl Schema {
    /// Takes away or replaces what is wrong with an object. No entry of a list moves, so that fields keep their names;
    /// a list ends where it may be no longer.
    pub fn mend(&self, object: &mut Value) {
        if !self.root.mend(object) {
            *object = self.root.least();
        }
    }
}

impl Node {
    /// Mends what is inside of a value; whether the value itself can stay.
    fn mend(&self, value: &mut Value) -> bool {
        let is_right = match (&self.kind, &mut *value) {
            (Kind::Any, _) | (Kind::Boolean, Value::Bool(_)) => true,
            (Kind::Integer(range) | Kind::IntOrText(range, _), Value::Number(number)) => range.holds(number),
            (Kind::Text(rules) | Kind::IntOrText(_, rules), Value::String(text)) => rules.holds(text),
            (Kind::List { items, max, .. }, Value::Array(list)) => {
                list.truncate(*max);
                for item in list {
                    if !items.mend(item) {
                        *item = items.least();
                    }
                }
                true
            }
            (Kind::Map { values, .. }, Value::Object(members)) => {
                members.retain(|_, member| values.mend(member));
                true
            }
            (Kind::Object { fields, .. }, Value::Object(members)) => {
                members.retain(|name, member| fields.get(name).is_some_and(|field| field.mend(member)));
                self.complete(members);
                true
            }
            _ => false,
        };
        is_right && (self.values.is_empty() || self.values.contains(value))
    }

    /// Adds what an object lacks.
    fn complete(&self, members: &mut Map<String, Value>) {
        let Kind::Object { fields, required } = &self.kind else { return };
        for name in required {
            if let Some(field) = fields.get(name).filter(|_| !members.contains_key(name)) {
                members.insert(name.clone(), field.least());
            }
        }
    }

    /// The least that decodes.
    fn least(&self) -> Value {
        if let Some(value) = self.values.first() {
            return value.clone();
        }
        match &self.kind {
            Kind::Any => Value::Null,
            Kind::Boolean => Value::Bool(false),
            Kind::Integer(range) | Kind::IntOrText(range, _) => range.least(),
            Kind::Text(_) => Value::String(String::new()),
            Kind::List { .. } => Value::Array(Vec::new()),
            Kind::Map { .. } => Value::Object(Map::new()),
            Kind::Object { .. } => {
                let mut members = Map::new();
                self.complete(&mut members);
                Value::Object(members)
            }
        }
    }
}

impl Range {
    fn holds(&self, number: &Number) -> bool {
        !number.is_f64() && number.as_f64().is_some_and(|number| number >= self.min && number <= self.max)
    }

    fn least(&self) -> Value {
        let nearest = if self.min <= 0.0 && self.max >= 0.0 { 0.0 } else { self.min };
        // A whole float is printed without a fraction.
        nearest.to_string().parse().map_or(Value::Null, Value::Number)
    }
}

impl Text {
    fn holds(&self, text: &str) -> bool {
        let length = text.chars().count();
        length >= self.min
            && length <= self.max
            && self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(text))
            && (!self.is_time || text.parse::<jiff::Timestamp>().is_ok())
    }
}
