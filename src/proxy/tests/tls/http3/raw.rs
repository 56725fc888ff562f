//! Streams of HTTP/3 byte by byte.

use super::*;

/// Of a message that is malformed (RFC 9114, section 8.1).
pub(super) const MESSAGE_ERROR: u64 = 0x10e;

/// A frame.
pub(super) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap() | 0x8000_0000;
    [&[kind][..], &length.to_be_bytes(), payload].concat()
}

/// The head of `POST / HTTP/3` for `a.test`, by references to the static table (RFC 9204, appendix A).
pub(super) fn post(fields: &[u8]) -> Vec<u8> {
    // :method POST (20), :scheme https (23), :path / (1), :authority (0).
    let section = [&[0, 0, 0xd4, 0xd7, 0xc1, 0x50, 6][..], b"a.test", fields].concat();
    frame(1, &section)
}

/// `content-length`, by a reference to the name.
pub(super) fn length(value: &str) -> Vec<u8> {
    [&[0x54, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat()
}

/// A field with its name.
pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    [&prefixed(0x20, 3, name.len())[..], name.as_bytes(), &prefixed(0, 7, value.len()), value.as_bytes()].concat()
}

/// A number in what is left of a byte (RFC 7541, section 5.1).
fn prefixed(first: u8, bits: u32, number: usize) -> Vec<u8> {
    let most = (1 << bits) - 1;
    if number < most {
        return vec![first | u8::try_from(number).unwrap()];
    }
    let mut bytes = vec![first | u8::try_from(most).unwrap()];
    let mut left = number - most;
    while left >= 0x80 {
        bytes.push(u8::try_from(left % 0x80).unwrap() | 0x80);
        left /= 0x80;
    }
    bytes.push(u8::try_from(left).unwrap());
    bytes
}

/// Sends the bytes as a request's stream, ends it, and gives the code that it is reset with; `None` for an answer.
pub(super) async fn reset(quic: &Quic, bytes: &[u8], ends: bool) -> Option<u64> {
    let (mut send, mut receive) = quic.connection.open_bi().await.unwrap();
    // The gateway may stop it before all has come.
    let _ = send.write_all(bytes).await;
    if ends {
        let _ = send.finish();
    }
    match receive.read_to_end(1 << 20).await {
        Ok(_) => None,
        Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(code))) => Some(code.into_inner()),
        Err(other) => panic!("{other}"),
    }
}
