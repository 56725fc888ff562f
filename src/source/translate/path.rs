//! The normal form of paths in objects: that of a normalised request path (RFC 3986, section 6.2.2), without which a
//! match would never hold. What no normalised path can be is refused.

use crate::ir::{PathPattern, Segment};

/// The normal form of a path: escaped unreserved characters as themselves, other escapes in upper case.
pub(super) fn normal(path: &str) -> Result<String, String> {
    if !path.starts_with('/') {
        return Err(format!("{path:?} does not start with /"));
    }
    let normal = normal_text(path)?;
    if normal.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(format!("{path:?} has a . or .. segment, which no normalised path has"));
    }
    Ok(normal)
}

fn normal_text(text: &str) -> Result<String, String> {
    let mut normal = String::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let escaped = bytes.next().zip(bytes.next());
                let byte = escaped.and_then(|(high, low)| Some(hex(high)? << 4 | hex(low)?));
                match byte.ok_or_else(|| format!("{text:?} has a % without two hexadecimal digits"))? {
                    byte @ (b'/' | b'\\' | 0) => {
                        return Err(format!("{text:?} has %{byte:02X}, which is refused in requests"));
                    }
                    byte if is_unreserved(byte) => normal.push(char::from(byte)),
                    byte => escape(byte, &mut normal),
                }
            }
            b'?' | b'#' | b'\\' => {
                return Err(format!("{text:?} has a {}, which no path has", char::from(byte)));
            }
            0..=b' ' | 0x7f => return Err(format!("{text:?} has a blank or a control character")),
            0x80.. => escape(byte, &mut normal),
            byte => normal.push(char::from(byte)),
        }
    }
    Ok(normal)
}

fn escape(byte: u8, text: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    text.extend(['%', digit(byte >> 4), digit(byte & 15)]);
}

/// A pattern whose literal segments are in normal form.
pub(super) fn pattern(text: &str) -> Result<PathPattern, String> {
    let pattern = PathPattern::parse(text).map_err(|error| error.to_string())?;
    for segment in pattern.segments() {
        let Segment::Literal(literal) = segment else { continue };
        let normal = normal(&format!("/{literal}"))?;
        if normal[1..] != **literal {
            return Err(format!(
                "pattern {text:?} has the segment {literal:?}, which must be written {:?}",
                &normal[1..]
            ));
        }
    }
    Ok(pattern)
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
