//! What is broken, or hardly there, costs nobody else anything.

use super::*;
use crate::ir::{Action, BackendTarget, Rule, Verdict};
use crate::routing::{self, ListenerIndex, Now, RouteTable};

/// A Route of five rules to as many Services; the rewrite of one of them is this regular expression.
fn five(pattern: &str) -> Object {
    let rule = |number: usize| {
        let replacement = json!({"pattern": if number == 4 { pattern } else { "^/" }, "substitution": "/"});
        let rewrite = json!({"path": {"type": "ReplaceRegexMatch", "replaceRegexMatch": replacement}});
        json!({
            "name": format!("r{number}"),
            "matches": [{"path": {"value": format!("/{number}")}}],
            "filters": [{"type": "URLRewrite", "urlRewrite": rewrite}],
            "backends": [{"service": format!("s{number}"), "port": 80}],
        })
    };
    let rules: Vec<Value> = (1..=5).map(rule).collect();
    named("Route", "x", "shop", json!({"spec": {"selectors": [{"name": "shop"}], "rules": rules}}))
}

fn works(rule: &Rule) -> bool {
    match &rule.action {
        Action::Forward(backends) => backends.iter().all(|b| matches!(b.target, BackendTarget::Cluster(_))),
        _ => false,
    }
}

fn working(fragment: &Fragment) -> Vec<String> {
    of(fragment, "shop").rules.iter().filter(|rule| works(rule)).map(|rule| rule.name.to_string()).collect()
}

fn serves(fragment: &Fragment, host: &str, path: &str) -> bool {
    let listeners: Vec<Arc<str>> = vec!["http".into()];
    let table = RouteTable::compile(&listeners, &fragment.selectors, None, |_, _, _| ());
    let request = routing::Request {
        method: &http::Method::GET,
        host,
        path,
        query: None,
        headers: &http::HeaderMap::new(),
        client_ip: std::net::Ipv4Addr::LOCALHOST.into(),
        now: Now::Ask(std::time::SystemTime::now),
    };
    table.find(ListenerIndex(0), &request).is_ok()
}

fn verdict<'a>(fragment: &'a Fragment, name: &str) -> &'a Verdict {
    fragment.verdicts.iter().find(|v| v.kind == ir::Kind::Route && &*v.object.name == name).unwrap()
}

#[test]
fn one_rule_without_its_service_and_one_that_is_wrong_leave_three_as_they_were() {
    let mut index = index();
    index.apply(selector("x", "shop", json!({"hostnames": ["shop.test"]})));
    (1..=5).for_each(|number| index.apply(service("x", &format!("s{number}"), http())));
    index.apply(five("^/a"));
    let (fragment, _) = index.take_table().unwrap();
    assert_eq!(working(&fragment), ["r1", "r2", "r3", "r4", "r5"]);

    index.delete(Kind::Service, &ObjectName::new("x", "s3"));
    let (fragment, _) = index.take_table().unwrap();
    assert_eq!(working(&fragment), ["r1", "r2", "r4", "r5"]);
    let resolved = &verdict(&fragment, "shop").resolved_refs;
    assert!(!resolved.ok && resolved.message.contains("s3"), "{resolved:?}");

    index.apply(five("("));
    let (fragment, _) = index.take_table().unwrap();
    assert_eq!(working(&fragment), ["r1", "r2", "r5"]);
    // Both are there still, and answer 500: the others must not get their requests.
    assert_eq!(of(&fragment, "shop").rules.len(), 5);
    let verdict = verdict(&fragment, "shop");
    assert!(!verdict.accepted.ok && verdict.accepted.message.contains("rules[3]"), "{:?}", verdict.accepted);
    assert!(verdict.resolved_refs.message.contains("s3"), "{:?}", verdict.resolved_refs);
}

#[test]
fn objects_that_say_next_to_nothing_are_served_as_nothing_and_touch_nobody() {
    let mut index = small();
    let (before, _) = index.take_table().unwrap();
    let bare = [
        json!({"hostnames": ["bare.test"]}),
        json!({"hostnames": ["bare.test"], "tls": {"secretName": "none"}}),
        json!({"hostnames": ["bare.test"], "match": {"conditions": []}}),
    ];
    let rules = [json!([]), json!([{}]), json!([{"matches": []}]), json!([{"matches": [{}]}])];
    for (spec, rules) in bare.iter().flat_map(|spec| rules.iter().map(move |rules| (spec, rules))) {
        index.apply(selector("x", "bare", spec.clone()));
        index.apply(named("Route", "x", "bare", json!({"spec": {"selectors": [{"name": "bare"}], "rules": rules}})));
        let Some((fragment, _)) = index.take_table() else { continue };
        for name in ["a", "b"] {
            assert!(Arc::ptr_eq(of(&before, name), of(&fragment, name)), "{name} {spec} {rules}");
        }
        if let Some(bare) = fragment.selectors.iter().find(|selector| &*selector.origin.object.name == "bare") {
            assert!(!bare.rules.iter().any(|rule| works(rule)), "{spec} {rules}");
        }
    }
    index.delete(Kind::Route, &ObjectName::new("x", "bare"));
    index.apply(selector("x", "bare", bare[0].clone()));
    let (fragment, _) = index.take_table().unwrap();
    // The host is known, and has nothing: 404, which no other host's rule answers.
    assert!(!serves(&fragment, "bare.test", "/"));
    assert!(serves(&fragment, "a.example.com", "/a"));
}
