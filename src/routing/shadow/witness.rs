//! Makes requests that fulfil given matches and conditions. What it makes is a proposal: whoever asked feeds it to the
//! matcher, and where it finds none there may still be one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use http::header::{COOKIE, HOST};
use http::{HeaderName, HeaderValue, Method};

use super::automaton::{COOKIES, Machine, PATHS, Table, VALUES, shortest};
use super::paths::{Automata, Shape};
use super::texts::{self, Field};
use super::{DEFAULT_TIME, Witness};
use crate::ir::{Condition, ConditionSet, Match, Mode, Predicate, Source, TimePoint};
use crate::routing::{ListenerIndex, condition, path};

/// Where a witness comes in.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) listener: ListenerIndex,
    pub(super) listener_name: &'a Arc<str>,
    /// Hosts of one hostname, to choose from.
    pub(super) hosts: &'a [Box<str>],
}

/// What a witness must fulfil.
#[derive(Clone, Debug)]
pub(super) struct Demand<'a> {
    pub(super) matches: Vec<&'a Match>,
    pub(super) sets: Vec<&'a ConditionSet>,
    /// Paths that fit all matches, to try first.
    pub(super) paths: Vec<String>,
    /// 0, or 1 for other values where any will do.
    pub(super) variant: usize,
    /// Whether anything that decides asks for the client's address, or the time.
    pub(super) asks: Asks,
}

/// What a witness must say besides the usual.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asks {
    pub(super) client_ip: bool,
    pub(super) time: bool,
}

impl Asks {
    pub(super) fn note<'c>(&mut self, conditions: impl IntoIterator<Item = &'c Condition>) {
        for condition in conditions {
            self.client_ip |= condition.source == Source::ClientIp;
            self.time |= condition.source == Source::Time;
        }
    }
}

/// Days and seconds of a day, in seconds.
const DAY: i64 = 24 * 60 * 60;
/// Of several conditions one of which must hold, so many are tried.
const ALTERNATIVES: usize = 4;

/// A request that fulfils the demand, if one is found.
pub(super) fn find(
    demand: &Demand<'_>,
    entry: &Entry<'_>,
    automata: &mut Automata,
    work: &mut usize,
) -> Option<Witness> {
    let any = |set: &&ConditionSet| set.mode == Mode::Any;
    let most = demand.sets.iter().copied().filter(any).map(|set| set.conditions.len()).max().unwrap_or(1);
    (0..most.clamp(1, ALTERNATIVES)).find_map(|choice| {
        let mut conditions: Vec<&Condition> = demand.matches.iter().flat_map(|m| &m.conditions).collect();
        for set in &demand.sets {
            match set.mode {
                Mode::All => conditions.extend(&set.conditions),
                Mode::Any => conditions.extend(set.conditions.get(choice.min(set.conditions.len().saturating_sub(1)))),
            }
        }
        Draft::new(demand, entry, conditions).finish(automata, work)
    })
}

struct Draft<'a> {
    demand: &'a Demand<'a>,
    conditions: Vec<&'a Condition>,
    hosts: &'a [Box<str>],
    made: Witness,
}

impl<'a> Draft<'a> {
    fn new(demand: &'a Demand<'a>, entry: &Entry<'a>, conditions: Vec<&'a Condition>) -> Self {
        let made = Witness {
            listener: entry.listener,
            listener_name: Arc::clone(entry.listener_name),
            method: Method::GET,
            host: String::new(),
            path: String::new(),
            query: None,
            headers: http::HeaderMap::new(),
            client_ip: None,
            time: None,
        };
        Self { demand, conditions, hosts: entry.hosts, made }
    }

    fn finish(mut self, automata: &mut Automata, work: &mut usize) -> Option<Witness> {
        self.choose_host()?;
        self.choose_method()?;
        self.choose_path(automata, work)?;
        self.choose_fields(automata, work)?;
        self.choose_address()?;
        self.choose_time()?;
        Some(self.made)
    }

    /// Whether the conditions on one source hold for what is made so far.
    fn holds(&self, source: &Source) -> bool {
        let request = self.made.request();
        self.conditions.iter().filter(|c| c.source == *source).all(|c| condition::holds(c, &request))
    }

