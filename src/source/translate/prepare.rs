//! What of a translation takes long and needs no other object: compiling regular expressions, of which one object may
//! hold thousands.
//!
//! Compiled ones are shared while they are in use anywhere. So whoever holds an [`Prepared`] can have the object
//! translated in no time, and it can be made where nobody waits for it.

use crate::api::{
    Condition, ConditionOperator, Filter, PathMatchType, PathModifier, RouteMatch, RouteRule, ValueMatchType,
};
use crate::ir::{ConditionSet, Match};

use super::filters::{self, Filters};
use super::matches;
use super::report::{Field, Report};
use super::selector;
use super::{RouteSubject, SelectorSubject};

/// Parts of an object in their translated form.
pub struct Prepared {
    _rules: Vec<(Vec<Match>, Filters)>,
    _conditions: Option<ConditionSet>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}

/// Prepares a Route.
pub fn route(route: &RouteSubject) -> Prepared {
    let rule = |rule: &RouteRule| {
        let (field, mut ignored) = (Field::SPEC, Report::default());
        (matches::matches(&rule.matches, &field, &mut ignored), filters::filters(&rule.filters, &field, &mut ignored))
    };
    Prepared { _rules: route.spec.rules.iter().map(rule).collect(), _conditions: None }
}

/// Prepares a Selector.
pub fn selector(subject: &SelectorSubject) -> Prepared {
    let conditions = selector::conditions(&subject.spec, &Field::SPEC, &mut Report::default());
    Prepared { _rules: Vec::new(), _conditions: conditions }
}

/// Whether a Route has anything that takes long.
pub fn route_is_worth_it(route: &RouteSubject) -> bool {
    let of_match = |matching: &RouteMatch| {
        matching.path.r#type == PathMatchType::Regex
            || matching.headers.iter().any(|header| header.r#type == ValueMatchType::Regex)
            || matching.query.iter().any(|query| query.r#type == ValueMatchType::Regex)
            || matching.conditions.iter().any(has_regex)
    };
    let replaces = |path: Option<&PathModifier>| path.is_some_and(|path| path.replace_regex_match.is_some());
    let of_filter = |filter: &Filter| {
        replaces(filter.url_rewrite.as_ref().and_then(|rewrite| rewrite.path.as_ref()))
            || replaces(filter.request_redirect.as_ref().and_then(|redirect| redirect.path.as_ref()))
    };
    route.spec.rules.iter().any(|rule| rule.matches.iter().any(of_match) || rule.filters.iter().any(of_filter))
}

/// Whether a Selector has anything that takes long.
pub fn selector_is_worth_it(subject: &SelectorSubject) -> bool {
    subject.spec.matching.iter().flat_map(|matching| &matching.conditions).any(has_regex)
}

fn has_regex(condition: &Condition) -> bool {
    condition.operator == ConditionOperator::Regex
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Regex;

    fn subject<S: serde::de::DeserializeOwned>(spec: serde_json::Value) -> crate::source::translate::Subject<S> {
        let origin = crate::ir::Origin { created: 0, object: crate::ir::ObjectName::new("a", "b") };
        crate::source::translate::Subject { origin, generation: 1, spec: serde_json::from_value(spec).unwrap() }
    }

    /// Every place where a Route can have a regular expression, with one of its own.
    fn places(mark: &str) -> Vec<(String, serde_json::Value)> {
        let regex = |place: &str| format!("/{mark}-{place}/[a-z]+");
        let with = |place: &str, rule: &dyn Fn(&str) -> serde_json::Value| {
            let regex = regex(place);
            let spec = serde_json::json!({"selectors": [{"name": "s"}], "rules": [rule(&regex)]});
            (regex, spec)
        };
        let json = |text: String| serde_json::from_str(&text).unwrap();
        let modifier = |r: &str| {
            format!(r#"{{"type": "ReplaceRegexMatch", "replaceRegexMatch": {{"pattern": "{r}", "substitution": ""}}}}"#)
        };
        vec![
            with("path", &|r| json(format!(r#"{{"matches": [{{"path": {{"type": "Regex", "value": "{r}"}}}}]}}"#))),
            with("header", &|r| {
                json(format!(r#"{{"matches": [{{"headers": [{{"name": "a", "type": "Regex", "value": "{r}"}}]}}]}}"#))
            }),
            with("query", &|r| {
                json(format!(r#"{{"matches": [{{"query": [{{"name": "a", "type": "Regex", "value": "{r}"}}]}}]}}"#))
            }),
            with("condition", &|r| {
                json(format!(
                    r#"{{"matches": [{{"conditions": [{{"source": "Path", "operator": "Regex", "values": ["{r}"]}}]}}]}}"#
                ))
            }),
            with("rewrite", &|r| {
                json(format!(r#"{{"filters": [{{"type": "URLRewrite", "urlRewrite": {{"path": {}}}}}]}}"#, modifier(r)))
            }),
            with("redirect", &|r| {
                json(format!(
                    r#"{{"filters": [{{"type": "RequestRedirect", "requestRedirect": {{"path": {}}}}}]}}"#,
                    modifier(r)
                ))
            }),
        ]
    }

    #[test]
    fn what_is_prepared_is_in_use() {
        for (regex, spec) in places("prepared") {
            let route: RouteSubject = subject(spec);
            assert!(route_is_worth_it(&route), "{regex}");
            assert!(!Regex::is_in_use(&regex));
            let prepared = super::route(&route);
            assert!(Regex::is_in_use(&regex), "{regex}");
            drop(prepared);
            assert!(!Regex::is_in_use(&regex), "{regex}");
        }
        let regex = "/prepared-selector/[a-z]+";
        let condition = serde_json::json!({"source": "Path", "operator": "Regex", "values": [regex]});
        let selector: SelectorSubject = subject(serde_json::json!({"match": {"conditions": [condition]}}));
        assert!(selector_is_worth_it(&selector));
        let prepared = super::selector(&selector);
        assert!(Regex::is_in_use(regex));
        drop(prepared);
    }

    #[test]
    fn what_has_no_regular_expression_is_not_worth_it() {
        let rule = serde_json::json!({"matches": [{"path": {"type": "Prefix", "value": "/a"}}], "backends": [{"service": "a", "port": 1}]});
        assert!(!route_is_worth_it(&subject(serde_json::json!({"selectors": [{"name": "s"}], "rules": [rule]}))));
        assert!(!selector_is_worth_it(&subject(serde_json::json!({"hostnames": ["a.test"]}))));
    }
}
