use std::net::IpAddr;

use super::testing::*;
use super::*;
use crate::ir::{Condition, ConditionSet, HeaderTest, Mode, Predicate, Source, StringTest};

pub(super) mod properties;

/// Asks a table of one Selector for `x.test`, whose rules are named after their one match's path.
fn expect_paths(paths: &[&str], expected: &[(&str, &str)]) {
    // In both orders, so that nothing depends on it.
    for reverse in [false, true] {
        let mut rules: Vec<_> = paths.iter().map(|text| rule(text, vec![on(text)])).collect();
        if reverse {
            rules.reverse();
        }
        let table = table(vec![selector("s", &["x.test"], rules)]);
        for (request, rule) in expected {
            assert_eq!(table.ask(&get(&format!("x.test{request}"))), *rule, "{request} of {paths:?}");
        }
    }
}

/// Asks a table of one Selector for `x.test`, where every match is a rule of that name.
fn expect_matches(matches: &[(&str, ir::Match)], expected: &[(Owned, &str)]) {
    for reverse in [false, true] {
        let mut rules: Vec<_> = matches.iter().map(|(name, m)| rule(name, vec![m.clone()])).collect();
        if reverse {
            rules.reverse();
        }
        let table = table(vec![selector("s", &["x.test"], rules)]);
        for (request, rule) in expected {
            assert_eq!(table.ask(request), *rule, "{request:?}");
        }
    }
}

#[test]
fn the_most_specific_host_alone_is_asked() {
    let table = table(vec![
        selector("exact", &["my.example.test"], vec![rule("exact", vec![on("/a")])]),
        selector("short", &["*.example.test"], vec![rule("short", vec![on("/a/b"), on("/c")])]),
        selector("long", &["*.sub.example.test"], vec![rule("long", vec![on("/a")])]),
        selector("any", &["*"], vec![rule("any", vec![on("/")])]),
    ]);
    for (request, expected) in [
        ("my.example.test/a", "exact"),
        ("my.example.test/a/b", "exact"),
        ("my.example.test/c", "no_match"),
        ("other.example.test/c", "short"),
        ("two.labels.example.test/c", "short"),
        ("x.sub.example.test/a", "long"),
        ("x.y.sub.example.test/a", "long"),
        ("x.sub.example.test/c", "no_match"),
        ("sub.example.test/c", "short"),
        ("example.test/c", "any"),
        ("xexample.test/c", "any"),
        ("/c", "any"),
        ("[::1]/c", "any"),
        ("a.b.c.d.e.f.g.h.i.j.sub.example.test/a", "long"),
    ] {
        assert_eq!(table.ask(&get(request)), expected, "{request}");
    }
}

/// Field case 18: the wildcard is older and has the longer path.
#[test]
fn a_wildcard_host_never_takes_what_an_exact_host_lacks() {
    let mut wildcard = selector("w", &["*.example.test"], vec![rule("w", vec![on("/long/path")])]);
    wildcard.origin.created = -10;
    let table = table(vec![wildcard, selector("s", &["my.example.test"], vec![rule("s", vec![on("/long")])])]);
    assert_eq!(table.ask(&get("my.example.test/long/path")), "s");
    assert_eq!(table.ask(&get("my.example.test/elsewhere")), "no_match");
    assert_eq!(table.ask(&get("its.example.test/long/path")), "w");
}

#[test]
fn listeners_have_hosts_of_their_own() {
    let mut plain = selector("plain", &["a.test"], vec![rule("plain", vec![on("/")])]);
    plain.listeners = vec!["http".into(), "unknown".into()];
    let mut secure = selector("secure", &["*.test"], vec![rule("secure", vec![on("/")])]);
    secure.listeners = vec!["https".into()];
    let table = table(vec![plain, secure, selector("both", &["b.test"], vec![rule("both", vec![on("/")])])]);
    assert_eq!(table.listener("https"), Some(ListenerIndex(1)));
    assert_eq!(table.listener("unknown"), None);
    for (listener, host, expected) in [
        (0, "a.test/", "plain"),
        (1, "a.test/", "secure"),
        (0, "b.test/", "both"),
        (1, "b.test/", "both"),
        (0, "c.test/", "no_host"),
        (2, "a.test/", "no_host"),
    ] {
        let request = Owned { listener, ..get(host) };
        assert_eq!(table.ask(&request), expected, "{listener} {host}");
    }
}

