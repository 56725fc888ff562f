//! What of a request goes into its line of the access log.
//!
//! What the request says is written when it comes, while it is at hand; what became of it when it has ended. Between the
//! two there is a [`Record`], which is used again for later requests. Where the log is off there is no [`Desk`], and that
//! is all that a request finds out.

mod identity;
mod plan;
mod record;
mod redact;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Version};

pub(super) use self::identity::Identity;
pub(super) use self::plan::Plan;
use self::plan::Shown;
pub(super) use self::record::Record;
pub(super) use self::redact::Redacted;
use super::connection::{Client, Local};
use super::tls::Secured;
use super::{Worker, error, traceparent};
use crate::ir;
use crate::settings::AccessField as Field;
use crate::telemetry::access::{Clock, Key, Line, Pen, decimal};
use crate::telemetry::metrics::{GrpcStatus, Refusal};

/// Records that a worker keeps for later requests.
const SPARE: usize = 256;

/// Where a worker writes the access log.
pub(super) struct Desk {
    plan: Arc<Plan>,
    pen: Rc<Pen>,
    clock: Clock,
    spare: RefCell<Vec<Rc<Record>>>,
    scratch: RefCell<Vec<u8>>,
}

/// Where something came from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    /// The client's address.
    pub ip: IpAddr,
    /// The listener.
    pub local: Local,
    /// What is known for its TLS, if the gateway ends that.
    pub secured: Option<&'a Secured>,
}

/// How something ended.
#[derive(Clone, Copy, Default)]
pub(super) struct Ended<'a> {
    /// The status that the client was told, if any.
    pub status: Option<u16>,
    /// Why the gateway answered by itself, or why the answer broke off.
    pub reason: Option<Refusal>,
    /// Whether there was no whole answer.
    pub broke_off: bool,
    /// How a call of gRPC ended.
    pub grpc: Option<GrpcStatus>,
    /// What took the request, unless it has been written.
    pub rule: Option<(&'a ir::Selector, &'a ir::Rule)>,
    /// What the connection changed to.
    pub upgrade: Option<&'a str>,
    /// From the beginning to now, of what has a beginning.
    pub duration: Option<Duration>,
    /// Bytes that came from the client, if it was no request's body that they came in.
    pub bytes_in: Option<u64>,
    /// Bytes for the client.
    pub bytes_out: u64,
}

impl<'a> Source<'a> {
    /// Where the requests of a client come from.
    pub(super) fn of(client: &'a Client) -> Self {
        Self { ip: client.peer.ip, local: client.local, secured: client.secured.as_deref() }
    }
}

impl Worker {
    /// Counts and logs what was refused without having become a request. `status` is what the client was told, if it was.
    pub(super) fn refused_early(&self, reason: Refusal, status: Option<u16>, source: Source<'_>) {
        self.metrics.refused(reason);
        let Some(desk) = &self.access else { return };
        if let Some(record) = desk.begin_other(source, Instant::now(), || self.random()) {
            desk.finish(record, &Ended { status, reason: Some(reason), ..Ended::default() });
        }
    }

    /// Counts and logs a request that got no answer at all.
    pub(super) fn refused_unread<B>(&self, reason: Refusal, client: &Client, request: &Request<B>) {
        self.metrics.refused(reason);
        let Some(desk) = &self.access else { return };
        let started = Instant::now();
        if let Some(record) = desk.begin(client, request, None, started, || self.random()) {
            let (reason, duration) = (Some(reason), Some(started.elapsed()));
            desk.finish(record, &Ended { reason, duration, broke_off: true, ..Ended::default() });
        }
    }
}

impl Desk {
    /// A worker's place.
    pub(super) fn new(plan: Arc<Plan>, pen: Pen) -> Self {
        let pen = Rc::new(pen);
        Self { plan, pen, clock: Clock::default(), spare: RefCell::default(), scratch: RefCell::default() }
    }

    /// What it writes with.
    pub(super) fn pen(&self) -> &Rc<Pen> {
        &self.pen
    }

