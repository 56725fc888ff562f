//! Settings: flag, else `LOCKGATE_*`, else `lockgate.yaml`, else default; all from the one struct [`Settings`].
//!
//! The flags and environment variables are derived from the struct's schema, so that a field added here is a flag, a
//! variable and a line of the file at once: `drain.maxDelay` is `--drain-max-delay` and `LOCKGATE_DRAIN_MAX_DELAY`.

mod access_log;
mod source;
mod tls;
mod traces;

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::access_log::{AccessField, AccessFormat, AccessLog, AccessOutput, StatusRange};
pub use self::source::{Leaf, Overrides, SettingsError, leaves, load};
pub use self::tls::{DefaultCertificate, Tls, TlsVersion};
pub use self::traces::Traces;
pub use crate::api::Reject;
use crate::api::{ByteSize, Duration, UpgradeProtocol};

/// Everything that can be set.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Serve only Selectors of this class.
    pub class_name: String,
    /// Read objects from the files in this folder instead of from an API server.
    pub manifests: Option<PathBuf>,
    /// Threads that serve traffic; 0 is one per core.
    pub workers: usize,
    /// Where the proxy listens; as `name=address`, with any of `+tls`, `+proxy`, `+redirect`, `+redirect:PORT`, `+h3` and
    /// `+h3:PORT` behind it, or as `{name, address, tls, proxyProtocol, httpsRedirect, http3}`. Selectors refer to the names.
    pub listeners: Vec<Listener>,
    /// Networks whose `X-Forwarded-*` and `X-Request-Id` are believed, and from which listeners with `proxyProtocol` take
    /// connections.
    #[schemars(with = "Vec<String>")]
    pub trusted_proxies: Vec<IpNet>,
    /// Probes, metrics and operator endpoints.
    pub admin: Admin,
    /// The phases of leaving.
    pub drain: Drain,
    /// TLS on listeners that end it.
    pub tls: Tls,
    /// What one gateway takes in.
    pub limits: Limits,
    /// How long clients may take.
    pub timeouts: Timeouts,
    /// What becomes of header fields.
    pub headers: Headers,
    /// Protocols that connections may change to where a rule names none, such as `websocket`. Other HTTP and TLS never.
    #[schemars(with = "Vec<String>")]
    pub upgrades: Vec<UpgradeProtocol>,
    /// Logging.
    pub log: Log,
    /// The access log: a line for each request.
    pub access_log: AccessLog,
    /// Metrics.
    pub metrics: Metrics,
    /// Traces: a span for each sampled request, sent to a collector.
    pub traces: Traces,
    /// The API server.
    pub kubernetes: Kubernetes,
}

/// An address that the proxy accepts on.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(try_from = "ListenerForm", rename_all = "camelCase")]
#[schemars(with = "String")]
pub struct Listener {
    /// The name that Selectors refer to.
    pub name: String,
    /// The address; `[::]` takes IPv4 too.
    pub address: SocketAddr,
    /// Whether connections are TLS, which the gateway ends; `+tls` in the short form.
    pub tls: bool,
    /// Whether every connection begins with a PROXY protocol header, version 1 or 2, that tells its client's address;
    /// `+proxy` in the short form. Only sources in `trustedProxies` may connect then, and none without a header.
    pub proxy_protocol: bool,
    /// Answer every request with a redirect to `https` at this port, the one that clients use; `+redirect` (443) or
    /// `+redirect:PORT` in the short form. Not for requests that came over TLS to a load balancer in front.
    pub https_redirect: Option<u16>,
    /// Serve HTTP/3 too, on the UDP port of the same number, and tell clients that it is to be had at this port, the one that
    /// they use; `+h3` (443) or `+h3:PORT` in the short form. Needs `tls`.
    pub http3: Option<u16>,
}

/// What the short form ends with for `tls`, `proxyProtocol`, `httpsRedirect` and `http3`.
const OPTIONS: [&str; 4] = ["tls", "proxy", "redirect", "h3"];
/// The port of https (RFC 9110, section 4.2.2).
const HTTPS: u16 = 443;