fn header_is(name: &str, value: &str) -> Condition {
    Condition {
        source: Source::Header(name.parse().unwrap()),
        predicate: Predicate::Text(vec![StringTest::Exact(value.into())]),
        negate: false,
    }
}

#[test]
fn the_first_selector_whose_conditions_hold_decides() {
    let with = |name: &str, priority, created, conditions: &[Condition], mode| {
        let mut selector = selector(name, &["x.test"], vec![rule(name, vec![on(&format!("/{name}"))])]);
        selector.priority = priority;
        selector.origin.created = created;
        selector.conditions = ConditionSet { mode, conditions: conditions.to_vec() };
        selector
    };
    let (a, b) = (header_is("a", "1"), header_is("b", "1"));
    let table = table(vec![
        with("high", 1, 9, std::slice::from_ref(&a), Mode::All),
        with("two", 0, 9, &[a.clone(), b.clone()], Mode::All),
        with("either", 0, 8, &[a.clone(), b.clone()], Mode::Any),
        with("one", 0, 9, std::slice::from_ref(&b), Mode::All),
        with("older", 0, 1, &[], Mode::All),
        with("younger", 0, 2, &[], Mode::All),
        with("same-age", 0, 1, &[], Mode::All),
    ]);
    for (headers, expected) in [(&["a"][..], "high"), (&["a", "b"], "high"), (&["b"], "either"), (&[], "older")] {
        let request = headers.iter().fold(get("x.test"), |request, name| request.header(name, b"1"));
        // Only the Selector that decides has the path; all others answer 404.
        let at = |path: &str| table.ask(&Owned { path: format!("/{path}"), ..request.clone() });
        for name in ["high", "two", "either", "one", "older", "younger", "same-age"] {
            assert_eq!(at(name), if name == expected { name } else { "no_match" }, "{headers:?}");
        }
    }
}

#[test]
fn more_conditions_come_first_and_any_counts_as_one() {
    let with = |name: &str, created, mode| {
        let mut selector = selector(name, &["x.test"], vec![rule(name, vec![on("/")])]);
        selector.origin.created = created;
        selector.conditions = ConditionSet { mode, conditions: vec![header_is("a", "1"), header_is("b", "1")] };
        selector
    };
    let table = table(vec![with("any", 0, Mode::Any), with("all", 1, Mode::All)]);
    assert_eq!(table.ask(&get("x.test/").header("a", b"1").header("b", b"1")), "all");
    assert_eq!(table.ask(&get("x.test/").header("b", b"1")), "any");
    assert_eq!(table.ask(&get("x.test/")), "no_selector");
}

/// Field case 15.
#[test]
fn prefixes_match_whole_segments() {
    expect_paths(
        &["/", "/v2"],
        &[("/v2", "/v2"), ("/v2/", "/v2"), ("/v2/a", "/v2"), ("/v2example", "/"), ("/v2?x", "/v2"), ("/", "/")],
    );
    expect_paths(&["/a"], &[("/", "no_match"), ("/ab", "no_match"), ("//a", "no_match"), ("/a//", "/a")]);
    expect_paths(&["/a//b", "/a"], &[("/a//b", "/a//b"), ("/a//b/c", "/a//b"), ("/a/b", "/a"), ("/a//", "/a")]);
}

#[test]
fn exact_paths_are_byte_equal() {
    expect_paths(&["=/a", "=/a/"], &[("/a", "=/a"), ("/a/", "=/a/"), ("/A", "no_match"), ("/a/b", "no_match")]);
}

#[test]
fn patterns_match_segment_by_segment() {
    expect_paths(
        &["/a/*", "/b/**", "/{x}/c/{y}"],
        &[
            ("/a/x", "/a/*"),
            ("/a/", "no_match"),
            ("/a", "no_match"),
            ("/a/x/", "no_match"),
            ("/b", "/b/**"),
            ("/b/", "/b/**"),
            ("/b/x/y", "/b/**"),
            ("/bx", "no_match"),
            ("/x/c/y", "/{x}/c/{y}"),
            ("/a/c/y", "/{x}/c/{y}"),
            ("/b/c/y", "/b/**"),
            ("//c/y", "no_match"),
        ],
    );
    expect_paths(&["/**"], &[("/", "/**"), ("/a/b", "/**"), ("//", "/**")]);
    expect_paths(&["!/", "!/a/"], &[("/", "!/"), ("/a/", "!/a/"), ("/a", "no_match"), ("//", "no_match")]);
}

