//! A gateway without sources, and origins that record what reaches them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};

use crate::ir::{self, Action, BackendTarget, ClusterId, ClusterPlace, Fragment, ObjectName, Origin as ObjectOrigin};
use crate::lifecycle::{DrainSettings, Driver, Lifecycle, Signal};
use crate::proxy::accept::Bound;
use crate::proxy::tls::PROTOCOLS;
use crate::proxy::{Outputs, Shared, Workers};
use crate::publish::{Published, Publisher, TlsSettings};
use crate::routing::ListenerIndex;
use crate::settings::{AccessOutput, Listener, Settings, TlsVersion};
use crate::source::Update;
use crate::telemetry::access::{AccessLog, Output};
use crate::telemetry::metrics::{Buckets, Metrics};
use crate::telemetry::traces::{self, Traces};
use crate::upstream::Clusters;

/// Longer than anything here takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

fn origin_of(name: &str) -> ObjectOrigin {
    ObjectOrigin { created: 0, object: ObjectName::new("test", name) }
}

/// A rule for a path prefix to weighted origins.
pub(super) fn rule(path: &str, backends: &[(&Origin, u32)]) -> ir::Rule {
    let backend = |(origin, weight): &(&Origin, u32)| ir::Backend {
        weight: *weight,
        target: BackendTarget::Cluster(origin.cluster_id()),
        filters: Vec::new(),
    };
    forwarding(path, backends.iter().map(backend).collect())
}

/// A rule for a path prefix to a Service.
pub(super) fn service_rule(path: &str, service: &str) -> ir::Rule {
    forwarding(path, vec![service_backend(service)])
}

fn forwarding(path: &str, backends: Vec<ir::Backend>) -> ir::Rule {
    ir::Rule {
        origin: origin_of("route"),
        index: 0,
        name: path.into(),
        matches: vec![ir::Match {
            index: 0,
            path: ir::PathMatch::Prefix(path.trim_end_matches('/').into()),
            methods: Vec::new(),
            headers: Vec::new(),
            query: Vec::new(),
            conditions: Vec::new(),
        }],
        filters: Vec::new(),
        action: Action::Forward(backends),
        timeouts: ir::Timeouts::default(),
        retry: None,
        load_balancing: ir::LoadBalancing::default(),
        limits: ir::Limits::default(),
        upstream: ir::UpstreamLimits::default(),
        upgrades: None,
    }
}

/// A Service, which speaks HTTP/2 if its name ends in `-h2c`, and its clients' TLS if it ends in `-tls`.
fn service_id(name: &str) -> ClusterId {
    let protocol = match name.rsplit('-').next() {
        Some("h2c") => ir::Protocol::Http2,
        Some("tls") => ir::Protocol::Opaque,
        _ => ir::Protocol::Http1,
    };
    ClusterId::service(ObjectName::new("test", name), 80, protocol)
}

/// A Service as a backend.
pub(super) fn service_backend(name: &str) -> ir::Backend {
    ir::Backend { weight: 1, target: BackendTarget::Cluster(service_id(name)), filters: Vec::new() }
}

/// A Selector of any host with these rules.
pub(super) fn selector(rules: Vec<ir::Rule>) -> ir::Selector {
    ir::Selector {
        origin: origin_of("selector"),
        listeners: Vec::new(),
        hostnames: vec![ir::Hostname::Any],
        priority: 0,
        conditions: ir::ConditionSet::default(),
        rules: rules.into_iter().map(Arc::new).collect(),
        tls: None,
    }
}

