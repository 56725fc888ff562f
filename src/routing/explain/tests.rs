use super::super::testing::*;
use super::super::*;
use super::*;
use crate::ir::{Condition, ConditionSet, HeaderTest, Mode, Predicate, Selector, Source, StringTest};

fn explain(selectors: Vec<Selector>, request: &Owned) -> Explanation {
    table(selectors).explain(ListenerIndex(request.listener), &request.borrow(), Extent::default()).explanation
}

fn header(name: &str, values: &[&str]) -> Condition {
    Condition {
        source: Source::Header(name.parse().unwrap()),
        predicate: Predicate::Text(values.iter().map(|value| StringTest::Exact((*value).into())).collect()),
        negate: false,
    }
}

fn with(name: &str, mode: Mode, conditions: Vec<Condition>) -> Selector {
    let mut selector = selector(name, &["x.test"], vec![rule(name, vec![on("/")])]);
    selector.conditions = ConditionSet { mode, conditions };
    selector
}

/// The criteria by which the runners-up of `GET x.test/a/b?q=1` with the headers `x: 1` and `y: 1` lost.
fn criteria(matches: Vec<(&str, i64, ir::Match)>) -> Vec<(Criterion, String)> {
    let rules = matches.into_iter().zip(0..);
    let rules =
        rules.map(|((route, created, matching), index)| rule_of(origin(created, route), index, "r", vec![matching]));
    let request = get("x.test/a/b?q=1").header("x", b"1").header("y", b"1");
    let told = explain(vec![selector("s", &["x.test"], rules.collect())], &request);
    told.runners_up.shown.into_iter().map(|runner_up| (runner_up.criterion, runner_up.because)).collect()
}

#[test]
fn each_criterion_has_its_name() {
    let one = || on("/a").header("x", exact("1"));
    let cases = [
        (on("=/a/b"), on("~/a/.*"), Criterion::PathType, "a path of type Exact comes before a Regex"),
        (
            on("~/a/b.*"),
            on("~/a/.*"),
            Criterion::RegexLength,
            "the winner's regular expression has 6 bytes, this one 5",
        ),
        (
            on("/a/b"),
            on("/a/*"),
            Criterion::PathSegments,
            "path segment 2: the winner has the literal \"b\", this one any segment",
        ),
        (on("/a").method("GET"), one(), Criterion::Methods, "the winner names methods, this one none"),
        (one().header("y", exact("1")), one(), Criterion::Headers, "headers: the winner has 2, this one 1"),
        (
            one(),
            on("/a").header("x", HeaderTest::Present),
            Criterion::ExactHeaders,
            "headers of type Exact: the winner has 1, this one 0",
        ),
        (on("/a").query("q", exact("1")), on("/a"), Criterion::Query, "query parameters: the winner has 1, this one 0"),
        (
            on("/a").condition(header("x", &["1"])),
            on("/a"),
            Criterion::Conditions,
            "conditions: the winner has 1, this one 0",
        ),
    ];
    for (winner, loser, criterion, because) in cases {
        assert_eq!(criteria(vec![("r", 0, loser), ("r", 0, winner)]), [(criterion, because.to_owned())]);
    }
    let age = criteria(vec![("a", 2, on("/a")), ("b", 1, on("/a"))]);
    assert_eq!(age, [(Criterion::RouteAge, "Route ns/b is older".to_owned())]);
    let name = criteria(vec![("b", 1, on("/a")), ("a", 1, on("/a"))]);
    assert_eq!(name, [(Criterion::RouteName, "as old, and ns/a sorts first".to_owned())]);
    let order = criteria(vec![("r", 1, on("/a")), ("r", 1, on("/a"))]);
    assert_eq!(order, [(Criterion::RuleOrder, "the winner's rule stands first in the Route".to_owned())]);
    let twice = vec![selector("s", &["x.test"], vec![rule("r", vec![on("/"), on("/")])])];
    let told = explain(twice, &get("x.test/"));
    assert_eq!(told.runners_up.shown[0].criterion, Criterion::MatchOrder);
}

#[test]
fn losers_tell_what_is_wanted_and_what_is_there() {
    let rules = vec![rule(
        "r",
        vec![
            on("/b"),
            on("/a").method("PUT").method("POST"),
            on("/a").header("x", exact("2")),
            on("/a").header("z", HeaderTest::Present),
            on("/a").query("q", HeaderTest::Absent),
            on("/a").condition(Condition { negate: true, ..header("x", &["1", "2"]) }),
        ],
    )];
    let request = get("x.test/a?q=%31&q=b").header("x", b"1").header("x", b"3");
    let told = explain(vec![selector("s", &["x.test"], rules)], &request);
    let mut lines: Vec<String> = told.losers.shown.iter().map(|loser| loser.mismatch.to_string()).collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "Header x: wants Exact \"2\", has \"1\", \"3\"",
            "Header x: wants not Exact \"1\" or \"2\", has \"1\", \"3\"",
            "Header z: wants Present, has none",
            "Method: wants Exact \"PUT\" or \"POST\", has \"GET\"",
            "Path: wants Prefix \"/b\", has \"/a\"",
            "Query q: wants Absent, has \"1\", \"b\"",
        ]
    );
    assert_eq!(told.outcome, Outcome::NoMatch);
    // Those whose path fits come nearer than the one whose path does not.
    assert!(told.nearest.iter().all(|near| near.mismatch.part != Part::Path), "{:?}", told.nearest);
}

