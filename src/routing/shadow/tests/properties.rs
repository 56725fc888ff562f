//! Reports over random tables: true by the reference matcher, and complete where everything can be tried.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::routing::tests::properties::{compile, config, request, rules, selectors};
use crate::routing::{path, reference};

impl Witness {
    fn owned(&self) -> Owned {
        Owned {
            listener: self.listener.0,
            method: self.method.clone(),
            host: self.host.clone(),
            path: self.path.clone(),
            query: self.query.clone(),
            headers: self.headers.clone(),
            client_ip: self.request().client_ip,
            now: u64::try_from(self.time.unwrap_or(DEFAULT_TIME)).unwrap(),
        }
    }
}

/// What takes a request by the text of the precedence.
fn winner(selectors: &[Arc<Selector>], request: &Owned) -> Option<MatchRef> {
    let (selector, rule, matched) =
        reference::find(&listeners(), selectors, ListenerIndex(request.listener), &request.borrow()).ok()?;
    Some(MatchRef {
        selector: selector.origin.object.clone(),
        route: rule.origin.object.clone(),
        rule_index: rule.index,
        rule: Arc::clone(&rule.name),
        matching: matched.index,
    })
}

fn find_match<'a>(selectors: &'a [Arc<Selector>], wanted: &MatchRef) -> (&'a Selector, &'a Match) {
    let selector = selectors.iter().find(|s| s.origin.object == wanted.selector).unwrap();
    let rule = selector.rules.iter().find(|r| r.name == wanted.rule && r.origin.object == wanted.route).unwrap();
    (selector, &rule.matches[usize::from(wanted.matching)])
}

/// Panics unless a report is true.
fn check(selectors: &[Arc<Selector>], shadow: &Shadow) {
    let request = shadow.witness.owned();
    let (selector, matching) = find_match(selectors, &shadow.loser);
    assert!(reference::fits(selector, matching, &request.borrow()), "{shadow}: does not fit");
    let won = winner(selectors, &request);
    match &shadow.winner {
        Winner::Match(matched) => assert_eq!(Some(matched), won.as_ref(), "{shadow}"),
        Winner::Selector(_) => assert_eq!(won, None, "{shadow}"),
    }
    assert_ne!(Some(&shadow.loser), won.as_ref(), "{shadow}");
    assert_eq!(path::normalise(&request.path).as_deref(), Ok(&*request.path), "{shadow}");
    assert_eq!(&*crate::routing::host::parse(&request.host).unwrap().host, request.host, "{shadow}");
}

/// Requests that are like a witness, with parts of others.
fn mutants(witness: &Witness, others: &[Owned]) -> Vec<Owned> {
    let base = witness.owned();
    let mut mutants = vec![base.clone()];
    for other in others {
        for part in 0..6 {
            let mut mutant = base.clone();
            match part {
                0 => mutant.host.clone_from(&other.host),
                1 => mutant.method = other.method.clone(),
                2 => mutant.query.clone_from(&other.query),
                3 => mutant.headers.extend(other.headers.clone()),
                4 => mutant.path.clone_from(&other.path),
                _ => mutant.path.push_str(&other.path),
            }
            mutants.push(mutant.clone());
            mutants.push(Owned { listener: other.listener, method: other.method.clone(), ..mutant });
        }
    }
    mutants
}

fn check_all(selectors: &[Arc<Selector>], requests: &[Owned]) {
    for found in find(&compile(selectors)) {
        for shadow in &found.matches {
            check(selectors, shadow);
            if shadow.extent == Extent::Whole {
                for request in mutants(&shadow.witness, requests) {
                    assert_ne!(Some(&shadow.loser), winner(selectors, &request).as_ref(), "{shadow}: {request:?}");
                }
            }
        }
        if let Some(shadow) = &found.selector {
            let request = shadow.witness.owned();
            for request in mutants(&shadow.witness, requests).iter().chain([&request]) {
                let won = winner(selectors, request).map(|won| won.selector);
                assert_ne!(Some(&shadow.selector), won.as_ref(), "{shadow}: {request:?}");
            }
        }
    }
}

/// Tables of Exact paths, Prefixes and methods alone.
fn simple() -> impl Strategy<Value = Vec<Arc<Selector>>> {
    let path = prop::collection::vec(select(vec!["a", "b", ""]), 0..4)
        .prop_map(|segments| segments.iter().flat_map(|s| ["/", s]).collect::<String>());
    let path = (path, any::<bool>()).prop_map(|(text, exact)| match (exact, text.as_str()) {
        (true, "") => "=/".to_owned(),
        (true, _) => format!("={text}"),
        (false, _) => text,
    });
    let methods = prop_oneof![1 => Just(vec![]), 2 => subsequence(vec!["GET", "POST", "PURGE"], 1..3)];
    let matching = (path, methods).prop_map(|(path, methods)| methods.into_iter().fold(on(&path), Match::method));
    let rule = (0..3_i64, prop::collection::vec(matching, 1..4));
    let rules = prop::collection::vec(rule, 0..6).prop_map(|rules| {
        let rule = |(index, (created, matches)): (u16, (i64, _))| {
            rule_of(origin(created, &format!("r{created}")), index, &format!("rule{index}"), matches)
        };
        (0..).zip(rules).map(rule).collect::<Vec<_>>()
    });
    let hosts = subsequence(vec!["*", "*.test", "a.test", "b.test"], 1..3);
    let one = (hosts, subsequence(vec!["http", "https"], 0..=2), -1..2_i32, rules);
    prop::collection::vec(one, 1..4).prop_map(|selectors| {
        let selector = |(number, (hosts, listeners, priority, rules)): (usize, (Vec<&str>, Vec<&str>, i32, _))| {
            let mut selector = selector(&format!("s{number}"), &hosts, rules);
            selector.hostnames.sort();
            selector.listeners = listeners.into_iter().map(Into::into).collect();
            selector.priority = priority;
            Arc::new(selector)
        };
        selectors.into_iter().enumerate().map(selector).collect()
    })
}