    /// Begins the line of a request that came at `started`; `None` when it will have none, however it ends.
    pub(super) fn begin<B>(
        &self,
        client: &Client,
        request: &Request<B>,
        id: Option<&HeaderValue>,
        started: Instant,
        random: impl FnOnce() -> u64,
    ) -> Option<Rc<Record>> {
        let record = self.open(started, random)?;
        let mut out = record.line.borrow_mut();
        let mut line = Line::new(self.plan.format, &mut out);
        let headers = request.headers();
        if let Some((key, id)) = self.plan.key(Field::RequestId).zip(id) {
            line.text(key, id.as_bytes());
        }
        if let Some(key) = self.plan.key(Field::TraceId)
            && let Some(parent) = traceparent::parent(headers)
        {
            line.text(key, parent.trace);
        }
        let ip = client.peer.client_ip(headers, &self.plan.trusted);
        self.connection(&mut line, Source { ip, ..Source::of(client) });
        if let Some(key) = self.plan.key(Field::Scheme) {
            line.text(key, client.peer.scheme.as_bytes());
        }
        // What stands for a head that could not be read says nothing of it.
        if client.fault.get().is_none() {
            self.head(&mut line, request);
        }
        drop(out);
        Some(record)
    }

    /// Begins the line of something else than a request.
    pub(super) fn begin_other(
        &self,
        source: Source<'_>,
        started: Instant,
        random: impl FnOnce() -> u64,
    ) -> Option<Rc<Record>> {
        let record = self.open(started, random)?;
        self.connection(&mut Line::new(self.plan.format, &mut record.line.borrow_mut()), source);
        Some(record)
    }

    /// Begins the line of a TLS connection that a backend is to end; the client asked for `host`.
    pub(super) fn begin_passed(
        &self,
        source: Source<'_>,
        host: &str,
        started: Instant,
        random: impl FnOnce() -> u64,
    ) -> Option<Rc<Record>> {
        let record = self.begin_other(source, started, random)?;
        let mut out = record.line.borrow_mut();
        let mut line = Line::new(self.plan.format, &mut out);
        if let Some(key) = self.plan.key(Field::Protocol) {
            line.text(key, b"TLS");
        }
        if let Some(key) = self.plan.key(Field::Host).filter(|_| !host.is_empty()) {
            line.text(key, host.as_bytes());
        }
        drop(out);
        Some(record)
    }

    fn open(&self, started: Instant, random: impl FnOnce() -> u64) -> Option<Rc<Record>> {
        let draw = self.plan.draw(random)?;
        let record = self.spare.borrow_mut().pop().unwrap_or_default();
        record.begin(started, draw);
        if let Some(key) = self.plan.key(Field::Time) {
            let mut out = record.line.borrow_mut();
            Line::new(self.plan.format, &mut out).token(key, |out| self.clock.write(started, out));
        }
        Some(record)
    }

    fn connection(&self, line: &mut Line<'_>, source: Source<'_>) {
        if let Some(key) = self.plan.key(Field::Listener) {
            line.text(key, self.plan.listener(source.local.index).as_bytes());
        }
        if let Some(key) = self.plan.key(Field::ClientIp) {
            line.token(key, |out| write_ip(source.ip, out));
        }
        let Some(secured) = source.secured else { return };
        if let Some(identity) = &secured.identity {
            if let Some(key) = self.plan.key(Field::ClientSubject) {
                line.text(key, identity.subject.as_bytes());
            }
            if let Some(key) = self.plan.key(Field::ClientNames).filter(|_| !identity.names.is_empty()) {
                line.text(key, identity.names.as_bytes());
            }
        }
        if let Some(key) = self.plan.key(Field::TlsVersion) {
            line.text(key, secured.version.as_str().as_bytes());
        }
    }

