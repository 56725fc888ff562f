//! What happened.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use super::traffic::Traffic;

/// The longest latency that is told apart from longer ones: an hour.
const LONGEST_MICROS: u64 = 3_600_000_000;
/// How many failures are told one by one; of the others only the number is known.
const TOLD: usize = 1000;

/// How far a request had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It waited for a connection that may be used.
    Queue,
    /// A connection was made for it.
    Connect,
    /// The TLS handshake, or that of the WebSocket.
    Handshake,
    /// It was sent, and the head of its answer had not come.
    Answer,
    /// The head of its answer had come.
    Body,
    /// A WebSocket was open.
    Held,
}

/// How it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Nobody listens.
    Refused,
    /// There is no way to the address, or no address.
    Unreachable,
    /// The TLS handshake failed.
    Tls,
    /// The connection or stream was reset.
    Reset,
    /// The connection was ended in place of an answer, or under a WebSocket.
    Closed,
    /// It took too long.
    Timeout,
    /// The status is not one that was expected.
    Status,
    /// The answer's body ended too early.
    Truncated,
    /// What came is no answer.
    Invalid,
}

macro_rules! lowercase {
    ($type:ty { $($variant:ident => $text:literal),* $(,)? }) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $text),* })
            }
        }
    };
}

lowercase!(Phase {
    Queue => "queue", Connect => "connect", Handshake => "handshake", Answer => "answer", Body => "body", Held => "held",
});
lowercase!(Kind {
    Refused => "refused", Unreachable => "unreachable", Tls => "tls", Reset => "reset", Closed => "closed",
    Timeout => "timeout", Status => "status", Truncated => "truncated", Invalid => "invalid",
});

/// Why a request failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) phase: Phase,
    pub(super) kind: Kind,
    pub(super) detail: String,
}

impl Trouble {
    /// What an error of a socket or of TLS comes down to.
    pub(super) fn of_io(phase: Phase, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => {
                Kind::Reset
            }
            io::ErrorKind::UnexpectedEof if phase == Phase::Body => Kind::Truncated,
            io::ErrorKind::UnexpectedEof => Kind::Closed,
            io::ErrorKind::TimedOut => Kind::Timeout,
            _ if phase == Phase::Handshake => Kind::Tls,
            _ => Kind::Reset,
        };
        Self { phase, kind, detail: error.to_string() }
    }

    /// What an error of HTTP/2 comes down to.
    pub(super) fn of_h2(phase: Phase, error: &h2::Error) -> Self {
        if let Some(error) = error.get_io() {
            return Self::of_io(phase, error);
        }
        let kind = if error.is_go_away() {
            Kind::Closed
        } else if error.is_reset() {
            Kind::Reset
        } else {
            Kind::Invalid
        };
        Self { phase, kind, detail: error.to_string() }
    }

    /// What an error of HTTP/1.1 comes down to.
    pub(super) fn of_http(phase: Phase, error: &hyper::Error) -> Self {
        let detail = with_causes(error);
        if let Some(error) = cause::<io::Error>(error) {
            return Self { detail, ..Self::of_io(phase, error) };
        }
        let kind = if error.is_incomplete_message() {
            if phase == Phase::Body { Kind::Truncated } else { Kind::Closed }
        } else if error.is_parse() {
            Kind::Invalid
        } else if error.is_closed() || error.is_canceled() {
            Kind::Closed
        } else if phase == Phase::Body {
            Kind::Truncated
        } else {
            Kind::Reset
        };
        Self { phase, kind, detail }
    }
}

/// The cause of a type, the error itself included.
fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// One request that failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Seconds from the beginning to when it failed.
    pub after: f64,
    /// The same by the clock, in RFC 3339.
    pub time: String,
    /// The kind of traffic.
    pub traffic: String,
    /// How far it had come.
    pub phase: Phase,
    /// How it failed.
    pub kind: Kind,
    /// More of it, for people.
    pub detail: String,
}

/// What one kind of traffic saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lane {
    /// Requests that ended, one way or the other; messages, of held sockets.
    pub requests: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that were sent again because they certainly had not been begun.
    pub resent: u64,
    /// Connections made.
    pub connections: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Median latency in milliseconds, from when a request was due to the end of its answer.
    pub p50_ms: f64,
    /// The same for 99 of 100.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Seconds in which requests were due.
    pub seconds: f64,
    /// Requests that were due.
    pub offered: u64,
    /// Requests that ended, and messages of held sockets.
    pub requests: u64,
    /// Those that failed.
    pub failed: u64,
    /// By kind of traffic.
    pub traffic: BTreeMap<String, Lane>,
    /// Failures by kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// The first failures, one by one.
    pub failures: Vec<Failure>,
}