/// An address of this machine that refuses connections.
pub(super) fn refusing_address() -> SocketAddr {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

/// A running data plane.
pub(super) struct Gateway {
    addresses: Vec<SocketAddr>,
    /// The certificate of hosts that have none of their own, from the next table on.
    pub(super) default_certificate: Option<Arc<ir::Certificate>>,
    shared: Arc<Shared>,
    updates: mpsc::Sender<Update>,
    served: watch::Receiver<Option<Arc<Fragment>>>,
    signals: mpsc::Sender<Signal>,
    workers: Option<Workers>,
}

impl Gateway {
    /// Serves these Selectors.
    pub(super) async fn start(selectors: Vec<ir::Selector>) -> Self {
        Self::with(selectors, |_| {}).await
    }

    /// The same with other settings.
    pub(super) async fn with(selectors: Vec<ir::Selector>, change: impl FnOnce(&mut Settings)) -> Self {
        Self::draining_for(Duration::from_secs(1), selectors, change).await
    }

    /// The same with so much time for what is in flight at the end.
    pub(super) async fn draining_for(
        timeout: Duration,
        selectors: Vec<ir::Selector>,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        const WORKERS: usize = 2;
        let second = Duration::from_secs(1);
        let drain = DrainSettings {
            delay: second,
            max_delay: second,
            timeout,
            readiness_delay: Duration::ZERO,
            grace_period: None,
        };
        let (lifecycle, driver): (Arc<Lifecycle>, Driver) = Lifecycle::new(WORKERS, drain);
        let metrics = Metrics::new(WORKERS, Buckets::default());
        let listener = Listener::plain("http", "127.0.0.1:0".parse().unwrap());
        let mut settings = Settings { listeners: vec![listener], ..Settings::default() };
        change(&mut settings);
        let names: Vec<Arc<str>> = settings.listeners.iter().map(|listener| listener.name.as_str().into()).collect();
        let tls = TlsSettings {
            tls12: settings.tls.min_version == TlsVersion::V1_2,
            suites: settings.tls.suites().unwrap(),
            tickets: settings.tls.session_tickets,
            protocols: PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect(),
            ..TlsSettings::default()
        };
        let published = Arc::new(Published::new(&names));
        let clusters = Arc::new(Clusters::new(Arc::clone(&metrics)));
        let tables = Publisher::new(names, tls, Arc::clone(&published), clusters, Arc::clone(&metrics));
        let served = tables.served();
        let (updates, received) = mpsc::channel(16);
        tokio::spawn(tables.run(received));
        let bind = |(index, listener): (usize, &Listener)| {
            Bound::bind(listener, ListenerIndex(index), metrics.listener(&listener.name)).unwrap()
        };
        let backlog = settings.limits.accept_backlog;
        let bound: Vec<Bound> = settings.listeners.iter().enumerate().map(bind).collect();
        let addresses: Vec<SocketAddr> = bound.iter().map(|bound| bound.address).collect();
        let log = settings.access_log.enabled.then(|| {
            let AccessOutput::File(path) = &settings.access_log.output else { unreachable!("tests log into files") };
            AccessLog::start(&Output::File(path.clone()), 1 << 20).unwrap()
        });
        let traces = settings.traces.collector().unwrap().map(|endpoint| {
            let instance = "test".to_owned();
            let to =
                traces::Settings { endpoint, headers: http::HeaderMap::new(), queue: settings.traces.queue, instance };
            Traces::start(to).unwrap().0
        });
        let outputs = Outputs { access_log: log, traces };
        let shared = Shared::new(settings, WORKERS, published, lifecycle, metrics, outputs);
        let mut gateway = Self {
            addresses,
            default_certificate: None,
            shared,
            updates,
            served,
            signals: mpsc::channel(1).0,
            workers: None,
        };
        gateway.serve(selectors).await;
        for bound in &bound {
            bound.listen(backlog).unwrap();
        }
        gateway.workers = Some(Workers::start(&gateway.shared, &bound).unwrap());
        gateway.lifecycle().serving().unwrap();
        let (to_driver, from_test) = mpsc::channel(4);
        tokio::spawn(driver.run(from_test));
        gateway.signals = to_driver;
        gateway
    }

    /// Serves other Selectors.
    pub(super) async fn serve(&mut self, selectors: Vec<ir::Selector>) {
        let fragment = Arc::new(Fragment {
            clusters: clusters_of(&selectors),
            selectors: selectors.into_iter().map(Arc::new).collect(),
            verdicts: Vec::new(),
            default_certificate: self.default_certificate.clone().map(Ok),
        });
        let update = Update::Table { fragment: Arc::clone(&fragment), endpoints: Vec::new() };
        self.updates.send(update).await.unwrap();
        let same = |served: &Option<Arc<Fragment>>| served.as_ref().is_some_and(|f| Arc::ptr_eq(f, &fragment));
        tokio::time::timeout(PATIENCE, self.served.wait_for(same)).await.unwrap().unwrap();
    }

    /// Gives a Service these endpoints.
    pub(super) async fn endpoints(&self, service: &str, addresses: &[SocketAddr]) {
        self.endpoints_of(service_id(service), addresses).await;
    }

    /// Gives a Cluster these endpoints.
    pub(super) async fn endpoints_of(&self, cluster: ClusterId, addresses: &[SocketAddr]) {
        let endpoint = |&addr: &SocketAddr| ir::Endpoint { addr, state: ir::EndpointState::Ready };
        let set = ir::EndpointSet { cluster, endpoints: addresses.iter().map(endpoint).collect() };
        let before = self.updates_applied();
        let update = Update::Endpoints { set: Arc::new(set), observed: std::time::Instant::now() };
        self.updates.send(update).await.unwrap();
        self.wait_for(|gateway| gateway.updates_applied() > before).await;
    }

    fn updates_applied(&self) -> u64 {
        let text = self.metrics();
        let line = text.lines().find_map(|l| l.strip_prefix("lockgate_endpoint_update_lag_seconds_count "));
        line.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// The phase and what is in flight.
    pub(super) fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.shared.lifecycle
    }

    /// Sends the signal that begins a drain.
    pub(super) async fn terminate(&self) {
        self.signals.send(Signal::Terminate).await.unwrap();
    }

    /// The table that is served.
    pub(super) fn published(&self) -> &Published {
        &self.shared.published
    }

    /// All metrics as text.
    pub(super) fn metrics(&self) -> String {
        self.shared.metrics.render()
    }

    /// Waits until something holds.
    pub(super) async fn wait_for(&self, holds: impl Fn(&Self) -> bool) {
        let poll = async {
            while !holds(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, poll).await.expect("it never held");
    }

    /// A new connection to the first listener.
    pub(super) async fn connect(&self) -> Client {
        self.connect_to(0).await
    }

    /// A new connection to a listener.
    pub(super) async fn connect_to(&self, listener: usize) -> Client {
        Client::new(TcpStream::connect(self.addresses[listener]).await.unwrap())
    }

    /// How many connections each worker has.
    pub(super) fn loads(&self) -> Vec<usize> {
        self.shared.loads.iter().map(|load| load.0.load(Ordering::Relaxed)).collect()
    }

    /// Waits for its threads after a drain.
    pub(super) async fn join(mut self) {
        let workers = self.workers.take().unwrap();
        tokio::task::spawn_blocking(move || workers.join()).await.unwrap();
    }

    /// Where a listener is.
    pub(super) fn address(&self, listener: usize) -> SocketAddr {
        self.addresses[listener]
    }

    /// The value of a metric, given with its labels; 0 where there is none.
    pub(super) fn metric(&self, name: &str) -> u64 {
        let metrics = self.metrics();
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0)
    }

    /// Sends a request on a connection of its own and gives all that comes back.
    pub(super) async fn send(&self, request: &str) -> String {
        let mut client = self.connect().await;
        client.exchange(request).await
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Two interrupts: abort at once, so that the worker threads end with the test.
        let _ = self.signals.try_send(Signal::Interrupt);
        let _ = self.signals.try_send(Signal::Interrupt);
    }
}

fn clusters_of(selectors: &[ir::Selector]) -> Vec<Arc<ir::Cluster>> {
    let backends = selectors.iter().flat_map(|s| &s.rules).flat_map(|rule| match &rule.action {
        Action::Forward(backends) => &backends[..],
        _ => &[],
    });
    let backends = backends.filter_map(|backend| match &backend.target {
        BackendTarget::Cluster(id) => Some(id),
        BackendTarget::Invalid { .. } => None,
    });
    let filters = selectors.iter().flat_map(|s| &s.rules).flat_map(|rule| &rule.filters);
    let mirrors = filters.filter_map(|filter| match filter {
        ir::Filter::Mirror(mirror) => Some(&mirror.cluster),
        _ => None,
    });
    let ids = backends.chain(mirrors);
    let mut clusters: Vec<Arc<ir::Cluster>> =
        ids.map(|id| Arc::new(ir::Cluster { id: id.clone(), target: target_of(id) })).collect();
    clusters.sort_by(|a, b| a.id.cmp(&b.id));
    clusters.dedup();
    clusters
}

fn target_of(id: &ClusterId) -> ir::Target {
    match &id.place {
        ClusterPlace::Service { .. } => ir::Target::Slices,
        ClusterPlace::Host { host, port } => ir::Target::Address(SocketAddr::new(host.parse().unwrap(), *port)),
    }
}

/// A client's connection.
pub(super) struct Client {
    /// Its socket.
    pub(super) stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    /// One end of a connection.
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, unread: Vec::new() }
    }

    /// Its own address.
    pub(super) fn address(&self) -> SocketAddr {
        self.stream.local_addr().unwrap()
    }

    /// Reads to the end of a head, and no further.
    pub(super) async fn read_head(&mut self) -> String {
        loop {
            if let Some(at) = self.unread.windows(4).position(|w| w == b"\r\n\r\n") {
                return String::from_utf8(self.unread.drain(..at + 4).collect()).unwrap();
            }
            assert!(self.read_more().await > 0, "closed inside of a head");
        }
    }

    /// The same, `None` where the connection ends before one.
    pub(super) async fn read_head_or_end(&mut self) -> Option<String> {
        while !self.unread.windows(4).any(|w| w == b"\r\n\r\n") {
            if self.read_more().await == 0 {
                return None;
            }
        }
        Some(self.read_head().await)
    }

    /// Reads a line, its end included.
    pub(super) async fn read_line(&mut self) -> String {
        loop {
            if let Some(at) = self.unread.windows(2).position(|w| w == b"\r\n") {
                return String::from_utf8(self.unread.drain(..at + 2).collect()).unwrap();
            }
            assert!(self.read_more().await > 0, "closed inside of a line");
        }
    }

    /// Reads that many bytes.
    pub(super) async fn read_exactly(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count {
            assert!(self.read_more().await > 0, "closed after {} of {count} bytes", self.unread.len());
        }
        self.unread.drain(..count).collect()
    }

    /// Writes bytes.
    pub(super) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads until what came ends a message or the connection; gives it as text.
    pub(super) async fn exchange(&mut self, request: &str) -> String {
        // The gateway may refuse before it has read all.
        let _ = self.stream.write_all(request.as_bytes()).await;
        loop {
            if let Some(end) = message_end(&self.unread) {
                let message: Vec<u8> = self.unread.drain(..end).collect();
                return String::from_utf8(message).unwrap();
            }
            if self.read_more().await == 0 {
                return String::from_utf8(std::mem::take(&mut self.unread)).unwrap();
            }
        }
    }

    /// Reads until the text has come; gives all of it.
    pub(super) async fn read_until(&mut self, text: &str) -> String {
        while !String::from_utf8_lossy(&self.unread).contains(text) {
            assert!(self.read_more().await > 0, "closed before {text:?}");
        }
        String::from_utf8(std::mem::take(&mut self.unread)).unwrap()
    }

    /// Reads to the end of the stream; an error such as a reset fails the test.
    pub(super) async fn rest(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.unread);
        tokio::time::timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.unwrap().unwrap();
        String::from_utf8(rest).unwrap()
    }

    /// Reads to the end of the stream, however it ends.
    pub(super) async fn rest_or_reset(&mut self) -> String {
        while self.read_more().await > 0 {}
        String::from_utf8(std::mem::take(&mut self.unread)).unwrap()
    }

    /// Waits for the end of the stream, however it ends and whatever came before.
    pub(super) async fn gone(&mut self) {
        while self.read_more().await > 0 {}
    }

    /// Reads what there is; 0 at the end.
    pub(super) async fn read_more(&mut self) -> usize {
        let read = self.stream.read_buf(&mut self.unread);
        tokio::time::timeout(PATIENCE, read).await.expect("nothing came").unwrap_or(0)
    }
}

