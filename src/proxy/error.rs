//! The one place that turns a failure into an answer.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::body::ResponseBody;
use super::target::LocationError;
use crate::routing::Miss;
use crate::telemetry::metrics::{GrpcStatus, Refusal};

/// Names the reason of an answer that the gateway made.
pub(super) const REASON: HeaderName = HeaderName::from_static("x-lockgate-reason");

/// How a call of gRPC ended.
pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Seconds after which a client may ask again: what is full or leaving now is another gateway's, or over, by then.
pub(super) const RETRY_AFTER: &str = "1";

/// Why a request gets no answer of a backend.
#[derive(Debug, thiserror::Error)]
#[error("{reason}: {detail}")]
pub(super) struct Failure {
    /// The closed reason: label of the metric, field of the log, header of the answer.
    pub reason: Refusal,
    /// What happened, for the log.
    pub detail: String,
}

impl Failure {
    /// A failure with nothing more to say.
    pub(super) fn new(reason: Refusal) -> Self {
        Self { reason, detail: String::new() }
    }

    /// A failure and what happened.
    pub(super) fn because(reason: Refusal, detail: impl std::fmt::Display) -> Self {
        Self { reason, detail: detail.to_string() }
    }

    /// The answer. `close` asks the client to leave the connection; `is_grpc` says that the request is one of gRPC.
    pub(super) fn answer(&self, close: bool, is_grpc: bool) -> Response<ResponseBody> {
        let mut response = if is_grpc { trailers_only(self.reason) } else { text(self.reason) };
        let headers = response.headers_mut();
        headers.insert(REASON, HeaderValue::from_static(self.reason.as_str()));
        if status(self.reason) == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
        }
        if close || spoils_connection(self.reason) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// An answer for people.
fn text(reason: Refusal) -> Response<ResponseBody> {
    let status = status(reason);
    let mut response = Response::new(ResponseBody::full(Bytes::from(format!("{} {reason}\n", status.as_u16()))));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// An answer of gRPC without messages: its trailers are its head, and HTTP's status is always 200.
fn trailers_only(reason: Refusal) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(Bytes::new()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, GRPC);
    end_call(headers, reason);
    response
}

/// Says in trailers why the gateway has ended a call of gRPC.
pub(super) fn end_call(trailers: &mut HeaderMap, reason: Refusal) {
    trailers.insert(GRPC_STATUS, HeaderValue::from_static(grpc_status(reason).as_str()));
    // Percent-coded where it has to be, which no reason has.
    trailers.insert(GRPC_MESSAGE, HeaderValue::from_static(reason.as_str()));
}

impl From<Miss> for Failure {
    fn from(miss: Miss) -> Self {
        let reason = match miss {
            Miss::NoHost | Miss::NoSelector => Refusal::NoSelector,
            Miss::NoMatch => Refusal::NoRoute,
        };
        Self::because(reason, miss)
    }
}

impl From<LocationError> for Failure {
    fn from(error: LocationError) -> Self {
        let reason = match error {
            LocationError::NoHost => Refusal::NoHost,
            LocationError::Rewrite(_) => Refusal::BadPath,
            LocationError::Value(_) => Refusal::BadRequest,
        };
        Self::because(reason, error)
    }
}

/// The status of a reason.
pub(super) fn status(reason: Refusal) -> StatusCode {
    match reason {
        // A client that is gone reads nothing; one that only ended its half of the connection sent half a request.
        Refusal::BadRequest | Refusal::BadPath | Refusal::NoHost | Refusal::ProxyHeader | Refusal::ClientGone => {
            StatusCode::BAD_REQUEST
        }
        Refusal::Denied | Refusal::ProxyUntrusted => StatusCode::FORBIDDEN,
        Refusal::NoSelector | Refusal::NoRoute => StatusCode::NOT_FOUND,
        Refusal::HeaderTimeout | Refusal::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
        Refusal::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Refusal::UriTooLong => StatusCode::URI_TOO_LONG,
        Refusal::Flood => StatusCode::TOO_MANY_REQUESTS,
        Refusal::ExpectationFailed => StatusCode::EXPECTATION_FAILED,
        Refusal::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Refusal::InvalidRule | Refusal::InvalidBackend | Refusal::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Refusal::Misdirected => StatusCode::MISDIRECTED_REQUEST,
        Refusal::NotImplemented => StatusCode::NOT_IMPLEMENTED,
        Refusal::ConnectFailed | Refusal::UpstreamTls | Refusal::UpstreamReset | Refusal::UpstreamInvalid => {
            StatusCode::BAD_GATEWAY
        }
        Refusal::NoEndpoints
        | Refusal::PoolTimeout
        | Refusal::ConnectionLimit
        | Refusal::RequestLimit
        | Refusal::RuleLimit
        | Refusal::BackendLimit
        | Refusal::Exhausted
        | Refusal::Draining
        | Refusal::Aborted => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::ConnectTimeout | Refusal::UpstreamTimeout | Refusal::RequestTimeout | Refusal::IdleTimeout => {
            StatusCode::GATEWAY_TIMEOUT
        }
    }
}

/// The status of a reason in gRPC: what its clients make of HTTP's status (`http-grpc-status-mapping.md`), but for two that
/// say more.
pub(super) fn grpc_status(reason: Refusal) -> GrpcStatus {
    match reason {
        // The backend may have begun to act: not "unavailable", which invites another try.
        Refusal::RequestTimeout | Refusal::UpstreamTimeout | Refusal::IdleTimeout => GrpcStatus::DeadlineExceeded,
        Refusal::BodyTooLarge => GrpcStatus::ResourceExhausted,
        _ => match status(reason) {
            StatusCode::BAD_REQUEST | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => GrpcStatus::Internal,
            StatusCode::UNAUTHORIZED => GrpcStatus::Unauthenticated,
            StatusCode::FORBIDDEN => GrpcStatus::PermissionDenied,
            StatusCode::NOT_FOUND => GrpcStatus::Unimplemented,
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => GrpcStatus::Unavailable,
            _ => GrpcStatus::Unknown,
        },
    }
}

/// Whether what follows on the connection cannot be trusted or is not wanted (RFC 9112, section 9.3).
fn spoils_connection(reason: Refusal) -> bool {
    matches!(
        reason,
        Refusal::BadRequest
            | Refusal::NoHost
            | Refusal::ProxyHeader
            | Refusal::ProxyUntrusted
            | Refusal::HeaderTimeout
            | Refusal::BodyTimeout
            | Refusal::BodyTooLarge
            | Refusal::UriTooLong
            | Refusal::HeadersTooLarge
            | Refusal::NotImplemented
            | Refusal::Draining
            | Refusal::Aborted
    )
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;

    use super::*;

    #[test]
    fn every_reason_has_an_error_status_and_says_itself() {
        for &reason in Refusal::ALL {
            let response = Failure::new(reason).answer(false, false);
            assert!(response.status().as_u16() >= 400, "{reason}");
            assert_eq!(response.headers()[REASON], reason.as_str());
        }
    }

    #[test]
    fn to_grpc_every_reason_is_a_status_of_its_own_in_an_answer_of_trailers_only() {
        for &reason in Refusal::ALL {
            let response = Failure::new(reason).answer(false, true);
            let headers = response.headers();
            assert_eq!((response.status(), &headers[header::CONTENT_TYPE]), (StatusCode::OK, &GRPC));
            assert!(response.body().is_end_stream());
            assert!((1..=16).contains(&headers[GRPC_STATUS].to_str().unwrap().parse::<u8>().unwrap()), "{reason}");
            // As gRPC codes them: all but `%` from space to tilde stands for itself.
            let message = headers[GRPC_MESSAGE].to_str().unwrap();
            assert!(message.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'%'), "{message}");
            assert_eq!(message, reason.as_str());
            assert_eq!(headers[REASON], reason.as_str());
        }
    }

