//! Tables and requests made of the bytes that a fuzzer gives.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arbitrary::{Arbitrary, Result, Unstructured};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use lockgate::ir::{
    Action, Condition, ConditionSet, HeaderMatch, HeaderTest, Hostname, Limits, LoadBalancing, Match, Mode, ObjectName,
    Origin, PathMatch, PathPattern, Predicate, QueryMatch, Regex, Rule, Selector, Source, StringTest, TimePoint,
    Timeouts, UpstreamLimits,
};
use lockgate::routing::{ListenerIndex, Now, Request, path};

/// The listeners of all tables.
pub fn listeners() -> Vec<Arc<str>> {
    vec!["http".into(), "https".into()]
}

/// Two lists of Selectors and requests for both.
#[derive(Debug)]
pub struct Input {
    /// For a table of its own.
    pub first: Vec<Arc<Selector>>,
    /// For a table with some of the first ones.
    pub second: Vec<Arc<Selector>>,
    /// Asked of both.
    pub requests: Vec<Owned>,
}

/// A request with its data.
#[derive(Debug)]
pub struct Owned {
    listener: usize,
    method: Method,
    host: &'static str,
    path: String,
    query: Option<String>,
    headers: HeaderMap,
    client_ip: IpAddr,
    now: u64,
}

impl Owned {
    /// The form that tables take.
    pub fn borrow(&self) -> (ListenerIndex, Request<'_>) {
        let request = Request {
            method: &self.method,
            host: self.host,
            path: &self.path,
            query: self.query.as_deref(),
            headers: &self.headers,
            client_ip: self.client_ip,
            now: Now::At(SystemTime::UNIX_EPOCH + Duration::from_secs(self.now)),
        };
        (ListenerIndex(self.listener), request)
    }
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut number = 0;
        let mut selectors = |u: &mut Unstructured<'a>| -> Result<Vec<Arc<Selector>>> {
            let count = u.int_in_range(0..=4)?;
            (0..count)
                .map(|_| {
                    number += 1;
                    selector(u, number).map(Arc::new)
                })
                .collect()
        };
        let (first, second) = (selectors(u)?, selectors(u)?);
        let count = u.int_in_range(1..=12)?;
        let requests = (0..count).map(|_| request(u)).collect::<Result<_>>()?;
        Ok(Self { first, second, requests })
    }
}

fn several<'a, T>(
    u: &mut Unstructured<'a>,
    most: usize,
    mut make: impl FnMut(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = u.int_in_range(0..=most)?;
    (0..count).map(|_| make(u)).collect()
}

