//! Lines of fields, found only where something is wrong.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A YAML value reduced to where its parts are.
pub(super) enum Located {
    Map(Vec<(String, u64, Located)>),
    List(Vec<(u64, Located)>),
    Scalar,
}

impl Located {
    /// The line of a field such as `spec.rules[2].port`, or of the last part of it that is there.
    pub(super) fn line(&self, field: &str) -> Option<u64> {
        let (mut at, mut line) = (self, None);
        let mut rest = field;
        while !rest.is_empty() {
            let Some((found, next, after)) = at.step(rest) else { break };
            (at, line, rest) = (next, Some(found), after.trim_start_matches('.'));
        }
        line
    }

    fn step<'a>(&self, rest: &'a str) -> Option<(u64, &Self, &'a str)> {
        match self {
            Self::List(items) => {
                let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
                let (line, item) = items.get(index.parse::<usize>().ok()?)?;
                Some((*line, item, after))
            }
            // Keys of labels hold dots themselves: the longest that fits is meant.
            Self::Map(members) => {
                let fitting = members.iter().filter_map(|(key, line, member)| {
                    let after = rest.strip_prefix(key.as_str())?;
                    (after.is_empty() || after.starts_with(['.', '['])).then_some((key.len(), *line, member, after))
                });
                let (_, line, member, after) = fitting.max_by_key(|(length, ..)| *length)?;
                Some((line, member, after))
            }
            Self::Scalar => None,
        }
    }
}

/// The documents of a text; empty where it is none that can be read.
pub(super) fn documents(text: &str) -> Vec<Located> {
    serde_saphyr::from_multiple_with_options(text, super::decode::options()).unwrap_or_default()
}

impl<'de> Deserialize<'de> for Located {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Located;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Located, A::Error> {
                let mut members = Vec::new();
                while let Some(key) = map.next_key::<Spanned<String>>()? {
                    members.push((key.value, key.referenced.line(), map.next_value()?));
                }
                Ok(Located::Map(members))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Located, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element::<Spanned<Located>>()? {
                    items.push((item.referenced.line(), item.value));
                }
                Ok(Located::List(items))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Located, E> {
                Ok(Located::Scalar)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Located, E> {
                Ok(Located::Scalar)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Located, E> {
                Ok(Located::Scalar)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Located, E> {
                Ok(Located::Scalar)
            }

            fn visit_str<E>(self, _: &str) -> Result<Located, E> {
                Ok(Located::Scalar)
            }

            fn visit_unit<E>(self) -> Result<Located, E> {
                Ok(Located::Scalar)
            }

            fn visit_none<E>(self) -> Result<Located, E> {
                Ok(Located::Scalar)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Located, D::Error> {
                deserializer.deserialize_any(self)
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Located, D::Error> {
                IgnoredAny::deserialize(deserializer).map(|_| Located::Scalar)
            }
        }

        deserializer.deserialize_any(Any)
    }
}
