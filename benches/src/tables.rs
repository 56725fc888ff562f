//! Tables and requests of any size that the benchmarks of routing share.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, HeaderName, Method};
use lockgate::ir::{
    Action, ConditionSet, DirectResponse, HeaderMatch, HeaderTest, Hostname, InvalidHostname, InvalidPattern, Limits,
    LoadBalancing, Match, ObjectName, Origin, PathMatch, PathPattern, Rule, Selector, Timeouts, UpstreamLimits,
};
use lockgate::routing::{Now, Request, RouteTable};

/// Paths that each Selector of [`selectors`] has.
pub const PATHS: usize = 10;

/// What the tables of the benchmarks carry per rule.
pub type Payload = u32;

/// `routes` rules of one match: a host and a Selector for every ten of them.
pub fn selectors(routes: usize) -> Result<Vec<Arc<Selector>>, InvalidPattern> {
    (0..routes.div_ceil(PATHS)).map(|number| usual(number).map(Arc::new)).collect()
}

/// The Selector of one host: six Prefixes, two Exact paths and two Patterns, one in five with a method and a header.
pub fn usual(number: usize) -> Result<Selector, InvalidPattern> {
    let mut matches: Vec<Match> = (0..6).map(|i| on(PathMatch::Prefix(format!("/api/v1/service{i}").into()))).collect();
    matches.extend((0..2).map(|i| on(PathMatch::Exact(format!("/static/page{i}.html").into()))));
    for i in 0..2 {
        matches.push(on(PathMatch::Pattern(PathPattern::parse(&format!("/users/{{id}}/orders{i}/*"))?)));
    }
    for matching in matches.iter_mut().step_by(5) {
        matching.methods = vec![Method::GET, Method::HEAD];
        matching.headers = vec![header("x-tenant", HeaderTest::Present)];
    }
    Ok(selector(number, Hostname::Exact(host(number).into()), matches))
}

/// A Selector in which a request for [`deep_path`] passes 64 Prefixes, each with a header that is not there.
pub fn deep() -> Selector {
    let prefix = |depth: usize| PathMatch::Prefix("/a".repeat(depth).into());
    let matches =
        (1..=64).map(|depth| Match { headers: vec![header("x-none", HeaderTest::Present)], ..on(prefix(depth)) });
    selector(usize::MAX, Hostname::Exact("deep.test".into()), matches.collect())
}

/// A path of 64 segments.
pub fn deep_path() -> String {
    "/a".repeat(64)
}

/// A Selector whose states would be `2^64`: 64 Patterns of 64 segments with one literal each.
pub fn diagonal() -> Result<Selector, InvalidPattern> {
    let pattern = |at: usize| -> String { (0..64).map(|place| if place == at { "/a" } else { "/*" }).collect() };
    let matches = (0..64).map(|at| PathPattern::parse(&pattern(at)).map(|p| on(PathMatch::Pattern(p))));
    Ok(selector(usize::MAX, Hostname::Exact("deep.test".into()), matches.collect::<Result<_, _>>()?))
}

/// One Selector with `routes` Prefixes, for the host `one.test`.
pub fn broad(routes: usize) -> Selector {
    let matches = (0..routes).map(|i| on(PathMatch::Prefix(format!("/services/name-{i}").into())));
    selector(usize::MAX, Hostname::Exact("one.test".into()), matches.collect())
}

/// A Selector for every subdomain of `example.test`.
pub fn wildcard() -> Result<Selector, InvalidHostname> {
    Ok(selector(usize::MAX, Hostname::parse("*.example.test")?, vec![on(PathMatch::Prefix("/x".into()))]))
}

/// The host of a Selector of [`selectors`].
pub fn host(number: usize) -> String {
    format!("shop-{number}.example.com")
}

/// The table of `selectors` for two listeners.
pub fn compile(selectors: &[Arc<Selector>], previous: Option<&RouteTable<Payload>>) -> RouteTable<Payload> {
    let mut next = 0;
    RouteTable::compile(&["http".into(), "https".into()], selectors, previous, |_, _, _| {
        next += 1;
        next
    })
}

