//! The one form of a path that is matched and forwarded (RFC 3986, section 6.2.2).

use std::borrow::Cow;

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PathError {
    /// It does not begin with `/`.
    #[error("the path does not start with \"/\"")]
    NotAbsolute,
    /// A `%` without two hexadecimal digits.
    #[error("the path has a \"%\" without two hexadecimal digits")]
    BadEscape,
    /// `%2F`: backends differ on whether it separates segments.
    #[error("the path has an escaped \"/\"")]
    EscapedSlash,
    /// `%5C`: some backends take it for a slash.
    #[error("the path has an escaped \"\\\"")]
    EscapedBackslash,
    /// A raw `\`: some backends take it for a slash.
    #[error("the path has a \"\\\"")]
    Backslash,
    /// `%00` or a raw NUL: some backends end the path there.
    #[error("the path has a NUL")]
    Nul,
    /// A raw `#`: a fragment never belongs into a request.
    #[error("the path has a \"#\"")]
    Fragment,
    /// A raw `?`: the query has to be split off before.
    #[error("the path has a \"?\"")]
    Query,
    /// A raw space or control character.
    #[error("the path has a raw space or control character")]
    Control,
}

impl PathError {
    /// A short name for metrics and logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotAbsolute => "path_not_absolute",
            Self::BadEscape => "path_bad_escape",
            Self::EscapedSlash => "path_escaped_slash",
            Self::EscapedBackslash => "path_escaped_backslash",
            Self::Backslash => "path_backslash",
            Self::Nul => "path_nul",
            Self::Fragment => "path_fragment",
            Self::Query => "path_query",
            Self::Control => "path_control",
        }
    }
}

/// Brings the path of a request (without its query) into the form that is matched and forwarded: escapes of unreserved
/// characters decoded, other escapes in upper case, bytes beyond ASCII escaped, dot segments removed; empty segments
/// stay. A path in that form is borrowed. Doing it twice changes nothing.
pub fn normalise(raw: &str) -> Result<Cow<'_, str>, PathError> {
    if !raw.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    if is_normal(raw.as_bytes())? { Ok(Cow::Borrowed(raw)) } else { Ok(Cow::Owned(rewrite(raw.as_bytes()))) }
}

/// What a byte of a raw path means for the scan.
#[derive(Clone, Copy)]
enum Class {
    Plain,
    Slash,
    Percent,
    /// Must be escaped.
    Wide,
    Bad(PathError),
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Plain; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte {
            0 => Class::Bad(PathError::Nul),
            0x01..=0x20 | 0x7f => Class::Bad(PathError::Control),
            0x23 => Class::Bad(PathError::Fragment),
            0x25 => Class::Percent,
            0x2f => Class::Slash,
            0x3f => Class::Bad(PathError::Query),
            0x5c => Class::Bad(PathError::Backslash),
            0x80.. => Class::Wide,
            _ => Class::Plain,
        };
        byte += 1;
    }
    classes
};

/// Validates all of `raw` and says whether it is in normal form.
fn is_normal(raw: &[u8]) -> Result<bool, PathError> {
    let mut normal = true;
    for (at, &byte) in raw.iter().enumerate() {
        match CLASSES[usize::from(byte)] {
            Class::Plain => {}
            Class::Slash => normal &= !starts_with_dot_segment(&raw[at + 1..]),
            Class::Percent => {
                let decoded = decode(&raw[at + 1..]).ok_or(PathError::BadEscape)?;
                match decoded {
                    b'/' => return Err(PathError::EscapedSlash),
                    b'\\' => return Err(PathError::EscapedBackslash),
                    0 => return Err(PathError::Nul),
                    _ => {}
                }
                normal &= !is_unreserved(decoded) && !raw[at + 1..at + 3].iter().any(u8::is_ascii_lowercase);
            }
            Class::Wide => normal = false,
            Class::Bad(error) => return Err(error),
        }
    }
    Ok(normal)
}

fn starts_with_dot_segment(rest: &[u8]) -> bool {
    matches!(rest, [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..])
}

/// The byte that two hexadecimal digits at the front of `digits` stand for.
pub(super) fn decode(digits: &[u8]) -> Option<u8> {
    let digit = |index: usize| char::from(*digits.get(index)?).to_digit(16);
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// The normal form of a path that [`is_normal`] has validated.
fn rewrite(raw: &[u8]) -> String {
    let mut out = String::with_capacity(raw.len() + 16);
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        at += 1;
        match byte {
            b'/' => {
                close_segment(&mut out, false);
                out.push('/');
            }
            b'%' => {
                if let Some(decoded) = decode(&raw[at..]) {
                    at += 2;
                    if is_unreserved(decoded) { out.push(char::from(decoded)) } else { escape(&mut out, decoded) }
                }
            }
            0x80.. => escape(&mut out, byte),
            _ => out.push(char::from(byte)),
        }
    }
    close_segment(&mut out, true);
    out
}

fn escape(out: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// Takes a dot segment at the end of `out` away, with the segment before it for `..`; `last` keeps the slash that a
/// dot segment at the end of the path leaves (RFC 3986, section 5.2.4).
fn close_segment(out: &mut String, last: bool) {
    let Some(slash) = out.rfind('/') else { return };
    let keep = match &out[slash + 1..] {
        "." => slash,
        ".." => out[..slash].rfind('/').unwrap_or(0),
        _ => return,
    };
    out.truncate(keep);
    if last {
        out.push('/');
    }
}

#[cfg(test)]
mod tests;