/// Every request that makes a difference to a table of [`simple`].
fn universe() -> Vec<Owned> {
    let mut paths = vec![String::new()];
    let mut last = paths.clone();
    for _ in 0..4 {
        last = last.iter().flat_map(|p| ["a", "b", "c", ""].map(|segment| format!("{p}/{segment}"))).collect();
        paths.extend(last.iter().cloned());
    }
    let mut all = Vec::new();
    for path in paths.iter().filter(|path| !path.is_empty()) {
        for host in ["a.test", "b.test", "c.test", "other"] {
            for method in ["GET", "POST", "PURGE", "BAN"] {
                all.extend([0, 1].map(|listener| Owned { listener, ..get(&format!("{host}{path}")).method(method) }));
            }
        }
    }
    all
}

fn references(selectors: &[Arc<Selector>]) -> BTreeSet<MatchRef> {
    let mut all = BTreeSet::new();
    for selector in selectors {
        for rule in &selector.rules {
            all.extend(rule.matches.iter().map(|matched| MatchRef {
                selector: selector.origin.object.clone(),
                route: rule.origin.object.clone(),
                rule_index: rule.index,
                rule: Arc::clone(&rule.name),
                matching: matched.index,
            }));
        }
    }
    all
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn every_report_is_true(selectors in selectors(), requests in prop::collection::vec(request(), 16)) {
        check_all(&selectors, &requests);
    }

    #[test]
    fn every_report_inside_a_selector_is_true(rules in rules(), requests in prop::collection::vec(request(), 16)) {
        check_all(&[Arc::new(selector("s", &["*", "a.test"], rules))], &requests);
    }
}

proptest! {
    // Each case is compared with thousands of requests, or looked at three times.
    #![proptest_config(ProptestConfig { cases: config(64).cases.min(4096), ..config(64) })]

    #[test]
    fn what_was_found_before_is_as_if_found_anew(before in selectors(), after in selectors(), kept in any::<[bool; 5]>()) {
        let mut detector = Detector::default();
        detector.update(&compile(&before));
        let mut selectors: Vec<_> = before.iter().zip(kept).filter(|(_, kept)| *kept).map(|(s, _)| Arc::clone(s)).collect();
        selectors.extend(after.iter().map(|selector| {
            let mut selector = Selector::clone(selector);
            selector.origin.object = ObjectName::new("other", Arc::clone(&selector.origin.object.name));
            Arc::new(selector)
        }));
        let table = compile(&selectors);
        let anew = find(&table);
        prop_assert_eq!(&detector.update(&table), &anew);
        prop_assert_eq!(&detector.update(&table), &anew);
    }

    #[test]
    fn exact_paths_prefixes_and_methods_are_decided_completely(selectors in simple()) {
        let table = compile(&selectors);
        let won: BTreeSet<MatchRef> = universe().iter().filter_map(|request| {
            let found = table.find(ListenerIndex(request.listener), &request.borrow()).ok()?;
            Some(MatchRef {
                selector: found.selector.origin.object.clone(),
                route: found.rule.origin.object.clone(),
                rule_index: found.rule.index,
                rule: Arc::clone(&found.rule.name),
                matching: found.matched().index,
            })
        }).collect();
        let never: BTreeSet<MatchRef> = references(&selectors).difference(&won).cloned().collect();
        let found = find(&table);
        let shadows = found.iter().flat_map(|found| &found.matches).filter(|s| s.extent == Extent::Whole);
        let whole: BTreeSet<MatchRef> = shadows.map(|shadow| shadow.loser.clone()).collect();
        prop_assert_eq!(whole, never);
    }
}

#[test]
fn random_tables_have_shadows_of_every_kind() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut kinds = BTreeSet::new();
    for _ in 0..64 {
        let selectors = selectors().new_tree(&mut runner).unwrap().current();
        for found in find(&compile(&selectors)) {
            kinds.extend(found.selector.as_ref().map(|_| "a Selector".to_owned()));
            kinds.extend(found.matches.iter().map(|shadow| {
                let across = shadow.winner.selector() != &shadow.loser.selector;
                format!("{:?}{}", shadow.extent, if across { " across" } else { "" })
            }));
        }
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["Part", "Part across", "Whole", "Whole across", "a Selector"]);
}