/// Hosts and paths in one text each, so that to read them costs a benchmark little.
#[derive(Debug, Default)]
pub struct Requests {
    text: String,
    /// Where each host and each path ends.
    ends: Vec<(usize, usize)>,
}

impl Requests {
    /// `count` requests to the hosts of [`selectors`], drawn at random, with paths of `paths` in turn.
    pub fn new(routes: usize, count: usize, paths: &[fn(usize) -> String]) -> Self {
        let hosts = routes.div_ceil(PATHS);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            // xorshift64*: the same requests in every run.
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            usize::try_from(state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap_or_default()
        };
        let mut requests = Self::default();
        for i in 0..count {
            requests.push(&host(random() % hosts), &paths[i % paths.len()](random()));
        }
        requests
    }

    /// One request.
    pub fn one(host: &str, path: &str) -> Self {
        let mut requests = Self::default();
        requests.push(host, path);
        requests
    }

    /// Adds a request.
    pub fn push(&mut self, host: &str, path: &str) {
        self.text += host;
        let end_of_host = self.text.len();
        self.text += path;
        self.ends.push((end_of_host, self.text.len()));
    }

    /// Host and path of each.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> + Clone {
        self.ends.iter().enumerate().map(|(i, (host, path))| {
            let start = if i == 0 { 0 } else { self.ends[i - 1].1 };
            (&self.text[start..*host], &self.text[*host..*path])
        })
    }
}

/// Paths that fit a Prefix of [`usual`].
pub fn prefix(number: usize) -> String {
    format!("/api/v1/service{}/item/{number}", number % 6)
}

/// Paths that fit an Exact path of [`usual`].
pub fn exact(number: usize) -> String {
    format!("/static/page{}.html", number % 2)
}

/// Paths that fit a Pattern of [`usual`].
pub fn pattern(number: usize) -> String {
    format!("/users/{number}/orders{}/7", number % 2)
}

/// Paths that fit nothing of [`usual`].
pub fn missing(number: usize) -> String {
    format!("/api/v2/{number}")
}

/// The ten paths of [`usual`] in their shares.
pub const UNIFORM: [fn(usize) -> String; PATHS] =
    [prefix, prefix, exact, prefix, pattern, prefix, prefix, exact, prefix, pattern];

/// A `GET` of a host and path.
pub fn get<'a>(headers: &'a HeaderMap, host: &'a str, path: &'a str) -> Request<'a> {
    let client_ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Request { method: &Method::GET, host, path, query: None, headers, client_ip, now: Now::Ask(SystemTime::now) }
}

/// A Selector with these matches, for the host `one.test`.
pub fn one(matches: Vec<Match>) -> Selector {
    selector(usize::MAX, Hostname::Exact("one.test".into()), matches)
}

/// A match on a path alone.
pub fn on(path: PathMatch) -> Match {
    Match { index: 0, path, methods: Vec::new(), headers: Vec::new(), query: Vec::new(), conditions: Vec::new() }
}

/// A match that asks for a value of a header too.
pub fn with_header(mut matching: Match, name: &'static str, value: &str) -> Match {
    matching.headers.push(header(name, HeaderTest::Exact(value.into())));
    matching
}

fn header(name: &'static str, test: HeaderTest) -> HeaderMatch {
    HeaderMatch { name: HeaderName::from_static(name), test }
}

fn selector(number: usize, hostname: Hostname, matches: Vec<Match>) -> Selector {
    let origin = |name: String| Origin { created: 0, object: ObjectName::new("bench", name) };
    let rule = |(index, matching): (u16, Match)| {
        Arc::new(Rule {
            origin: origin(format!("route-{number}")),
            index,
            name: index.to_string().into(),
            matches: vec![matching],
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
        })
    };
    Selector {
        origin: origin(format!("selector-{number}")),
        listeners: Vec::new(),
        hostnames: vec![hostname],
        priority: 0,
        conditions: ConditionSet::default(),
        rules: (0..=u16::MAX).cycle().zip(matches).map(rule).collect(),
        tls: None,
    }
}