fn text(u: &mut Unstructured<'_>) -> Result<&'static str> {
    u.choose(&["a", "b", "ab", "1", "x1", "", "%20", "c=1", "a;c=2", "é"]).copied()
}

fn segment(u: &mut Unstructured<'_>) -> Result<&'static str> {
    u.choose(&["a", "b", "c", "ab", "", "%20", "."]).copied()
}

fn selector(u: &mut Unstructured<'_>, number: usize) -> Result<Selector> {
    const HOSTS: [&str; 6] = ["a.test", "b.a.test", "*.test", "*.a.test", "*", "test"];
    let host = |u: &mut Unstructured<'_>| {
        let name = *u.choose(&HOSTS)?;
        Ok(if name == "*" { Hostname::Any } else { Hostname::parse(name).expect("a hostname") })
    };
    let mut hostnames = several(u, 2, host)?;
    hostnames.push(host(u)?);
    hostnames.sort();
    hostnames.dedup();
    let listeners = several(u, 2, |u| Ok(Arc::from(*u.choose(&["http", "https", "none"])?)))?;
    let conditions = several(u, 2, condition)?;
    let mode = if u.arbitrary()? { Mode::Any } else { Mode::All };
    let mut index = 0;
    let rules = several(u, 8, |u| {
        index += 1;
        rule(u, index).map(Arc::new)
    })?;
    Ok(Selector {
        origin: Origin { created: u.int_in_range(0..=2)?, object: ObjectName::new("ns", format!("s{number}")) },
        listeners,
        hostnames,
        priority: u.int_in_range(-1..=1)?,
        conditions: ConditionSet { mode, conditions },
        rules,
        tls: None,
    })
}

fn rule(u: &mut Unstructured<'_>, index: u16) -> Result<Rule> {
    let mut matches = several(u, 3, matching)?;
    matches.push(matching(u)?);
    let matches = (0..).zip(matches).map(|(index, matching)| Match { index, ..matching }).collect();
    let created = u.int_in_range(0..=2)?;
    Ok(Rule {
        // The age belongs to the Route, so it is part of its name here.
        origin: Origin { created, object: ObjectName::new("ns", format!("r{created}")) },
        index,
        name: index.to_string().into(),
        matches,
        filters: Vec::new(),
        action: Action::Invalid { reason: "Fuzzed" },
        timeouts: Timeouts::default(),
        retry: None,
        load_balancing: LoadBalancing::default(),
        limits: Limits::default(),
        upstream: UpstreamLimits::default(),
        upgrades: None,
    })
}

fn matching(u: &mut Unstructured<'_>) -> Result<Match> {
    let methods = several(u, 2, |u| {
        let name = *u.choose(&["GET", "POST", "PURGE", "get"])?;
        Ok(name.parse().expect("a method"))
    })?;
    let header = |u: &mut Unstructured<'_>| Ok(HeaderMatch { name: header_name(u)?, test: test(u)? });
    let query = |u: &mut Unstructured<'_>| Ok(QueryMatch { name: text(u)?.into(), test: test(u)? });
    Ok(Match {
        index: 0,
        path: path_match(u)?,
        methods,
        headers: several(u, 2, header)?,
        query: several(u, 2, query)?,
        conditions: several(u, 2, condition)?,
    })
}

fn path_match(u: &mut Unstructured<'_>) -> Result<PathMatch> {
    let joined = several(u, 4, segment)?.iter().flat_map(|segment| ["/", segment]).collect::<String>();
    Ok(match u.int_in_range(0..=7)? {
        0 | 1 => PathMatch::Exact(if joined.is_empty() { "/".into() } else { joined.into() }),
        2 | 3 => PathMatch::Prefix(joined.trim_end_matches('/').into()),
        4 => PathMatch::Regex(regex(u)?),
        _ => {
            let segments = several(u, 5, |u| u.choose(&["a", "b", "", "*", "*", "{x}", "**"]).copied())?;
            match PathPattern::parse(&format!("/{}", segments.join("/"))) {
                Ok(pattern) => PathMatch::Pattern(pattern),
                Err(_) => PathMatch::Prefix("/a".into()),
            }
        }
    })
}

fn regex(u: &mut Unstructured<'_>) -> Result<Regex> {
    let source = *u.choose(&["/a.*", "/a/b?", "/(a|b)/.*", ".*b", "/[ab]/a", "/.*", "/b/?.*", "(a|b)*1?", ""])?;
    Ok(Regex::new(source).expect("a regex"))
}

fn test(u: &mut Unstructured<'_>) -> Result<HeaderTest> {
    Ok(match u.int_in_range(0..=6)? {
        0 => HeaderTest::Exact(text(u)?.into()),
        1 => HeaderTest::Regex(regex(u)?),
        2 => HeaderTest::Present,
        3 => HeaderTest::Absent,
        4 => HeaderTest::Prefix(text(u)?.into()),
        5 => HeaderTest::Suffix(text(u)?.into()),
        _ => HeaderTest::Contains(text(u)?.into()),
    })
}

fn header_name(u: &mut Unstructured<'_>) -> Result<HeaderName> {
    Ok(HeaderName::from_static(u.choose(&["x", "y", "cookie"])?))
}

fn condition(u: &mut Unstructured<'_>) -> Result<Condition> {
    let source = match u.int_in_range(0..=7)? {
        0 => Source::Path,
        1 => Source::Method,
        2 => Source::Host,
        3 => Source::Header(header_name(u)?),
        4 => Source::Query(text(u)?.into()),
        5 => Source::Cookie("c".into()),
        6 => Source::ClientIp,
        _ => Source::Time,
    };
    let predicate = match u.int_in_range(0..=8)? {
        0 => Predicate::Present,
        1 => Predicate::Cidr(vec![u.choose(&["10.0.0.0/8", "::/0", "192.0.2.1/32"])?.parse().expect("a network")]),
        2 => Predicate::Before(vec![TimePoint::Daily(u.int_in_range(0..=86_399)?)]),
        3 => Predicate::After(vec![TimePoint::Instant(u.int_in_range(0..=200_000)?)]),
        kind => Predicate::Text(several(u, 2, |u| {
            Ok(match kind {
                4 => StringTest::Exact(text(u)?.into()),
                5 => StringTest::Prefix(text(u)?.into()),
                6 => StringTest::Suffix(text(u)?.into()),
                7 => StringTest::Contains(text(u)?.into()),
                _ => StringTest::Regex(regex(u)?),
            })
        })?),
    };
    Ok(Condition { source, predicate, negate: u.arbitrary()? })
}

fn request(u: &mut Unstructured<'_>) -> Result<Owned> {
    let mut segments = several(u, 5, segment)?;
    segments.push(segment(u)?);
    let raw = format!("/{}", segments.join("/"));
    let mut headers = HeaderMap::new();
    for (name, value) in several(u, 3, |u| Ok((header_name(u)?, text(u)?)))? {
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
    }
    let pair = |u: &mut Unstructured<'_>| Ok(format!("{}={}", text(u)?, text(u)?));
    Ok(Owned {
        listener: u.int_in_range(0..=1)?,
        method: u.choose(&["GET", "POST", "PURGE", "get", "X"])?.parse().expect("a method"),
        host: *u.choose(&["a.test", "b.a.test", "c.b.a.test", "x.test", "test", ""])?,
        path: path::normalise(&raw).expect("a path").into_owned(),
        query: if u.arbitrary()? { Some(several(u, 3, pair)?.join("&")) } else { None },
        headers,
        client_ip: if u.arbitrary()? { [10, 1, 2, 3].into() } else { [192, 0, 2, 1].into() },
        now: u.int_in_range(0..=200_000)?,
    })
}
