//! What it costs to look for shadowed matches, in CPU time, once for each table.
#![allow(clippy::unwrap_used, reason = "a benchmark whose fixture is wrong may panic")]
#![allow(clippy::print_stdout, reason = "its output")]

use std::sync::Arc;
use std::time::Duration;

use lockgate::ir::{PathMatch, PathPattern, Regex, Selector};
use lockgate::routing::shadow::Detector;
use lockgate_benches::cpu_time;
use lockgate_benches::tables::{self, on, with_header};

/// The Selectors of a table, the first of which is edited.
struct Case {
    name: &'static str,
    selectors: Vec<Arc<Selector>>,
}

fn case(name: &'static str, selectors: Vec<Arc<Selector>>) -> Case {
    Case { name, selectors }
}

fn one(name: &'static str, matches: Vec<lockgate::ir::Match>) -> Case {
    case(name, vec![Arc::new(tables::one(matches))])
}

fn cases() -> Vec<Case> {
    let prefix = |text: String| on(PathMatch::Prefix(text.into()));
    let pattern = |text: String| on(PathMatch::Pattern(PathPattern::parse(&text).unwrap()));
    let mixed = (0..2_500).flat_map(|i| {
        [
            prefix(format!("/api/v{}/service-{i}", i % 3)),
            with_header(prefix(format!("/api/v{}/service-{i}/beta", i % 3)), "x-user", "beta"),
            on(PathMatch::Exact(format!("/static/page-{i}.html").into())),
            pattern(format!("/users/{{id}}/orders-{i}/*")),
        ]
    });
    let crossing = (0..10_000).map(|i| {
        let segment = |at: u32| if i >> at & 1 == 0 { format!("/{}", i % 7) } else { "/*".to_owned() };
        pattern((0..14).map(segment).collect())
    });
    let regexes = (0..1_000).map(|i| on(PathMatch::Regex(Regex::new(&format!("/a[a-z]*/{i}(/.*)?")).unwrap())));
    let beside = (0..9_000).map(|i| prefix(format!("/ab/{i}")));
    let tenants = (0..10_000).map(|i| with_header(prefix(String::new()), "x-tenant", &i.to_string()));
    let nested = (0..10_000).map(|i| with_header(prefix("/a".repeat(i % 64)), "x-user", &(i / 64).to_string()));
    vec![
        case("10 000 matches, 1 000 Selectors", tables::selectors(10_000).unwrap()),
        case("100 000 matches, 10 000 Selectors", tables::selectors(100_000).unwrap()),
        one("10 000 Prefixes, one Selector", (0..10_000).map(|i| prefix(format!("/services/name-{i}"))).collect()),
        one("10 000 mixed matches, one Selector", mixed.collect()),
        one("10 000 twice the same Prefix", (0..10_000).map(|i| prefix(format!("/{}", i / 2))).collect()),
        one("10 000 headers on one path", tenants.collect()),
        one("10 000 on 64 nested Prefixes", nested.collect()),
        one("10 000 crossing Patterns", crossing.collect()),
        one("1 000 regexes, 9 000 Prefixes", regexes.chain(beside).collect()),
        case("10 000 Selectors of one hostname", (0..10_000).map(|_| Arc::new(tables::broad(1))).collect()),
    ]
}

/// The result of `run` with the CPU time that it took.
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = cpu_time::now();
    let result = run();
    (result, cpu_time::now().saturating_sub(start))
}

fn main() {
    println!("{:<36} {:>9} {:>9} {:>9} {:>9}", "", "anew", "nothing", "one edit", "found");
    for Case { name, mut selectors } in cases() {
        let mut detector = Detector::default();
        let table = tables::compile(&selectors, None);
        let (found, anew) = timed(|| detector.update(&table));
        let (_, nothing) = timed(|| detector.update(&table));
        selectors[0] = Arc::new(Selector::clone(&selectors[0]));
        let table = tables::compile(&selectors, Some(&table));
        let (_, edit) = timed(|| detector.update(&table));
        let count: usize = found.iter().map(|found| found.matches.len()).sum();
        println!("{name:<36} {anew:>9.1?} {nothing:>9.1?} {edit:>9.1?} {count:>9}");
    }
}