    /// Conditions on a source.
    fn on(&self, source: &Source) -> impl Iterator<Item = &'a Condition> {
        let wanted: Vec<&'a Condition> = self.conditions.iter().copied().filter(|c| c.source == *source).collect();
        wanted.into_iter()
    }

    fn choose_host(&mut self) -> Option<()> {
        let hosts = self.hosts;
        hosts
            .iter()
            .any(|host| {
                self.made.host = host.to_string();
                self.holds(&Source::Host)
            })
            .then_some(())
    }

    fn choose_method(&mut self) -> Option<()> {
        let lists: Vec<&Vec<Method>> =
            self.demand.matches.iter().map(|m| &m.methods).filter(|methods| !methods.is_empty()).collect();
        let mut candidates: Vec<Method> = match lists.split_first() {
            Some((first, others)) => {
                first.iter().filter(|method| others.iter().all(|list| list.contains(method))).cloned().collect()
            }
            None => vec![Method::GET, Method::POST, Method::DELETE],
        };
        if lists.is_empty() {
            let named = self.on(&Source::Method).flat_map(texts::of_condition);
            candidates.extend(named.filter_map(|text| Method::from_bytes(text.as_bytes()).ok()));
        }
        candidates
            .into_iter()
            .any(|method| {
                self.made.method = method;
                self.holds(&Source::Method)
            })
            .then_some(())
    }

    fn choose_path(&mut self, automata: &mut Automata, work: &mut usize) -> Option<()> {
        let demand = self.demand;
        let fits = |draft: &Self| draft.holds(&Source::Path) && is_normal(&draft.made.path);
        for path in &demand.paths {
            self.made.path.clone_from(path);
            if fits(self) {
                return Some(());
            }
        }
        let wanted: Vec<&Condition> = self.on(&Source::Path).collect();
        if wanted.is_empty() && !demand.paths.is_empty() {
            return None;
        }
        let mut linear = Vec::new();
        let mut tables = Vec::new();
        let mut signs = vec![true];
        for matching in &demand.matches {
            match Shape::new(&matching.path)? {
                Shape::Steps(steps) => linear.push(super::automaton::Linear::new(&steps)),
                Shape::Regex(regex) => tables.push(automata.get(regex.source(), work)?),
            }
            signs.push(true);
        }
        for condition in wanted {
            let Predicate::Text(tests) = &condition.predicate else { continue };
            tables.push(automata.get(&texts::regex(tests.iter().map(Field::Text)), work)?);
            signs.push(!condition.negate);
        }
        let machines: Vec<Machine<'_>> = [Machine::Table(PATHS.as_ref()?)]
            .into_iter()
            .chain(linear.iter().map(Machine::Linear))
            .chain(tables.iter().map(|table| Machine::Table(table)))
            .collect();
        // Matches come before conditions in both, and all of them are wanted.
        self.made.path = shortest(&machines, &signs, work)?;
        fits(self).then_some(())
    }

    /// Headers, cookies and query parameters.
    fn choose_fields(&mut self, automata: &mut Automata, work: &mut usize) -> Option<()> {
        let mut sources: Vec<Source> = Vec::new();
        for matching in &self.demand.matches {
            sources.extend(matching.headers.iter().map(|h| Source::Header(h.name.clone())));
            sources.extend(matching.query.iter().map(|q| Source::Query(Arc::clone(&q.name))));
        }
        sources.extend(self.conditions.iter().map(|c| c.source.clone()));
        // Cookies are part of a header that may be asked for as a whole.
        sources.sort_by_key(|source| matches!(source, Source::Cookie(_)));
        for (at, source) in sources.iter().enumerate() {
            if !sources[..at].contains(source) {
                match source {
                    Source::Header(_) | Source::Query(_) | Source::Cookie(_) => {
                        self.choose_field(source, automata, work)?;
                    }
                    _ => {}
                }
            }
        }
        Some(())
    }

    fn choose_field(&mut self, source: &Source, automata: &mut Automata, work: &mut usize) -> Option<()> {
        if self.field_holds(source) {
            return Some(());
        }
        let (wanted, unwanted) = self.field_tests(source);
        for value in texts::guesses(&wanted, self.demand.variant) {
            if self.try_value(source, &value) {
                return Some(());
            }
        }
        // No other value passes, or a guess would have done.
        if wanted.iter().any(|tests| tests.iter().all(|test| test.is_exact())) {
            return None;
        }
        let all: &Option<Table> = if matches!(source, Source::Cookie(_)) { &COOKIES } else { &VALUES };
        let mut tables = Vec::new();
        for tests in wanted.iter().chain(&unwanted) {
            tables.push(automata.get(&texts::regex(tests.iter().copied()), work)?);
        }
        let machines: Vec<Machine<'_>> = [Machine::Table(all.as_ref()?)]
            .into_iter()
            .chain(tables.iter().map(|table| Machine::Table(table)))
            .collect();
        let signs: Vec<bool> = (0..machines.len()).map(|at| at <= wanted.len()).collect();
        let value = shortest(&machines, &signs, work)?;
        self.try_value(source, &value).then_some(())
    }

    /// The tests that a value of a source must pass, one of each list, and those that none may pass.
    fn field_tests(&self, source: &Source) -> (Vec<Vec<Field<'a>>>, Vec<Vec<Field<'a>>>) {
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        for matching in &self.demand.matches {
            let headers = matching.headers.iter().filter(|h| *source == Source::Header(h.name.clone()));
            let query = matching.query.iter().filter(|q| *source == Source::Query(Arc::clone(&q.name)));
            wanted.extend(headers.map(|h| vec![Field::Header(&h.test)]));
            wanted.extend(query.map(|q| vec![Field::Header(&q.test)]));
        }
        for condition in self.on(source) {
            let tests = match &condition.predicate {
                Predicate::Text(tests) => tests.iter().map(Field::Text).collect(),
                _ => vec![Field::Present],
            };
            if condition.negate { unwanted.push(tests) } else { wanted.push(tests) }
        }
        (wanted, unwanted)
    }

    /// Whether all that is asked of one header, parameter or cookie holds.
    fn field_holds(&self, source: &Source) -> bool {
        let matches = self.demand.matches.iter();
        self.holds(source)
            && match source {
                Source::Header(name) => matches
                    .flat_map(|m| &m.headers)
                    .filter(|h| h.name == *name)
                    .all(|h| condition::header_holds(h, &self.made.headers)),
                Source::Query(name) => matches
                    .flat_map(|m| &m.query)
                    .filter(|q| q.name == *name)
                    .all(|q| condition::query_holds(q, self.made.query.as_deref())),
                _ => true,
            }
    }

    fn try_value(&mut self, source: &Source, value: &str) -> bool {
        let before = self.made.clone();
        let put = match source {
            Source::Header(name) => self.put_header(name, value),
            Source::Query(name) => {
                let parameter = format!("{}={}", texts::encoded(name), texts::encoded(value));
                self.made.query = Some(match self.made.query.take() {
                    Some(query) => format!("{query}&{parameter}"),
                    None => parameter,
                });
                true
            }
            Source::Cookie(name) => {
                let pair = format!("{name}={value}");
                let line = self.made.headers.get(COOKIE).and_then(|line| line.to_str().ok());
                let line = line.map_or_else(|| pair.clone(), |line| format!("{line}; {pair}"));
                self.put_header(&COOKIE, &line)
            }
            _ => false,
        };
        if put && self.field_holds(source) {
            return true;
        }
        self.made = before;
        false
    }

    fn put_header(&mut self, name: &HeaderName, value: &str) -> bool {
        // What a client sends there is the host itself.
        let possible = value.trim_ascii() == value && (*name != HOST || value == self.made.host);
        let Some(value) = HeaderValue::from_bytes(value.as_bytes()).ok().filter(|_| possible) else { return false };
        self.made.headers.insert(name.clone(), value);
        true
    }

    fn choose_address(&mut self) -> Option<()> {
        if !self.demand.asks.client_ip {
            return Some(());
        }
        let mut candidates = vec![IpAddr::from(Ipv4Addr::new(192, 0, 2, 1))];
        for condition in self.on(&Source::ClientIp) {
            if let Predicate::Cidr(networks) = &condition.predicate {
                for network in networks {
                    candidates.extend(network.hosts().next());
                    candidates.push(network.addr());
                }
            }
            for text in texts::of_condition(condition) {
                let ends = ["", "1", "0.1", "0.0.1", ":1", "::1"];
                candidates.extend(ends.iter().filter_map(|end| format!("{text}{end}").parse::<IpAddr>().ok()));
            }
        }
        candidates.extend([[198, 51, 100, 1], [203, 0, 113, 1], [10, 0, 0, 1]].map(IpAddr::from));
        candidates.push(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into());
        candidates
            .into_iter()
            .any(|address| {
                self.made.client_ip = Some(address);
                self.holds(&Source::ClientIp)
            })
            .then_some(())
    }

    fn choose_time(&mut self) -> Option<()> {
        if !self.demand.asks.time {
            return Some(());
        }
        let (mut days, mut seconds) = (vec![DEFAULT_TIME.div_euclid(DAY) * DAY], vec![DEFAULT_TIME.rem_euclid(DAY)]);
        for condition in self.on(&Source::Time) {
            let (Predicate::Before(points) | Predicate::After(points)) = &condition.predicate else { continue };
            for point in points {
                let (day, second) = match *point {
                    TimePoint::Instant(at) => (Some(at.div_euclid(DAY) * DAY), at.rem_euclid(DAY)),
                    TimePoint::Daily(at) => (None, i64::from(at)),
                };
                days.extend(day.into_iter().flat_map(|day| [day, day - DAY, day + DAY]));
                seconds.extend([second, second - 1, second + 1]);
            }
        }
        let times = days.iter().flat_map(|day| seconds.iter().map(move |second| day + second));
        times
            .into_iter()
            .any(|time| {
                self.made.time = Some(time.max(0));
                self.holds(&Source::Time)
            })
            .then_some(())
    }
}

/// Whether a path is one that a request has once it is normalised.
pub(super) fn is_normal(given: &str) -> bool {
    path::normalise(given).is_ok_and(|normal| normal == given)
}
