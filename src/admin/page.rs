//! The status page: three files that are part of the program. It shows what the JSON of the operator port says, and can
//! change nothing.

use http::header::{ACCEPT, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, VARY, X_FRAME_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::server::{Answer, typed};

/// The path of its style sheet.
pub(super) const STYLE: &str = "page.css";
/// The path of its script.
pub(super) const SCRIPT: &str = "page.js";

/// Nothing but its own two files and the JSON of this port; no text ever becomes markup or script; nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Whether a browser asks, and not a program.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/html"))
}

/// The page.
pub(super) fn html() -> Answer {
    let mut answer = guarded("text/html; charset=utf-8", include_str!("page/index.html"));
    answer.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    answer
}

/// Its style sheet.
pub(super) fn style() -> Answer {
    guarded("text/css; charset=utf-8", include_str!("page/page.css"))
}

/// Its script.
pub(super) fn script() -> Answer {
    guarded("text/javascript; charset=utf-8", include_str!("page/page.js"))
}

fn guarded(media_type: &'static str, text: &'static str) -> Answer {
    let mut answer = typed(StatusCode::OK, media_type, text);
    let guards = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in guards {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