#[derive(Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    rename_all_fields = "camelCase",
    expecting = "a listener is name=address:port, perhaps with +tls, +proxy, +redirect or +h3, or {name, address, tls, \
                 proxyProtocol, httpsRedirect, http3}"
)]
enum ListenerForm {
    Short(String),
    Long {
        name: String,
        address: SocketAddr,
        #[serde(default)]
        tls: bool,
        #[serde(default)]
        proxy_protocol: bool,
        #[serde(default)]
        https_redirect: Option<u16>,
        #[serde(default)]
        http3: Option<u16>,
    },
}

impl Listener {
    /// A listener of plain HTTP.
    pub fn plain(name: &str, address: SocketAddr) -> Self {
        Self { name: name.to_owned(), address, tls: false, proxy_protocol: false, https_redirect: None, http3: None }
    }

    /// A listener that ends TLS.
    pub fn ending_tls(name: &str, address: SocketAddr) -> Self {
        Self { tls: true, ..Self::plain(name, address) }
    }

    /// Why HTTP/3 cannot be had as it is asked for.
    fn http3_problems(&self, tls: &Tls) -> impl Iterator<Item = &'static str> {
        let is_asked = self.http3.is_some();
        [
            (is_asked && !self.tls, "it is spoken over TLS alone, which the listener does not end"),
            (
                is_asked && self.proxy_protocol,
                "no load balancer tells of its clients over UDP, as proxyProtocol wants it",
            ),
            (self.http3 == Some(0), "0 is no port that clients can use"),
            (is_asked && !tls.speaks_13(), "it is spoken over TLS 1.3, of which tls.cipherSuites has no suite"),
        ]
        .into_iter()
        .filter_map(|(is_wrong, problem)| is_wrong.then_some(problem))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) =
            text.split_once('=').ok_or_else(|| format!("{text:?} is not of the form name=address:port"))?;
        let mut parts = rest.split('+');
        let address = parts.next().unwrap_or_default();
        let address = address.parse().map_err(|_| format!("{address:?} is not an address:port"))?;
        let mut listener = Self::plain(name, address);
        for option in parts {
            let (name, port) = option.split_once(':').map_or((option, None), |(name, port)| (name, Some(port)));
            let number = match port {
                None => HTTPS,
                Some(port) => port.parse().map_err(|_| format!("{port:?} in +{name}:PORT is no port"))?,
            };
            match (name, port) {
                ("tls", None) => listener.tls = true,
                ("proxy", None) => listener.proxy_protocol = true,
                ("redirect", _) => listener.https_redirect = Some(number),
                ("h3", _) => listener.http3 = Some(number),
                _ => return Err(format!("+{option} is none of +{}", OPTIONS.join(", +"))),
            }
        }
        Ok(listener)
    }
}

impl TryFrom<ListenerForm> for Listener {
    type Error = String;

    fn try_from(form: ListenerForm) -> Result<Self, String> {
        let listener = match form {
            ListenerForm::Long { name, address, tls, proxy_protocol, https_redirect, http3 } => {
                Self { name, address, tls, proxy_protocol, https_redirect, http3 }
            }
            ListenerForm::Short(text) => Self::parse(&text)?,
        };
        let label = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let name = &listener.name;
        if name.is_empty() || name.len() > 63 || !name.bytes().all(label) {
            return Err(format!("{name:?} is no listener name: 1 to 63 of a-z, 0-9 and \"-\""));
        }
        Ok(listener)
    }
}

/// Probes, metrics and operator endpoints.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Admin {
    /// Serves `/livez`, `/readyz` and `/metrics`, nothing else.
    #[schemars(with = "String")]
    pub address: SocketAddr,
    /// Serves what operates or reveals. Keep it on a loopback address.
    #[schemars(with = "String")]
    pub operator_address: SocketAddr,
}

/// The phases of leaving.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Drain {
    /// After the signal, serve on for at least this long while clients and load balancers learn of it. 0 refuses new
    /// requests at once.
    #[schemars(with = "String")]
    pub delay: Duration,
    /// Serve on no longer than this, even if new connections still come.
    #[schemars(with = "String")]
    pub max_delay: Duration,
    /// Then wait this long for requests in flight.
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// Stay ready for this long after the signal.
    #[schemars(with = "String")]
    pub readiness_delay: Duration,
    /// The pod's `terminationGracePeriodSeconds`, to check that all of it fits.
    #[schemars(with = "Option<String>")]
    pub grace_period: Option<Duration>,
}

