use std::time::Duration;

use super::*;
use crate::ir::Regex;
use crate::routing::testing::{Owned, get};
use crate::routing::{Now, Request};

fn condition(source: Source, predicate: Predicate) -> Condition {
    Condition { source, predicate, negate: false }
}

fn header() -> Source {
    Source::Header("x".parse().unwrap())
}

fn one(test: StringTest) -> Predicate {
    Predicate::Text(vec![test])
}

fn is(text: &str) -> Predicate {
    one(StringTest::Exact(text.into()))
}

/// Whether a condition holds for a request; its negation must do the opposite.
fn check(source: Source, predicate: Predicate, request: &Owned) -> bool {
    let condition = condition(source, predicate);
    let outcome = holds(&condition, &request.borrow());
    let negated = Condition { negate: true, ..condition };
    assert_eq!(holds(&negated, &request.borrow()), !outcome, "{negated:?}");
    outcome
}

#[test]
fn every_source_is_read() {
    let request = get("a.test/p/q?k=v%20w&k=2").method("PUT").header("x", b"1").header("cookie", b"c=d; e=f");
    for (source, value, other) in [
        (Source::Path, "/p/q", "/p"),
        (Source::Method, "PUT", "put"),
        (Source::Host, "a.test", "A.test"),
        (header(), "1", ""),
        (Source::Query("k".into()), "v w", "v%20w"),
        (Source::Query("k".into()), "2", "K"),
        (Source::Cookie("e".into()), "f", "d"),
        (Source::ClientIp, "192.0.2.1", "192.0.2.10"),
    ] {
        assert!(check(source.clone(), is(value), &request), "{source:?}");
        assert!(!check(source.clone(), is(other), &request), "{source:?}");
        assert!(check(source, Predicate::Present, &request));
    }
    assert!(check(Source::Time, Predicate::Present, &request));
    for source in [Source::Header("y".parse().unwrap()), Source::Query("K".into()), Source::Cookie("C".into())] {
        assert!(!check(source, Predicate::Present, &request));
    }
}

#[test]
fn every_test_is_done() {
    let regex = |source: &str| StringTest::Regex(Regex::new(source).unwrap());
    let pattern = |text: &str| StringTest::Pattern(PathPattern::parse(text).unwrap());
    let request = get("a.test/ab/cd");
    for (test, expected) in [
        (StringTest::Prefix("/a".into()), true),
        (StringTest::Prefix("a".into()), false),
        (StringTest::Suffix("/cd".into()), true),
        (StringTest::Suffix("/c".into()), false),
        (StringTest::Contains("b/c".into()), true),
        (StringTest::Contains("bc".into()), false),
        (regex("/a./.*"), true),
        (regex("ab"), false),
        (pattern("/*/cd"), true),
        (pattern("/{x}"), false),
        (pattern("/ab/**"), true),
    ] {
        assert_eq!(check(Source::Path, one(test.clone()), &request), expected, "{test:?}");
    }
    assert!(check(Source::Path, Predicate::Text(vec![pattern("/x"), regex(".*d")]), &request), "any of the values");
    assert!(!check(Source::Path, Predicate::Text(vec![]), &request));
    assert!(!check(Source::Host, one(pattern("/**")), &request), "no path");
}

#[test]
fn repeated_fields_stay_apart() {
    let request =
        get("a.test/").header("x", b"1").header("x", b"2, 3").header("cookie", b"a=1").header("cookie", b"a=2");
    for (value, expected) in [("1", true), ("2, 3", true), ("2", false), ("1, 2, 3", false)] {
        assert_eq!(check(header(), is(value), &request), expected, "{value}");
    }
    for value in ["1", "2"] {
        assert!(check(Source::Cookie("a".into()), is(value), &request), "{value}");
    }
}

#[test]
fn cookies_are_taken_apart() {
    let request = get("a.test/").header("cookie", b"a=1; b = 2 ;c=x=y;lone; d=; a=3; \xff=\xfe");
    for (name, value, expected) in [
        ("a", "1", true),
        ("a", "3", true),
        ("b", "2", true),
        ("c", "x=y", true),
        ("d", "", true),
        ("lone", "", false),
        ("a", "2", false),
    ] {
        assert_eq!(check(Source::Cookie(name.into()), is(value), &request), expected, "{name}={value}");
    }
}

#[test]
fn bytes_beyond_utf8_are_compared() {
    let request = get("a.test/").header("x", b"ab\xffcd");
    for (test, expected) in [
        (StringTest::Prefix("ab".into()), true),
        (StringTest::Suffix("cd".into()), true),
        (StringTest::Contains("cd".into()), true),
        (StringTest::Contains("bc".into()), false),
        (StringTest::Contains("".into()), true),
        (StringTest::Exact("ab\u{fffd}cd".into()), false),
        (StringTest::Regex(Regex::new(".*").unwrap()), false),
    ] {
        assert_eq!(check(header(), one(test.clone()), &request), expected, "{test:?}");
    }
}

