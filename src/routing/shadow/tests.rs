use super::*;
use crate::ir::{Condition, ConditionSet, HeaderTest, Match, Mode, Predicate, Selector, Shadowed, Source, StringTest};
use crate::routing::testing::*;

mod properties;

/// What is found in a table of one Selector for `x.test`, whose matches are rules of Routes by their names, each a
/// second younger than the one before.
fn inside(matches: &[(&str, Match)]) -> Vec<String> {
    let rules =
        (0..).zip(matches).map(|(age, (name, matching))| rule_of(origin(age, name), 0, name, vec![matching.clone()]));
    across(vec![selector("s", &["x.test"], rules.collect())])
}

/// What is found in a table: `loser whole|part winner: witness`.
fn across(selectors: Vec<Selector>) -> Vec<String> {
    let found = find(&table(selectors));
    let name = |winner: &Winner| match winner {
        Winner::Match(matched) => matched.rule.to_string(),
        Winner::Selector(selector) => format!("Selector {}", selector.name),
    };
    let whole = found.iter().filter_map(|found| found.selector.as_ref());
    let whole = whole.map(|s| format!("Selector {} never {}: {}", s.selector.name, s.winner.name, s.witness));
    let matches = found.iter().flat_map(|found| &found.matches).map(|shadow| {
        let extent = if shadow.extent == Extent::Whole { "never" } else { "part" };
        format!("{} {extent} {}: {}", shadow.loser.rule, name(&shadow.winner), shadow.witness)
    });
    whole.chain(matches).collect()
}

fn when(source: Source, test: StringTest) -> Condition {
    Condition { source, predicate: Predicate::Text(vec![test]), negate: false }
}

fn is(text: &str) -> StringTest {
    StringTest::Exact(text.into())
}

fn header(name: &str, value: &str) -> Condition {
    when(Source::Header(name.parse().unwrap()), is(value))
}

fn all(conditions: Vec<Condition>) -> ConditionSet {
    ConditionSet { mode: Mode::All, conditions }
}

const NOTHING: [&str; 0] = [];

#[test]
fn the_same_match_twice_belongs_to_the_older_route() {
    for path in ["/a", "=/a", "/a/{x}/**", "~/a/[0-9]+"] {
        let with = || on(path).method("GET").header("x-user", exact("beta"));
        let found = inside(&[("old", with()), ("new", with()), ("newer", with())]);
        let witness = match path {
            "/a/{x}/**" => "/a/x",
            "~/a/[0-9]+" => "/a/0",
            _ => "/a",
        };
        let expected = |name| format!("{name} never old: GET http://x.test{witness} with x-user: beta");
        assert_eq!(found, [expected("new"), expected("newer")]);
    }
}

#[test]
fn what_is_more_specific_is_no_loss() {
    assert_eq!(
        inside(&[
            ("root", on("/")),
            ("cart", on("/cart")),
            ("items", on("/cart/items")),
            ("item", on("/cart/items/{id}")),
            ("new", on("=/cart/items/new")),
            ("get", on("/cart").method("GET")),
            ("beta", on("=/cart/items/new").method("GET").header("x-user", exact("beta"))),
            ("gamma", on("=/cart/items/new").method("GET").header("x-user", exact("gamma"))),
            ("digits", on("~/cart/items/[0-9]+")),
            ("files", on("/files/**")),
            ("pdf", on("/files/*/pdf")),
        ]),
        NOTHING
    );
}

#[test]
fn a_path_inside_a_regex_never_wins() {
    assert_eq!(
        inside(&[("api", on("~/api/.*")), ("v1", on("/api/v1")), ("root", on("/api")), ("exact", on("=/api/exact"))]),
        [
            "v1 never api: GET http://x.test/api/v1",
            // `/api` itself is left to it, and `.*` takes no more than the rest of it.
        ]
    );
    assert_eq!(
        inside(&[("long", on("~/[a-z]+/[0-9a-f]+")), ("short", on("~/a/[0-9]+")), ("pattern", on("/{x}/0"))]),
        ["short never long: GET http://x.test/a/0", "pattern part long: GET http://x.test/a/0"]
    );
}

#[test]
fn methods_together_take_everything() {
    // Those that list fewer methods are meant to win, so `three` loses nothing by accident.
    let found = inside(&[
        ("get", on("/a").method("GET")),
        ("post", on("/a").method("POST")),
        ("both", on("/a").method("POST").method("GET")),
        ("three", on("/a").method("POST").method("GET").method("PUT")),
        ("any", on("/a")),
    ]);
    assert_eq!(found, ["both never post: POST http://x.test/a"]);
}