#[test]
fn selectors_are_told_in_the_order_in_which_they_are_asked() {
    let time = Condition {
        source: Source::Time,
        predicate: Predicate::Before(vec![ir::TimePoint::Instant(0)]),
        negate: false,
    };
    let mut first = with("first", Mode::All, vec![header("a", &["1"]), header("b", &["1"]), time]);
    first.priority = 1;
    let told = explain(
        vec![
            with("open", Mode::All, vec![]),
            with("any", Mode::Any, vec![header("a", &["2"]), header("b", &["2"])]),
            with("one", Mode::All, vec![header("a", &["1"])]),
            first,
        ],
        &get("x.test/").header("a", b"1"),
    );
    let trials: Vec<_> = told.selectors.shown.iter().map(|trial| (&*trial.selector, trial.result)).collect();
    assert_eq!(
        trials,
        [("ns/first", Trial::Failed), ("ns/any", Trial::Failed), ("ns/one", Trial::Took), ("ns/open", Trial::NotAsked)]
    );
    let mismatches =
        |at: usize| -> Vec<String> { told.selectors.shown[at].mismatches.iter().map(ToString::to_string).collect() };
    assert_eq!(mismatches(0), ["Header b: wants Exact \"1\", has none"]);
    assert_eq!(mismatches(1), ["Header a: wants Exact \"2\", has \"1\"", "Header b: wants Exact \"2\", has none"]);
    let would = told.selectors.shown[3].would_take.as_ref().expect("it would take it");
    assert_eq!((&*would.route, &*would.rule), ("ns/r", "open"));
}

#[test]
fn less_specific_hosts_are_not_asked() {
    let told = explain(
        vec![
            selector("exact", &["a.b.test"], vec![]),
            selector("near", &["*.b.test"], vec![rule("near", vec![on("/x")])]),
            selector("far", &["*.test"], vec![rule("far", vec![on("/")])]),
            selector("any", &["*"], vec![rule("any", vec![on("/")])]),
        ],
        &get("a.b.test/"),
    );
    assert_eq!((told.outcome, told.host.hostname.as_deref()), (Outcome::NoMatch, Some("a.b.test")));
    let hosts: Vec<_> = told
        .host
        .less_specific
        .shown
        .iter()
        .map(|host| (&*host.hostname, host.would_take.as_ref().map(|w| &*w.rule)))
        .collect();
    assert_eq!(hosts, [("*.b.test", None), ("*.test", Some("far")), ("*", Some("any"))]);
}

#[test]
fn unknown_hosts_have_near_ones() {
    let mut secure = selector("secure", &["shop.example.test"], vec![]);
    secure.listeners = vec!["https".into()];
    let selectors = || {
        vec![
            secure.clone(),
            selector("typo", &["shap.example.test"], vec![]),
            selector("wild", &["*.shop.example.test"], vec![]),
            selector("other", &["pay.other.test"], vec![]),
        ]
    };
    let told = explain(selectors(), &get("shop.example.test/"));
    assert_eq!(told.outcome, Outcome::NoHost);
    let near: Vec<_> = told.host.nearest.iter().map(|near| (&*near.selector, &*near.because)).collect();
    assert_eq!(
        near,
        [
            ("ns/secure", "is served on other listeners: https"),
            ("ns/wild", "a wildcard wants at least one label before its suffix"),
            ("ns/typo", "is spelt differently"),
        ]
    );
}

#[test]
fn a_match_that_nothing_fits_is_told_as_well() {
    let deep = "/a".repeat(65);
    let told = explain(
        vec![selector("s", &["x.test"], vec![rule("r", vec![on(&deep), on("/")])])],
        &get(&format!("x.test{deep}")),
    );
    assert_eq!(told.winner.map(|winner| winner.place.match_index), Some(1));
    assert_eq!((told.losers.total(), told.losers.shown[0].place.rank), (1, None));
}

#[test]
fn slips_in_paths_come_nearest() {
    let paths = ["/cart", "/orders", "/shop/cart", "/shop/{id}/item", "~/shop/[0-9]+"];
    let near = |request: &str| -> Vec<String> {
        let rules = vec![rule("r", paths.iter().map(|path| on(path).method("GET")).collect())];
        let told = explain(vec![selector("s", &["x.test"], rules)], &get(&format!("x.test{request}")));
        told.nearest.into_iter().map(|near| near.place.matching.path).collect()
    };
    assert_eq!(near("/carts"), ["Prefix /cart"]);
    assert_eq!(near("/shop/7/items"), ["Pattern /shop/{id}/item", "Regex /shop/[0-9]+", "Prefix /shop/cart"]);
    assert_eq!(near("/other"), ["Prefix /orders"; 0]);
}

#[test]
fn long_values_are_cut() {
    let long = "\u{fc}".repeat(300);
    let request = get("x.test/").header("x", long.as_bytes());
    let told =
        explain(vec![selector("s", &["x.test"], vec![rule("r", vec![on("/").header("x", exact("1"))])])], &request);
    assert_eq!(told.losers.shown[0].mismatch.actual, [format!("{}\u{2026}", "\u{fc}".repeat(128))]);
}

#[test]
fn the_json_form_is_read_back() {
    let told = explain(vec![with("s", Mode::All, vec![])], &get("x.test/"));
    let json = serde_json::to_value(&told).unwrap();
    assert_eq!(json["winner"]["match"]["path"], "Prefix /");
    assert_eq!(serde_json::from_value::<Explanation>(json).unwrap(), told);
}
