//! Where a body of chunks ends (RFC 9112, section 7.1).

use super::{Fault, is_control, is_token};

/// Digits that a size may have: as many as fit its number.
const MOST_DIGITS: u8 = 15;

/// The reading of one body. It jumps over the data of chunks and looks at each byte around it.
#[derive(Debug)]
pub struct Chunks {
    at: At,
    left: u64,
    digits: u8,
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

impl Default for Chunks {
    fn default() -> Self {
        Self { at: At::Size, left: 0, digits: 0 }
    }
}

impl Chunks {
    /// Whether the body has ended.
    pub fn has_ended(&self) -> bool {
        self.at == At::End
    }

    /// Reads on; gives how many of the bytes belong to the body.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut read = 0;
        while read < bytes.len() && self.at != At::End {
            if self.at == At::Data {
                let skip = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - read);
                self.left -= skip as u64;
                read += skip;
                if self.left == 0 {
                    self.at = At::DataCr;
                }
            } else {
                self.step(bytes[read])?;
                read += 1;
            }
        }
        Ok(read)
    }

    fn step(&mut self, byte: u8) -> Result<(), Fault> {
        self.at = match (self.at, byte) {
            (At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if self.digits < MOST_DIGITS => {
                self.digits += 1;
                self.left = self.left << 4 | u64::from(char::from(byte).to_digit(16).unwrap_or(0));
                At::Size
            }
            (At::Size | At::Pad, b' ' | b'\t') if self.digits > 0 => At::Pad,
            (At::Size | At::Pad, b';') if self.digits > 0 => At::Extension,
            (At::Size | At::Pad | At::Extension, b'\r') if self.digits > 0 => At::SizeLf,
            (At::Extension, byte) if !is_control(byte) => At::Extension,
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
                return Err(Fault::bad("a chunk's size is no number"));
            }
            (At::Line | At::Name | At::Value | At::ValueLf | At::LastLf, _) => {
                return Err(Fault::bad("a trailer is no field"));
            }
            (At::Data | At::DataCr | At::DataLf | At::End, _) => {
                return Err(Fault::bad("a chunk is longer than it says"));
            }
        };
        Ok(())
    }
}
