//! The bytes of a request's head, judged before hyper reads them (RFC 9112, sections 2 to 6).
//!
//! hyper reads leniently in places, and its requests do not show it: it drops one of two framing fields, folds
//! repeated ones, takes a bare LF for a line's end, cuts fragments off. Where readers may differ on what was sent,
//! nobody can say afterwards where a message ends. Here such heads are refused, and so is everything that hyper would
//! not read at all: what passes is read by hyper in the one way that there is.

use http::Uri;
use memchr::memchr;

use crate::http1::{Malformed, is_control, is_token};
use crate::telemetry::metrics::Refusal;

/// The longest target that hyper reads.
const LONGEST_TARGET: usize = 65_534;
/// The longest field name that hyper reads, or less.
const LONGEST_NAME: usize = 32_768;
/// More than method and version take in the line of a request that is sensible.
const AROUND_TARGET: usize = 64;

/// What a head may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all of it.
    pub bytes: usize,
    /// Fields.
    pub fields: usize,
    /// Bytes of the target.
    pub target: usize,
}

/// What follows a head (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The next message.
    None,
    /// So many bytes; not zero.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// A head that has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its bytes, with the empty line.
    pub len: usize,
    /// What follows it.
    pub body: Body,
    /// What comes after the message may be something else than another one.
    pub may_switch: bool,
}

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The closed reason.
    pub reason: Refusal,
    /// What is wrong, for the log.
    pub detail: &'static str,
}

impl Fault {
    fn bad(detail: &'static str) -> Self {
        Self { reason: Refusal::BadRequest, detail }
    }
}

impl From<Malformed> for Fault {
    fn from(Malformed(detail): Malformed) -> Self {
        Self::bad(detail)
    }
}

/// The reading of one head. It goes on where it was when more bytes have come.
#[derive(Debug, Default)]
pub struct Scan {
    /// Where the unfinished line begins.
    line: usize,
    /// Up to where there is no line's end.
    seen: usize,
    lines: usize,
    fields: usize,
    version: Option<Version>,
    is_chunked: bool,
    may_switch: bool,
    length: Option<u64>,
}

/// Of the request, once its line has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Http10,
    Http11,
}

impl Scan {
    /// Whether nothing new has come among `bytes` since the last look.
    pub fn has_seen(&self, bytes: &[u8]) -> bool {
        self.seen >= bytes.len()
    }