/// Where the first message with a known length ends.
fn message_end(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let end = head + length.trim().parse::<usize>().ok()?;
    (bytes.len() >= end).then_some(end)
}

/// How an origin answers a request.
#[derive(Clone, Copy)]
pub(super) struct Reply {
    bytes: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    AfterHead,
    AfterBody,
    OnceThenClose,
    CloseUnanswered,
    Never,
    Echo,
}

impl Reply {
    pub(super) fn always(bytes: &'static str) -> Self {
        Self { bytes, kind: Kind::AfterHead }
    }

    pub(super) fn read_all_then(bytes: &'static str) -> Self {
        Self { bytes, kind: Kind::AfterBody }
    }

    pub(super) fn once_then_close(bytes: &'static str) -> Self {
        Self { bytes, kind: Kind::OnceThenClose }
    }

    pub(super) fn close_without_answer() -> Self {
        Self { bytes: "", kind: Kind::CloseUnanswered }
    }

    pub(super) fn never() -> Self {
        Self { bytes: "", kind: Kind::Never }
    }

    /// Sends the raw bytes of a chunked body back as they come.
    pub(super) fn echo() -> Self {
        Self { bytes: "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", kind: Kind::Echo }
    }
}

/// A backend that records every request's bytes.
pub(super) struct Origin {
    /// Where it listens.
    pub(super) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    requests: Mutex<Vec<String>>,
    bodies: Mutex<Vec<String>>,
    connections: AtomicUsize,
    close_after_reply: AtomicBool,
    changed: Notify,
}

