//! Environment variables that look like settings and are none.

use std::collections::BTreeSet;

use crate::nearby::nearest;
use crate::settings::{Leaf, leaves};

/// What the names of all settings begin with.
const PREFIX: &str = "LOCKGATE_";

/// A line for each variable of these names that nothing reads.
pub(super) fn unknown(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut known: BTreeSet<String> = leaves().iter().map(Leaf::variable).collect();
    known.insert("LOCKGATE_CONFIG".to_owned());
    let names: BTreeSet<String> = names.into_iter().filter(|name| name.starts_with(PREFIX)).collect();
    let strange = names.iter().filter(|name| !known.contains(*name) && !is_of_service(name));
    let line = |name: &String| {
        let meant = nearest(name, known.iter().map(String::as_str)).map(|known| format!("; did you mean {known}?"));
        format!("the environment variable {name} is no setting and changes nothing{}", meant.unwrap_or_default())
    };
    strange.map(line).collect()
}

/// Whether Kubernetes sets such a variable in every pod for a Service named `lockgate` or `lockgate-…`.
fn is_of_service(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = name.split('_').collect();
    let Some(at) = parts.iter().rposition(|part| matches!(*part, "SERVICE" | "PORT")) else { return false };
    match (&parts[at], &parts[at + 1..]) {
        (&"SERVICE", ["HOST"]) | (&"PORT", []) => true,
        (&"PORT", [number, "TCP" | "UDP" | "SCTP", ..]) => is_number(number),
        // `…_SERVICE_PORT` and, for a port with a name, `…_SERVICE_PORT_HTTP`; `…_PORT_80_TCP_PORT`.
        (&"PORT", _) => {
            at > 0 && parts[at - 1] == "SERVICE" || parts.windows(2).any(|pair| pair[0] == "PORT" && is_number(pair[1]))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_told_and_what_is_set_by_others_is_not() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let told = unknown(names(&["LOCKGATE_DRAIN_TIMOUT", "LOCKGATE_QUITE_SOMETHING_ELSE", "PATH"]));
        assert_eq!(
            told,
            [
                "the environment variable LOCKGATE_DRAIN_TIMOUT is no setting and changes nothing; did you mean \
                 LOCKGATE_DRAIN_TIMEOUT?",
                "the environment variable LOCKGATE_QUITE_SOMETHING_ELSE is no setting and changes nothing",
            ]
        );
        let fine = [
            "LOCKGATE_CONFIG",
            "LOCKGATE_DRAIN_TIMEOUT",
            "LOCKGATE_ADMIN_ADDRESS",
            "LOCKGATE_SERVICE_HOST",
            "LOCKGATE_SERVICE_PORT",
            "LOCKGATE_SERVICE_PORT_HTTPS",
            "LOCKGATE_PORT",
            "LOCKGATE_PORT_80_TCP",
            "LOCKGATE_PORT_80_TCP_ADDR",
            "LOCKGATE_PORT_80_TCP_PORT",
            "LOCKGATE_PORT_443_UDP_PROTO",
            "LOCKGATE_EDGE_SERVICE_PORT_HTTP",
        ];
        assert_eq!(unknown(names(&fine)), [""; 0]);
    }
}