    /// Reads on. `bytes` are all that came since the last message; `None` while the head has not ended.
    pub fn advance(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<Head>, Fault> {
        while let Some(at) = bytes.get(self.seen..).and_then(|rest| memchr(b'\n', rest)) {
            let (start, end) = (self.line, self.seen + at);
            self.line = end + 1;
            self.seen = self.line;
            self.lines += 1;
            if self.line > limits.bytes {
                return Err(too_large());
            }
            let Some((b'\r', line)) = bytes[start..end].split_last() else {
                return Err(Fault::bad("a line ends without CR"));
            };
            if self.version.is_none() {
                // Some clients send a line's end behind a body (RFC 9112, section 2.2).
                if !line.is_empty() {
                    self.request_line(line, limits)?;
                }
            } else if line.is_empty() {
                return self.end(&bytes[..self.line]).map(Some);
            } else {
                self.field(line, limits)?;
            }
        }
        self.seen = bytes.len();
        self.unfinished(&bytes[self.line..], bytes.len(), limits)?;
        Ok(None)
    }

    /// What is wrong already with a line that has not ended.
    fn unfinished(&self, line: &[u8], bytes: usize, limits: &Limits) -> Result<(), Fault> {
        if self.version.is_none() {
            if line.first().is_some_and(|&byte| byte != b'\r' && !is_token(byte)) {
                return Err(Fault::bad("the method is no token"));
            }
            if line.len() > limits.target.saturating_add(AROUND_TARGET) {
                return Err(too_long());
            }
        }
        if bytes >= limits.bytes { Err(too_large()) } else { Ok(()) }
    }

    fn request_line(&mut self, line: &[u8], limits: &Limits) -> Result<(), Fault> {
        if line.len() > limits.target.saturating_add(AROUND_TARGET) {
            return Err(too_long());
        }
        let method = token(line);
        if method.is_empty() || line.get(method.len()) != Some(&b' ') {
            return Err(Fault::bad("the method is no token"));
        }
        let rest = &line[method.len() + 1..];
        let (target, version) = rest.split_at(rest.len().saturating_sub(b" HTTP/1.1".len()));
        if target.len() > limits.target.min(LONGEST_TARGET) {
            return Err(too_long());
        }
        self.version = Some(match version {
            b" HTTP/1.1" => Version::Http11,
            b" HTTP/1.0" => Version::Http10,
            _ => return Err(Fault::bad("the version is neither HTTP/1.1 nor HTTP/1.0")),
        });
        judge_target(target)?;
        self.may_switch = method == b"CONNECT";
        Ok(())
    }

    fn field(&mut self, line: &[u8], limits: &Limits) -> Result<(), Fault> {
        self.fields += 1;
        let name = token(line);
        if self.fields > limits.fields || name.len() > LONGEST_NAME {
            return Err(too_large());
        }
        if name.is_empty() || line.get(name.len()) != Some(&b':') {
            return Err(Fault::bad(match line.first() {
                Some(b' ' | b'\t') => "a field is folded over two lines",
                _ => "a field has no name, or something between name and colon",
            }));
        }
        let value = &line[name.len() + 1..];
        match name.len() {
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.may_switch = true,
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(trim(value))?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(trim(value))?,
            _ => {}
        }
        Ok(())
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Fault> {
        if self.length.is_some() {
            return Err(Fault::bad("there is more than one Content-Length"));
        }
        let digits = std::str::from_utf8(value).ok().filter(|_| value.iter().all(u8::is_ascii_digit));
        let length = digits.and_then(|digits| digits.parse::<i64>().ok());
        let length = length.ok_or(Fault::bad("Content-Length is no number, or too large a one"))?;
        self.length = Some(length.unsigned_abs());
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Fault> {
        if self.version == Some(Version::Http10) {
            return Err(Fault::bad("HTTP/1.0 has no Transfer-Encoding"));
        }
        if self.is_chunked {
            return Err(Fault::bad("there is more than one Transfer-Encoding"));
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            self.is_chunked = true;
            return Ok(());
        }
        let mut codings = value.split(|&byte| byte == b',').map(trim).rev();
        let is_last = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
        if codings.next().is_some_and(is_last) && codings.all(|coding| !coding.is_empty() && !is_last(coding)) {
            return Err(Fault { reason: Refusal::NotImplemented, detail: "Transfer-Encoding knows chunked alone" });
        }
        Err(Fault::bad("Transfer-Encoding does not end in one chunked"))
    }

    fn end(&self, head: &[u8]) -> Result<Head, Fault> {
        // Those that are there belong to line ends, or there is one too many.
        if controls(head) != 2 * self.lines {
            return Err(Fault::bad("there is a control character"));
        }
        let body = match (self.is_chunked, self.length) {
            (true, Some(_)) => return Err(Fault::bad("there are both Transfer-Encoding and Content-Length")),
            (true, None) => Body::Chunked,
            (false, None | Some(0)) => Body::None,
            (false, Some(length)) => Body::Length(length),
        };
        Ok(Head { len: head.len(), body, may_switch: self.may_switch })
    }
}

fn too_large() -> Fault {
    Fault { reason: Refusal::HeadersTooLarge, detail: "the head is too large" }
}

fn too_long() -> Fault {
    Fault { reason: Refusal::UriTooLong, detail: "the target is too long" }
}

/// Bytes of a target that need no second look: those of any path and query.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0x21_u8;
    while byte < 0x7f {
        plain[byte as usize] = !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'`' | b'{' | b'}');
        byte += 1;
    }
    plain
};

fn judge_target(target: &[u8]) -> Result<(), Fault> {
    if target.first() == Some(&b'/') && target.iter().all(|&byte| PLAIN[byte as usize]) {
        return Ok(());
    }
    if target.contains(&b'#') {
        return Err(Fault::bad("there is a fragment in the target"));
    }
    // Its own reader has the last word, or hyper would answer by itself.
    match Uri::try_from(target) {
        Ok(_) => Ok(()),
        Err(_) => Err(Fault::bad("the target is no URI")),
    }
}

/// The token that a line begins with.
fn token(line: &[u8]) -> &[u8] {
    let len = line.iter().position(|&byte| !is_token(byte)).unwrap_or(line.len());
    &line[..len]
}

/// Without spaces and tabs around it.
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// How many bytes are control characters other than tabs.
fn controls(bytes: &[u8]) -> usize {
    // Pieces that a byte can count, so that many are compared at once.
    let count = |piece: &[u8]| piece.iter().fold(0_u8, |count, &byte| count + u8::from(is_control(byte)));
    bytes.chunks(128).map(|piece| usize::from(count(piece))).sum()
}

#[cfg(test)]
mod tests;