/// What one gateway takes in.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Client connections open at a time. One more is answered with 503 and closed; over TLS it is closed at once.
    pub max_connections: usize,
    /// Connections that the kernel completes ahead of the gateway, for each listener; no more than its own
    /// `net.core.somaxconn`.
    pub accept_backlog: u32,
    /// Requests of one connection, after which its client is asked to leave. Absent is no limit.
    pub max_requests_per_connection: Option<u32>,
    /// Age after which the client of a connection is asked to leave, with its next answer; a tenth less at random, so that
    /// connections of one time do not all leave at one time. Absent is no limit.
    #[schemars(with = "Option<String>")]
    pub max_connection_age: Option<Duration>,
    /// Requests at backends at a time, those of all rules together. Absent is no limit.
    pub max_in_flight: Option<u32>,
    /// Requests that wait when `maxInFlight` is reached; further ones are refused.
    pub max_queued: u32,
    /// How long they wait before they are refused; `0s` is no limit.
    #[schemars(with = "String")]
    pub queue_timeout: Duration,
    /// Which request is refused when `maxQueued` wait: the `Newest`, or the `Oldest`, whose client is the first to give up.
    pub reject: Reject,
    /// Bytes of a request's head; more is 431.
    #[schemars(with = "String")]
    pub max_header_bytes: ByteSize,
    /// Header fields of a request; more is 431.
    pub max_headers: usize,
    /// Bytes of a request's target; more is 414.
    #[schemars(with = "String")]
    pub max_uri_bytes: ByteSize,
    /// Bytes of a request's body where the rule sets no limit of its own; more is 413. Absent is no limit.
    #[schemars(with = "Option<String>")]
    pub max_body_bytes: Option<ByteSize>,
    /// Connections of HTTP/2.
    pub http2: Http2,
}

/// What one client connection of HTTP/2 takes in.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Http2 {
    /// Requests at a time.
    pub max_concurrent_streams: u32,
    /// Bytes of one request's body that are taken in before its backend reads them.
    #[schemars(with = "String")]
    pub stream_window: ByteSize,
    /// The same for all requests of a connection together.
    #[schemars(with = "String")]
    pub connection_window: ByteSize,
    /// Requests that may be reset, by the client or because of it, before their answer began. A tenth comes back each
    /// second, and one with each answer that is sent whole; who needs more is sent away.
    pub max_resets: u32,
    /// Frames that carry nothing of a request: settings, pings, priorities, window updates, resets, unknown ones. A tenth
    /// comes back each second, and some with each request and each piece of an answer.
    pub max_control_frames: u32,
}

/// How long clients may take; `0s` is no limit.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Timeouts {
    /// To the first byte, and for the head of a request.
    #[schemars(with = "String")]
    pub header: Duration,
    /// Between two requests of a connection.
    #[schemars(with = "String")]
    pub keep_alive: Duration,
}

/// Logging.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,lockgate::proxy=debug`.
    pub level: String,
    /// How lines look.
    pub format: LogFormat,
}

/// What becomes of header fields.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Headers {
    /// Fields of requests with an underscore in their name: `drop`, for backends often take `x_user` for `x-user`, or `allow`.
    pub underscores: Underscores,
    /// Tell backends of the client in `Forwarded` (RFC 7239) too, beside `X-Forwarded-*`.
    pub forwarded: bool,
}

/// What becomes of fields with an underscore in their name.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Underscores {
    /// They are removed, and counted.
    #[default]
    Drop,
    /// They stay.
    Allow,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Metrics.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Metrics {
    /// Upper bounds of the duration histograms, in seconds, ascending. Empty is about 20 from 0.5 ms to 30 s.
    pub buckets: Vec<f64>,
}