/// Field case 21.
#[test]
fn exact_beats_regex_beats_pattern_and_prefix() {
    expect_paths(
        &["=/a/b", "~/a/(.*)+", "/a", "/a/b", "/a/*", "!/a/b"],
        &[("/a/b", "=/a/b"), ("/a/c", "~/a/(.*)+"), ("/a", "/a")],
    );
    expect_paths(&["~/a.*", "~/a/b.*", "~.*"], &[("/a/b", "~/a/b.*"), ("/a", "~/a.*"), ("/b", "~.*")]);
    expect_paths(&["~a", "~/a|/b"], &[("/a", "~/a|/b"), ("/b", "~/a|/b"), ("/ab", "no_match"), ("/", "no_match")]);
}

#[test]
fn a_regex_stays_linear_on_a_long_path() {
    let long = format!("/a/{}", "a/".repeat(5000));
    expect_paths(
        &["~/a/(.*)+x", "~/(a+/?)+b", "~(/?a*)*c", "/a"],
        &[(long.as_str(), "/a"), (format!("{long}x").as_str(), "~/a/(.*)+x")],
    );
}

#[test]
fn patterns_and_prefixes_compare_segment_by_segment() {
    // A literal beats one segment, one segment beats the end: first difference decides, not depth.
    expect_paths(&["/a", "/*/b/c/**"], &[("/a/b/c", "/a"), ("/x/b/c", "/*/b/c/**")]);
    expect_paths(&["/a/*", "/a"], &[("/a/b", "/a/*"), ("/a/b/c", "/a"), ("/a/", "/a")]);
    expect_paths(&["/*/b", "/a/*"], &[("/a/b", "/a/*"), ("/x/b", "/*/b")]);
    expect_paths(&["/a/*/c", "/a/b"], &[("/a/b/c", "/a/b"), ("/a/x/c", "/a/*/c")]);
    // At the end: Pattern, then Prefix, then `**`.
    expect_paths(&["!/a", "/a", "/a/**"], &[("/a", "!/a"), ("/a/", "/a"), ("/a/b", "/a")]);
    expect_paths(&["/a/**", "/a/*"], &[("/a/b", "/a/*"), ("/a/b/c", "/a/**"), ("/a", "/a/**")]);
    expect_paths(&["/*/**", "/"], &[("/a", "/*/**"), ("/", "/")]);
}

#[test]
fn the_next_best_path_is_tried() {
    expect_matches(
        &[
            ("exact", on("=/a/b").method("POST")),
            ("regex", on("~/a/b").header("x", exact("1"))),
            ("literal", on("/a/b").method("PUT")),
            ("one", on("/a/*").query("q", exact("1"))),
            ("prefix", on("/a")),
        ],
        &[
            (get("x.test/a/b").method("POST"), "exact"),
            (get("x.test/a/b").header("x", b"1"), "regex"),
            (get("x.test/a/b").method("PUT"), "literal"),
            (get("x.test/a/b?q=1"), "one"),
            (get("x.test/a/b"), "prefix"),
        ],
    );
}

/// Field case 14.
#[test]
fn methods_beat_headers() {
    expect_matches(
        &[
            ("method", on("/coffee").method("GET")),
            ("headers", on("/coffee").header("x", exact("1")).header("y", exact("2"))),
        ],
        &[
            (get("x.test/coffee").header("x", b"1").header("y", b"2"), "method"),
            (get("x.test/coffee").header("x", b"1").header("y", b"2").method("PUT"), "headers"),
        ],
    );
}