impl Origin {
    pub(super) async fn start(reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let accepting = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(answer(stream, reply, Arc::clone(&accepting)));
            }
        });
        Self { address, state }
    }

    /// The requests that came, heads and what of their bodies came with them.
    pub(super) fn requests(&self) -> Vec<String> {
        self.state.requests.lock().clone()
    }

    /// The bodies that have come whole, as the framing on the wire has them.
    pub(super) fn bodies(&self) -> Vec<String> {
        self.state.bodies.lock().clone()
    }

    /// How many connections were made to it.
    pub(super) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Has it close each connection after its reply.
    pub(super) fn close_after_reply(&self) {
        self.state.close_after_reply.store(true, Ordering::Relaxed);
    }

    /// Waits until that many requests have come.
    pub(super) async fn wait_for_requests(&self, count: usize) {
        let wait = async {
            while self.requests().len() < count {
                self.state.changed.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("the requests never came");
    }

    /// Waits until that many bodies have come.
    pub(super) async fn wait_for_bodies(&self, count: usize) {
        let wait = async {
            while self.bodies().len() < count {
                self.state.changed.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("the bodies never came");
    }

    /// Its Cluster.
    pub(super) fn cluster_id(&self) -> ClusterId {
        ClusterId::host(self.address.ip().to_string(), self.address.port())
    }
}

async fn answer(mut stream: TcpStream, reply: Reply, state: Arc<State>) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let head = loop {
            if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
        state.requests.lock().push(text.clone());
        state.changed.notify_one();
        bytes.drain(..head);
        if reply.kind == Kind::Echo {
            stream.write_all(reply.bytes.as_bytes()).await.ok()?;
            loop {
                stream.write_all(&std::mem::take(&mut bytes)).await.ok()?;
                if stream.read_buf(&mut bytes).await.ok()? == 0 {
                    return None;
                }
            }
        }
        let body = read_body(&mut stream, &mut bytes, &text).await?;
        state.bodies.lock().push(body);
        state.changed.notify_one();
        match reply.kind {
            Kind::CloseUnanswered => return None,
            Kind::Never => std::future::pending().await,
            Kind::AfterHead | Kind::AfterBody | Kind::OnceThenClose | Kind::Echo => {}
        }
        stream.write_all(reply.bytes.as_bytes()).await.ok()?;
        if reply.kind == Kind::OnceThenClose || state.close_after_reply.load(Ordering::Relaxed) {
            return None;
        }
    }
}

/// Takes the body away.
async fn read_body(stream: &mut TcpStream, bytes: &mut Vec<u8>, head: &str) -> Option<String> {
    let lower = head.to_lowercase();
    let length =
        lower.lines().find_map(|line| line.strip_prefix("content-length: ")).map(|l| l.trim().parse::<usize>());
    let done = |bytes: &[u8]| match &length {
        Some(Ok(length)) => (bytes.len() >= *length).then_some(*length),
        _ if lower.contains("transfer-encoding: chunked") => {
            let last = if bytes.starts_with(b"0\r\n") { 0 } else { find(bytes, 0, b"\r\n0\r\n")? + 2 };
            // With trailers or without.
            find(bytes, last, b"\r\n\r\n").map(|at| at + 4)
        }
        _ => Some(0),
    };
    loop {
        if let Some(end) = done(bytes) {
            return Some(String::from_utf8_lossy(&bytes.drain(..end).collect::<Vec<u8>>()).into_owned());
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// Where `text` begins, not before `from`.
fn find(bytes: &[u8], from: usize, text: &[u8]) -> Option<usize> {
    bytes[from..].windows(text.len()).position(|window| window == text).map(|at| from + at)
}
