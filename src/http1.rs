//! What both sides of the proxy know of the bytes of HTTP/1.1 (RFC 9112).

mod body;
mod chunks;
mod fields;
mod input;
mod output;
mod sending;
pub mod spare;

/// What ends a body before its end.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

pub use self::body::{Found, Reading};
pub use self::chunks::{Chunks, Malformed, Part};
pub use self::fields::{Persistence, announced, field, fields, framing, keep_trailers};
pub use self::input::Input;
pub use self::output::Output;
pub use self::sending::{Fault, Length, Sending};

/// RFC 9110, section 5.6.2.
const TOKEN: [bool; 256] = {
    let mut token = [false; 256];
    let mut byte = 0x21_u8;
    while byte < 0x7f {
        token[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        byte += 1;
    }
    token
};

/// Whether a token may have the byte (RFC 9110, section 5.6.2).
pub const fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// Whether the byte is a control character other than a tab, which no field may have (RFC 9110, section 5.5).
pub const fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7f
}
