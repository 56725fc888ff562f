//! Explanations tell the decision, and every part of them is true.

use std::cmp::Ordering;

use super::*;
use crate::ir::PathMatch;
use crate::routing::explain::{Explanation, Extent, Loser, Outcome, Part, Place, Trial};

/// The match that a place names.
fn named<'a>(selector: &'a Selector, place: &Place) -> (&'a Rule, &'a Match) {
    let rule = selector.rules.iter().find(|rule| {
        rule.origin.object.to_string() == place.route && rule.index == place.rule_index && *rule.name == *place.rule
    });
    let rule = rule.expect("a rule of the Selector");
    let matching = rule.matches.iter().find(|m| m.index == place.match_index).expect("a match of the rule");
    (rule, matching)
}

fn fits(matching: &Match, request: &Owned) -> bool {
    reference::path_fits(&matching.path, &request.path) && reference::rest_fits(matching, &request.borrow())
}

/// A match that asks for one part alone.
fn alone(matching: &Match, part: Part, index: usize) -> Match {
    let any = Match { path: PathMatch::Prefix("".into()), index: 0, ..on("/") };
    match part {
        Part::Path => Match { path: matching.path.clone(), ..any },
        Part::Method => Match { methods: matching.methods.clone(), ..any },
        Part::Header => Match { headers: vec![matching.headers[index].clone()], ..any },
        Part::Query => Match { query: vec![matching.query[index].clone()], ..any },
        Part::Condition => Match { conditions: vec![matching.conditions[index].clone()], ..any },
    }
}

fn really_fails(selector: &Selector, loser: &Loser, request: &Owned) -> Result<(), TestCaseError> {
    let (_, matching) = named(selector, &loser.place);
    let mismatch = &loser.mismatch;
    let index = mismatch.index.unwrap_or(0);
    prop_assert!(!fits(&alone(matching, mismatch.part, index), request), "{loser:?} {request:?}");
    // It is the first: everything before it holds.
    for part in [Part::Path, Part::Method, Part::Header, Part::Query, Part::Condition] {
        let count = match part {
            Part::Path | Part::Method => 1,
            Part::Header => matching.headers.len(),
            Part::Query => matching.query.len(),
            Part::Condition => matching.conditions.len(),
        };
        for at in (0..count).take_while(|at| (part, *at) < (mismatch.part, index)) {
            prop_assert!(fits(&alone(matching, part, at), request), "{part:?} {at} of {loser:?} {request:?}");
        }
    }
    Ok(())
}

/// The Selector that took the request.
fn taking<'a>(selectors: &'a [Arc<Selector>], told: &Explanation) -> Option<&'a Arc<Selector>> {
    let took = told.selectors.shown.iter().find(|trial| trial.result == Trial::Took)?;
    selectors.iter().find(|selector| selector.origin.object.to_string() == took.selector)
}

fn is_true(selectors: &[Arc<Selector>], told: &Explanation, request: &Owned) -> Result<(), TestCaseError> {
    for trial in &told.selectors.shown {
        let selector = selectors.iter().find(|s| s.origin.object.to_string() == trial.selector).expect("a Selector");
        let holds = condition::set_holds(&selector.conditions, &request.borrow());
        prop_assert_eq!(trial.mismatches.is_empty(), holds, "{:?}", trial);
        prop_assert!(trial.result != Trial::Failed || !holds);
        prop_assert!(trial.result != Trial::Took || holds);
    }
    let Some(selector) = taking(selectors, told) else {
        prop_assert!(matches!(told.outcome, Outcome::NoHost | Outcome::NoSelector));
        return Ok(());
    };
    let all: usize = selector.rules.iter().map(|rule| rule.matches.len()).sum();
    let told_of = told.runners_up.total() + told.losers.total() + usize::from(told.winner.is_some());
    prop_assert_eq!(told_of, all, "every match is told of");
    for loser in told.losers.shown.iter().chain(&told.nearest) {
        really_fails(selector, loser, request)?;
    }
    let Some(winner) = &told.winner else { return Ok(()) };
    let winner = named(selector, &winner.place);
    for runner_up in &told.runners_up.shown {
        let other = named(selector, &runner_up.place);
        prop_assert!(fits(other.1, request), "{runner_up:?} {request:?}");
        prop_assert_eq!(reference::compare(&winner, &other), Ordering::Less, "{:?}", runner_up);
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn explanations_tell_the_decision_and_are_true(
        selectors in selectors(),
        requests in prop::collection::vec(request(), 1..20),
    ) {
        let table = compile(&selectors);
        for request in &requests {
            let listener = ListenerIndex(request.listener);
            let explained = table.explain(listener, &request.borrow(), Extent::ALL);
            let told = &explained.explanation;
            prop_assert_eq!(outcome(&explained.found), find(&table, request));
            prop_assert_eq!(outcome(&explained.found), expected(&selectors, request));
            let winner = told.winner.as_ref().map(|w| {
                format!("{} {} {}", w.selector.trim_start_matches("ns/"), w.place.rule, w.place.match_index)
            });
            match (&explained.found, winner) {
                (Ok(_), winner) => prop_assert_eq!(winner, Some(find(&table, request))),
                (Err(miss), winner) => {
                    prop_assert_eq!(winner, None);
                    prop_assert_eq!(told.outcome, Outcome::from(*miss));
                }
            }
            is_true(&selectors, told, request)?;
        }
    }

    #[test]
    fn limits_count_what_they_leave_out(selectors in selectors(), request in request(), most in 0..4_usize) {
        let table = compile(&selectors);
        let listener = ListenerIndex(request.listener);
        let extent = Extent { losers: most, runners_up: most };
        let all = table.explain(listener, &request.borrow(), Extent::ALL).explanation;
        let few = table.explain(listener, &request.borrow(), extent).explanation;
        prop_assert_eq!(&few.winner, &all.winner);
        prop_assert_eq!(few.losers.total(), all.losers.total());
        prop_assert_eq!(few.runners_up.total(), all.runners_up.total());
        prop_assert_eq!(few.selectors.total(), all.selectors.total());
        prop_assert!(few.losers.shown.len() <= most && few.runners_up.shown.len() <= most);
        prop_assert_eq!(&few.losers.shown[..], &all.losers.shown[..few.losers.shown.len()]);
    }
}
