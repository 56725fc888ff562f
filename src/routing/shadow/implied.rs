//! Whether everything that fulfils one thing fulfils another. Sound and not complete: `false` may mean "not known".

use std::borrow::Cow;

use ipnet::IpNet;

use super::paths::{Shape, compare, literal_front};
use crate::ir::{
    Condition, ConditionSet, HeaderTest, Hostname, Match, Mode, PathMatch, PathPattern, Predicate, Regex, Source,
    StringTest, TimePoint,
};
use crate::routing::condition::pattern_matches;

/// What is known of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts<'a> {
    /// The hostname of the Selector that it came in by.
    pub(super) hostname: Option<&'a Hostname>,
    /// A match that it fits.
    pub(super) matching: Option<&'a Match>,
    /// Conditions that hold.
    conditions: Vec<&'a Condition>,
    /// Of each set one condition holds.
    any: Vec<&'a ConditionSet>,
}

/// A test of a text, whoever asks for it.
#[derive(Clone, Debug)]
enum Test<'a> {
    Is(Cow<'a, str>),
    Starts(Cow<'a, str>),
    Ends(Cow<'a, str>),
    Has(&'a str),
    Regex(&'a Regex),
    Pattern(&'a PathPattern),
    Present,
}

impl<'a> Facts<'a> {
    pub(super) fn new(hostname: Option<&'a Hostname>, matching: Option<&'a Match>, set: &'a ConditionSet) -> Self {
        let mut facts = Self { hostname, matching, ..Self::default() };
        if let Some(matching) = matching {
            facts.conditions.extend(&matching.conditions);
        }
        if set.mode == Mode::All || set.conditions.len() == 1 {
            facts.conditions.extend(&set.conditions);
        } else if !set.conditions.is_empty() {
            facts.any.push(set);
        }
        facts
    }

    /// Whether a set of conditions holds.
    pub(super) fn imply_set(&self, set: &ConditionSet) -> bool {
        if self.any.contains(&set) || self.imply_conditions(set) {
            return true;
        }
        // Whichever of its conditions holds, the set does.
        self.any.first().is_some_and(|any| {
            any.conditions.iter().all(|alternative| {
                let mut facts = Self { any: Vec::new(), ..self.clone() };
                facts.conditions.push(alternative);
                facts.imply_conditions(set)
            })
        })
    }

    fn imply_conditions(&self, set: &ConditionSet) -> bool {
        match set.mode {
            Mode::All => set.conditions.iter().all(|condition| self.imply(condition)),
            Mode::Any => set.conditions.is_empty() || set.conditions.iter().any(|condition| self.imply(condition)),
        }
    }

    /// Whether everything but path and methods of a match fits.
    pub(super) fn imply_rest(&self, matching: &Match) -> bool {
        matching.headers.iter().all(|h| self.imply_field(&Source::Header(h.name.clone()), &h.test))
            && matching.query.iter().all(|q| self.imply_field(&Source::Query(q.name.clone()), &q.test))
            && matching.conditions.iter().all(|condition| self.imply(condition))
    }

    /// Whether the method is one of those of a match.
    pub(super) fn imply_methods(&self, matching: &Match) -> bool {
        let listed = |method: &http::Method| matching.methods.contains(method);
        let known = || self.matching.is_some_and(|m| !m.methods.is_empty() && m.methods.iter().all(listed));
        let wanted = || matching.methods.iter().map(|m| Test::Is(m.as_str().into())).collect::<Vec<_>>();
        matching.methods.is_empty() || known() || self.imply_tests(&Source::Method, &wanted())
    }

    fn imply_field(&self, source: &Source, test: &HeaderTest) -> bool {
        match Test::of_field(test) {
            Some(test) => self.imply_tests(source, &[test]),
            None => self.imply_absent(source),
        }
    }

    fn imply_absent(&self, source: &Source) -> bool {
        let absent = |test: &HeaderTest| *test == HeaderTest::Absent;
        let by_match = self.matching.is_some_and(|m| match source {
            Source::Header(name) => m.headers.iter().any(|h| h.name == *name && absent(&h.test)),
            Source::Query(name) => m.query.iter().any(|q| q.name == *name && absent(&q.test)),
            _ => false,
        });
        let denied = |c: &&Condition| c.negate && c.source == *source && c.predicate == Predicate::Present;
        by_match || self.conditions.iter().any(denied)
    }

    fn imply(&self, wanted: &Condition) -> bool {
        if self.conditions.contains(&wanted) {
            return true;
        }
        let same_source = |c: &&&Condition| c.source == wanted.source && c.negate == wanted.negate;
        let mut others = self.conditions.iter().filter(same_source).map(|c| &c.predicate);
        if wanted.negate {
            return match &wanted.predicate {
                Predicate::Text(tests) => {
                    let tests: Vec<_> = tests.iter().map(Test::of_text).collect();
                    self.imply_absent(&wanted.source)
                        || self.excludes(&wanted.source, &tests)
                        || others.any(|other| match other {
                            Predicate::Text(others) => {
                                let others: Vec<_> = others.iter().map(Test::of_text).collect();
                                tests.iter().all(|test| others.iter().any(|other| test.implies(other)))
                            }
                            _ => false,
                        })
                }
                Predicate::Present => self.imply_absent(&wanted.source),
                predicate => others.any(|other| predicate_implies(predicate, other)),
            };
        }
        match &wanted.predicate {
            Predicate::Present => match wanted.source {
                Source::ClientIp | Source::Time | Source::Path | Source::Method | Source::Host => true,
                _ => self.imply_tests(&wanted.source, &[Test::Present]),
            },
            Predicate::Text(tests) => {
                let tests: Vec<_> = tests.iter().map(Test::of_text).collect();
                self.imply_tests(&wanted.source, &tests)
            }
            predicate => others.any(|other| predicate_implies(other, predicate)),
        }
    }

    /// Whether a value of a source passes one of the tests.
    fn imply_tests(&self, source: &Source, wanted: &[Test<'_>]) -> bool {
        let covered =
            |known: &Vec<Test<'_>>| !known.is_empty() && known.iter().all(|k| wanted.iter().any(|w| k.implies(w)));
        self.tests(source).iter().any(covered) || (*source == Source::Path && self.path_lies_in(wanted))
    }

    fn path_lies_in(&self, wanted: &[Test<'_>]) -> bool {
        let Some(Shape::Steps(steps)) = self.matching.and_then(|m| Shape::new(&m.path)) else { return false };
        wanted.iter().any(|test| match test {
            Test::Pattern(pattern) => match Shape::new(&PathMatch::Pattern((*pattern).clone())) {
                Some(Shape::Steps(pattern)) => compare(&steps, &pattern).is_inside(),
                _ => false,
            },
            _ => false,
        })
    }

    /// Whether a source has exactly one value, and that is known to pass none of the tests.
    fn excludes(&self, source: &Source, tests: &[Test<'_>]) -> bool {
        matches!(source, Source::Path | Source::Method | Source::Host)
            && self.tests(source).iter().any(|known| {
                let fails = |known: &Test<'_>| match known {
                    Test::Is(value) => !tests.iter().any(|test| test.passes(value)),
                    _ => false,
                };
                !known.is_empty() && known.iter().all(fails)
            })
    }

    /// What is known of a source: of each list, one test passes for one of its values.
    fn tests(&self, source: &Source) -> Vec<Vec<Test<'a>>> {
        let mut all: Vec<Vec<Test<'a>>> = Vec::new();
        for condition in &self.conditions {
            if condition.source == *source && !condition.negate {
                match &condition.predicate {
                    Predicate::Text(tests) => all.push(tests.iter().map(Test::of_text).collect()),
                    Predicate::Present => all.push(vec![Test::Present]),
                    _ => {}
                }
            }
        }
        let Some(matching) = self.matching else {
            all.extend(self.host_tests(source));
            return all;
        };
        match source {
            Source::Header(name) => {
                let fields = matching.headers.iter().filter(|h| h.name == *name);
                all.extend(fields.filter_map(|h| Some(vec![Test::of_field(&h.test)?])));
            }
            Source::Query(name) => {
                let fields = matching.query.iter().filter(|q| q.name == *name);
                all.extend(fields.filter_map(|q| Some(vec![Test::of_field(&q.test)?])));
            }
            Source::Method => all.push(matching.methods.iter().map(|m| Test::Is(m.as_str().into())).collect()),
            Source::Path => all.push(vec![match &matching.path {
                PathMatch::Exact(text) => Test::Is(Cow::Borrowed(text)),
                PathMatch::Prefix(text) => Test::Starts(Cow::Borrowed(text)),
                PathMatch::Regex(regex) => Test::Regex(regex),
                pattern @ PathMatch::Pattern(_) => Test::Starts(literal_front(pattern).into()),
            }]),
            _ => {}
        }
        all.extend(self.host_tests(source));
        all
    }

    fn host_tests(&self, source: &Source) -> Option<Vec<Test<'a>>> {
        match (source, self.hostname?) {
            (Source::Host, Hostname::Exact(name)) => Some(vec![Test::Is(Cow::Borrowed(name))]),
            (Source::Host, Hostname::Wildcard(suffix)) => Some(vec![Test::Ends(format!(".{suffix}").into())]),
            _ => None,
        }
    }
}

impl<'a> Test<'a> {
    fn of_text(test: &'a StringTest) -> Self {
        match test {
            StringTest::Exact(value) => Self::Is(Cow::Borrowed(value)),
            StringTest::Prefix(value) => Self::Starts(Cow::Borrowed(value)),
            StringTest::Suffix(value) => Self::Ends(Cow::Borrowed(value)),
            StringTest::Contains(value) => Self::Has(value),
            StringTest::Regex(regex) => Self::Regex(regex),
            StringTest::Pattern(pattern) => Self::Pattern(pattern),
        }
    }

    fn of_field(test: &'a HeaderTest) -> Option<Self> {
        Some(match test {
            HeaderTest::Exact(value) => Self::Is(Cow::Borrowed(value)),
            HeaderTest::Prefix(value) => Self::Starts(Cow::Borrowed(value)),
            HeaderTest::Suffix(value) => Self::Ends(Cow::Borrowed(value)),
            HeaderTest::Contains(value) => Self::Has(value),
            HeaderTest::Regex(regex) => Self::Regex(regex),
            HeaderTest::Present => Self::Present,
            HeaderTest::Absent => return None,
        })
    }

    fn passes(&self, value: &str) -> bool {
        match self {
            Self::Is(text) => value == text,
            Self::Starts(text) => value.starts_with(&**text),
            Self::Ends(text) => value.ends_with(&**text),
            Self::Has(text) => value.contains(text),
            Self::Regex(regex) => regex.is_match(value),
            Self::Pattern(pattern) => pattern_matches(pattern, value),
            Self::Present => true,
        }
    }

    /// Whether every value that passes this passes the other.
    fn implies(&self, other: &Test<'_>) -> bool {
        match (self, other) {
            (_, Test::Present) => true,
            (Self::Is(value), other) => other.passes(value),
            (Self::Starts(own), Test::Starts(other)) => own.starts_with(&**other),
            (Self::Ends(own), Test::Ends(other)) => own.ends_with(&**other),
            (Self::Starts(own) | Self::Ends(own), Test::Has(other)) => own.contains(other),
            (Self::Has(own), Test::Has(other)) => own.contains(other),
            (Self::Regex(own), Test::Regex(other)) => own == other,
            (Self::Pattern(own), Test::Pattern(other)) => own == other,
            (_, Test::Starts(text) | Test::Ends(text)) => text.is_empty(),
            _ => false,
        }
    }
}

/// Whether a network or time that passes the first passes the second.
fn predicate_implies(first: &Predicate, second: &Predicate) -> bool {
    match (first, second) {
        (Predicate::Cidr(first), Predicate::Cidr(second)) => {
            first.iter().all(|a| second.iter().any(|b| network_within(a, b)))
        }
        (Predicate::Before(first), Predicate::Before(second)) => {
            first.iter().all(|a| second.iter().any(|b| not_after(a, b)))
        }
        (Predicate::After(first), Predicate::After(second)) => {
            first.iter().all(|a| second.iter().any(|b| not_after(b, a)))
        }
        _ => first == second,
    }
}

/// Whether every address of a network is one of the other, where an IPv6 network of less than 96 bits has no IPv4-mapped
/// address.
fn network_within(inner: &IpNet, outer: &IpNet) -> bool {
    match (inner, outer) {
        (IpNet::V4(inner), IpNet::V4(outer)) => outer.contains(inner),
        (IpNet::V6(inner), IpNet::V6(outer)) => {
            outer.contains(inner) && (inner.prefix_len() < 96 || outer.prefix_len() >= 96)
        }
        _ => false,
    }
}

fn not_after(a: &TimePoint, b: &TimePoint) -> bool {
    match (a, b) {
        (TimePoint::Instant(a), TimePoint::Instant(b)) => a <= b,
        (TimePoint::Daily(a), TimePoint::Daily(b)) => a <= b,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
