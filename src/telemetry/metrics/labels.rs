//! The closed sets of label values.

use http::Method;

/// Makes an enum whose variants have a label each, in the order of their discriminants.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $label:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The label value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

labels! {
    /// Why a request was not answered by a backend: the label of `lockgate_requests_refused_total` and the reason in logs.
    Refusal {
        /// The head is ambiguous or breaks the grammar.
        BadRequest => "bad-request",
        /// The target is too long.
        UriTooLong => "uri-too-long",
        /// Too many or too large header fields.
        HeadersTooLarge => "headers-too-large",
        /// A connection to a listener with PROXY protocol from a source that is not trusted.
        ProxyUntrusted => "proxy-untrusted",
        /// A connection to such a listener that does not begin with a PROXY header.
        ProxyHeader => "proxy-header",
        /// The head did not arrive in time.
        HeaderTimeout => "header-timeout",
        /// The body is over the limit.
        BodyTooLarge => "body-too-large",
        /// The body did not arrive in time.
        BodyTimeout => "body-timeout",
        /// The path has an escape that is not accepted.
        BadPath => "bad-path",
        /// No host is named.
        NoHost => "no-host",
        /// No hostname or Selector takes the request.
        NoSelector => "no-selector",
        /// A Selector takes it and none of its rules does.
        NoRoute => "no-route",
        /// The method or protocol is not served, such as CONNECT.
        NotImplemented => "not-implemented",
        /// An expectation other than 100-continue.
        ExpectationFailed => "expectation-failed",
        /// The host is not one that this connection is for: another certificate serves it, or its clients have to show one.
        Misdirected => "misdirected",
        /// An access policy says no.
        Denied => "denied",
        /// The rule is broken in the configuration.
        InvalidRule => "invalid-rule",
        /// The backend whose turn it is is broken in the configuration.
        InvalidBackend => "invalid-backend",
        /// The Cluster has no endpoint that can be used.
        NoEndpoints => "no-endpoints",
        /// No connection to an endpoint could be made.
        ConnectFailed => "connect-failed",
        /// Connecting took too long.
        ConnectTimeout => "connect-timeout",
        /// An endpoint was connected to and no TLS came of it: its certificate does not verify, for example.
        UpstreamTls => "upstream-tls",
        /// No connection of the pool came free in time.
        PoolTimeout => "pool-timeout",
        /// The endpoint closed or reset before its answer was complete.
        UpstreamReset => "upstream-reset",
        /// The endpoint's answer breaks the grammar or is over the limits.
        UpstreamInvalid => "upstream-invalid",
        /// One attempt took too long.
        UpstreamTimeout => "upstream-timeout",
        /// The whole request took too long.
        RequestTimeout => "request-timeout",
        /// No byte went either way for too long.
        IdleTimeout => "idle-timeout",
        /// The gateway has as many client connections as it may: one more is turned away.
        ConnectionLimit => "connection-limit",
        /// The gateway has as many requests in flight as it may, and the queue is full or slow.
        RequestLimit => "request-limit",
        /// The same of the rule.
        RuleLimit => "rule-limit",
        /// The backend has as many requests or connections as it may, and the queue is full or slow.
        BackendLimit => "backend-limit",
        /// The process has no descriptor or memory left for a connection to a backend.
        Exhausted => "exhausted",
        /// The gateway is going away.
        Draining => "draining",
        /// It was cut when the drain's time was over.
        Aborted => "aborted",
        /// The client went away first.
        ClientGone => "client-gone",
        /// A connection of HTTP/2 had more resets or frames without use than it may have.
        Flood => "flood",
        /// The gateway's own fault.
        Internal => "internal",
    }
}

labels! {
    /// How a TLS handshake ended: the label `result` of `lockgate_tls_handshakes_total`.
    Handshake {
        /// It was done in full.
        Full => "full",
        /// It resumed an earlier session.
        Resumed => "resumed",
        /// No certificate serves the host that the client asked for.
        NoCertificate => "no-certificate",
        /// The certificate of the host, or who may have issued those of its clients, cannot be used.
        BrokenCertificate => "broken-certificate",
        /// The client showed no certificate that verifies.
        ClientCertificate => "client-certificate",
        /// Client and gateway have no version, cipher suite or protocol in common.
        Incompatible => "incompatible",
        /// What came is no TLS, or breaks its rules.
        Malformed => "malformed",
        /// The client refused: it does not trust the certificate, for example.
        ClientRefused => "client-refused",
        /// It took too long.
        Timeout => "timeout",
        /// The client left in the middle.
        Closed => "closed",
    }
}

labels! {
    /// The version that a TLS handshake agreed on.
    TlsVersion {
        /// None.
        None => "-",
        /// TLS 1.2.
        V1_2 => "TLSv1.2",
        /// TLS 1.3.
        V1_3 => "TLSv1.3",
    }
}

labels! {
    /// Why an attempt was repeated: the label of `lockgate_upstream_retries_total`.
    RetryReason {
        /// No connection could be made.
        ConnectFailure => "connect-failure",
        /// A kept connection was closed before it carried a byte of this answer.
        StaleConnection => "stale-connection",
        /// The connection broke before a byte of the answer.
        Reset => "reset",
        /// The endpoint said that it did nothing with the request.
        Refused => "refused",
        /// The attempt took too long.
        Timeout => "timeout",
        /// The endpoint answered with a status that the rule repeats on.
        Status => "status",
    }
}

