//! Short ways to write tables and requests in tests.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::{Found, ListenerIndex, Miss, Now, Request, RouteTable};
use crate::ir::{
    Action, Condition, ConditionSet, DirectResponse, HeaderMatch, HeaderTest, Hostname, Limits, LoadBalancing, Match,
    ObjectName, Origin, PathMatch, PathPattern, QueryMatch, Regex, Rule, Selector, Timeouts, UpstreamLimits,
};

/// The listeners of tables in tests.
pub(super) fn listeners() -> Vec<Arc<str>> {
    vec!["http".into(), "https".into()]
}

pub(super) fn origin(created: i64, name: &str) -> Origin {
    Origin { created, object: ObjectName::new("ns", name) }
}

/// A Selector of hosts (`*` for any) and rules.
pub(super) fn selector(name: &str, hosts: &[&str], rules: Vec<Rule>) -> Selector {
    let host = |text: &&str| if *text == "*" { Hostname::Any } else { Hostname::parse(text).unwrap() };
    Selector {
        origin: origin(0, name),
        listeners: Vec::new(),
        hostnames: hosts.iter().map(host).collect(),
        priority: 0,
        conditions: ConditionSet::default(),
        rules: rules.into_iter().map(Arc::new).collect(),
        tls: None,
    }
}

/// The first rule of the Route `r`; its name is what tests look at.
pub(super) fn rule(name: &str, matches: Vec<Match>) -> Rule {
    rule_of(origin(0, "r"), 0, name, matches)
}

pub(super) fn rule_of(origin: Origin, index: u16, name: &str, matches: Vec<Match>) -> Rule {
    let matches = (0..).zip(matches).map(|(index, matching)| Match { index, ..matching }).collect();
    Rule {
        origin,
        index,
        name: name.into(),
        matches,
        filters: Vec::new(),
        action: Action::DirectResponse(DirectResponse {
            status: http::StatusCode::OK,
            headers: Vec::new(),
            body: "".into(),
        }),
        timeouts: Timeouts::default(),
        retry: None,
        load_balancing: LoadBalancing::default(),
        limits: Limits::default(),
        upstream: UpstreamLimits::default(),
        upgrades: None,
    }
}

/// A path as tests write it: `=/a` Exact, `~/a.*` Regex, with `*` or `{` Pattern, `!/a` a Pattern too, else Prefix.
pub(super) fn path(text: &str) -> PathMatch {
    if let Some(exact) = text.strip_prefix('=') {
        PathMatch::Exact(exact.into())
    } else if let Some(regex) = text.strip_prefix('~') {
        PathMatch::Regex(Regex::new(regex).unwrap())
    } else if let Some(pattern) = text.strip_prefix('!').or(text.contains(['*', '{']).then_some(text)) {
        PathMatch::Pattern(PathPattern::parse(pattern).unwrap())
    } else {
        PathMatch::Prefix(text.trim_end_matches('/').into())
    }
}

/// A match on a path alone.
pub(super) fn on(text: &str) -> Match {
    Match { index: 0, path: path(text), methods: vec![], headers: vec![], query: vec![], conditions: vec![] }
}

impl Match {
    pub(super) fn method(mut self, method: &str) -> Self {
        self.methods.push(method.parse().unwrap());
        self
    }

    pub(super) fn header(mut self, name: &str, test: HeaderTest) -> Self {
        self.headers.push(HeaderMatch { name: name.parse().unwrap(), test });
        self
    }

    pub(super) fn query(mut self, name: &str, test: HeaderTest) -> Self {
        self.query.push(QueryMatch { name: name.into(), test });
        self
    }

    pub(super) fn condition(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }
}

pub(super) fn exact(text: &str) -> HeaderTest {
    HeaderTest::Exact(text.into())
}

/// A request with its own data.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub(super) listener: usize,
    pub(super) method: Method,
    pub(super) host: String,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) headers: HeaderMap,
    pub(super) client_ip: IpAddr,
    /// Seconds since the epoch.
    pub(super) now: u64,
}

/// `GET` of a URL without a scheme: `host/path?query`.
pub(super) fn get(url: &str) -> Owned {
    let (target, query) = url.split_once('?').map_or((url, None), |(target, query)| (target, Some(query.to_owned())));
    let (host, path) = target.split_at(target.find('/').unwrap_or(target.len()));
    Owned {
        listener: 0,
        method: Method::GET,
        host: host.to_owned(),
        path: path.to_owned(),
        query,
        headers: HeaderMap::new(),
        client_ip: Ipv4Addr::new(192, 0, 2, 1).into(),
        now: 0,
    }
}

impl Owned {
    pub(super) fn method(mut self, method: &str) -> Self {
        self.method = method.parse().unwrap();
        self
    }

    pub(super) fn header(mut self, name: &str, value: &[u8]) -> Self {
        let name: HeaderName = name.parse().unwrap();
        self.headers.append(name, HeaderValue::from_bytes(value).unwrap());
        self
    }

    pub(super) fn borrow(&self) -> Request<'_> {
        Request {
            method: &self.method,
            host: &self.host,
            path: &self.path,
            query: self.query.as_deref(),
            headers: &self.headers,
            client_ip: self.client_ip,
            now: Now::At(SystemTime::UNIX_EPOCH + Duration::from_secs(self.now)),
        }
    }
}

pub(super) fn table(selectors: Vec<Selector>) -> RouteTable<()> {
    let selectors: Vec<_> = selectors.into_iter().map(Arc::new).collect();
    RouteTable::compile(&listeners(), &selectors, None, |_, _, _| ())
}

/// What tests compare: `selector rule match`, or why there is none.
pub(super) fn outcome(found: &Result<Found<'_, ()>, Miss>) -> String {
    match found {
        Ok(found) => {
            format!("{} {} {}", found.selector.origin.object.name, found.rule.name, found.matched().index)
        }
        Err(miss) => miss.reason().to_owned(),
    }
}

impl RouteTable<()> {
    /// The name of the rule that takes a request, or the reason why none does.
    pub(super) fn ask(&self, request: &Owned) -> String {
        match self.find(ListenerIndex(request.listener), &request.borrow()) {
            Ok(found) => found.rule.name.to_string(),
            Err(miss) => miss.reason().to_owned(),
        }
    }
}