    #[test]
    fn statuses_of_grpc_are_those_of_its_table() {
        for (reason, status) in [
            (Refusal::BadRequest, "13"),
            (Refusal::HeadersTooLarge, "13"),
            (Refusal::Denied, "7"),
            (Refusal::NoSelector, "12"),
            (Refusal::NoRoute, "12"),
            (Refusal::Flood, "14"),
            (Refusal::ConnectFailed, "14"),
            (Refusal::UpstreamReset, "14"),
            (Refusal::NoEndpoints, "14"),
            (Refusal::Draining, "14"),
            (Refusal::ConnectTimeout, "14"),
            (Refusal::InvalidRule, "2"),
            (Refusal::Misdirected, "2"),
            (Refusal::RequestTimeout, "4"),
            (Refusal::UpstreamTimeout, "4"),
            (Refusal::IdleTimeout, "4"),
            (Refusal::BodyTooLarge, "8"),
        ] {
            assert_eq!(grpc_status(reason).as_str(), status, "{reason}");
        }
    }

    #[test]
    fn an_answer_closes_when_it_is_told_to_or_must() {
        let closes =
            |reason, close| Failure::new(reason).answer(close, false).headers().contains_key(header::CONNECTION);
        assert!(!closes(Refusal::NoRoute, false));
        assert!(closes(Refusal::NoRoute, true));
        assert!(closes(Refusal::BodyTooLarge, false));
        assert!(closes(Refusal::Draining, false));
    }
}