#[test]
fn tests_that_imply_others_are_known() {
    let present = || on("/a").header("x", HeaderTest::Present).header("y", HeaderTest::Present);
    let exact_x = || on("/a").header("x", exact("12")).header("y", exact("1"));
    let prefix = || on("/a").header("x", HeaderTest::Prefix("1".into())).header("x", HeaderTest::Suffix("2".into()));
    // More exact headers rank better, so the tests that imply others win, and those lose by intent.
    assert_eq!(
        inside(&[("present", present()), ("exact", exact_x()), ("prefix", prefix())]),
        ["prefix part present: GET http://x.test/a with x: 12 and y: other"]
    );
    let network = |text: &str| Condition {
        source: Source::ClientIp,
        predicate: Predicate::Cidr(vec![text.parse().unwrap()]),
        negate: false,
    };
    assert_eq!(
        inside(&[
            ("wide", on("/a").condition(network("10.0.0.0/8"))),
            ("narrow", on("/a").condition(network("10.1.0.0/16"))),
        ]),
        ["narrow never wide: GET http://x.test/a from 10.1.0.1"]
    );
}

#[test]
fn crossing_matches_lose_a_part() {
    for (first, second, witness) in [
        (on("/{x}/b"), on("/a/{y}"), "GET http://x.test/a/b"),
        (on("/a/{x}/c"), on("/a/b/{y}"), "GET http://x.test/a/b/c"),
        (on("/a/{x}/c/**"), on("/a/b"), "GET http://x.test/a/b/c"),
        (on("/a").header("x-user", exact("beta")), on("/a/b"), "GET http://x.test/a/b with x-user: beta"),
        (on("/a").header("x-user", exact("beta")), on("=/a/b"), "GET http://x.test/a/b with x-user: beta"),
        (on("/a").header("x-user", exact("beta")), on("/a").method("PUT"), "PUT http://x.test/a with x-user: beta"),
        (on("/a"), on("~/a?/[0-9]+"), "GET http://x.test/a/0"),
        (on("~/a/.*").query("v", exact("2")), on("=/a/b"), "GET http://x.test/a/b?v=2"),
        (
            on("/a").header("x", HeaderTest::Regex(ir::Regex::new("[0-9]{3}").unwrap())),
            on("/a").header("y", exact("1")),
            "GET http://x.test/a with x: 000 and y: 1",
        ),
    ] {
        let found = inside(&[("loser", first.clone()), ("winner", second.clone())]);
        assert_eq!(found, [format!("loser part winner: {witness}")], "{first:?} {second:?}");
    }
}

#[test]
fn other_values_of_one_header_are_no_loss() {
    let version = |value: &str| on("/a").header("x-version", exact(value));
    assert_eq!(inside(&[("one", version("1")), ("two", version("2")), ("none", on("/a"))]), NOTHING);
}

#[test]
fn a_match_that_nothing_fits_is_not_shadowed() {
    let never = on("/a").header("x", exact("1")).header("x", HeaderTest::Absent);
    assert_eq!(
        inside(&[("never", never.clone()), ("again", never), ("regex", on("~a")), ("regex2", on("~a"))]),
        NOTHING
    );
}

#[test]
fn a_selector_behind_another_one_never_wins() {
    let rules = |name| vec![rule(name, vec![on("/a")])];
    let mut first = selector("first", &["a.test", "b.test"], rules("first"));
    let second = selector("second", &["a.test"], rules("second"));
    let third = selector("third", &["b.test", "c.test"], rules("third"));
    first.priority = 1;
    assert_eq!(
        across(vec![first.clone(), second.clone(), third.clone()]),
        [
            "Selector second never first: GET http://a.test/",
            "second never first: GET http://a.test/a",
            "third part first: GET http://b.test/a",
        ]
    );
    first.conditions = all(vec![header("x-channel", "app")]);
    assert_eq!(across(vec![first.clone(), second, third.clone()]), NOTHING, "more conditions are meant to win");
    let mut narrow = third;
    narrow.conditions = all(vec![header("x-user", "beta"), header("x-channel", "app")]);
    assert_eq!(
        across(vec![first, narrow]),
        ["third part first: GET http://b.test/a with x-user: beta and x-channel: app"]
    );
}

#[test]
fn a_selector_without_a_match_still_takes_the_request() {
    let mut first = selector("first", &["*"], vec![rule("other", vec![on("/other")])]);
    first.conditions = all(vec![when(Source::Path, StringTest::Prefix("/api".into()))]);
    let second = selector("second", &["*"], vec![rule("api", vec![on("/api/v1"), on("/")])]);
    assert_eq!(across(vec![first, second]), ["api never Selector first: GET http://www.example/api/v1"]);
}

