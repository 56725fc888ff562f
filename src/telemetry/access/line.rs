//! Lines: names and values, in a form that no value can break out of.

use std::time::Duration;

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line. Bytes that are no UTF-8 become U+FFFD.
    Json,
    /// `name=value` with blanks between; values that are not plain stand in quotes, with what could end them or the line
    /// escaped. Nothing is lost: `\xHH` is a byte.
    Text,
}

/// A name, ready to be written in front of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(Box<[u8]>);

/// A line that grows. The first byte of what is appended stands for nothing: it is in the place of what comes between two
/// fields, and [`super::Pen::push`] leaves it out.
pub struct Line<'a> {
    out: &'a mut Vec<u8>,
    format: Format,
}

// === impl Format ===

impl Format {
    /// What a line begins and ends with.
    pub(super) const fn frame(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Self::Json => (b"{", b"}\n"),
            Self::Text => (b"", b"\n"),
        }
    }

    const fn between(self) -> u8 {
        match self {
            Self::Json => b',',
            Self::Text => b' ',
        }
    }

    /// Appends what stands for `parts`, one behind the other.
    fn quote(self, parts: &[&[u8]], out: &mut Vec<u8>) {
        let in_quotes = match self {
            Self::Json => true,
            Self::Text => parts.iter().all(|part| part.is_empty()) || !parts.iter().all(|part| is_bare(part)),
        };
        if in_quotes {
            out.push(b'"');
        }
        for part in parts {
            if is_plain(part) {
                out.extend_from_slice(part);
            } else {
                self.escape(part, out);
            }
        }
        if in_quotes {
            out.push(b'"');
        }
    }

    #[cold]
    fn escape(self, bytes: &[u8], out: &mut Vec<u8>) {
        for chunk in bytes.utf8_chunks() {
            for char in chunk.valid().chars() {
                self.escape_char(char, out);
            }
            match self {
                _ if chunk.invalid().is_empty() => {}
                Self::Json => out.extend_from_slice("\u{fffd}".as_bytes()),
                Self::Text => chunk.invalid().iter().for_each(|&byte| hexadecimal(b"\\x", byte, out)),
            }
        }
    }

    fn escape_char(self, char: char, out: &mut Vec<u8>) {
        match (char, u8::try_from(char)) {
            ('"', _) => out.extend_from_slice(b"\\\""),
            ('\\', _) => out.extend_from_slice(b"\\\\"),
            ('\n', _) => out.extend_from_slice(b"\\n"),
            ('\r', _) => out.extend_from_slice(b"\\r"),
            ('\t', _) => out.extend_from_slice(b"\\t"),
            (_, Ok(byte)) if char.is_control() => match self {
                Self::Json => hexadecimal(b"\\u00", byte, out),
                Self::Text if byte < 0x80 => hexadecimal(b"\\x", byte, out),
                Self::Text => out.extend_from_slice(char.escape_unicode().to_string().as_bytes()),
            },
            // To some readers these end a line.
            ('\u{2028}' | '\u{2029}', _) => match self {
                Self::Json => out.extend_from_slice(if char == '\u{2028}' { b"\\u2028" } else { b"\\u2029" }),
                Self::Text => out.extend_from_slice(char.escape_unicode().to_string().as_bytes()),
            },
            _ => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Whether the bytes stand for themselves between quotes.
fn is_plain(bytes: &[u8]) -> bool {
    // Without a way out in the middle, so that it is done for many bytes at a time.
    let has_other = |bytes: &[u8]| {
        let is = u8::from;
        bytes
            .iter()
            .fold(0, |found, &byte| found | is(byte < b' ') | is(byte == b'"') | is(byte == b'\\') | is(byte > b'~'))
            != 0
    };
    let (chunks, rest) = bytes.as_chunks::<16>();
    !chunks.iter().any(|chunk| has_other(chunk)) && !has_other(rest)
}

/// Whether the bytes can stand without quotes.
fn is_bare(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'!'..=b'~') && !matches!(byte, b'"' | b'\\' | b'='))
}

fn hexadecimal(before: &[u8], byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(before);
    out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// Appends a number.
pub fn decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

// === impl Key ===

impl Key {
    /// The name of a field.
    pub fn new(format: Format, name: &str) -> Self {
        let mut bytes = vec![format.between()];
        Self::named(format, name, &mut bytes);
        Self(bytes.into())
    }

    /// The name of a member of the group that [`Line::group`] begins.
    pub fn member(format: Format, group: &str, name: &str) -> Self {
        let mut bytes = vec![format.between()];
        match format {
            Format::Json => Self::named(format, name, &mut bytes),
            Format::Text => Self::named(format, &format!("{group}.{name}"), &mut bytes),
        }
        Self(bytes.into())
    }

    fn named(format: Format, name: &str, bytes: &mut Vec<u8>) {
        match format {
            Format::Json => {
                format.quote(&[name.as_bytes()], bytes);
                bytes.push(b':');
            }
            Format::Text => {
                bytes.extend_from_slice(name.as_bytes());
                bytes.push(b'=');
            }
        }
    }
}

// === impl Line ===

impl<'a> Line<'a> {
    /// Goes on with the line in `out`.
    pub const fn new(format: Format, out: &'a mut Vec<u8>) -> Self {
        Self { out, format }
    }

    /// A text, whatever bytes it has.
    pub fn text(&mut self, key: &Key, value: &[u8]) {
        self.joined(key, &[value]);
    }

    /// A text in pieces.
    pub fn joined(&mut self, key: &Key, parts: &[&[u8]]) {
        self.out.extend_from_slice(&key.0);
        self.format.quote(parts, self.out);
    }

    /// A text of letters, digits and `-_.:/+` alone, and of at least one.
    pub fn token(&mut self, key: &Key, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.extend_from_slice(&key.0);
        let quote = |out: &mut Vec<u8>| out.extend_from_slice(if self.format == Format::Json { b"\"" } else { b"" });
        quote(self.out);
        write(self.out);
        quote(self.out);
    }

    /// A number.
    pub fn number(&mut self, key: &Key, value: u64) {
        self.out.extend_from_slice(&key.0);
        decimal(value, self.out);
    }

    /// Yes or no.
    pub fn flag(&mut self, key: &Key, value: bool) {
        self.out.extend_from_slice(&key.0);
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// A duration in milliseconds, to the microsecond.
    pub fn millis(&mut self, key: &Key, value: Duration) {
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        self.number(key, micros / 1000);
        let digit = |of: u64| b'0' + (micros / of % 10) as u8;
        self.out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
    }

    /// A group of fields of which each has a key by [`Key::member`]; nothing where none is written.
    pub fn group(&mut self, key: &Key, write: impl FnOnce(&mut Line<'_>)) {
        let before = self.out.len();
        if self.format == Format::Text {
            return write(self);
        }
        self.out.extend_from_slice(&key.0);
        let at = self.out.len();
        write(self);
        match self.out.get_mut(at) {
            // In the place of the comma.
            Some(first) => {
                *first = b'{';
                self.out.push(b'}');
            }
            None => self.out.truncate(before),
        }
    }
}