#[test]
fn headers_and_queries_are_matched() {
    let request = get("a.test/?q=a%20b&q=2&e").header("x", b"one").header("x", b"two").header("empty", b"");
    let header = |name: &str, test: &HeaderTest| {
        header_holds(&HeaderMatch { name: name.parse().unwrap(), test: test.clone() }, &request.headers)
    };
    let query = |name: &str, test: &HeaderTest| {
        query_holds(&QueryMatch { name: name.into(), test: test.clone() }, request.query.as_deref())
    };
    let exact = |text: &str| HeaderTest::Exact(text.into());
    for (test, in_header, in_query) in [
        (exact("two"), true, false),
        (exact("a b"), false, true),
        (exact("a%20b"), false, false),
        (HeaderTest::Prefix("t".into()), true, false),
        (HeaderTest::Suffix("e".into()), true, false),
        (HeaderTest::Contains(" ".into()), false, true),
        (HeaderTest::Regex(Regex::new("[a-z]+").unwrap()), true, false),
        (HeaderTest::Present, true, true),
        (HeaderTest::Absent, false, false),
    ] {
        assert_eq!((header("x", &test), query("q", &test)), (in_header, in_query), "{test:?}");
        let absent = test == HeaderTest::Absent;
        assert_eq!((header("no", &test), query("no", &test)), (absent, absent), "{test:?}");
    }
    assert!(header("empty", &HeaderTest::Present) && header("empty", &exact("")));
    assert!(query("e", &HeaderTest::Present) && query("e", &exact("")) && !query("e", &HeaderTest::Absent));
    let absent = QueryMatch { name: "q".into(), test: HeaderTest::Absent };
    assert!(query_holds(&absent, None) && query_holds(&absent, Some("")));
}

#[test]
fn networks_fold_mapped_addresses() {
    for (network, address, expected) in [
        ("10.0.0.0/8", "10.1.2.3", true),
        ("10.0.0.0/8", "::ffff:10.1.2.3", true),
        ("10.0.0.0/8", "11.0.0.0", false),
        ("10.0.0.0/8", "::1", false),
        ("::ffff:10.0.0.0/104", "10.1.2.3", true),
        ("::ffff:10.0.0.0/104", "::ffff:10.1.2.3", true),
        ("::ffff:10.0.0.0/104", "11.0.0.0", false),
        ("::/0", "2001:db8::1", true),
        ("::/0", "10.1.2.3", false),
        ("0.0.0.0/0", "::ffff:10.1.2.3", true),
        ("2001:db8::/32", "2001:db8:1::1", true),
    ] {
        let request = Owned { client_ip: address.parse().unwrap(), ..get("a.test/") };
        let networks = Predicate::Cidr(vec!["192.0.2.0/30".parse().unwrap(), network.parse().unwrap()]);
        assert_eq!(check(Source::ClientIp, networks, &request), expected, "{network} {address}");
    }
    let mapped = Owned { client_ip: "::ffff:10.1.2.3".parse().unwrap(), ..get("a.test/") };
    assert!(check(Source::ClientIp, is("10.1.2.3"), &mapped));
    let longest = "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff";
    let longest_request = Owned { client_ip: longest.parse().unwrap(), ..get("a.test/") };
    assert!(check(Source::ClientIp, is(longest), &longest_request));
}

#[test]
fn times_come_before_and_after() {
    use TimePoint::{Daily, Instant};
    const DAY: u64 = 86_400;
    for (now, points, before, after) in [
        (99, vec![Instant(100)], true, false),
        (100, vec![Instant(100)], false, true),
        (3 * DAY + 99, vec![Daily(100)], true, false),
        (3 * DAY + 100, vec![Daily(100)], false, true),
        (100, vec![Instant(50), Instant(150)], true, true),
        (100, vec![], false, false),
    ] {
        let request = Owned { now, ..get("a.test/") };
        assert_eq!(check(Source::Time, Predicate::Before(points.clone()), &request), before, "{now} {points:?}");
        assert_eq!(check(Source::Time, Predicate::After(points.clone()), &request), after, "{now} {points:?}");
    }
    assert_eq!(epoch_seconds(UNIX_EPOCH - Duration::from_millis(1500)), -2);
    assert_eq!(epoch_seconds(UNIX_EPOCH - Duration::from_secs(2)), -2);
    assert_eq!(epoch_seconds(UNIX_EPOCH + Duration::from_millis(1500)), 1);
}

#[test]
fn the_clock_is_asked_only_for_times() {
    let owned = get("a.test/");
    let request = Request { now: Now::Ask(|| unreachable!("no condition on the time")), ..owned.borrow() };
    assert!(holds(&condition(Source::Path, is("/")), &request));
    let request = Request { now: Now::Ask(|| UNIX_EPOCH), ..request };
    assert!(holds(&condition(Source::Time, Predicate::After(vec![TimePoint::Instant(0)])), &request));
}

#[test]
fn what_does_not_suit_never_holds() {
    let request = get("a.test/");
    for (source, predicate) in [
        (Source::Path, Predicate::Cidr(vec!["0.0.0.0/0".parse().unwrap()])),
        (Source::Time, is("0")),
        (Source::ClientIp, Predicate::After(vec![TimePoint::Instant(0)])),
        (Source::Host, Predicate::Before(vec![TimePoint::Instant(9)])),
    ] {
        for negate in [false, true] {
            let condition = Condition { source: source.clone(), predicate: predicate.clone(), negate };
            assert!(!holds(&condition, &request.borrow()), "{condition:?}");
        }
    }
}

#[test]
fn sets_combine() {
    let request = get("a.test/").header("x", b"1");
    let (yes, no) = (condition(header(), is("1")), condition(header(), is("2")));
    for (mode, conditions, expected) in [
        (Mode::All, vec![], true),
        (Mode::Any, vec![], true),
        (Mode::All, vec![&yes, &yes], true),
        (Mode::All, vec![&yes, &no], false),
        (Mode::Any, vec![&no, &yes], true),
        (Mode::Any, vec![&no, &no], false),
    ] {
        let set = ConditionSet { mode, conditions: conditions.into_iter().cloned().collect() };
        assert_eq!(set_holds(&set, &request.borrow()), expected, "{set:?}");
    }
}
