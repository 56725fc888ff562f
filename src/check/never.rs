//! Values that no request has.

use std::net::Ipv6Addr;

use super::{Finding, Known, Severity};
use crate::api::{
    Condition, ConditionOperator, ConditionSource, HeaderMatch, PathMatch, PathMatchType, RouteMatch, ValueMatchType,
};
use crate::source::index::Content;

/// Warnings on values that no request has, where that is certain. What is refused has been told of already.
pub(super) fn findings(known: &Known<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for declared in known.first.values() {
        let mut found = Vec::new();
        match &declared.object.content {
            Content::Selector(selector) => {
                let conditions = selector.spec.matching.iter().flat_map(|matching| &matching.conditions);
                of_conditions(conditions, "spec.match", &mut found);
            }
            Content::Route(route) => {
                for (number, rule) in route.spec.rules.iter().enumerate() {
                    for (index, matching) in rule.matches.iter().enumerate() {
                        of_match(matching, &format!("spec.rules[{number}].matches[{index}]"), &mut found);
                    }
                }
            }
            _ => {}
        }
        let finding = |(field, reason): (String, &str)| {
            known.finding(declared, Severity::Warning, &field, format!("no request has this: {reason}"), None)
        };
        findings.extend(found.into_iter().map(finding));
    }
    findings
}

type Found = Vec<(String, &'static str)>;

fn of_match(matching: &RouteMatch, field: &str, found: &mut Found) {
    found.extend(of_path(&matching.path).map(|reason| (format!("{field}.path.value"), reason)));
    for (index, header) in matching.headers.iter().enumerate() {
        found.extend(of_header(header).map(|reason| (format!("{field}.headers[{index}].value"), reason)));
    }
    of_conditions(&matching.conditions, field, found);
}

fn of_path(path: &PathMatch) -> Option<&'static str> {
    (path.r#type == PathMatchType::Regex).then(|| of_regex(&path.value)).flatten()
}

/// About a regular expression over the whole of a normalised path.
fn of_regex(source: &str) -> Option<&'static str> {
    // Whatever can stand for something else than itself, or for nothing, is left alone.
    let source = source.strip_prefix('^').unwrap_or(source);
    let is_literal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '%' | '-' | '_' | '~');
    let literal = source.split(|c| !is_literal(c)).next().unwrap_or_default();
    let is_alternative = source.contains('|');
    let follows = source[literal.len()..].chars().next();
    let certain = match follows {
        Some('?' | '*' | '{') => literal.len().saturating_sub(1),
        _ => literal.len(),
    };
    let certain = literal.get(..certain).filter(|_| !is_alternative)?;
    if !certain.is_empty() && !certain.starts_with('/') {
        return Some("a regular expression is compared with the whole path, which starts with /");
    }
    certain.split('%').skip(1).find_map(of_escape)
}

/// About what comes after a `%` that stands for itself.
fn of_escape(rest: &str) -> Option<&'static str> {
    let digits = rest.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    let byte = u8::from_str_radix(digits, 16).ok()?;
    if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
        return Some("paths are normalised before they are compared: this character is not escaped any more");
    }
    let is_lower = digits.bytes().any(|digit| digit.is_ascii_lowercase());
    is_lower.then_some("paths are normalised before they are compared: escapes are in upper case, such as %2B")
}

fn of_header(header: &HeaderMatch) -> Option<&'static str> {
    (header.r#type == ValueMatchType::Exact).then(|| of_value(header.value.as_deref()?)).flatten()
}

/// About the value of a header (RFC 9110, section 5.5).
fn of_value(value: &str) -> Option<&'static str> {
    let is_blank = |c: char| c == ' ' || c == '\t';
    (value.starts_with(is_blank) || value.ends_with(is_blank))
        .then_some("the value of a header does not begin or end with a blank")
}

fn of_conditions<'a>(conditions: impl IntoIterator<Item = &'a Condition>, field: &str, found: &mut Found) {
    for (index, condition) in conditions.into_iter().enumerate() {
        for (value, text) in condition.values.iter().enumerate() {
            let reason = match (condition.source, condition.operator) {
                (ConditionSource::Host, ConditionOperator::Exact) => of_host(text),
                (ConditionSource::Header, ConditionOperator::Exact) => of_value(text),
                (ConditionSource::Path, ConditionOperator::Regex) => of_regex(text),
                _ => None,
            };
            found.extend(reason.map(|reason| (format!("{field}.conditions[{index}].values[{value}]"), reason)));
        }
    }
}

/// About a host that is compared as a whole.
fn of_host(host: &str) -> Option<&'static str> {
    let (name, port) = host.rsplit_once(':')?;
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    (is_port && !name.contains(':') && host.parse::<Ipv6Addr>().is_err())
        .then_some("hosts are compared without their port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_expressions_are_judged_where_it_is_certain() {
        for (source, never) in [
            ("/a", false),
            ("a", true),
            ("a?/b", false),
            ("a|/b", false),
            ("(?i)/a", false),
            (".*", false),
            ("^/a", false),
            ("^a", true),
            ("/%2b", true),
            ("/%2B", false),
            ("/%41", true),
            ("/x%2b?", false),
            ("/%zz", false),
            ("/a|/%2b", false),
            ("/%2[bB]", false),
            ("", false),
        ] {
            assert_eq!(of_regex(source).is_some(), never, "{source}");
        }
    }

    #[test]
    fn hosts_have_no_port_and_headers_no_blanks_around() {
        assert_eq!((of_host("x.test:80").is_some(), of_host("x.test").is_some(), of_host("::1")), (true, false, None));
        assert_eq!(
            (of_value(" a").is_some(), of_value("a\t").is_some(), of_value("a b").is_some()),
            (true, true, false)
        );
    }
}
