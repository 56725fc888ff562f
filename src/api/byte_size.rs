//! Sizes in bytes as the objects write them.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// What a size looks like when it is written as text.
pub(super) const PATTERN: &str = "^[0-9]{1,15}(k|M|G|T|Ki|Mi|Gi|Ti)?$";

// Ordered so that printing finds the largest binary unit first.
const UNITS: [(&str, u64); 9] = [
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("", 1),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

/// A number of bytes, written as a Kubernetes quantity: `10Mi`, `512k` or a plain number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ByteSizeError {
    /// Not digits with a known unit.
    #[error("{0:?} is not a size such as 10Mi, 512k or 4096 (units k, M, G, T, Ki, Mi, Gi, Ti)")]
    Form(String),
    /// More than 2^63 - 1 bytes.
    #[error("{0:?} is too large")]
    TooLarge(String),
}

impl ByteSize {
    /// A size of this many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ByteSizeError::Form(text.to_owned());
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        if !(1..=15).contains(&digits) {
            return Err(form());
        }
        let number: u64 = text[..digits].parse().map_err(|_| form())?;
        let (_, factor) = UNITS.iter().find(|(unit, _)| *unit == &text[digits..]).ok_or_else(form)?;
        number
            .checked_mul(*factor)
            .filter(|bytes| i64::try_from(*bytes).is_ok())
            .map(Self)
            .ok_or_else(|| ByteSizeError::TooLarge(text.to_owned()))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, factor)| self.0 != 0 && self.0.is_multiple_of(*factor));
        let (unit, factor) = unit.unwrap_or(&("", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Size;

        impl Visitor<'_> for Size {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 10Mi, 512k or 4096")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                bytes.to_string().parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                bytes.to_string().parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Size)
    }
}

impl JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "minimum": 0,
            "maximum": 999_999_999_999_999_i64,
            "maxLength": 17,
            "pattern": PATTERN,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_quantities_and_numbers() {
        for (json, bytes) in
            [("\"10Mi\"", 10 << 20), ("\"512k\"", 512_000), ("\"0\"", 0), ("4096", 4096), ("\"1Ti\"", 1 << 40)]
        {
            assert_eq!(serde_json::from_str::<ByteSize>(json).unwrap().get(), bytes, "{json}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for json in [
            "\"\"",
            "\"10MB\"",
            "\"1.5Mi\"",
            "\"-1\"",
            "-1",
            "1.5",
            "\"10 Mi\"",
            "\"Mi\"",
            "\"1e3\"",
            "true",
            "\"9999999999999999\"",
        ] {
            assert!(serde_json::from_str::<ByteSize>(json).is_err(), "{json}");
        }
        let error = "999999999999999Ti".parse::<ByteSize>().unwrap_err();
        assert_eq!(error.to_string(), "\"999999999999999Ti\" is too large");
    }

    #[test]
    fn prints_the_largest_binary_unit() {
        for text in ["0", "10Mi", "1Ki", "1025", "3Gi"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
    }
}
