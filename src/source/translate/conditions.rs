//! Conditions.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use ipnet::IpNet;

use crate::api::reason;
use crate::api::{self, ConditionOperator as Operator, ConditionSource};
use crate::ir::{Condition, PathPattern, Predicate, Regex, Source, StringTest, TimePoint};

use super::path;
use super::report::{Field, Report, regex_error};

/// One condition; `None` with a problem in the report where it cannot be understood.
pub(super) fn condition(condition: &api::Condition, field: &Field<'_>, report: &mut Report) -> Option<Condition> {
    let source = source(condition, field, report)?;
    let predicate = predicate(condition, &source, field, report)?;
    Some(Condition { source, predicate, negate: condition.negate })
}

fn source(condition: &api::Condition, field: &Field<'_>, report: &mut Report) -> Option<Source> {
    let name = condition.name.as_deref();
    let name_field = field.member("name");
    let mut need = || {
        if name.is_none() {
            report.add(reason::INVALID, &name_field, format!("is required with source {:?}", condition.source));
        }
        name
    };
    Some(match condition.source {
        ConditionSource::Path => Source::Path,
        ConditionSource::Method => Source::Method,
        ConditionSource::Host => Source::Host,
        ConditionSource::ClientIp => Source::ClientIp,
        ConditionSource::Time => Source::Time,
        ConditionSource::Query => Source::Query(need()?.into()),
        ConditionSource::Cookie => Source::Cookie(need()?.into()),
        ConditionSource::Header => {
            let name = need()?;
            let parsed = HeaderName::from_bytes(name.as_bytes()).ok();
            if parsed.is_none() {
                report.add(reason::INVALID, &name_field, format!("{name:?} is not the name of a header"));
            }
            Source::Header(parsed?)
        }
    })
}

fn predicate(condition: &api::Condition, source: &Source, field: &Field<'_>, report: &mut Report) -> Option<Predicate> {
    let is_network = matches!(condition.operator, Operator::Cidr);
    let is_time = matches!(condition.operator, Operator::Before | Operator::After);
    let fits = match source {
        Source::ClientIp => is_network || condition.operator == Operator::Exact,
        Source::Time => is_time,
        Source::Path => !is_network && !is_time && condition.operator != Operator::Present,
        Source::Method | Source::Host => {
            !is_network && !is_time && !matches!(condition.operator, Operator::Present | Operator::Pattern)
        }
        Source::Header(_) | Source::Query(_) | Source::Cookie(_) => {
            !is_network && !is_time && condition.operator != Operator::Pattern
        }
    };
    if !fits {
        let what = format!("{:?} does not go with source {:?}", condition.operator, condition.source);
        report.add(reason::INVALID, &field.member("operator"), what);
        return None;
    }
    if condition.operator == Operator::Present {
        return Some(Predicate::Present);
    }
    if condition.values.is_empty() {
        report.add(reason::INVALID, &field.member("values"), "a condition needs values");
        return None;
    }
    match (source, condition.operator) {
        (Source::ClientIp, _) => values(condition, field, report, network).map(Predicate::Cidr),
        (_, Operator::Before) => values(condition, field, report, time_point).map(Predicate::Before),
        (_, Operator::After) => values(condition, field, report, time_point).map(Predicate::After),
        (source, operator) => {
            let tests = values(condition, field, report, |value| string_tests(source, operator, value))?;
            Some(Predicate::Text(tests.into_iter().flatten().collect()))
        }
    }
}

/// Reads every value; `None` when one of them is wrong.
fn values<T>(
    condition: &api::Condition,
    field: &Field<'_>,
    report: &mut Report,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<Vec<T>> {
    let mut good = Vec::with_capacity(condition.values.len());
    for (index, value) in condition.values.iter().enumerate() {
        match read(value) {
            Ok(value) => good.push(value),
            Err(what) => report.add(reason::INVALID, &field.entry("values", index), what),
        }
    }
    (good.len() == condition.values.len()).then_some(good)
}

fn string_tests(source: &Source, operator: Operator, value: &str) -> Result<Vec<StringTest>, String> {
    if *source == Source::Path {
        return path_tests(operator, value);
    }
    let lower;
    let value = match (source, operator) {
        // Hosts are compared in lower case; the letters of a regular expression mean more than themselves.
        (Source::Host, operator) if operator != Operator::Regex => {
            lower = value.to_ascii_lowercase();
            &lower
        }
        _ => value,
    };
    string_test(operator, value).map(|test| vec![test])
}

fn path_tests(operator: Operator, value: &str) -> Result<Vec<StringTest>, String> {
    match operator {
        Operator::Exact => Ok(vec![StringTest::Exact(path::normal(value)?.into())]),
        Operator::Pattern => path::pattern(value).map(|pattern| vec![StringTest::Pattern(pattern)]),
        Operator::Prefix => {
            // Whole segments: the path itself, or anything below it.
            let path = path::normal(value)?;
            let whole = path.strip_suffix('/').unwrap_or(&path);
            let below = StringTest::Prefix(format!("{whole}/").into());
            Ok(if whole.is_empty() { vec![below] } else { vec![StringTest::Exact(whole.into()), below] })
        }
        operator => string_test(operator, value).map(|test| vec![test]),
    }
}

fn string_test(operator: Operator, value: &str) -> Result<StringTest, String> {
    let text = || Arc::<str>::from(value);
    match operator {
        Operator::Exact => Ok(StringTest::Exact(text())),
        Operator::Prefix => Ok(StringTest::Prefix(text())),
        Operator::Suffix => Ok(StringTest::Suffix(text())),
        Operator::Contains => Ok(StringTest::Contains(text())),
        Operator::Regex => Regex::new(value).map(StringTest::Regex).map_err(|error| regex_error(&error)),
        Operator::Pattern => PathPattern::parse(value).map(StringTest::Pattern).map_err(|error| error.to_string()),
        operator => Err(format!("{operator:?} compares no texts")),
    }
}

fn network(value: &str) -> Result<IpNet, String> {
    let address = || value.parse::<IpAddr>().ok().map(IpNet::from);
    let network = value.parse::<IpNet>().ok().or_else(address);
    network
        .map(|network| network.trunc())
        .ok_or_else(|| format!("{value:?} is not an IP address or a network such as 10.0.0.0/8"))
}

fn time_point(value: &str) -> Result<TimePoint, String> {
    if let Ok(instant) = value.parse::<jiff::Timestamp>() {
        return Ok(TimePoint::Instant(instant.as_second()));
    }
    daily(value)
        .map(TimePoint::Daily)
        .ok_or_else(|| format!("{value:?} is neither an RFC 3339 time nor a daily hh:mm in UTC"))
}

fn daily(value: &str) -> Option<u32> {
    let (hours, minutes) = value.split_once(':')?;
    let number = |text: &str, below: u32| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|number| digits && *number < below)
    };
    Some(number(hours, 24)? * 3600 + number(minutes, 60)? * 60)
}
