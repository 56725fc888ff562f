//! Where a body of chunks, and each part of it, ends (RFC 9112, section 7.1).

use super::{is_control, is_token};

/// Digits that a size may have: as many as fit its number.
const MOST_DIGITS: u8 = 15;
/// Bytes that the extensions of all chunks of a body may have.
const MOST_EXTENSIONS: u16 = 16 << 10;

/// Why a body is none of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// A piece of a body, so many bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Sizes, extensions and line ends.
    Framing(usize),
    /// Data.
    Data(usize),
    /// Trailer fields; at the end of the body with its empty line.
    Trailers(usize),
}

/// The reading of one body. It jumps over the data of chunks and looks at each byte around it.
#[derive(Debug)]
pub struct Chunks {
    at: At,
    left: u64,
    digits: u8,
    extensions: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size,
    /// Spaces behind the size.
    Pad,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The beginning of a trailer field's line, or of the empty line.
    Line,
    Name,
    Value,
    ValueLf,
    LastLf,
    End,
}

impl At {
    const fn is_trailer(self) -> bool {
        matches!(self, Self::Line | Self::Name | Self::Value | Self::ValueLf | Self::LastLf)
    }
}

impl Default for Chunks {
    fn default() -> Self {
        Self { at: At::Size, left: 0, digits: 0, extensions: 0 }
    }
}

impl Chunks {
    /// Whether the body has ended.
    pub fn has_ended(&self) -> bool {
        self.at == At::End
    }

    /// Reads on; gives how many of the bytes belong to the body.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut read = 0;
        while read < bytes.len() && !self.has_ended() {
            read += match self.next(&bytes[read..])? {
                Part::Framing(len) | Part::Data(len) | Part::Trailers(len) => len,
            };
        }
        Ok(read)
    }

    /// What the bytes begin with, and as much of it as they have. Zero bytes long when there are none, and at the end.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Part, Malformed> {
        if self.at == At::Data {
            let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            self.left -= len as u64;
            if self.left == 0 {
                self.at = At::DataCr;
            }
            return Ok(Part::Data(len));
        }
        let in_trailers = self.at.is_trailer();
        let mut len = 0;
        while len < bytes.len() && self.at != At::Data && self.at != At::End && self.at.is_trailer() == in_trailers {
            self.step(bytes[len])?;
            len += 1;
        }
        Ok(if in_trailers { Part::Trailers(len) } else { Part::Framing(len) })
    }

    fn step(&mut self, byte: u8) -> Result<(), Malformed> {
        self.at = match (self.at, byte) {
            (At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if self.digits < MOST_DIGITS => {
                self.digits += 1;
                self.left = self.left << 4 | u64::from(char::from(byte).to_digit(16).unwrap_or(0));
                At::Size
            }
            (At::Size | At::Pad, b' ' | b'\t') if self.digits > 0 => self.extended(At::Pad)?,
            (At::Size | At::Pad, b';') if self.digits > 0 => At::Extension,
            (At::Size | At::Pad | At::Extension, b'\r') if self.digits > 0 => At::SizeLf,
            (At::Extension, byte) if !is_control(byte) => self.extended(At::Extension)?,
            (At::SizeLf, b'\n') => {
                self.digits = 0;
                if self.left == 0 { At::Line } else { At::Data }
            }
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Size,
            (At::Line, b'\r') => At::LastLf,
            (At::Line | At::Name, byte) if is_token(byte) => At::Name,
            (At::Name, b':') => At::Value,
            (At::Value, b'\r') => At::ValueLf,
            (At::Value, byte) if !is_control(byte) => At::Value,
            (At::ValueLf, b'\n') => At::Line,
            (At::LastLf, b'\n') => At::End,
            (At::Size | At::Pad | At::Extension | At::SizeLf, _) => {
                return Err(Malformed("a chunk's size is no number"));
            }
            (At::Line | At::Name | At::Value | At::ValueLf | At::LastLf, _) => {
                return Err(Malformed("a trailer is no field"));
            }
            (At::Data | At::DataCr | At::DataLf | At::End, _) => {
                return Err(Malformed("a chunk is longer than it says"));
            }
        };
        Ok(())
    }

    fn extended(&mut self, at: At) -> Result<At, Malformed> {
        self.extensions += 1;
        if self.extensions > MOST_EXTENSIONS { Err(Malformed("chunks have too many extensions")) } else { Ok(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(bytes: &[u8], step: usize) -> Result<(Vec<u8>, Vec<u8>), Malformed> {
        let (mut chunks, mut at) = (Chunks::default(), 0);
        let (mut data, mut trailers) = (Vec::new(), Vec::new());
        while !chunks.has_ended() && at < bytes.len() {
            let rest = &bytes[at..bytes.len().min(at + step)];
            match chunks.next(rest)? {
                Part::Framing(len) => at += len,
                Part::Data(len) => {
                    data.extend_from_slice(&rest[..len]);
                    at += len;
                }
                Part::Trailers(len) => {
                    trailers.extend_from_slice(&rest[..len]);
                    at += len;
                }
            }
        }
        assert!(chunks.has_ended(), "{:?}", chunks.at);
        assert_eq!(at, bytes.len());
        Ok((data, trailers))
    }

    #[test]
    fn parts_come_apart_however_the_bytes_come() {
        let body = b"5;name=\"va;lue\"\r\nhello\r\nA \r\n and hello\r\n000\r\nx-sum: 1\r\nx-empty:\r\n\r\n";
        for step in 1..body.len() {
            let (data, trailers) = parts(body, step).unwrap();
            assert_eq!((&data[..], &trailers[..]), (&b"hello and hello"[..], &b"x-sum: 1\r\nx-empty:\r\n\r\n"[..]));
        }
    }

    #[test]
    fn extensions_are_bounded_over_a_whole_body() {
        let chunk = [b"1;".as_slice(), &[b'x'; 1000], b"\r\n.\r\n"].concat();
        let mut chunks = Chunks::default();
        let read = (0..20).map(|_| chunks.advance(&chunk)).take_while(Result::is_ok).count();
        assert_eq!(read, 16);
    }
}
