//! The trace that a request is a part of (W3C Trace Context).

use http::{HeaderMap, HeaderName, HeaderValue};

/// Names the trace and the span that a request comes from.
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What vendors add to it.
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// `00-` trace `-` parent `-` flags.
const LENGTH: usize = 55;
/// The one flag that is known to all versions (section 3.2.2.5).
const SAMPLED: u8 = 0x01;

/// What a valid field says, in lower-case hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent<'a> {
    /// 32 digits.
    pub trace: &'a [u8],
    /// 16 digits.
    pub span: &'a [u8],
    flags: &'a [u8],
}

impl Parent<'_> {
    /// Whether the one who asks records the trace.
    pub(super) fn is_sampled(&self) -> bool {
        number(self.flags).is_some_and(|[flags]: [u8; 1]| flags & SAMPLED != 0)
    }

    /// The trace's id as bytes.
    pub(super) fn trace_id(&self) -> Option<[u8; 16]> {
        number(self.trace)
    }

    /// The span's id as bytes.
    pub(super) fn span_id(&self) -> Option<[u8; 8]> {
        number(self.span)
    }
}

/// What a request says it is a part of; `None` where it says nothing, or in a way that the standard does not have
/// (section 3.2).
pub(super) fn parent(headers: &HeaderMap) -> Option<Parent<'_>> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    parse(value.as_bytes())
}

/// The field that names a span; `None` never.
pub(super) fn field(trace: [u8; 16], span: [u8; 8], is_sampled: bool) -> Option<HeaderValue> {
    let mut text = [b'-'; LENGTH];
    text[..2].copy_from_slice(b"00");
    digits(&trace, &mut text[3..35]);
    digits(&span, &mut text[36..52]);
    digits(&[if is_sampled { SAMPLED } else { 0 }], &mut text[53..]);
    HeaderValue::from_bytes(&text).ok()
}

fn digits(bytes: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

fn number<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

fn parse(value: &[u8]) -> Option<Parent<'_>> {
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
    let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let is_some = |id: &[u8]| id.iter().any(|&digit| digit != b'0');
    (version != b"ff" && is_some(trace) && is_some(span)).then_some(Parent { trace, span, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_the_standard_has_them() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (good, is_sampled) in [
            ("00-{}-00f067aa0ba902b7-01", true),
            ("00-{}-00f067aa0ba902b7-00", false),
            ("00-{}-00f067aa0ba902b7-fe", false),
            ("cc-{}-00f067aa0ba902b7-03-what-else", true),
        ] {
            let field = good.replace("{}", trace);
            let parent = parse(field.as_bytes()).unwrap();
            assert_eq!((parent.trace, parent.span), (trace.as_bytes(), &b"00f067aa0ba902b7"[..]), "{good}");
            assert_eq!(parent.is_sampled(), is_sampled, "{good}");
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
        assert_eq!(parent(&twice), None);
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let (trace, span) = ([0x4b; 16], [0x0a, 0xf7, 1, 2, 3, 4, 5, 6]);
        let field = field(trace, span, true).unwrap();
        assert_eq!(field, "00-4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b4b-0af7010203040506-01");
        let parent = parse(field.as_bytes()).unwrap();
        assert_eq!((parent.trace_id(), parent.span_id(), parent.is_sampled()), (Some(trace), Some(span), true));
    }
}