#[test]
fn conditions_that_do_not_contain_each_other_cross() {
    let network = Condition {
        source: Source::ClientIp,
        predicate: Predicate::Cidr(vec!["10.0.0.0/8".parse().unwrap()]),
        negate: true,
    };
    let mut first = selector("first", &["*.x.test"], vec![rule("first", vec![on("/")])]);
    first.conditions = all(vec![header("x-channel", "app")]);
    first.priority = 1;
    let mut second = selector("second", &["*.x.test"], vec![rule("second", vec![on("/")])]);
    second.conditions = all(vec![network]);
    assert_eq!(
        across(vec![first, second]),
        ["second part first: GET http://www.x.test/ with x-channel: app from 192.0.2.1"]
    );
}

#[test]
fn a_witness_goes_around_selectors_that_are_asked_first() {
    let mut first = selector("first", &["*"], vec![rule("first", vec![on("/")])]);
    first.conditions = all(vec![Condition { negate: true, ..header("x-canary", "1") }]);
    let second = selector(
        "second",
        &["*"],
        vec![rule_of(origin(0, "a"), 0, "old", vec![on("/a")]), rule_of(origin(1, "b"), 0, "new", vec![on("/a")])],
    );
    assert_eq!(across(vec![first, second]), ["new never old: GET http://www.example/a with x-canary: 1"]);
}

#[test]
fn a_wildcard_host_is_one_that_no_exact_hostname_takes() {
    let twice =
        || vec![rule_of(origin(0, "a"), 0, "old", vec![on("/")]), rule_of(origin(1, "b"), 0, "new", vec![on("/")])];
    let one = selector("one", &["www.x.test"], vec![rule("one", vec![on("/")])]);
    let mut wild = selector("wild", &["*.x.test"], twice());
    wild.listeners = vec!["https".into()];
    assert_eq!(across(vec![one, wild]), ["new never old: GET https://host.x.test/"]);
}

fn shop(rules: Vec<ir::Rule>) -> Vec<Selector> {
    vec![selector("shop", &["shop.example.com"], rules)]
}

#[test]
fn reports_say_what_where_and_by_which_request() {
    let mut beta = on("/a").header("x-user", exact("beta")).query("v", exact("2 3"));
    beta = beta.header("x-app", HeaderTest::Present);
    let rules = vec![
        rule_of(origin(0, "legacy"), 0, "old", vec![on("/cart")]),
        rule_of(origin(1, "cart"), 0, "cart", vec![on("/a/b"), on("/cart"), beta]),
    ];
    let mut first = selector("first", &["old.example.com"], vec![]);
    first.priority = 1;
    let last = selector("last", &["old.example.com"], vec![rule("all", vec![on("/")])]);
    let found = find(&table(shop(rules).into_iter().chain([first, last]).collect()));
    let told: Vec<String> = told(&found)
        .into_iter()
        .map(|Shadowed { kind, object, parent, extent, message }| {
            format!("{kind} {object} at {:?}: {extent:?}: {message}", parent.map(|p| p.to_string()))
        })
        .collect();
    let expected = [
        "Selector ns/last at None: Whole: no request reaches it: Selector ns/first is asked first and takes \
         GET http://old.example.com/",
        "Route ns/cart at Some(\"ns/shop\"): Whole: \
         rule cart match 1 never wins: Route ns/legacy rule old match 0 takes GET http://shop.example.com/cart; \
         rule cart match 2 loses a part of its requests: Route ns/cart rule cart match 0 takes \
         GET http://shop.example.com/a/b?v=2%203 with x-user: beta and x-app: 1",
        "Route ns/r at Some(\"ns/last\"): Whole: \
         rule all match 0 never wins: Selector ns/first, which has no match for it, takes GET http://old.example.com/",
    ];
    assert_eq!(told, expected);
    let shadow = &found.iter().find(|found| !found.matches.is_empty()).unwrap().matches[0];
    assert!(shadow.to_string().starts_with("Route ns/"), "{shadow}");
}

#[test]
fn a_message_tells_of_the_first_few_and_stays_short() {
    let matches: Vec<Match> = (0..64).map(|n| on(&format!("/{}/{n}", "long".repeat(70)))).collect();
    let huge = format!("/{}", "long".repeat(500));
    let rules = vec![
        rule_of(origin(0, "old"), 0, "old", matches.clone()),
        rule_of(origin(1, "new"), 0, "new", matches),
        rule_of(origin(2, "huge"), 0, "huge", vec![on(&huge), on(&huge)]),
    ];
    let told = told(&find(&table(shop(rules))));
    let [huge, new] = &told[..] else { panic!("{told:?}") };
    assert!(new.message.ends_with("; and 62 more") && new.message.contains("match 1 never wins"), "{}", new.message);
    assert!(huge.message.ends_with("...") && huge.message.len() < 1024, "{}", huge.message);
    assert!(new.message.len() < 1024);
}
