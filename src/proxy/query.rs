//! Changes to a query that leave the bytes and the order of everything else alone.

use crate::ir::QueryEdit;
use crate::routing::query::has_name;

/// The query after a filter's changes: remove, then set, then add; `None` within for none left. An outer `None` means
/// that nothing changes.
///
/// Names are compared decoded, with `+` as a blank. A parameter that is set takes the place of the first of its name and
/// the others of the name go; without any it goes to the end.
#[expect(clippy::option_option, reason = "no change and no query are two things")]
pub(super) fn edit(query: Option<&str>, edit: &QueryEdit) -> Option<Option<String>> {
    let pairs = || query.into_iter().flat_map(|query| query.split('&'));
    let removed = |pair: &str| edit.remove.iter().any(|name| has_name(pair, name));
    if edit.set.is_empty() && edit.add.is_empty() && !pairs().any(removed) {
        return None;
    }
    let mut placed = vec![false; edit.set.len()];
    let mut kept: Vec<&str> = Vec::new();
    for pair in pairs().filter(|pair| !removed(pair)) {
        match edit.set.iter().position(|(name, _)| has_name(pair, name)) {
            Some(index) if placed[index] => {}
            Some(index) => {
                placed[index] = true;
                kept.push(&edit.set[index].1);
            }
            None => kept.push(pair),
        }
    }
    if query == Some("") {
        // A lone `?` is one empty pair, which would lead to `&` in front of what is added.
        kept.clear();
    }
    kept.extend(edit.set.iter().zip(&placed).filter(|(_, placed)| !**placed).map(|((_, pair), _)| &**pair));
    kept.extend(edit.add.iter().map(|pair| &**pair));
    Some((!kept.is_empty()).then(|| kept.join("&")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(remove: &[&str], set: &[(&str, &str)], add: &[&str]) -> QueryEdit {
        QueryEdit {
            remove: remove.iter().map(|name| (*name).into()).collect(),
            set: set.iter().map(|(name, pair)| ((*name).into(), (*pair).into())).collect(),
            add: add.iter().map(|pair| (*pair).into()).collect(),
        }
    }

    #[test]
    fn what_is_not_edited_keeps_bytes_and_order() {
        let remove_a = change(&["a"], &[], &[]);
        let set_a = change(&[], &[("a", "a=new")], &[]);
        let add_a = change(&[], &[], &["a=new"]);
        let all = change(&["x y"], &[("b", "b=2"), ("c", "c=3")], &["b=4", "b=5"]);
        for (query, change, expected) in [
            (Some("z=%2f&&y=+&a=1&A=2&b"), &remove_a, Some(Some("z=%2f&&y=+&A=2&b"))),
            (Some("a=1&b=2&%61=3&a"), &remove_a, Some(Some("b=2"))),
            (Some("a=1&a=2"), &remove_a, Some(None)),
            (Some("b=1&aa=2&b=a"), &remove_a, None),
            (Some(""), &remove_a, None),
            (None, &remove_a, None),
            (Some("x=1&a=1&y=2&%61=3&z"), &set_a, Some(Some("x=1&a=new&y=2&z"))),
            (Some("x=%20&"), &set_a, Some(Some("x=%20&&a=new"))),
            (Some(""), &set_a, Some(Some("a=new"))),
            (None, &set_a, Some(Some("a=new"))),
            (Some("a=1&b"), &add_a, Some(Some("a=1&b&a=new"))),
            (None, &add_a, Some(Some("a=new"))),
            (Some("x+y=1&b=0&x%20y=2&q"), &all, Some(Some("b=2&q&c=3&b=4&b=5"))),
        ] {
            let expected = expected.map(|query| query.map(str::to_owned));
            assert_eq!(edit(query, change), expected, "{query:?} {change:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn pairs_of_other_names_stay(query in "[ab=&+%6120]{0,16}") {
            let removed = edit(Some(&query), &change(&["a"], &[], &[]));
            let expected: Vec<&str> = query.split('&').filter(|pair| !has_name(pair, "a")).collect();
            let changed = expected.len() != query.split('&').count();
            let result = removed.map(Option::unwrap_or_default);
            proptest::prop_assert_eq!(result, changed.then(|| expected.join("&")));
        }
    }
}