    /// What a request's head says.
    fn head<B>(&self, line: &mut Line<'_>, request: &Request<B>) {
        let (uri, headers) = (request.uri(), request.headers());
        if let Some(key) = self.plan.key(Field::Protocol) {
            line.text(key, protocol(request.version()));
        }
        if let Some(key) = self.plan.key(Field::Method) {
            line.text(key, request.method().as_str().as_bytes());
        }
        if let Some(key) = self.plan.key(Field::Host) {
            let named = uri.authority().map(|authority| authority.as_str().as_bytes());
            if let Some(host) = named.or_else(|| headers.get(header::HOST).map(HeaderValue::as_bytes)) {
                line.text(key, host);
            }
        }
        if let Some(key) = self.plan.key(Field::Path) {
            line.text(key, uri.path().as_bytes());
        }
        if let Some((key, query)) = self.plan.key(Field::Query).zip(uri.query()) {
            let mut scratch = self.scratch.borrow_mut();
            line.text(key, self.plan.redacted.query(query.as_bytes(), &mut scratch));
        }
        if let Some((key, agent)) = self.plan.key(Field::UserAgent).zip(headers.get(header::USER_AGENT)) {
            line.text(key, agent.as_bytes());
        }
        if let Some((key, referer)) = self.plan.key(Field::Referer).zip(headers.get(header::REFERER)) {
            let mut scratch = self.scratch.borrow_mut();
            line.text(key, self.plan.redacted.reference(referer.as_bytes(), &mut scratch));
        }
        self.fields(line, Field::RequestHeaders, &self.plan.request_headers, headers);
    }

    /// The header fields of a message that are wanted.
    fn fields(&self, line: &mut Line<'_>, group: Field, wanted: &[Shown], headers: &HeaderMap) {
        let Some(key) = self.plan.key(group).filter(|_| !wanted.is_empty()) else { return };
        line.group(key, |line| {
            for Shown { name, key, is_redacted } in wanted {
                let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
                let Some(first) = values.next() else { continue };
                if *is_redacted {
                    line.text(key, redact::INSTEAD);
                    continue;
                }
                match values.next() {
                    None => line.text(key, first),
                    Some(second) => {
                        let all: Vec<&[u8]> = [first, second].into_iter().chain(values).collect();
                        line.text(key, &all.join(&b", "[..]));
                    }
                }
            }
        });
    }

    /// The head of the answer is known.
    pub(super) fn answered(&self, record: &Record, headers: &HeaderMap) {
        let mut out = record.line.borrow_mut();
        let mut line = Line::new(self.plan.format, &mut out);
        self.fields(&mut line, Field::ResponseHeaders, &self.plan.response_headers, headers);
    }

    /// What takes a request that may outlive the table.
    pub(super) fn matched(&self, record: &Record, selector: &ir::Selector, rule: &ir::Rule) {
        self.rule(&mut Line::new(self.plan.format, &mut record.line.borrow_mut()), selector, rule);
    }

    fn rule(&self, line: &mut Line<'_>, selector: &ir::Selector, rule: &ir::Rule) {
        for (field, object) in [(Field::Selector, &selector.origin.object), (Field::Route, &rule.origin.object)] {
            if let Some(key) = self.plan.key(field) {
                line.joined(key, &[object.namespace.as_bytes(), b"/", object.name.as_bytes()]);
            }
        }
        if let Some(key) = self.plan.key(Field::Rule) {
            line.text(key, rule.name.as_bytes());
        }
        if let Some(key) = self.plan.key(Field::RuleIndex) {
            line.number(key, rule.index.into());
        }
    }

    /// Ends a line and hands it in, if it is one that is wanted.
    pub(super) fn finish(&self, record: Rc<Record>, ended: &Ended<'_>) {
        if self.plan.takes(record.draw.get(), ended) {
            let mut out = record.line.borrow_mut();
            let mut line = Line::new(self.plan.format, &mut out);
            self.end(&mut line, ended);
            self.backend(&mut line, &record);
            self.amounts(&mut line, &record, ended);
            self.pen.push(self.plan.format, &out);
        }
        self.put_away(record);
    }