#[test]
fn matches_of_a_path_have_one_order() {
    let condition = |name: &str| header_is(name, "1");
    let request = || get("x.test/?q=1&r=1").header("a", b"1").header("b", b"1").header("c", b"1");
    // Each pair differs in one key, and the loser leads in all that come after it.
    for (winner, loser) in [
        (
            on("/").header("a", exact("1")).header("b", HeaderTest::Present),
            on("/").header("a", exact("1")).query("q", exact("1")),
        ),
        (
            on("/").header("a", exact("1")),
            on("/").header("a", HeaderTest::Present).query("q", exact("1")).condition(condition("b")),
        ),
        (on("/").query("q", exact("1")), on("/").condition(condition("a")).condition(condition("b"))),
        (on("/").condition(condition("a")).condition(condition("b")), on("/").condition(condition("c"))),
    ] {
        expect_matches(&[("winner", winner.clone()), ("loser", loser.clone())], &[(request(), "winner")]);
        expect_matches(&[("a loser", loser), ("winner", winner)], &[(request(), "winner")]);
    }
}

#[test]
fn ties_go_to_the_oldest_route_then_its_name_then_its_order() {
    let tables = |rules: Vec<ir::Rule>| table(vec![selector("s", &["x.test"], rules)]);
    let old = || rule_of(origin(1, "z"), 5, "old", vec![on("/")]);
    let young = || rule_of(origin(2, "a"), 0, "young", vec![on("/")]);
    let named = || rule_of(origin(1, "y"), 9, "named", vec![on("/")]);
    let first = || rule_of(origin(1, "y"), 2, "first", vec![on("/b"), on("/")]);
    for (rules, expected) in [
        (vec![young(), old()], "old"),
        (vec![old(), named(), young()], "named"),
        (vec![named(), first(), old()], "first"),
    ] {
        assert_eq!(tables(rules).ask(&get("x.test/")), expected);
    }
    let twice = rule("r", vec![on("/b"), on("/"), on("/")]);
    let table = tables(vec![twice]);
    let request = get("x.test/");
    assert_eq!(outcome(&table.find(ListenerIndex(0), &request.borrow())), "s r 1");
}

#[test]
fn counting_is_per_match() {
    // The rule has more headers in another match; that must not help this one.
    let table = table(vec![selector(
        "s",
        &["x.test"],
        vec![
            rule("many", vec![on("/b").header("a", exact("1")).header("b", exact("1")), on("/")]),
            rule_of(origin(1, "young"), 0, "one", vec![on("/").header("a", exact("1"))]),
        ],
    )]);
    assert_eq!(table.ask(&get("x.test/").header("a", b"1").header("b", b"1")), "one");
}

#[test]
fn methods_are_compared_by_case_and_may_be_unknown() {
    expect_matches(
        &[("purge", on("/a").method("PURGE")), ("two", on("/b").method("GET").method("BAN")), ("any", on("/c"))],
        &[
            (get("x.test/a").method("PURGE"), "purge"),
            (get("x.test/a").method("BAN"), "no_match"),
            (get("x.test/a").method("purge"), "no_match"),
            (get("x.test/a"), "no_match"),
            (get("x.test/b"), "two"),
            (get("x.test/b").method("BAN"), "two"),
            (get("x.test/b").method("get"), "no_match"),
            (get("x.test/c").method("ANYTHING"), "any"),
        ],
    );
}

#[test]
fn a_prefix_rewrite_knows_its_length() {
    for (path, request, len) in [
        ("/api", "/api/x", 4),
        ("/", "/api/x", 0),
        ("=/api/x", "/api/x", 6),
        ("!/api/x", "/api/x", 6),
        ("/api/{v}/y", "/api/x/y", 4),
        ("/api/v/**", "/api/v", 6),
        ("/**", "/api/v", 0),
        ("~/api.*", "/api/v", 0),
    ] {
        let table = table(vec![selector("s", &["x.test"], vec![rule("r", vec![on(path)])])]);
        let request = get(&format!("x.test{request}"));
        let found = table.find(ListenerIndex(0), &request.borrow()).unwrap();
        assert_eq!(found.matched_prefix_len(), len, "{path}");
    }
}

