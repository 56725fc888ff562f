//! A message's body, as it is read from a socket.

use std::io::{self, ErrorKind};

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::SizeHint;

use super::{Chunks, Length, Part};

/// Fields that a trailer may have.
const MAX_TRAILERS: usize = 128;
/// Bytes of a trailer without fields.
const EMPTY_LINE: usize = 2;

/// What of a body is still to come.
#[derive(Debug)]
pub enum Reading {
    /// So many bytes.
    Length(u64),
    /// Chunks. With what has come of the trailer, and the most bytes that it may have.
    Chunks(Chunks, Vec<u8>, usize),
    /// What comes before the end of the connection.
    Close,
    /// Nothing.
    Ended,
}

/// What a look at the bytes that have come has found.
#[derive(Debug)]
pub enum Found {
    /// A piece of the body.
    Data(Bytes),
    /// Its trailer.
    Trailers(HeaderMap),
    /// Nothing yet.
    More,
}

impl Reading {
    /// A body of which nothing has been read, with a trailer of at most so many bytes.
    pub fn new(length: Length, max_trailer: usize) -> Self {
        match length {
            Length::None | Length::Known(0) => Self::Ended,
            Length::Known(length) => Self::Length(length),
            Length::Chunked => Self::Chunks(Chunks::default(), Vec::new(), max_trailer),
            Length::Close => Self::Close,
        }
    }

    /// Takes what the input begins with, if that is some of the body. `InvalidData` where it is none.
    pub fn take(&mut self, input: &mut BytesMut) -> io::Result<Found> {
        let (chunks, trailer, max_trailer) = match self {
            Self::Length(left) => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= len as u64;
                return Ok(Found::Data(input.split_to(len).freeze()));
            }
            Self::Close => return Ok(Found::Data(input.split().freeze())),
            Self::Ended => return Ok(Found::More),
            Self::Chunks(chunks, trailer, max_trailer) => (chunks, trailer, *max_trailer),
        };
        while !input.is_empty() && !chunks.has_ended() {
            match chunks.next(input).map_err(|malformed| invalid(malformed.0))? {
                Part::Framing(len) => input.advance(len),
                Part::Data(len) => return Ok(Found::Data(input.split_to(len).freeze())),
                Part::Trailers(len) => {
                    trailer.extend_from_slice(&input[..len]);
                    input.advance(len);
                    if trailer.len() > max_trailer {
                        return Err(invalid("the trailer is too large"));
                    }
                }
            }
        }
        if chunks.has_ended() && trailer.len() > EMPTY_LINE {
            parse_trailers(trailer).map(Found::Trailers).map_err(invalid)
        } else {
            Ok(Found::More)
        }
    }

    /// Whether nothing is to come.
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunks(chunks, ..) => chunks.has_ended(),
            Self::Close => false,
            Self::Ended => true,
        }
    }

    /// How much is to come.
    pub fn size_hint(&self) -> SizeHint {
        match self {
            Self::Length(left) => SizeHint::with_exact(*left),
            Self::Ended => SizeHint::with_exact(0),
            Self::Chunks(..) | Self::Close => SizeHint::default(),
        }
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// Reads the trailer fields of a body of chunks, with the empty line at their end.
fn parse_trailers(bytes: &[u8]) -> Result<HeaderMap, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let Ok(httparse::Status::Complete((_, fields))) = httparse::parse_headers(bytes, &mut fields) else {
        return Err("the trailer cannot be read");
    };
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| "a field's name is none")?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| "a field's value is none")?;
        trailers.append(name, value);
    }
    Ok(trailers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_belongs_to_a_body_is_taken_and_no_more() {
        for (length, bytes, data, rest) in [
            (Length::Known(3), "abcGET", "abc", "GET"),
            (Length::None, "GET", "", "GET"),
            (Length::Close, "abc", "abc", ""),
            (Length::Chunked, "1\r\na\r\n2\r\nbc\r\n0\r\nx: y\r\n\r\nGET", "abc", "GET"),
        ] {
            let (mut input, mut reading) = (BytesMut::from(bytes), Reading::new(length, 100));
            let (mut read, mut trailers) = (Vec::new(), HeaderMap::new());
            while !reading.has_ended() && !input.is_empty() {
                match reading.take(&mut input).unwrap() {
                    Found::Data(data) => read.extend_from_slice(&data),
                    Found::Trailers(found) => trailers = found,
                    Found::More => {}
                }
            }
            assert_eq!((&read[..], &input[..]), (data.as_bytes(), rest.as_bytes()), "{length:?}");
            assert_eq!(trailers.len(), usize::from(length == Length::Chunked));
        }
    }

    #[test]
    fn a_trailer_has_its_bounds() {
        let taken = |bytes: &str| Reading::new(Length::Chunked, 100).take(&mut BytesMut::from(bytes));
        assert!(matches!(taken(&format!("0\r\na: {}\r\n\r\n", "b".repeat(93))), Ok(Found::Trailers(_))));
        assert!(taken(&format!("0\r\na: {}\r\n\r\n", "b".repeat(94))).is_err());
        assert!(taken(&format!("0\r\na: {}", "b".repeat(100))).is_err());
    }

    proptest! {
        #[test]
        fn any_trailer_is_read_or_refused(trailer: Vec<u8>) {
            let _ = parse_trailers(&trailer);
        }
    }
}