/// The API server.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a line of the file on its own")]
pub struct Kubernetes {
    /// Watch only these namespaces; empty is all.
    pub namespaces: Vec<String>,
    /// Allow backends with a `host`, outside the cluster.
    pub allow_host_backends: bool,
    /// The namespace of the Lease; the pod's own if absent.
    pub lease_namespace: Option<String>,
    /// Write conditions to the objects' status.
    pub write_status: bool,
    /// Tell of refused objects, and when they are mended, with Events too. Only with `writeStatus`.
    pub write_events: bool,
    /// The gateway's own Service, `name` in the pod's namespace or `namespace/name`: the addresses of its load balancer are
    /// written to `status.addresses` of Selectors. Absent or empty is none.
    pub service: Option<String>,
    /// Write the Service's cluster IPs there as long as it has no addresses that are reached from outside.
    pub publish_cluster_ips: bool,
}

impl Kubernetes {
    /// The gateway's own Service: its namespace, if it is told, and its name.
    pub fn own_service(&self) -> Option<(Option<&str>, &str)> {
        let service = self.service.as_deref().filter(|service| !service.is_empty())?;
        Some(service.split_once('/').map_or((None, service), |(namespace, name)| (Some(namespace), name)))
    }

    /// What names no object, as `field: reason`.
    fn problem(&self) -> Option<&'static str> {
        let is_label = |text: &str| {
            let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            (1..=63).contains(&text.len()) && text.bytes().all(inside) && !text.starts_with('-') && !text.ends_with('-')
        };
        let (namespace, name) = self.own_service()?;
        let is_named = is_label(name) && namespace.is_none_or(is_label);
        (!is_named).then_some("kubernetes.service: must be the name of a Service, or namespace/name")
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            class_name: crate::api::DEFAULT_CLASS.to_owned(),
            manifests: None,
            workers: 0,
            listeners: vec![Listener::plain("http", any(8080)), Listener::ending_tls("https", any(8443))],
            trusted_proxies: Vec::new(),
            admin: Admin::default(),
            drain: Drain::default(),
            tls: Tls::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            headers: Headers::default(),
            upgrades: websocket(),
            log: Log::default(),
            access_log: AccessLog::default(),
            metrics: Metrics::default(),
            traces: Traces::default(),
            kubernetes: Kubernetes::default(),
        }
    }
}

impl Limits {
    /// Bytes of a request's body where the rule sets no limit of its own.
    pub fn max_body(&self) -> Option<u64> {
        self.max_body_bytes.map(ByteSize::get)
    }

    /// What no gateway can count with, as `field: reason`.
    fn problems(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.max_connections > 0, "limits.maxConnections: at least 1"),
            ((1..=MAX_BACKLOG).contains(&self.accept_backlog), "limits.acceptBacklog: from 1 to 2147483647"),
            (self.max_requests_per_connection != Some(0), "limits.maxRequestsPerConnection: at least 1, or absent"),
            (
                self.max_connection_age.is_none_or(|age| age.get() >= MIN_AGE),
                "limits.maxConnectionAge: at least 1s, or absent",
            ),
            (self.max_in_flight != Some(0), "limits.maxInFlight: at least 1, or absent"),
        ]
        .into_iter()
        .filter_map(|(holds, problem)| (!holds).then_some(problem))
    }
}

