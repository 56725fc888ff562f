//! Settings of the access log.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::ByteSize;

/// The access log: a line for each request.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AccessLog {
    /// Whether there is one.
    pub enabled: bool,
    /// How lines look: `json`, one object a line, or `text`, `name=value` with blanks between.
    pub format: AccessFormat,
    /// Where lines go: `stdout`, `stderr`, or the absolute path of a file, which is opened anew when it was moved away and on
    /// SIGHUP.
    #[schemars(with = "String")]
    pub output: AccessOutput,
    /// The fields of a line; empty is all of them. Where a field makes no sense for a request it is left out.
    pub fields: Vec<AccessField>,
    /// Header fields of requests to log, as the client sent them.
    pub request_headers: Vec<String>,
    /// Header fields of answers to log, as the client gets them.
    pub response_headers: Vec<String>,
    /// Header fields whose values are never logged: `redacted` stands for them.
    pub redact_headers: Vec<String>,
    /// Query parameters whose values are never logged, in any case of their letters; `*` is all.
    pub redact_query: Vec<String>,
    /// The share of requests that are logged, from 0 to 1.
    pub share: f64,
    /// The share of those that failed, if that is more: with status 5xx, with an answer that broke off or a client that left
    /// before it, or with a status of gRPC other than 0. With `share` 0 nothing else is logged.
    pub error_share: f64,
    /// Log answers with these statuses only, such as `404`, `5xx` or `400-499`; empty is all.
    #[schemars(with = "Vec<String>")]
    pub statuses: Vec<StatusRange>,
    /// Bytes of lines that may wait for the output. What is over is dropped, and counted.
    #[schemars(with = "String")]
    pub buffer: ByteSize,
}

/// How lines of the access log look.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum AccessFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// `name=value`, with blanks between.
    Text,
}

/// Where lines of the access log go.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(try_from = "String", into = "String")]
pub enum AccessOutput {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
    /// A file.
    File(PathBuf),
}

/// Statuses from one to another.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(try_from = "StatusForm", into = "String")]
pub struct StatusRange(pub RangeInclusive<u16>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a status such as 404, 5xx or 400-499")]
enum StatusForm {
    Number(u16),
    Text(String),
}

/// Makes the enum of fields, each with the name it has in a line.
macro_rules! fields {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)+) => {
        /// A field of the access log.
        #[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
        pub enum AccessField {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)+
        }

        impl AccessField {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name in a line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

fields! {
    /// When the request's head had come, in UTC.
    Time => "time",
    /// The request's id.
    RequestId => "request_id",
    /// The trace that the request is a part of, of its `traceparent`.
    TraceId => "trace_id",
    /// The listener it came in on.
    Listener => "listener",
    /// The client's address, as trusted proxies tell it.
    ClientIp => "client_ip",
    /// The subject of the certificate that the client showed, verified.
    ClientSubject => "client_subject",
    /// The names of that certificate.
    ClientNames => "client_names",
    /// The version of TLS.
    TlsVersion => "tls_version",
    /// What the client speaks, to the gateway or to the load balancer: `http` or `https`.
    Scheme => "scheme",
    /// HTTP's version; `TLS` for connections that are passed through.
    Protocol => "protocol",
    /// What the connection changed to, such as `websocket`.
    Upgrade => "upgrade",
    /// The method.
    Method => "method",
    /// The host that the client named, with its port.
    Host => "host",
    /// The path as the client sent it.
    Path => "path",
    /// The query, with values redacted.
    Query => "query",
    /// `User-Agent`.
    UserAgent => "user_agent",
    /// `Referer`, with the values of its query redacted.
    Referer => "referer",
    /// Fields of the request.
    RequestHeaders => "request_headers",
    /// The status that the client got.
    Status => "status",
    /// Why the gateway answered by itself, or why the answer broke off.
    Reason => "reason",
    /// How a call of gRPC ended.
    GrpcStatus => "grpc_status",
    /// The Selector that took the request, as `namespace/name`.
    Selector => "selector",
    /// The Route, as `namespace/name`.
    Route => "route",
    /// The rule's name.
    Rule => "rule",
    /// The rule's position in its Route.
    RuleIndex => "rule_index",
    /// The Cluster that it was sent to.
    Cluster => "cluster",
    /// The endpoint that was tried last.
    Endpoint => "endpoint",
    /// How often an endpoint was tried.
    Attempts => "attempts",
    /// Whether the last try was on a connection that was there before.
    UpstreamReused => "upstream_reused",
    /// Milliseconds from when it was sent last to the head of the answer.
    UpstreamMs => "upstream_ms",
    /// Milliseconds to the head of the backend's answer, from the beginning.
    FirstByteMs => "first_byte_ms",
    /// Milliseconds to the answer's end.
    DurationMs => "duration_ms",
    /// Bytes of the request's body that went to the backend; of a tunnel what came from the client.
    BytesIn => "bytes_in",
    /// Bytes of the answer's body; of a tunnel what went to the client.
    BytesOut => "bytes_out",
    /// Fields of the answer.
    ResponseHeaders => "response_headers",
}

impl Default for AccessLog {
    fn default() -> Self {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            enabled: false,
            format: AccessFormat::Json,
            output: AccessOutput::Stdout,
            fields: Vec::new(),
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            redact_headers: texts(&["authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key"]),
            redact_query: texts(&[
                "access_token",
                "api_key",
                "apikey",
                "client_secret",
                "id_token",
                "jwt",
                "password",
                "refresh_token",
                "secret",
                "sig",
                "signature",
                "token",
                "x-amz-security-token",
                "x-amz-signature",
                "x-goog-signature",
            ]),
            share: 1.0,
            error_share: 1.0,
            statuses: Vec::new(),
            buffer: ByteSize::new(4 << 20),
        }
    }
}

