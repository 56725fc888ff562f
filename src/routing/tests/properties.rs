//! Random tables and requests over small alphabets, so that everything collides.

mod explain;

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use super::super::reference;
use super::super::testing::*;
use super::*;
use crate::ir::{Hostname, Match, PathMatch, PathPattern, Regex, Rule, Selector, TimePoint};

/// How many tables each property tries; `LOCKGATE_PROPTEST_CASES` overrides it.
pub(in crate::routing) fn config(tables: u32) -> ProptestConfig {
    let cases = std::env::var("LOCKGATE_PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(tables), ..ProptestConfig::default() }
}

/// Compiled once, for that is what costs.
static REGEXES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let sources = ["/a.*", "/a/b?", "/(a|b)/.*", ".*b", "/[ab]/a", "/.*", "/b/?.*"];
    sources.iter().map(|source| Regex::new(source).unwrap()).collect()
});

fn path_match() -> impl Strategy<Value = PathMatch> {
    let literal = || select(vec!["a", "b", ""]);
    let segment = select(vec!["a", "b", "", "*", "*", "{x}"]);
    let pattern =
        (prop::collection::vec(segment, 1..5), any::<bool>()).prop_filter_map("names repeat", |(mut s, rest)| {
            if rest {
                s.push("**");
            }
            PathPattern::parse(&format!("/{}", s.join("/"))).ok()
        });
    let joined =
        || prop::collection::vec(literal(), 0..4).prop_map(|s| s.iter().flat_map(|s| ["/", s]).collect::<String>());
    prop_oneof![
        2 => joined().prop_map(|text| PathMatch::Exact(if text.is_empty() { "/".into() } else { text.into() })),
        3 => joined().prop_map(|text| PathMatch::Prefix(text.trim_end_matches('/').into())),
        6 => pattern.prop_map(PathMatch::Pattern),
        1 => select(&**REGEXES).prop_map(PathMatch::Regex),
    ]
}

fn test() -> impl Strategy<Value = HeaderTest> {
    prop_oneof![
        3 => select(vec!["1", "2"]).prop_map(exact),
        1 => Just(HeaderTest::Present),
        1 => Just(HeaderTest::Absent),
        1 => Just(HeaderTest::Prefix("1".into())),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let source = select(vec![
        Source::Path,
        Source::Method,
        Source::Host,
        Source::Header("x".parse().unwrap()),
        Source::Query("q".into()),
        Source::Cookie("c".into()),
    ]);
    let predicate = prop_oneof![
        Just(Predicate::Present),
        Just(Predicate::Text(vec![StringTest::Contains("a".into()), StringTest::Exact("1".into())])),
    ];
    let network = |text: &str| (Source::ClientIp, Predicate::Cidr(vec![text.parse().unwrap()]));
    let instants = || vec![TimePoint::Instant(0), TimePoint::Instant(86_400)];
    let others = select(vec![
        network("192.0.2.0/24"),
        network("192.0.0.0/16"),
        network("2001:db8::/32"),
        (Source::Time, Predicate::Before(instants())),
        (Source::Time, Predicate::After(vec![TimePoint::Daily(3600)])),
    ]);
    (prop_oneof![4 => (source, predicate), 1 => others], any::<bool>())
        .prop_map(|((source, predicate), negate)| Condition { source, predicate, negate })
}

fn matching() -> impl Strategy<Value = Match> {
    let methods = prop_oneof![3 => Just(vec![]), 1 => subsequence(vec!["GET", "POST", "PURGE"], 1..3)];
    let fields = || prop::collection::vec((select(vec!["x", "y"]), test()), 0..3);
    let few_fields = || prop_oneof![2 => Just(vec![]), 1 => fields()];
    let conditions = prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec(condition(), 1..3)];
    (path_match(), methods, few_fields(), few_fields(), conditions).prop_map(
        |(path, methods, headers, query, conditions)| {
            let start = Match { path, conditions, ..on("/") };
            let start = methods.into_iter().fold(start, Match::method);
            let start = headers.into_iter().fold(start, |m, (name, test)| m.header(name, test));
            query.into_iter().fold(start, |m, (name, test)| m.query(if name == "x" { "q" } else { "r" }, test))
        },
    )
}

/// Rules with places of their own: route, age and index differ for each.
pub(in crate::routing) fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let matches = prop::collection::vec(matching(), 1..4);
    prop::collection::vec((0..3_i64, select(vec!["r", "s"]), matches), 0..12).prop_map(|rules| {
        let rule = |(index, (created, route, matches)): (u16, _)| {
            let name: &str = route;
            // The age belongs to the Route, so it is part of its name here.
            rule_of(origin(created, &format!("{name}{created}")), index, &format!("rule{index}"), matches)
        };
        (0..).zip(rules).map(rule).collect()
    })
}

fn a_selector() -> impl Strategy<Value = Selector> {
    let hosts = vec!["a.test", "b.a.test", "*.test", "*.a.test", "*"];
    let conditions = prop_oneof![2 => Just(vec![]), 1 => prop::collection::vec(condition(), 1..3)];
    let listeners = subsequence(vec!["http", "https"], 0..=2);
    (subsequence(hosts, 1..3), listeners, -1..2_i32, 0..2_i64, conditions, any::<bool>(), rules()).prop_map(
        |(hosts, listeners, priority, created, conditions, any, rules)| {
            let mut selector = selector("", &hosts, rules);
            selector.listeners = listeners.into_iter().map(Into::into).collect();
            selector.priority = priority;
            selector.origin.created = created;
            selector.conditions = ConditionSet { mode: if any { Mode::Any } else { Mode::All }, conditions };
            selector
        },
    )
}

