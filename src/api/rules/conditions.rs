//! Rules about conditions.

use serde_json::{Value, json};

use super::{Cel, Rule, paths};
use crate::api::{Condition, ConditionOperator as Operator, ConditionSource as Source};

const CIDR_MESSAGE: &str = "a value of Cidr is not a network such as 10.0.0.0/8 or 2001:db8::/32";
const TIME_MESSAGE: &str = "a value of Before or After is neither an RFC 3339 time nor a daily hh:mm in UTC";

fn is_named(source: Source) -> bool {
    matches!(source, Source::Header | Source::Query | Source::Cookie)
}

pub(super) const RULES: &[Rule<Condition>] = &[
    Rule::new(
        "has(self.name) == (self.source in ['Header', 'Query', 'Cookie'])",
        "name is required with source Header, Query and Cookie, and not allowed otherwise",
        |condition| condition.name.is_some() == is_named(condition.source),
    ),
    Rule::new(
        "has(self.values) != (self.operator == 'Present')",
        "values are required, except with operator Present, where they are not allowed",
        |condition| condition.values.is_empty() == (condition.operator == Operator::Present),
    ),
    Rule::new(
        "self.operator != 'Present' || self.source in ['Header', 'Query', 'Cookie']",
        "operator Present goes with source Header, Query and Cookie: the others are always there",
        |condition| condition.operator != Operator::Present || is_named(condition.source),
    ),
    Rule::new(
        "self.operator != 'Pattern' || self.source == 'Path'",
        "operator Pattern goes with source Path only",
        |condition| condition.operator != Operator::Pattern || condition.source == Source::Path,
    ),
    Rule::new(
        "self.source == 'ClientIP' ? self.operator in ['Exact', 'Cidr'] : self.operator != 'Cidr'",
        "source ClientIP takes operator Exact or Cidr, and Cidr goes with ClientIP only",
        |condition| match condition.source {
            Source::ClientIp => matches!(condition.operator, Operator::Exact | Operator::Cidr),
            _ => condition.operator != Operator::Cidr,
        },
    ),
    Rule::new(
        "(self.source == 'Time') == (self.operator in ['Before', 'After'])",
        "source Time takes operator Before or After, and these go with Time only",
        |condition| {
            (condition.source == Source::Time) == matches!(condition.operator, Operator::Before | Operator::After)
        },
    ),
    Rule {
        cel: Cel::TooDear,
        message: "name is not a token as headers and cookies have",
        holds: |condition| match (condition.source, &condition.name) {
            (Source::Header | Source::Cookie, Some(name)) => is_token(name),
            _ => true,
        },
    },
    Rule {
        cel: Cel::TooDear,
        message: "a value of a Path condition is no path: it starts with / and has no ?, #, escaped separator or dot segment",
        holds: |condition| {
            condition.source != Source::Path
                || !matches!(condition.operator, Operator::Exact | Operator::Prefix | Operator::Pattern)
                || condition.values.iter().all(|value| value.starts_with('/') && paths::can_be_normalised(value))
        },
    },
    Rule {
        cel: Cel::TooDear,
        message: "each segment of a Pattern is a literal, {name} or *, and the last one may be **",
        holds: |condition| {
            condition.operator != Operator::Pattern || condition.values.iter().all(|value| paths::is_pattern(value))
        },
    },
    Rule {
        cel: Cel::TooDear,
        message: "a value of ClientIP with Exact is not an IP address",
        holds: |condition| {
            condition.source != Source::ClientIp
                || condition.operator != Operator::Exact
                || condition.values.iter().all(|value| value.parse::<std::net::IpAddr>().is_ok())
        },
    },
    Rule {
        cel: Cel::TooDear,
        message: CIDR_MESSAGE,
        holds: |condition| {
            condition.operator != Operator::Cidr
                || condition.values.iter().all(|value| value.parse::<ipnet::IpNet>().is_ok())
        },
    },
    Rule {
        cel: Cel::TooDear,
        message: TIME_MESSAGE,
        holds: |condition| condition.source != Source::Time || has_times(condition),
    },
];

/// What the API server can afford to check of values only where one list of conditions stands alone: in a Selector.
pub(crate) fn selector_match() -> Value {
    json!([
        {
            "rule": "self.conditions.all(c, c.operator != 'Cidr' || !has(c.values) || c.values.all(v, isCIDR(v)))",
            "message": CIDR_MESSAGE,
        },
        {
            "rule": "self.conditions.all(c, c.source != 'Time' || !has(c.values) || c.values.all(v, v.matches(\
                     '^([01][0-9]|2[0-3]):[0-5][0-9]$|^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)$')))",
            "message": TIME_MESSAGE,
        },
    ])
}

fn is_token(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+.^_`|~-".contains(&byte))
}

fn has_times(condition: &Condition) -> bool {
    condition.values.iter().all(|value| is_daily(value) || is_rfc3339(value))
}

fn is_daily(value: &str) -> bool {
    value.len() == 5 && value.parse::<jiff::civil::Time>().is_ok() && value.as_bytes()[2] == b':'
}

fn is_rfc3339(value: &str) -> bool {
    value.as_bytes().get(10) == Some(&b'T') && value.parse::<jiff::Timestamp>().is_ok()
}
