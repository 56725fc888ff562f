//! Durations as the objects write them.

use std::fmt;
use std::str::FromStr;
use std::time;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// What a duration looks like (Gateway API's GEP-2257).
pub(super) const PATTERN: &str = "^([0-9]{1,5}(h|m|s|ms)){1,4}$";

const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A duration in the form of Gateway API's GEP-2257: one to four numbers with a unit, such as `500ms`, `2s` or `1h30m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(time::Duration);

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as 500ms, 2s or 1h30m (units h, m, s, ms; at most 5 digits each)")]
pub struct DurationError(String);

impl Duration {
    /// No time at all, which every timeout reads as "none".
    pub const ZERO: Self = Self(time::Duration::ZERO);

    /// A duration of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(time::Duration::from_millis(millis))
    }

    /// A duration of whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(time::Duration::from_secs(secs))
    }

    /// The same as the standard library's type.
    pub const fn get(self) -> time::Duration {
        self.0
    }

    /// The duration, or `None` for `0s`, which the objects use for "no limit".
    pub const fn non_zero(self) -> Option<time::Duration> {
        if self.0.is_zero() { None } else { Some(self.0) }
    }
}

impl From<Duration> for time::Duration {
    fn from(value: Duration) -> Self {
        value.0
    }
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_millis(text).map(Self::from_millis).ok_or_else(|| DurationError(text.to_owned()))
    }
}

fn parse_millis(text: &str) -> Option<u64> {
    let (mut rest, mut total) = (text, 0);
    for _ in 0..4 {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        if !(1..=5).contains(&digits) {
            return None;
        }
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (_, factor) = UNITS.iter().find(|(unit, _)| *unit == &rest[..letters])?;
        rest = &rest[letters..];
        total += number * factor;
        if rest.is_empty() {
            return Some(total);
        }
    }
    None
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if millis == 0 {
            return f.write_str("0s");
        }
        for (unit, factor) in UNITS {
            let number = millis / factor;
            millis %= factor;
            if number > 0 {
                write!(f, "{number}{unit}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Duration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as 500ms, 2s or 1h30m")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Longer than the pattern's longest text: the limit is what CEL's cost estimate sees.
        json_schema!({"type": "string", "maxLength": 32, "pattern": PATTERN})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> Option<u128> {
        text.parse::<Duration>().ok().map(|d| d.get().as_millis())
    }

    #[test]
    fn reads_gateway_api_durations() {
        assert_eq!(millis("0s"), Some(0));
        assert_eq!(millis("500ms"), Some(500));
        assert_eq!(millis("1h30m"), Some(5_400_000));
        assert_eq!(millis("1m1m1m1m"), Some(240_000));
        assert_eq!(millis("99999h99999h99999h99999h"), Some(1_439_985_600_000));
    }

    #[test]
    fn refuses_everything_else() {
        for text in ["", "5", "s", "1.5s", "-1s", "1 s", "100000s", "1d", "1us", "1m1m1m1m1m", "1S", "٣s", "1sm"] {
            assert_eq!(millis(text), None, "{text:?}");
        }
    }

    #[test]
    fn agrees_with_its_own_pattern() {
        let pattern = regex::Regex::new(PATTERN).unwrap();
        for text in ["0s", "500ms", "1h30m", "", "5", "1.5s", "100000s", "1m1m1m1m1m", "1sm", "1mss", "00000h"] {
            assert_eq!(pattern.is_match(text), millis(text).is_some(), "{text:?}");
        }
    }

    #[test]
    fn prints_what_it_reads() {
        for text in ["0s", "500ms", "2s", "1h30m", "1h1m1s1ms"] {
            assert_eq!(text.parse::<Duration>().unwrap().to_string(), text);
        }
        assert_eq!(Duration::from_secs(90).to_string(), "1m30s");
    }

    #[test]
    fn a_bad_one_says_what_is_meant() {
        let error = serde_json::from_str::<Duration>("\"soon\"").unwrap_err().to_string();
        assert!(error.starts_with("\"soon\" is not a duration such as"), "{error}");
        let error = serde_json::from_str::<Duration>("5").unwrap_err().to_string();
        assert!(error.contains("expected a duration such as"), "{error}");
    }
}