labels! {
    /// What became of the copy of a request: the label of `lockgate_mirrored_requests_total`.
    MirrorOutcome {
        /// The mirror answered, whatever it said.
        Answered => "answered",
        /// No connection could be made, or it broke.
        Failed => "failed",
        /// It took too long.
        Timeout => "timeout",
        /// There are too many copies already, or too many connections.
        Overloaded => "overloaded",
        /// The mirror has no endpoint that can be used.
        NoEndpoints => "no-endpoints",
        /// The request's body is longer than what is kept of one.
        BodyTooLarge => "body-too-large",
        /// The request's body broke off.
        Incomplete => "incomplete",
    }
}

labels! {
    /// How a call of gRPC ended: the label of `lockgate_grpc_responses_total`, as in the field `grpc-status`.
    GrpcStatus {
        /// OK.
        Ok => "0",
        /// Cancelled, mostly by its client.
        Cancelled => "1",
        /// An error of which nothing more is known.
        Unknown => "2",
        /// The client's argument is wrong.
        InvalidArgument => "3",
        /// The deadline was over first.
        DeadlineExceeded => "4",
        /// What was asked for is not there.
        NotFound => "5",
        /// What was to be made is there.
        AlreadyExists => "6",
        /// The caller may not do this.
        PermissionDenied => "7",
        /// A quota or a size is used up.
        ResourceExhausted => "8",
        /// The system is not in the state that the call needs.
        FailedPrecondition => "9",
        /// Aborted, such as by a conflict.
        Aborted => "10",
        /// Past the valid range.
        OutOfRange => "11",
        /// There is no such method.
        Unimplemented => "12",
        /// An invariant is broken.
        Internal => "13",
        /// Not now; it may be tried again.
        Unavailable => "14",
        /// Data are lost.
        DataLoss => "15",
        /// There are no valid credentials.
        Unauthenticated => "16",
        /// A status that gRPC does not have.
        Other => "other",
        /// There was none: the client or the backend left before, or what answered does not speak gRPC.
        None => "none",
    }
}

labels! {
    /// What a connection to an endpoint does.
    ConnectionState {
        /// It carries a request.
        Active => "active",
        /// It waits in the pool.
        Idle => "idle",
    }
}

labels! {
    /// What went wrong in a source: the label of `lockgate_source_errors_total`.
    SourceError {
        /// Nobody answers, or the answer broke off.
        Unreachable => "unreachable",
        /// The source refuses: no permission or no such kind.
        Forbidden => "forbidden",
        /// The list failed otherwise.
        List => "list",
        /// The watch failed otherwise.
        Watch => "watch",
        /// The watch was too old and everything is listed again.
        Expired => "expired",
        /// Nothing was heard for too long, and the watch was started again.
        Stale => "stale",
        /// An object does not decode.
        Decode => "decode",
        /// A file cannot be read.
        Io => "io",
    }
}

labels! {
    /// How a write of a status ended: the label of `lockgate_status_writes_total`.
    StatusWrite {
        /// It was written.
        Written => "written",
        /// The object is gone or newer.
        Obsolete => "obsolete",
        /// Another field manager holds the fields.
        Conflict => "conflict",
        /// The API server refuses.
        Rejected => "rejected",
        /// Nobody answers; it is tried again.
        Failed => "failed",
    }
}

labels! {
    /// What became of an Event about an object: the label of `lockgate_events_total`.
    EventWrite {
        /// It was written.
        Written => "written",
        /// The API server did not take it.
        Failed => "failed",
        /// There were too many at a time, or of one object.
        Dropped => "dropped",
    }
}

impl GrpcStatus {
    /// Those that gRPC has.
    pub const CODES: &'static [Self] = Self::ALL.split_at(Self::Other as usize).0;
}

/// Methods with a label of their own.
const METHODS: [&str; 10] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "OTHER"];
/// Three-digit codes that HTTP allows, and one place for whatever else.
const CODES: u64 = 501;
/// The first key past those of methods and codes.
const PASSED: u64 = METHODS.len() as u64 * CODES + 1;
const _: () = assert!(PASSED + (Refusal::ALL.len() as u64) < 1 << 13);

/// The key of a method and code: never 0, below `2^13`.
pub(super) fn method_code_key(method: &Method, code: u16) -> u64 {
    let method = match *method {
        Method::GET => 0,
        Method::HEAD => 1,
        Method::POST => 2,
        Method::PUT => 3,
        Method::DELETE => 4,
        Method::CONNECT => 5,
        Method::OPTIONS => 6,
        Method::TRACE => 7,
        Method::PATCH => 8,
        _ => 9,
    };
    let code = if (100..600).contains(&code) { u64::from(code) - 100 } else { CODES - 1 };
    method * CODES + code + 1
}

/// Whether a key of a method and a code has a code from 500 to 599.
pub(super) fn is_server_error(key: u64) -> bool {
    let code = (key - 1) % CODES + 100;
    (500..600).contains(&code)
}

/// The key of a connection that was passed through or `refused`: above those of methods and codes, below `2^13`.
pub(super) fn passed_key(refused: Option<Refusal>) -> u64 {
    PASSED + refused.map_or(0, |reason| reason as u64 + 1)
}

/// The label value of such a key; `None` for one of a method and a code.
pub(super) fn passed_result(key: u64) -> Option<&'static str> {
    let index = usize::try_from(key.checked_sub(PASSED)?).ok()?;
    Some(index.checked_sub(1).map_or("passed", |reason| Refusal::ALL.get(reason).map_or("other", |r| r.as_str())))
}

/// The label values of a key: the method and the code.
pub(super) fn method_code(key: u64) -> (&'static str, String) {
    let method = usize::try_from((key - 1) / CODES).ok().and_then(|index| METHODS.get(index));
    let code = (key - 1) % CODES;
    let code = if code == CODES - 1 { "other".to_owned() } else { (code + 100).to_string() };
    (method.copied().unwrap_or("OTHER"), code)
}
