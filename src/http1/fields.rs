//! Fields that are about the message and its connection.

use http::header::{self, HeaderMap, HeaderName};
use http::{HeaderValue, Version};

use super::Length;

/// Fields that mean something only before a body, or to one connection, and would change what has been decided if they
/// came after it (RFC 9110, section 6.5.1).
const NOT_IN_TRAILERS: [HeaderName; 18] = [
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::EXPECT,
    header::HOST,
    HeaderName::from_static("keep-alive"),
    header::MAX_FORWARDS,
    HeaderName::from_static("proxy-connection"),
    header::SET_COOKIE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Leaves of trailers those that may be sent, in each version of HTTP.
pub fn keep_trailers(trailers: &mut HeaderMap) {
    for name in NOT_IN_TRAILERS {
        trailers.remove(name);
    }
}

/// The trailer fields that a head announces.
pub fn announced(head: &HeaderMap) -> Vec<HeaderName> {
    let names = head.get_all(header::TRAILER).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

/// What `Connection` says of the connection itself (RFC 9112, section 9.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Persistence {
    close: bool,
    keep_alive: bool,
}

impl Persistence {
    /// Reads one value of the field.
    pub fn note(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Whether another message may follow one of `version`.
    pub fn lasts(self, version: Version) -> bool {
        !self.close && (version == Version::HTTP_11 || self.keep_alive)
    }
}

/// Writes one field's line.
pub fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes the fields of a head, but for those that say where its body ends: gives the `Content-Length` among them.
pub fn fields<'a>(headers: &'a HeaderMap, out: &mut Vec<u8>) -> Option<&'a HeaderValue> {
    let mut said = None;
    for (name, value) in headers {
        if name == header::CONTENT_LENGTH {
            said = Some(value);
        } else if name != header::TRANSFER_ENCODING {
            field(out, name.as_str(), value.as_bytes());
        }
    }
    said
}

/// Writes the field that says where a body ends; none for [`Length::None`] and [`Length::Close`].
pub fn framing(out: &mut Vec<u8>, length: Length) {
    match length {
        Length::Known(length) => field(out, "content-length", decimal(&mut [0; 20], length)),
        Length::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Length::None | Length::Close => {}
    }
}

fn decimal(digits: &mut [u8; 20], mut number: u64) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_cannot_change_what_was_decided() {
        let mut trailers = HeaderMap::new();
        for name in ["content-length", "transfer-encoding", "host", "authorization", "cookie", "keep-alive", "x-sum"] {
            trailers.insert(HeaderName::try_from(name).unwrap(), HeaderValue::from_static("1"));
        }
        keep_trailers(&mut trailers);
        assert_eq!(trailers.keys().collect::<Vec<_>>(), ["x-sum"]);
    }

    #[test]
    fn a_connection_lasts_as_its_options_and_version_say() {
        for (options, version, lasts) in [
            (&[][..], Version::HTTP_11, true),
            (&[], Version::HTTP_10, false),
            (&["Keep-Alive"], Version::HTTP_10, true),
            (&["x, close"], Version::HTTP_11, false),
            (&["keep-alive", "close"], Version::HTTP_10, false),
            (&["closed"], Version::HTTP_11, true),
        ] {
            let mut persistence = Persistence::default();
            for option in options {
                persistence.note(option.as_bytes());
            }
            assert_eq!(persistence.lasts(version), lasts, "{options:?} {version:?}");
        }
    }
}
