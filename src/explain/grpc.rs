//! What requests of gRPC are answered with where the gateway answers by itself.

use std::fmt::Write as _;

use super::Answer;
use crate::proxy::preview;
use crate::telemetry::metrics::Refusal;

/// Corrects the answer to a request of gRPC, which learns of an error in `grpc-status`.
pub(super) fn tell(answer: &mut Answer) {
    let result = &mut answer.result;
    let reason = Refusal::ALL.iter().find(|reason| result.reason.as_deref() == Some(reason.as_str()));
    let has_shares = answer.action.iter().flat_map(|action| &action.backends).any(|backend| backend.refused.is_some());
    if let Some(reason) = reason.filter(|_| result.status.is_some()) {
        let status = preview::grpc_status(*reason);
        result.status = Some(http::StatusCode::OK.as_u16());
        result.grpc_status = Some(status.as_str().to_owned());
        // Writing to a string does not fail.
        let _ = write!(result.summary, "; as the request is of gRPC, with the status 200 and grpc-status {status}");
    } else if has_shares {
        let note =
            "the request is of gRPC: where the gateway answers with an error, the status is 200, and grpc-status tells";
        answer.notes.push(note.to_owned());
    }
}