    fn end(&self, line: &mut Line<'_>, ended: &Ended<'_>) {
        if let Some((key, status)) = self.plan.key(Field::Status).zip(ended.status) {
            line.number(key, status.into());
        }
        if let Some((key, reason)) = self.plan.key(Field::Reason).zip(ended.reason) {
            line.text(key, reason.as_str().as_bytes());
        }
        if let Some((key, status)) = self.plan.key(Field::GrpcStatus).zip(ended.grpc) {
            line.text(key, status.as_str().as_bytes());
        }
        if let Some((key, protocol)) = self.plan.key(Field::Upgrade).zip(ended.upgrade) {
            line.text(key, protocol.as_bytes());
        }
        if let Some((selector, rule)) = ended.rule {
            self.rule(line, selector, rule);
        }
    }

    fn backend(&self, line: &mut Line<'_>, record: &Record) {
        let cluster = record.cluster.borrow();
        let Some(cluster) = &*cluster else { return };
        if let Some(key) = self.plan.key(Field::Cluster) {
            write_cluster(line, key, cluster.id());
        }
        let endpoint = record.endpoint.borrow();
        if let Some((key, pool)) = self.plan.key(Field::Endpoint).zip(endpoint.as_ref()) {
            line.token(key, |out| write_address(pool.endpoint.addr, out));
        }
        if let Some(key) = self.plan.key(Field::Attempts) {
            line.number(key, record.attempts.get().into());
        }
        if let Some((key, reused)) = self.plan.key(Field::UpstreamReused).zip(record.reused.get()) {
            line.flag(key, reused);
        }
        if let Some((since, after)) = record.heard.get() {
            if let Some(key) = self.plan.key(Field::UpstreamMs) {
                line.millis(key, after);
            }
            if let Some(key) = self.plan.key(Field::FirstByteMs) {
                line.millis(key, since.saturating_duration_since(record.started.get()) + after);
            }
        }
    }

    fn amounts(&self, line: &mut Line<'_>, record: &Record, ended: &Ended<'_>) {
        let Some(duration) = ended.duration else { return };
        if let Some(key) = self.plan.key(Field::DurationMs) {
            line.millis(key, duration);
        }
        if let Some(key) = self.plan.key(Field::BytesIn) {
            let uploaded = || record.upload.borrow().as_ref().map_or(0, |upload| upload.bytes());
            line.number(key, ended.bytes_in.unwrap_or_else(uploaded));
        }
        if let Some(key) = self.plan.key(Field::BytesOut) {
            line.number(key, ended.bytes_out);
        }
    }

    fn put_away(&self, mut record: Rc<Record>) {
        let mut spare = self.spare.borrow_mut();
        if let Some(own) = Rc::get_mut(&mut record).filter(|_| spare.len() < SPARE) {
            own.clear();
            spare.push(record);
        }
    }
}

fn protocol(version: Version) -> &'static [u8] {
    match version {
        Version::HTTP_09 => b"HTTP/0.9",
        Version::HTTP_10 => b"HTTP/1.0",
        Version::HTTP_2 => b"HTTP/2",
        Version::HTTP_3 => b"HTTP/3",
        _ => b"HTTP/1.1",
    }
}

fn write_ip(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => {
            for (place, part) in ip.octets().into_iter().enumerate() {
                if place > 0 {
                    out.push(b'.');
                }
                decimal(part.into(), out);
            }
        }
        // Into memory: it cannot fail.
        IpAddr::V6(ip) => _ = write!(out, "{ip}"),
    }
}

fn write_address(address: SocketAddr, out: &mut Vec<u8>) {
    match address {
        SocketAddr::V4(address) => {
            write_ip(IpAddr::V4(*address.ip()), out);
            out.push(b':');
            decimal(address.port().into(), out);
        }
        SocketAddr::V6(address) => _ = write!(out, "{address}"),
    }
}

/// As the metrics have it.
fn write_cluster(line: &mut Line<'_>, key: &Key, id: &ir::ClusterId) {
    let number = |port: u16, digits: &mut Vec<u8>| decimal(port.into(), digits);
    match &id.place {
        ir::ClusterPlace::Service { service, port } => line.token(key, |out| {
            out.extend_from_slice(service.namespace.as_bytes());
            out.push(b'/');
            out.extend_from_slice(service.name.as_bytes());
            out.push(b':');
            number(*port, out);
        }),
        ir::ClusterPlace::Host { .. } => line.text(key, id.to_string().as_bytes()),
    }
}