pub(in crate::routing) fn selectors() -> impl Strategy<Value = Vec<Arc<Selector>>> {
    prop::collection::vec(a_selector(), 0..5).prop_map(|selectors| {
        let named = |(number, mut selector): (usize, Selector)| {
            selector.origin.object = ir::ObjectName::new("ns", format!("s{number}"));
            Arc::new(selector)
        };
        selectors.into_iter().enumerate().map(named).collect()
    })
}

/// A request that the bits of a number choose: far cheaper to draw than through a strategy for each of its parts.
pub(in crate::routing) fn request() -> impl Strategy<Value = Owned> {
    any::<u64>().prop_map(|bits| {
        let mut left = bits;
        let mut draw = |choices: &[&'static str]| {
            let count = choices.len() as u64;
            let choice = choices[usize::try_from(left % count).unwrap()];
            left /= count;
            choice
        };
        let host = draw(&["a.test", "b.a.test", "c.b.a.test", "x.test", "test", ""]);
        let method = draw(&["GET", "POST", "PURGE", "BAN"]);
        let query = draw(&["", "?q=1", "?q=2&r=1", "?r=1", "?q=12", "?q"]);
        let mut path = String::new();
        for _ in 0..=draw(&["", "a", "aa", "aaa", "aaaa"]).len() {
            path = path + "/" + draw(&["a", "b", "c", ""]);
        }
        let mut request = get(&format!("{host}{path}{query}")).method(method);
        for _ in 0..draw(&["", "a", "aa"]).len() {
            let (name, value) = (draw(&["x", "y", "cookie"]), draw(&["1", "2", "12", "c=1", "c=a"]));
            request = request.header(name, value.as_bytes());
        }
        request.listener = draw(&["", "a"]).len();
        request
    })
}

pub(in crate::routing) fn compile(selectors: &[Arc<Selector>]) -> RouteTable<()> {
    RouteTable::compile(&listeners(), selectors, None, |_, _, _| ())
}

fn find(table: &RouteTable<()>, request: &Owned) -> String {
    outcome(&table.find(ListenerIndex(request.listener), &request.borrow()))
}

fn expected(selectors: &[Arc<Selector>], request: &Owned) -> String {
    match reference::find(&listeners(), selectors, ListenerIndex(request.listener), &request.borrow()) {
        Ok((selector, rule, matched)) => format!("{} {} {}", selector.origin.object.name, rule.name, matched.index),
        Err(miss) => miss.reason().to_owned(),
    }
}

/// Puts things into an order that `picks` decide.
fn shuffle<T>(things: &mut Vec<T>, picks: &[Index]) {
    let mut left = std::mem::take(things);
    for pick in picks.iter().cycle().take(left.len()) {
        things.push(left.swap_remove(pick.index(left.len())));
    }
}

// Together more than a million comparisons of a table with the reference.
proptest! {
    #![proptest_config(config(2500))]

    #[test]
    fn the_table_decides_as_the_text_says(
        selectors in selectors(),
        requests in prop::collection::vec(request(), 250),
    ) {
        let table = compile(&selectors);
        for request in &requests {
            prop_assert_eq!(find(&table, request), expected(&selectors, request), "{:?}", request);
        }
    }

    #[test]
    fn one_selector_decides_as_the_text_says(
        rules in rules(),
        requests in prop::collection::vec(request(), 250),
    ) {
        let selectors = [Arc::new(selector("s", &["*"], rules))];
        let table = compile(&selectors);
        for request in &requests {
            prop_assert_eq!(find(&table, request), expected(&selectors, request), "{:?}", request);
        }
    }

}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn no_order_of_objects_matters(
        selectors in selectors(),
        requests in prop::collection::vec(request(), 1..10),
        picks in prop::collection::vec(any::<Index>(), 1..8),
    ) {
        let table = compile(&selectors);
        let mut mixed: Vec<Arc<Selector>> = selectors.iter().map(|selector| {
            let mut selector = Selector::clone(selector);
            shuffle(&mut selector.rules, &picks);
            shuffle(&mut selector.hostnames, &picks);
            Arc::new(selector)
        }).collect();
        shuffle(&mut mixed, &picks);
        let other = compile(&mixed);
        for request in &requests {
            prop_assert_eq!(find(&table, request), find(&other, request));
        }
    }

    #[test]
    fn reuse_changes_nothing(
        before in selectors(),
        after in selectors(),
        kept in any::<[bool; 5]>(),
        requests in prop::collection::vec(request(), 1..10),
    ) {
        let previous = compile(&before);
        let mut selectors: Vec<_> = before.iter().zip(kept).filter(|(_, kept)| *kept).map(|(s, _)| Arc::clone(s)).collect();
        selectors.extend(after.iter().map(|selector| {
            let mut selector = Selector::clone(selector);
            selector.origin.object = ir::ObjectName::new("other", Arc::clone(&selector.origin.object.name));
            Arc::new(selector)
        }));
        let table = RouteTable::compile(&listeners(), &selectors, Some(&previous), |_, _, _| ());
        for request in &requests {
            prop_assert_eq!(find(&table, request), expected(&selectors, request));
        }
    }
}

#[test]
fn the_reference_knows_wildcards_from_exact_hosts() {
    let hosts = [Hostname::parse("*.test").unwrap(), Hostname::parse("a.test").unwrap(), Hostname::Any];
    let selectors: Vec<_> = hosts
        .iter()
        .map(|host| {
            Arc::new(Selector {
                hostnames: vec![host.clone()],
                ..selector(&host.to_string(), &[], vec![rule("r", vec![on("/")])])
            })
        })
        .collect();
    for (host, expected_selector) in [("a.test", "a.test"), ("b.test", "*.test"), ("test", "*")] {
        assert_eq!(expected(&selectors, &get(&format!("{host}/"))), format!("{expected_selector} r 0"));
    }
}