impl AccessLog {
    /// What no gateway can run with, each as `field: reason`.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, share) in [("share", self.share), ("errorShare", self.error_share)] {
            if !(0.0..=1.0).contains(&share) {
                problems.push(format!("accessLog.{name}: {share} is not from 0 to 1"));
            }
        }
        let lists = [
            ("requestHeaders", &self.request_headers),
            ("responseHeaders", &self.response_headers),
            ("redactHeaders", &self.redact_headers),
        ];
        for (list, name) in lists.iter().flat_map(|(list, names)| names.iter().map(move |name| (list, name))) {
            if name.parse::<http::HeaderName>().is_err() {
                problems.push(format!("accessLog.{list}: {name:?} is no name of a header field"));
            }
        }
        if self.buffer.get() < 64 << 10 {
            problems.push("accessLog.buffer: at least 64Ki".to_owned());
        }
        problems
    }
}

impl TryFrom<String> for AccessOutput {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "stdout" => Ok(Self::Stdout),
            "stderr" => Ok(Self::Stderr),
            path if path.starts_with('/') => Ok(Self::File(path.into())),
            other => Err(format!("{other:?} is none of stdout, stderr and an absolute path")),
        }
    }
}

impl From<AccessOutput> for String {
    fn from(output: AccessOutput) -> Self {
        match output {
            AccessOutput::Stdout => "stdout".to_owned(),
            AccessOutput::Stderr => "stderr".to_owned(),
            AccessOutput::File(path) => path.display().to_string(),
        }
    }
}

impl TryFrom<StatusForm> for StatusRange {
    type Error = String;

    fn try_from(form: StatusForm) -> Result<Self, String> {
        let text = match form {
            StatusForm::Number(status) => status.to_string(),
            StatusForm::Text(text) => text,
        };
        let number = |text: &str| text.parse::<u16>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let status = |text: &str| number(text).filter(|status| (100..=599).contains(status));
        let class = text.strip_suffix("xx").and_then(number).filter(|class| (1..=5).contains(class));
        let range = match (class, text.split_once('-')) {
            (Some(class), _) => Some(class * 100..=class * 100 + 99),
            (None, Some((first, last))) => status(first).zip(status(last)).map(|(first, last)| first..=last),
            (None, None) => status(&text).map(|only| only..=only),
        };
        match range {
            Some(range) if !range.is_empty() => Ok(Self(range)),
            _ => Err(format!("{text:?} is no status such as 404, 5xx or 400-499")),
        }
    }
}

impl From<StatusRange> for String {
    fn from(StatusRange(range): StatusRange) -> Self {
        if range.start() == range.end() {
            range.start().to_string()
        } else {
            format!("{}-{}", range.start(), range.end())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<AccessLog, String> {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn statuses_are_one_a_class_or_a_range() {
        let log = read("statuses: [404, 5xx, '400-403']").unwrap();
        assert_eq!(log.statuses, [404..=404, 500..=599, 400..=403].map(StatusRange));
        for bad in ["6xx", "99", "600", "500-400", "4x", "xx", "-404", "404-", "+404"] {
            let error = read(&format!("statuses: ['{bad}']"));
            assert!(error.is_err(), "{bad}");
        }
    }

    #[test]
    fn fields_and_outputs_are_named() {
        let log = read("{fields: [time, bytes_in], output: /var/log/access.log}").unwrap();
        assert_eq!(log.fields, [AccessField::Time, AccessField::BytesIn]);
        assert_eq!(log.output, AccessOutput::File("/var/log/access.log".into()));
        assert!(read("fields: [tim]").is_err());
        assert!(read("output: stdut").unwrap_err().contains("none of stdout"));
        for (place, field) in AccessField::ALL.iter().enumerate() {
            assert_eq!((*field as usize, serde_json::to_value(field).unwrap()), (place, field.name().into()));
        }
    }

    #[test]
    fn problems_name_the_setting() {
        let log = read("{share: 1.5, errorShare: -1, requestHeaders: ['x y'], buffer: 1Ki}").unwrap();
        let problems = log.problems();
        for part in ["accessLog.share: 1.5", "accessLog.errorShare: -1", "requestHeaders: \"x y\"", "buffer: at least"]
        {
            assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:?}");
        }
        assert!(AccessLog::default().problems().is_empty());
    }
}
