use super::*;
use crate::routing::testing::{exact, on};

fn when(source: Source, predicate: Predicate) -> Condition {
    Condition { source, predicate, negate: false }
}

fn not(condition: &Condition) -> Condition {
    Condition { negate: !condition.negate, ..condition.clone() }
}

fn text(tests: &[StringTest]) -> Predicate {
    Predicate::Text(tests.to_vec())
}

fn is(value: &str) -> StringTest {
    StringTest::Exact(value.into())
}

fn set(conditions: &[&Condition]) -> ConditionSet {
    ConditionSet { mode: Mode::All, conditions: conditions.iter().copied().cloned().collect() }
}

fn implied(known: &ConditionSet, wanted: &ConditionSet) -> bool {
    Facts::new(None, None, known).imply_set(wanted)
}

/// The first implies the second and not the other way round; of their negations the opposite is true.
#[track_caller]
fn stronger(first: &Condition, second: &Condition) {
    assert!(implied(&set(&[first]), &set(&[second])), "{first:?} {second:?}");
    assert!(!implied(&set(&[second]), &set(&[first])), "{second:?} {first:?}");
    assert!(implied(&set(&[&not(second)]), &set(&[&not(first)])), "not {second:?} {first:?}");
    assert!(!implied(&set(&[&not(first)]), &set(&[&not(second)])), "not {first:?} {second:?}");
}

#[test]
fn narrower_conditions_imply_wider_ones() {
    let header = || Source::Header("x".parse().unwrap());
    let networks = |texts: &[&str]| Predicate::Cidr(texts.iter().map(|text| text.parse().unwrap()).collect());
    for (first, second) in [
        (text(&[is("ab")]), text(&[is("ab"), is("c")])),
        (text(&[is("ab"), is("ac")]), text(&[StringTest::Prefix("a".into())])),
        (text(&[StringTest::Prefix("ab".into())]), text(&[StringTest::Prefix("a".into())])),
        (text(&[StringTest::Suffix("ab".into())]), text(&[StringTest::Contains("a".into())])),
        (text(&[StringTest::Contains("ab".into())]), text(&[StringTest::Contains("b".into())])),
        (text(&[is("12")]), text(&[StringTest::Regex(Regex::new("[0-9]+").unwrap())])),
        (text(&[is("12")]), Predicate::Present),
    ] {
        stronger(&when(header(), first), &when(header(), second));
    }
    stronger(&when(Source::ClientIp, networks(&["10.1.0.0/16"])), &when(Source::ClientIp, networks(&["10.0.0.0/8"])));
    let before = |at| when(Source::Time, Predicate::Before(vec![TimePoint::Instant(at)]));
    stronger(&before(5), &before(6));
    let after = |at| when(Source::Time, Predicate::After(vec![TimePoint::Daily(at)]));
    stronger(&after(6), &after(5));
}

#[test]
fn what_looks_alike_implies_nothing() {
    let networks = |text: &str| when(Source::ClientIp, Predicate::Cidr(vec![text.parse().unwrap()]));
    let header = |name: &str, value: &str| when(Source::Header(name.parse().unwrap()), text(&[is(value)]));
    for (first, second) in [
        // A narrow IPv6 network may have mapped IPv4 addresses, which a wide one never has.
        (networks("::ffff:0:0/96"), networks("::/0")),
        (header("x", "1"), header("y", "1")),
        // Another line of the field may have that value.
        (header("x", "1"), not(&header("x", "2"))),
        (when(Source::Path, text(&[is("/a")])), when(Source::Host, text(&[is("/a")]))),
        (
            when(Source::Time, Predicate::Before(vec![TimePoint::Daily(5)])),
            when(Source::Time, Predicate::Before(vec![TimePoint::Instant(6)])),
        ),
    ] {
        assert!(!implied(&set(&[&first]), &set(&[&second])), "{first:?} {second:?}");
    }
}

#[test]
fn of_alternatives_each_must_imply() {
    let header = |value: &str| when(Source::Header("x".parse().unwrap()), text(&[is(value)]));
    let either = ConditionSet { mode: Mode::Any, conditions: vec![header("1"), header("2")] };
    let present = when(Source::Header("x".parse().unwrap()), Predicate::Present);
    assert!(implied(&either, &set(&[&present])) && implied(&either, &either));
    assert!(!implied(&either, &set(&[&header("1")])));
    assert!(implied(&set(&[&header("1")]), &either));
    assert!(implied(&either, &ConditionSet::default()) && !implied(&ConditionSet::default(), &either));
}

#[test]
fn matches_imply_conditions() {
    let none = ConditionSet::default();
    let host = Hostname::parse("*.x.test").unwrap();
    let matching = on("/api/v1").method("GET").header("x", exact("1")).query("q", exact("2"));
    let facts = Facts::new(Some(&host), Some(&matching), &none);
    let header = || Source::Header("x".parse().unwrap());
    for (source, test) in [
        (Source::Path, StringTest::Prefix("/api".into())),
        (Source::Path, StringTest::Pattern(PathPattern::parse("/api/**").unwrap())),
        (Source::Method, is("GET")),
        (Source::Host, StringTest::Suffix("x.test".into())),
        (header(), is("1")),
        (Source::Query("q".into()), StringTest::Prefix("2".into())),
    ] {
        assert!(facts.imply_set(&set(&[&when(source, text(&[test]))])));
    }
    for (source, test) in [
        // `/api/v1` itself does not begin so.
        (Source::Path, StringTest::Prefix("/api/v1/".into())),
        (Source::Path, StringTest::Pattern(PathPattern::parse("/api/*").unwrap())),
        (Source::Method, is("POST")),
        (Source::Host, is("a.x.test")),
    ] {
        assert!(!facts.imply_set(&set(&[&when(source, text(&[test]))])));
    }
    assert!(facts.imply_set(&set(&[&not(&when(Source::Method, text(&[is("POST")])))])));
    let absent = on("/").header("x", HeaderTest::Absent);
    let facts = Facts::new(None, Some(&absent), &none);
    assert!(facts.imply_set(&set(&[&not(&when(header(), text(&[is("1")])))])));
    assert!(facts.imply_rest(&absent) && !facts.imply_rest(&matching));
}