/// Takes down what happens.
#[derive(Debug)]
pub struct Log {
    begin: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    offered: u64,
    lanes: BTreeMap<String, (Lane, Option<Histogram<u64>>)>,
    kinds: BTreeMap<Kind, u64>,
    failures: Vec<Failure>,
}

impl Default for Log {
    fn default() -> Self {
        Self { begin: Instant::now(), inner: Mutex::default() }
    }
}

impl Log {
    /// When it began.
    pub fn begin(&self) -> Instant {
        self.begin
    }

    pub(super) fn offered(&self) {
        self.inner.lock().offered += 1;
    }

    pub(super) fn connected(&self, traffic: &Traffic) {
        self.inner.lock().lane(traffic).0.connections += 1;
    }

    pub(super) fn resent(&self, traffic: &Traffic) {
        self.inner.lock().lane(traffic).0.resent += 1;
    }

    /// A request that was due at `due` has ended with a status, or failed.
    pub(super) fn ended(&self, traffic: &Traffic, due: Instant, result: Result<u16, Trouble>) {
        let mut inner = self.inner.lock();
        let (lane, latencies) = inner.lane(traffic);
        lane.requests += 1;
        let trouble = match result {
            Ok(status) => {
                *lane.statuses.entry(status).or_default() += 1;
                if latencies.is_none() {
                    *latencies = Histogram::new_with_max(LONGEST_MICROS, 3).ok();
                }
                if let Some(latencies) = latencies {
                    latencies.saturating_record(u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX));
                }
                return;
            }
            Err(trouble) => trouble,
        };
        lane.failed += 1;
        let Trouble { phase, kind, detail } = trouble;
        *inner.kinds.entry(kind).or_default() += 1;
        if inner.failures.len() < TOLD {
            let after = self.begin.elapsed().as_secs_f64();
            let time =
                jiff::Timestamp::try_from(SystemTime::now()).map_or_else(|_| String::new(), |t| format!("{t:.3}"));
            inner.failures.push(Failure { after, time, traffic: traffic.to_string(), phase, kind, detail });
        }
    }

    /// What is known so far; requests were due for `took`.
    pub fn report(&self, took: Duration) -> Report {
        let inner = self.inner.lock();
        let traffic: BTreeMap<String, Lane> =
            inner.lanes.iter().map(|(name, lane)| (name.clone(), finished(lane))).collect();
        Report {
            seconds: took.as_secs_f64(),
            offered: inner.offered,
            requests: traffic.values().map(|lane| lane.requests).sum(),
            failed: traffic.values().map(|lane| lane.failed).sum(),
            traffic,
            kinds: inner.kinds.clone(),
            failures: inner.failures.clone(),
        }
    }

    /// A line on how it goes.
    pub fn progress(&self) -> String {
        let now = self.begin.elapsed();
        let report = self.report(now);
        let slowest = report.traffic.values().map(|lane| lane.p99_ms).fold(0.0, f64::max);
        format!("{:>4}s  {} requests, {} failed, p99 {slowest:.1} ms", now.as_secs(), report.requests, report.failed)
    }
}

impl Inner {
    fn lane(&mut self, traffic: &Traffic) -> &mut (Lane, Option<Histogram<u64>>) {
        self.lanes.entry(traffic.to_string()).or_default()
    }
}

fn finished((lane, latencies): &(Lane, Option<Histogram<u64>>)) -> Lane {
    let at = |quantile: f64| latencies.as_ref().map_or(0.0, |h| h.value_at_quantile(quantile) as f64 / 1e3);
    Lane { p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0), ..lane.clone() }
}

impl fmt::Display for Report {
    /// For people; ends without a newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            let Failure { after, time, traffic, phase, kind, detail } = failure;
            writeln!(f, "{time}  +{after:.3}s  {traffic}  {kind} in {phase}: {detail}")?;
        }
        if self.failed > self.failures.len() as u64 && self.failures.len() == TOLD {
            writeln!(f, "... and more, of which only the number is known")?;
        }
        writeln!(
            f,
            "{:<24} {:>9} {:>7} {:>7} {:>6} {:>9} {:>9} {:>9}  statuses",
            "traffic", "requests", "failed", "resent", "conns", "p50 ms", "p99 ms", "max ms"
        )?;
        for (name, lane) in &self.traffic {
            let Lane { requests, failed, resent, connections, statuses, p50_ms, p99_ms, max_ms } = lane;
            let statuses: Vec<String> = statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
            writeln!(
                f,
                "{name:<24} {requests:>9} {failed:>7} {resent:>7} {connections:>6} {p50_ms:>9.2} {p99_ms:>9.2} {max_ms:>9.2}  {}",
                statuses.join(", ")
            )?;
        }
        let kinds: Vec<String> = self.kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let kinds = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
        write!(f, "{} of {} failed in {:.1} s{kinds}", self.failed, self.requests, self.seconds)
    }
}
