use proptest::prelude::*;
use proptest::sample::select;

use super::super::paths::{Shape, compare, sample};
use super::*;
use crate::ir::Regex;
use crate::routing::path::normalise;
use crate::routing::testing::path;

fn accepts(machine: &Machine<'_>, text: &str) -> bool {
    machine.accepts(text.bytes().fold(0, |state, byte| machine.next(state, byte)))
}

fn table(source: &str) -> Table {
    Table::new(source).unwrap()
}

/// How two paths of tests lie to each other, by their automata.
fn related(first: &str, second: &str) -> (Relation, Option<String>) {
    let (first, second) = (path(first), path(second));
    let both = [&first, &second].map(|path| match Shape::new(path).unwrap() {
        Shape::Steps(steps) => (Some(Linear::new(&steps)), None),
        Shape::Regex(regex) => (None, Some(table(regex.source()))),
    });
    let [first, second] = both.each_ref().map(|(linear, table)| match (linear, table) {
        (Some(linear), _) => Machine::Linear(linear),
        (_, Some(table)) => Machine::Table(table),
        (None, None) => unreachable!("one of the two"),
    });
    relate(first, second, &mut 1_000_000).unwrap()
}

#[test]
fn regexes_lie_to_paths_as_they_should() {
    for (first, second, relation, both) in [
        ("~/api/.*", "/api", Relation::Inside, Some("/api/")),
        ("~/api(/.*)?", "/api", Relation::Same, Some("/api")),
        ("~.*", "/api", Relation::Around, Some("/api")),
        ("~/.*", "~/[^/]*", Relation::Around, Some("/")),
        ("~/[ab]+", "~/[bc]+", Relation::Cross, Some("/b")),
        ("~/a", "~/b", Relation::Apart, None),
        ("~/a|/b", "=/b", Relation::Around, Some("/b")),
        ("~(?i)/API/[0-9]+", "/api/{id}", Relation::Cross, Some("/api/0")),
        // No normalised path has a dot segment, a blank or a letter beyond ASCII.
        ("~/a/(\\.\\.?| |\u{fc})", "/a", Relation::Apart, None),
        ("~/[a-c\u{e0}-\u{ff}]+", "/{x}", Relation::Inside, Some("/a")),
        ("~(?i)/\u{17f}", "=/s", Relation::Around, Some("/s")),
    ] {
        assert_eq!(related(first, second), (relation, both.map(str::to_owned)), "{first} {second}");
    }
}

#[test]
fn too_much_is_given_up() {
    assert!(Table::new("[^/]*a[^/]{400}").is_none() && Table::new("\\p{L}+").is_none());
    let regexes = ["/(a|b)*a(a|b){8}", "/(a|b)*b(a|b){8}"].map(table);
    assert!(relate(Machine::Table(&regexes[0]), Machine::Table(&regexes[1]), &mut 300).is_err());
}

#[test]
fn shortest_texts_fulfil_and_avoid() {
    let tables = ["(?s:.*)\\.js", "/a/.*", "/a/x\\.js"].map(table);
    let machines = [Machine::Table(PATHS.as_ref().unwrap()), Machine::Table(&tables[0]), Machine::Table(&tables[1])];
    assert_eq!(shortest(&machines, &[true; 3], &mut 100_000).as_deref(), Some("/a/.js"));
    assert_eq!(shortest(&machines, &[true, true, false], &mut 100_000).as_deref(), Some("/.js"));
    assert_eq!(shortest(&machines[1..], &[true, true], &mut 210), None);
    let none = [Machine::Table(&tables[1]), Machine::Table(&tables[2])];
    assert_eq!(shortest(&none, &[false, true], &mut 100_000), None);
}

fn any_path() -> impl Strategy<Value = String> {
    let segment = || select(vec!["a", "b", "", "*"]);
    let pattern = (prop::collection::vec(segment(), 1..4), any::<bool>())
        .prop_map(|(s, rest)| format!("!/{}{}", s.join("/"), if rest { "/**" } else { "" }));
    let literal = || prop::collection::vec(select(vec!["a", "b", ""]), 1..4).prop_map(|s| format!("/{}", s.join("/")));
    prop_oneof![2 => pattern, 1 => literal(), 1 => literal().prop_map(|text| format!("={text}"))]
}

proptest! {
    #[test]
    fn normalised_paths_are_one_language(text in "/?(/|\\.|%|[0-9A-F]{2}|a|[ -~\u{fc}]){0,6}") {
        let machine = Machine::Table(PATHS.as_ref().unwrap());
        prop_assert_eq!(accepts(&machine, &text), normalise(&text).is_ok_and(|normal| normal == text));
    }

    #[test]
    fn automata_decide_as_regexes(source in "(\\(\\?i\\))?([ab.]|\\[[ab^]b\\]|\\\\[wdb]|[*+?|]){1,6}", text in "[abAB0_/ ]{0,6}") {
        if let (Ok(regex), Some(table)) = (Regex::new(&source), Table::new(&source)) {
            prop_assert_eq!(accepts(&Machine::Table(&table), &text), regex.is_match(&text), "{}", source);
        }
    }

    #[test]
    fn segments_and_automata_say_the_same_of_paths(first in any_path(), second in any_path()) {
        let (a, b) = (path(&first), path(&second));
        let (Some(Shape::Steps(a)), Some(Shape::Steps(b))) = (Shape::new(&a), Shape::new(&b)) else { unreachable!() };
        let relation = compare(&a, &b);
        prop_assert_eq!(related(&first, &second).0, relation, "{} {}", first, second);
        if relation != Relation::Apart {
            let sample = sample(&a, &b, "x");
            for steps in [&a, &b] {
                prop_assert!(accepts(&Machine::Linear(&Linear::new(steps)), &sample), "{} {} {}", first, second, sample);
            }
        }
    }
}
