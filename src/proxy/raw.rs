//! The head of a request as bytes: judged, and made a request (RFC 9112, sections 2 to 6).
//!
//! Where readers may differ on what was sent, nobody can say afterwards where a message ends. Such heads are refused: with
//! framing fields that are repeated or contradict each other, with a bare LF as a line's end, folded, with a fragment in
//! the target. What passes can be read in one way.

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, Uri, Version};
use memchr::memchr;

use crate::http1::{Length, Persistence, is_control, is_token, spare};
use crate::telemetry::metrics::Refusal;

/// The longest target that a [`Uri`] can be.
const LONGEST_TARGET: usize = 65_534;
/// The longest name that a field can have.
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

/// A head that has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its bytes, with the empty line.
    pub len: usize,
    /// The version that its client speaks.
    pub version: Version,
    /// Where its body ends.
    pub body: Length,
    /// Whether the client expects another message to be possible after it.
    pub keep_alive: bool,
    /// Whether the client keeps the body back until it is told to go on (RFC 9110, section 10.1.1).
    pub expects: bool,
    /// Whether the client takes trailers (RFC 9110, section 10.1.4).
    pub takes_trailers: bool,
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
    const fn bad(detail: &'static str) -> Self {
        Self { reason: Refusal::BadRequest, detail }
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
    fields: Vec<Field>,
    line_of_request: Option<RequestLine>,
    is_chunked: bool,
    length: Option<u64>,
    persistence: Persistence,
    expects: bool,
    takes_trailers: bool,
}

/// Where the parts of the first line lie.
#[derive(Clone, Copy, Debug)]
struct RequestLine {
    start: usize,
    /// The method's end.
    method: usize,
    /// The target's end.
    target: usize,
    version: Version,
}

/// Where the parts of a field lie.
#[derive(Clone, Copy, Debug)]
struct Field {
    start: usize,
    /// The name's end.
    name: usize,
    end: usize,
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
            match self.line_of_request {
                // Some clients send a line's end behind a body (RFC 9112, section 2.2).
                None if line.is_empty() => {}
                None => self.request_line(start, line, limits)?,
                Some(first) if line.is_empty() => return self.end(&bytes[..self.line], first.version).map(Some),
                Some(first) => self.field(start, line, first.version, limits)?,
            }
        }
        self.seen = bytes.len();
        self.unfinished(&bytes[self.line..], bytes.len(), limits)?;
        Ok(None)
    }

    /// What is wrong already with a line that has not ended.
    fn unfinished(&self, line: &[u8], bytes: usize, limits: &Limits) -> Result<(), Fault> {
        if self.line_of_request.is_none() {
            if line.first().is_some_and(|&byte| byte != b'\r' && !is_token(byte)) {
                return Err(Fault::bad("the method is no token"));
            }
            if line.len() > limits.target.saturating_add(AROUND_TARGET) {
                return Err(too_long());
            }
        }
        if bytes >= limits.bytes { Err(too_large()) } else { Ok(()) }
    }

    fn request_line(&mut self, start: usize, line: &[u8], limits: &Limits) -> Result<(), Fault> {
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
        let version = match version {
            b" HTTP/1.1" => Version::HTTP_11,
            b" HTTP/1.0" => Version::HTTP_10,
            _ => return Err(Fault::bad("the version is neither HTTP/1.1 nor HTTP/1.0")),
        };
        judge_target(target)?;
        let method = start + method.len();
        self.line_of_request = Some(RequestLine { start, method, target: method + 1 + target.len(), version });
        Ok(())
    }

    fn field(&mut self, start: usize, line: &[u8], version: Version, limits: &Limits) -> Result<(), Fault> {
        let name = token(line);
        if self.fields.len() >= limits.fields || name.len() > LONGEST_NAME {
            return Err(too_large());
        }
        if name.is_empty() || line.get(name.len()) != Some(&b':') {
            return Err(Fault::bad(match line.first() {
                Some(b' ' | b'\t') => "a field is folded over two lines",
                _ => "a field has no name, or something between name and colon",
            }));
        }
        self.fields.push(Field { start, name: start + name.len(), end: start + line.len() });
        let value = &line[name.len() + 1..];
        match name.len() {
            2 if name.eq_ignore_ascii_case(b"te") => self.takes_trailers |= has_trailers(value),
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.expects |= version == Version::HTTP_11 && trim(value).eq_ignore_ascii_case(b"100-continue");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => self.persistence.note(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(trim(value))?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(trim(value), version)?,
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

    fn transfer_encoding(&mut self, value: &[u8], version: Version) -> Result<(), Fault> {
        if version == Version::HTTP_10 {
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

    fn end(&self, head: &[u8], version: Version) -> Result<Head, Fault> {
        // Those that are there belong to line ends, or there is one too many.
        if controls(head) != 2 * self.lines {
            return Err(Fault::bad("there is a control character"));
        }
        let body = match (self.is_chunked, self.length) {
            (true, Some(_)) => return Err(Fault::bad("there are both Transfer-Encoding and Content-Length")),
            (true, None) => Length::Chunked,
            (false, None | Some(0)) => Length::None,
            (false, Some(length)) => Length::Known(length),
        };
        Ok(Head {
            len: head.len(),
            version,
            body,
            keep_alive: self.persistence.lasts(version),
            expects: self.expects && body != Length::None,
            takes_trailers: self.takes_trailers,
        })
    }

    /// Makes a head that has passed a request.
    pub fn request(&self, head: &Bytes) -> Result<Request<()>, Fault> {
        let unread = Fault::bad("the head cannot be read");
        let line = self.line_of_request.ok_or(unread)?;
        let mut fields = spare::take(self.fields.len() + ADDED);
        for field in &self.fields {
            let name = HeaderName::from_bytes(&head[field.start..field.name]).map_err(|_| unread)?;
            let value = trim(&head[field.name + 1..field.end]);
            let value = HeaderValue::from_maybe_shared(head.slice_ref(value)).map_err(|_| unread)?;
            fields.try_append(name, value).map_err(|_| too_large())?;
        }
        let mut request = Request::new(());
        *request.method_mut() = Method::from_bytes(&head[line.start..line.method]).map_err(|_| unread)?;
        *request.uri_mut() = Uri::from_maybe_shared(head.slice(line.method + 1..line.target)).map_err(|_| unread)?;
        *request.version_mut() = line.version;
        *request.headers_mut() = fields;
        Ok(request)
    }

    /// Makes it ready for the next head.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Self { fields, ..Self::default() };
    }
}

/// Fields that are put into a head on its way to a backend.
const ADDED: usize = 8;

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
    // Its own reader has the last word.
    match Uri::try_from(target) {
        Ok(_) => Ok(()),
        Err(_) => Err(Fault::bad("the target is no URI")),
    }
}

/// Whether a list has the entry `trailers`, whatever its weight.
fn has_trailers(list: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|entry| token(trim(entry)).eq_ignore_ascii_case(b"trailers"))
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
