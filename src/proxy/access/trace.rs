//! The trace that a request is a part of (W3C Trace Context).

use http::{HeaderMap, HeaderName};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// `00-` trace `-` parent `-` flags.
const LENGTH: usize = 55;

/// The id of the trace that a request says it is a part of, in lower-case hexadecimal; `None` where it says none, or in a
/// way that the standard does not have (section 3.2).
pub(super) fn id(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    parse(value.as_bytes())
}

fn parse(value: &[u8]) -> Option<&[u8]> {
    let (known, more) = value.split_at_checked(LENGTH)?;
    // Later versions may have more behind it.
    if !more.is_empty() && (value.starts_with(b"00") || !more.starts_with(b"-")) {
        return None;
    }
    let mut parts = known.split(|&byte| byte == b'-');
    let mut part = |length: usize| {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        parts.next().filter(|part| part.len() == length && part.iter().all(is_digit))
    };
    let (version, trace, parent, _flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let is_some = |id: &[u8]| id.iter().any(|&digit| digit != b'0');
    (version != b"ff" && is_some(trace) && is_some(parent)).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_the_standard_has_them() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for good in ["00-{}-00f067aa0ba902b7-01", "00-{}-00f067aa0ba902b7-00", "cc-{}-00f067aa0ba902b7-01-what-else"] {
            assert_eq!(parse(good.replace("{}", trace).as_bytes()), Some(trace.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "{}",
            "00-{}-00f067aa0ba902b7",
            "00-{}-00f067aa0ba902b7-01-more",
            "00-{}-00f067aa0ba902b7-01.",
            "cc-{}-00f067aa0ba902b7-01.",
            "ff-{}-00f067aa0ba902b7-01",
            "00-{}-0000000000000000-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-000f067aa0ba902b7-01",
            "00_{}_00f067aa0ba902b7_01",
        ] {
            assert_eq!(parse(bad.replace("{}", trace).as_bytes()), None, "{bad}");
        }
        let twice: HeaderMap = ["1", "2"].iter().map(|_| (TRACEPARENT, "x".parse().unwrap())).collect();
        assert_eq!(id(&twice), None);
    }
}
