//! The one place that turns a failure into an answer.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::body::ResponseBody;
use super::target::LocationError;
use crate::routing::Miss;
use crate::telemetry::metrics::Refusal;

/// Names the reason of an answer that the gateway made.
pub(super) const REASON: HeaderName = HeaderName::from_static("x-lockgate-reason");

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

    /// The answer. `close` asks the client to leave the connection.
    pub(super) fn answer(&self, close: bool) -> Response<ResponseBody> {
        let status = status(self.reason);
        let mut response =
            Response::new(ResponseBody::full(Bytes::from(format!("{} {}\n", status.as_u16(), self.reason))));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(REASON, HeaderValue::from_static(self.reason.as_str()));
        if matches!(self.reason, Refusal::Overloaded | Refusal::PoolTimeout | Refusal::Draining | Refusal::NoEndpoints)
        {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if close || spoils_connection(self.reason) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
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
        Refusal::NoEndpoints | Refusal::PoolTimeout | Refusal::Overloaded | Refusal::Draining | Refusal::Aborted => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Refusal::ConnectTimeout | Refusal::UpstreamTimeout | Refusal::RequestTimeout | Refusal::IdleTimeout => {
            StatusCode::GATEWAY_TIMEOUT
        }
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
    use super::*;

    #[test]
    fn every_reason_has_an_error_status_and_says_itself() {
        for &reason in Refusal::ALL {
            let response = Failure::new(reason).answer(false);
            assert!(response.status().as_u16() >= 400, "{reason}");
            assert_eq!(response.headers()[REASON], reason.as_str());
        }
    }

    #[test]
    fn an_answer_closes_when_it_is_told_to_or_must() {
        let closes = |reason, close| Failure::new(reason).answer(close).headers().contains_key(header::CONNECTION);
        assert!(!closes(Refusal::NoRoute, false));
        assert!(closes(Refusal::NoRoute, true));
        assert!(closes(Refusal::BodyTooLarge, false));
        assert!(closes(Refusal::Draining, false));
    }
}
