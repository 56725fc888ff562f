//! Who may ask the operator port.

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Method};

/// Refuses a browser that a foreign page sent here: by a name that was made to resolve to loopback (the `Host` is not
/// loopback's then), across origins (the `Origin` is not this one then), or by whatever else its browser tells to be the
/// doing of another site.
pub(super) fn from_here(method: &Method, headers: &HeaderMap) -> Result<(), &'static str> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else {
        return Err("the request must name one host");
    };
    if !is_loopback(host) {
        return Err("the host must be localhost, 127.0.0.1 or [::1]");
    }
    let same = |origin: &http::HeaderValue| {
        origin
            .to_str()
            .is_ok_and(|origin| origin.strip_prefix("http://").is_some_and(|rest| rest.eq_ignore_ascii_case(host)))
    };
    if !headers.get_all(ORIGIN).iter().all(same) {
        return Err("requests of other origins are refused");
    }
    if is_foreign(method, headers) { Err("requests of other sites are refused") } else { Ok(()) }
}

/// Whether the browser says that another page is behind the request (W3C Fetch Metadata), also where it sends no
/// `Origin`: an image, a script, a frame. A link that a person follows, in a window of its own, is let in.
fn is_foreign(method: &Method, headers: &HeaderMap) -> bool {
    let is = |name: &str, wanted: &[&str]| {
        let mut values = headers.get_all(name).iter();
        values.all(|value| value.to_str().is_ok_and(|value| wanted.contains(&value)))
    };
    let told = |name: &str, wanted: &str| headers.contains_key(name) && is(name, &[wanted]);
    let followed = matches!(*method, Method::GET | Method::HEAD)
        && told("sec-fetch-mode", "navigate")
        && told("sec-fetch-dest", "document");
    !is("sec-fetch-site", &["same-origin", "none"]) && !followed
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost") || name == "127.0.0.1" || name == "[::1]"
}