impl Settings {
    /// What no gateway can run with, each as `field: reason`.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, problem: &str| {
            if !holds {
                problems.push(problem.to_owned());
            }
        };
        require(self.workers <= MAX_WORKERS, "workers: at most 1024, or 0 for one per core");
        require(!self.listeners.is_empty(), "listeners: at least one is needed");
        self.limits.problems().for_each(|problem| require(false, problem));
        require(self.limits.max_headers > 0, "limits.maxHeaders: at least 1");
        require(self.limits.max_header_bytes.get() >= 256, "limits.maxHeaderBytes: at least 256");
        require(self.limits.max_uri_bytes.get() > 0, "limits.maxUriBytes: at least 1");
        self.limits.http2.problems().for_each(|problem| require(false, problem));
        require(
            self.admin.operator_address.ip().is_loopback(),
            "admin.operatorAddress: must be a loopback address, for whoever reaches it operates the gateway",
        );
        for (index, listener) in self.listeners.iter().enumerate() {
            let is_new = self.listeners[..index].iter().all(|other| other.name != listener.name);
            require(is_new, &format!("listeners[{index}]: the name {:?} is there twice", listener.name));
            require(
                !listener.proxy_protocol || !self.trusted_proxies.is_empty(),
                &format!(
                    "listeners[{index}].proxyProtocol: trustedProxies is empty, and without it no source may say who its \
                     clients are"
                ),
            );
            require(
                !listener.tls || listener.https_redirect.is_none(),
                &format!("listeners[{index}].httpsRedirect: a listener with tls is one of https already"),
            );
            require(
                listener.https_redirect != Some(0),
                &format!("listeners[{index}].httpsRedirect: 0 is no port that clients can use"),
            );
            for problem in listener.http3_problems(&self.tls) {
                require(false, &format!("listeners[{index}].http3: {problem}"));
            }
        }
        problems.extend(self.kubernetes.problem().map(str::to_owned));
        problems.extend(self.tls.problems());
        problems.extend(self.access_log.problems());
        problems.extend(self.traces.problems());
        problems
    }
}

fn websocket() -> Vec<UpgradeProtocol> {
    "websocket".parse().into_iter().collect()
}

/// The largest window of HTTP/2 (RFC 9113, section 6.9.1).
const MAX_WINDOW: u64 = (1 << 31) - 1;

/// The kernel's call takes a signed number.
const MAX_BACKLOG: u32 = i32::MAX.unsigned_abs();

/// Shorter, and connections would do little but be made.
const MIN_AGE: std::time::Duration = std::time::Duration::from_secs(1);

/// More threads than any machine has cores; a slip of the finger ends here, not in the system's limits.
const MAX_WORKERS: usize = 1024;

fn any(port: u16) -> SocketAddr {
    (std::net::Ipv6Addr::UNSPECIFIED, port).into()
}

impl Default for Admin {
    fn default() -> Self {
        Self { address: any(8081), operator_address: (std::net::Ipv4Addr::LOCALHOST, 8082).into() }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            delay: Duration::from_secs(5),
            max_delay: Duration::from_secs(20),
            timeout: Duration::from_secs(30),
            readiness_delay: Duration::ZERO,
            grace_period: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 16_384,
            accept_backlog: 4096,
            max_requests_per_connection: None,
            max_connection_age: None,
            max_in_flight: None,
            max_queued: 100,
            queue_timeout: Duration::from_secs(1),
            reject: Reject::default(),
            max_header_bytes: ByteSize::new(32 << 10),
            max_headers: 100,
            max_uri_bytes: ByteSize::new(8 << 10),
            max_body_bytes: None,
            http2: Http2::default(),
        }
    }
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            max_concurrent_streams: 100,
            stream_window: ByteSize::new(64 << 10),
            connection_window: ByteSize::new(1 << 20),
            max_resets: 200,
            max_control_frames: 1000,
        }
    }
}

impl Http2 {
    /// What no connection can run with, as `field: reason`.
    fn problems(&self) -> impl Iterator<Item = &'static str> {
        let windows = |least: u64, window: &ByteSize| (least..=MAX_WINDOW).contains(&window.get());
        [
            (self.max_concurrent_streams > 0, "limits.http2.maxConcurrentStreams: at least 1"),
            (windows(1 << 10, &self.stream_window), "limits.http2.streamWindow: from 1Ki to 2147483647"),
            // Every connection begins with this (RFC 9113, section 6.9.2).
            (windows(65_535, &self.connection_window), "limits.http2.connectionWindow: from 65535 to 2147483647"),
            (self.max_resets > 0, "limits.http2.maxResets: at least 1"),
            (self.max_control_frames >= 100, "limits.http2.maxControlFrames: at least 100"),
        ]
        .into_iter()
        .filter_map(|(holds, problem)| (!holds).then_some(problem))
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { header: Duration::from_secs(10), keep_alive: Duration::from_secs(75) }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            allow_host_backends: false,
            lease_namespace: None,
            write_status: true,
            write_events: true,
            service: None,
            publish_cluster_ips: false,
        }
    }
}

#[cfg(test)]
mod tests;
