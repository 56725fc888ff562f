//! Frames of a request's stream, looked at on their way to the crate.
//!
//! The crate keeps a frame that is not DATA until all of it has come, however long it says it is, and takes a body that ends
//! inside of a frame for a whole one. Here types and lengths of frames (RFC 9114, section 7.1) are read first.

use h3::error::Code;

/// Bytes of a type and a length, each of at most eight.
const HEAD: usize = 16;

const DATA: u64 = 0x00;
const HEADERS: u64 = 0x01;
/// Has no length: what follows on the stream is no HTTP (WebTransport over HTTP/3, section 4.2).
const WEBTRANSPORT: u64 = 0x41;

/// Bytes that a stream may have in frames that carry nothing.
const EMPTY_BYTES: u64 = 16 << 10;
/// What such a frame counts for beside its bytes.
const EMPTY_FRAME: u64 = 64;

/// Why a stream must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// A head is far over what is read of one.
    #[error("a head is too long")]
    TooLong,
    /// There are too many frames that carry nothing, or too long ones.
    #[error("there are too many frames without use")]
    Useless,
    /// A frame that is none of a request.
    #[error("a frame is none of a request")]
    Foreign,
    /// The stream ended inside of a frame.
    #[error("the stream ended inside of a frame")]
    Cut,
}

impl Fault {
    /// The code that its client is told (section 8.1).
    pub(super) const fn code(self) -> Code {
        match self {
            Self::TooLong | Self::Useless => Code::H3_EXCESSIVE_LOAD,
            Self::Foreign => Code::H3_FRAME_UNEXPECTED,
            Self::Cut => Code::H3_FRAME_ERROR,
        }
    }
}

/// What is known of a stream's frames.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes that a frame of fields may have.
    most: u64,
    head: [u8; HEAD],
    /// Bytes of `head` that have come.
    known: usize,
    /// Bytes to come of the present frame's payload.
    payload: u64,
    /// What is left of [`EMPTY_BYTES`].
    empty: u64,
}

impl Frames {
    /// Of a stream on which nothing has come. A frame of fields may have `most` bytes.
    pub(super) fn new(most: u64) -> Self {
        Self { most, head: [0; HEAD], known: 0, payload: 0, empty: EMPTY_BYTES }
    }

    /// Looks at what has come.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        loop {
            let inside = usize::try_from(self.payload).unwrap_or(usize::MAX).min(bytes.len());
            self.payload -= inside as u64;
            bytes = &bytes[inside..];
            let Some((byte, rest)) = bytes.split_first() else { return Ok(()) };
            self.head[self.known] = *byte;
            self.known += 1;
            bytes = rest;
            if let Some((kind, length)) = head(&self.head[..self.known]) {
                self.known = 0;
                self.payload = length;
                self.judge(kind, length)?;
            }
        }
    }

    /// The stream has ended.
    pub(super) fn end(&self) -> Result<(), Fault> {
        if self.known > 0 || self.payload > 0 { Err(Fault::Cut) } else { Ok(()) }
    }

    fn judge(&mut self, kind: u64, length: u64) -> Result<(), Fault> {
        match kind {
            DATA if length > 0 => Ok(()),
            HEADERS if length <= self.most => Ok(()),
            HEADERS => Err(Fault::TooLong),
            WEBTRANSPORT => Err(Fault::Foreign),
            _ => {
                let cost = length.saturating_add(EMPTY_FRAME);
                self.empty = self.empty.checked_sub(cost).ok_or(Fault::Useless)?;
                Ok(())
            }
        }
    }
}

/// The type and the length of a frame that begins so; `None` until all of both is there.
fn head(bytes: &[u8]) -> Option<(u64, u64)> {
    let (kind, rest) = number(bytes)?;
    if kind == WEBTRANSPORT {
        return Some((kind, 0));
    }
    let (length, _) = number(rest)?;
    Some((kind, length))
}

/// A number of variable length (RFC 9000, section 16), and what follows it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let (number, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let value = number[1..].iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(number: u64) -> Vec<u8> {
        match u32::try_from(number) {
            Ok(small @ 0..0x40) => vec![u8::try_from(small).unwrap()],
            Ok(small @ 0..0x4000) => u16::try_from(small | 0x4000).unwrap().to_be_bytes().to_vec(),
            Ok(small @ 0..0x4000_0000) => (small | 0x8000_0000).to_be_bytes().to_vec(),
            _ => (number | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
        }
    }

    fn frame(kind: u64, length: u64) -> Vec<u8> {
        let mut frame = [encoded(kind), encoded(length)].concat();
        frame.resize(frame.len() + usize::try_from(length).unwrap(), 0xff);
        frame
    }

    /// What comes of these bytes, however they were cut.
    fn read(bytes: &[u8]) -> Result<(), Fault> {
        let in_pieces = |size: usize| {
            let mut frames = Frames::new(1000);
            bytes.chunks(size).try_for_each(|piece| frames.read(piece)).and_then(|()| frames.end())
        };
        let whole = in_pieces(usize::MAX);
        for size in [1, 2, 7] {
            assert_eq!(in_pieces(size), whole, "in pieces of {size}");
        }
        whole
    }

    #[test]
    fn a_request_passes() {
        let request = [frame(HEADERS, 1000), frame(DATA, 70_000), frame(0x21, 3), frame(DATA, 1), frame(HEADERS, 9)];
        assert_eq!(read(&request.concat()), Ok(()));
        assert_eq!(read(b""), Ok(()));
    }

    #[test]
    fn a_length_is_judged_before_anything_of_it_has_come() {
        let mut frames = Frames::new(1000);
        assert_eq!(frames.read(&[encoded(HEADERS), encoded(1 << 40)].concat()), Err(Fault::TooLong));
        assert_eq!(read(&frame(HEADERS, 1001)), Err(Fault::TooLong));
        let mut frames = Frames::new(1000);
        assert_eq!(frames.read(&[encoded(0x21), encoded(1 << 20)].concat()), Err(Fault::Useless));
    }

    #[test]
    fn frames_without_use_are_bounded() {
        for empty in [frame(DATA, 0), frame(0x21, 0), frame(0x1f * 1_000_000 + 0x21, 100)] {
            assert_eq!(read(&empty.repeat(90)), Ok(()));
            assert_eq!(read(&empty.repeat(300)), Err(Fault::Useless));
        }
        assert_eq!(read(&[0x40, 0x41, 0x00, 1, 2, 3]), Err(Fault::Foreign));
    }

    #[test]
    fn a_stream_that_ends_inside_of_a_frame_is_cut() {
        let request = [frame(HEADERS, 20), frame(DATA, 5000)].concat();
        let between = [0, frame(HEADERS, 20).len(), request.len()];
        for end in 0..=request.len() {
            let expected = if between.contains(&end) { Ok(()) } else { Err(Fault::Cut) };
            let mut frames = Frames::new(1000);
            assert_eq!(frames.read(&request[..end]).and_then(|()| frames.end()), expected, "{end}");
        }
    }
}