#[test]
fn unchanged_selectors_keep_what_was_compiled() {
    let one = Arc::new(selector("one", &["a.test"], vec![rule("a", vec![on("/")]), rule("b", vec![on("/b")])]));
    let two = Arc::new(selector("two", &["b.test"], vec![rule("c", vec![on("/")])]));
    let mut made = Vec::new();
    let mut compile = |selectors: &[Arc<ir::Selector>], previous: Option<&RouteTable<usize>>| {
        RouteTable::compile(&listeners(), selectors, previous, |selector, rule, _| {
            made.push(format!("{} {}", selector.origin.object.name, rule.name));
            made.len()
        })
    };
    let first = compile(&[Arc::clone(&one), Arc::clone(&two)], None);
    let edited = Arc::new(selector("two", &["b.test"], vec![rule("d", vec![on("/")])]));
    let second = compile(&[edited, Arc::clone(&one)], Some(&first));
    let all = compile(&[one], None);
    let payloads = |table: &RouteTable<usize>| table.payloads().map(|(_, _, p)| *p).collect::<Vec<_>>();
    assert_eq!(payloads(&first), [1, 2, 3]);
    assert_eq!(payloads(&second), [1, 2, 4]);
    assert_eq!(payloads(&all), [5, 6]);
    assert_eq!(made, ["one a", "one b", "two c", "two d", "one a", "one b"]);
    let request = get("b.test/");
    assert_eq!(*second.find(ListenerIndex(0), &request.borrow()).unwrap().payload, 4);
}

#[test]
fn rules_of_an_edited_selector_are_shown_what_was_made_of_them() {
    let rules = |names: &[&str]| names.iter().map(|name| Arc::new(rule(name, vec![on("/")]))).collect::<Vec<_>>();
    let with = |name: &str, rules: &[Arc<ir::Rule>]| {
        Arc::new(ir::Selector { rules: rules.to_vec(), ..selector(name, &["a.test"], vec![]) })
    };
    let compile = |selectors: &[Arc<ir::Selector>], previous: Option<&RouteTable<(String, bool)>>| {
        RouteTable::compile(&listeners(), selectors, previous, |selector, rule, former: Option<&(String, bool)>| {
            let name = format!("{} {}", selector.origin.object.name, rule.name);
            assert!(former.is_none_or(|(former, _)| *former == name), "{former:?} is shown to {name}");
            (name, former.is_some())
        })
    };
    let [a, b, c] = <[_; 3]>::try_from(rules(&["a", "b", "c"])).unwrap();
    let first = compile(&[with("one", &[a.clone(), b.clone()]), with("two", std::slice::from_ref(&c))], None);
    let again = rules(&["a"]).remove(0);
    let second = compile(&[with("one", &[c.clone(), b, again]), with("two", &[c])], Some(&first));
    let told: Vec<String> = second.payloads().map(|(_, _, (name, known))| format!("{name} {known}")).collect();
    assert_eq!(told, ["one c false", "one b true", "one a false", "two c true"]);
}

#[test]
fn empty_tables_and_selectors_miss() {
    assert_eq!(table(vec![]).ask(&get("x.test/")), "no_host");
    assert_eq!(table(vec![selector("s", &["x.test"], vec![])]).ask(&get("x.test/")), "no_match");
    assert_eq!(table(vec![selector("s", &["x.test"], vec![rule("r", vec![])])]).ask(&get("x.test/")), "no_match");
}

#[test]
fn what_a_match_may_not_look_at_is_left_out() {
    let deep = "/a".repeat(64);
    let deeper = "/a".repeat(65);
    expect_paths(
        &[deep.as_str(), deeper.as_str(), "/a/**"],
        &[(deep.as_str(), deep.as_str()), (deeper.as_str(), deep.as_str()), ("/a/b", "/a/**")],
    );
    let pattern = format!("!{deep}");
    expect_paths(&[&pattern, "/"], &[(&deep, &pattern), (&deeper, "/"), (&format!("{deep}/"), "/")]);
}

#[test]
fn requests_of_either_address_family_are_one() {
    let client = |text: &str| Owned { client_ip: text.parse::<IpAddr>().unwrap(), ..get("x.test/") };
    let network = Condition {
        source: Source::ClientIp,
        predicate: Predicate::Cidr(vec!["10.0.0.0/8".parse().unwrap()]),
        negate: false,
    };
    expect_matches(
        &[("inside", on("/").condition(network)), ("outside", on("/"))],
        &[(client("10.1.2.3"), "inside"), (client("::ffff:10.1.2.3"), "inside"), (client("::1"), "outside")],
    );
}
