//! The compiler and the lookup: whatever the Selectors, the table decides as the naive reference does, also when it
//! was compiled with parts of another table; and what is said to shadow a match does take the witness.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate::routing::shadow::{self, Winner};
use lockgate::routing::{RouteTable, reference};
use lockgate_fuzz::{Input, listeners};

fuzz_target!(|input: Input| {
    let Input { first, second, requests } = &input;
    let listeners = listeners();
    let before = RouteTable::compile(&listeners, first, None, |_, _, _| ());
    let both: Vec<_> = first.iter().step_by(2).chain(second).cloned().collect();
    let after = RouteTable::compile(&listeners, &both, Some(&before), |_, _, _| ());
    for (table, selectors) in [(&before, first), (&after, &both)] {
        for request in requests {
            let (listener, request) = request.borrow();
            let found = table.find(listener, &request).map(|f| (&**f.selector, &**f.rule, f.matched().index));
            let expected = reference::find(&listeners, selectors, listener, &request).map(|(s, r, m)| (s, r, m.index));
            assert_eq!(found, expected, "{request:?}");
        }
        for shadow in shadow::find(table).iter().flat_map(|found| &found.matches) {
            let (listener, request) = (shadow.witness.listener, shadow.witness.request());
            let taken = reference::find(&listeners, selectors, listener, &request);
            match &shadow.winner {
                Winner::Selector(_) => assert!(taken.is_err(), "{shadow}"),
                Winner::Match(winner) => {
                    let (selector, rule, matched) = taken.expect("somebody wins");
                    let is_winner = selector.origin.object == winner.selector
                        && rule.origin.object == winner.route
                        && (rule.index, matched.index) == (winner.rule_index, winner.matching);
                    assert!(is_winner, "{shadow}");
                }
            }
        }
    }
});
