//! The one form of a host that is matched.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// Why a `Host` or `:authority` is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HostError {
    /// There is no host in it.
    #[error("the host is empty")]
    Empty,
    /// It has a user name (RFC 9110, section 4.2.4).
    #[error("the host has a user name")]
    UserInfo,
    /// A port that is no number up to 65535.
    #[error("the port of the host is no number up to 65535")]
    BadPort,
    /// Brackets without an IPv6 address in them.
    #[error("the host has brackets without an IPv6 address in them")]
    BadAddress,
    /// A character that no host has, or an empty label.
    #[error("the host is no name of letters, digits, \"-\", \"_\" and single dots")]
    BadName,
    /// More than 253 bytes (RFC 1035, section 2.3.4).
    #[error("the host is longer than 253 bytes")]
    TooLong,
}

impl HostError {
    /// A short name for metrics and logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Empty => "host_empty",
            Self::UserInfo => "host_user_info",
            Self::BadPort => "host_bad_port",
            Self::BadAddress => "host_bad_address",
            Self::BadName => "host_bad_name",
            Self::TooLong => "host_too_long",
        }
    }
}

/// A host and port (RFC 3986, section 3.2) taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// The host: lower case, without a trailing dot, an IPv6 address in its brackets.
    pub host: Cow<'a, str>,
    /// The port, if there is one.
    pub port: Option<u16>,
}

/// Takes the value of `Host` or `:authority` apart; borrows a host that is in its form already.
pub fn parse(authority: &str) -> Result<Authority<'_>, HostError> {
    take_apart(authority).map_err(|error| if authority.contains('@') { HostError::UserInfo } else { error })
}

fn take_apart(authority: &str) -> Result<Authority<'_>, HostError> {
    let (host, port, has_capitals) = if authority.starts_with('[') {
        let end = authority.find(']').ok_or(HostError::BadAddress)?;
        let (literal, rest) = authority.split_at(end + 1);
        literal[1..end].parse::<Ipv6Addr>().map_err(|_| HostError::BadAddress)?;
        (literal, rest, literal.bytes().any(|byte| byte.is_ascii_uppercase()))
    } else {
        let end = authority.bytes().position(|byte| byte == b':').unwrap_or(authority.len());
        let (name, port) = authority.split_at(end);
        let name = name.strip_suffix('.').unwrap_or(name);
        (name, port, check_name(name)?)
    };
    let host = if has_capitals { Cow::Owned(host.to_ascii_lowercase()) } else { Cow::Borrowed(host) };
    Ok(Authority { host, port: parse_port(port)? })
}

/// Whether a name has capitals.
fn check_name(name: &str) -> Result<bool, HostError> {
    if name.is_empty() {
        return Err(HostError::Empty);
    }
    if name.len() > 253 {
        return Err(HostError::TooLong);
    }
    // In one pass, for each request comes by here.
    let (mut is_bad, mut has_capitals, mut before) = (false, false, b'.');
    for &byte in name.as_bytes() {
        is_bad |= !NAME[byte as usize] || (byte == b'.' && before == b'.');
        has_capitals |= byte.is_ascii_uppercase();
        before = byte;
    }
    if is_bad || before == b'.' { Err(HostError::BadName) } else { Ok(has_capitals) }
}

/// What names are made of.
const NAME: [bool; 256] = {
    let mut name = [false; 256];
    let mut byte = 0_u8;
    while byte < 0x80 {
        name[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        byte += 1;
    }
    name
};

/// Reads `:80`, or nothing; RFC 3986 also allows a lone `:`.
fn parse_port(text: &str) -> Result<Option<u16>, HostError> {
    match text.strip_prefix(':') {
        None if text.is_empty() => Ok(None),
        Some("") => Ok(None),
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            digits.parse().map(Some).map_err(|_| HostError::BadPort)
        }
        _ => Err(HostError::BadPort),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_take_their_form() {
        for (given, host, port) in [
            ("example.com", "example.com", None),
            ("Example.COM:8080", "example.com", Some(8080)),
            ("example.com.", "example.com", None),
            ("example.com.:80", "example.com", Some(80)),
            ("example.com:", "example.com", None),
            ("10.0.0.1:65535", "10.0.0.1", Some(65535)),
            ("[::1]", "[::1]", None),
            ("[2001:DB8::1]:443", "[2001:db8::1]", Some(443)),
            ("a_b-c", "a_b-c", None),
        ] {
            let parsed = parse(given).unwrap();
            assert_eq!((&*parsed.host, parsed.port), (host, port), "{given}");
            let again = parse(&parsed.host).unwrap();
            assert_eq!(again, Authority { host: Cow::Borrowed(host), port: None });
            assert!(matches!(again.host, Cow::Borrowed(_)));
        }
    }

    #[test]
    fn junk_is_refused() {
        let long = "a.".repeat(127);
        for (given, error) in [
            ("", HostError::Empty),
            (".", HostError::Empty),
            (":80", HostError::Empty),
            ("user@example.com", HostError::UserInfo),
            ("user:pw@[::1]", HostError::UserInfo),
            ("example.com:http", HostError::BadPort),
            ("example.com:+80", HostError::BadPort),
            ("example.com:65536", HostError::BadPort),
            ("example.com:80:80", HostError::BadPort),
            ("[::1]80", HostError::BadPort),
            ("::1", HostError::Empty),
            ("2001:db8::1", HostError::BadPort),
            ("[::1", HostError::BadAddress),
            ("[1.2.3.4]", HostError::BadAddress),
            ("[fe80::1%eth0]", HostError::BadAddress),
            ("a..b", HostError::BadName),
            ("example.com..", HostError::BadName),
            (".example.com", HostError::BadName),
            ("a b", HostError::BadName),
            ("a/b", HostError::BadName),
            ("a,b", HostError::BadName),
            ("a%2eb", HostError::BadName),
            ("*.example.com", HostError::BadName),
            ("b\u{fc}cher.example", HostError::BadName),
            (&format!("{long}ab"), HostError::TooLong),
        ] {
            assert_eq!(parse(given), Err(error), "{given}");
        }
        assert!(parse(&long).is_ok(), "253 bytes and a trailing dot");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken_or_refused(text in "[a-zA-Z0-9.:@\\[\\]_%\u{fc} -]{0,20}") {
            if let Ok(parsed) = parse(&text) {
                proptest::prop_assert_eq!(parse(&parsed.host).map(|p| p.host.into_owned()), Ok(parsed.host.into_owned()));
            }
        }
    }
}
