//! Heads of messages as bytes: a request's as it is sent, an answer's as it is read (RFC 9112, sections 2 to 6).

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;

use crate::http1::{Length, Persistence, fields, framing, spare};
use crate::upstream::pool::MAX_RESPONSE_HEAD;

/// Header fields that an answer may have.
const MAX_FIELDS: usize = 128;

/// An answer's head.
pub(super) struct Head {
    /// What it says.
    pub response: Response<()>,
    /// What follows it.
    pub length: Length,
    /// Whether the connection can carry another request.
    pub keep_alive: bool,
}

/// What bytes are, read as the beginning of an answer.
pub(super) enum Parsed {
    /// Not enough of it has come.
    Partial,
    /// The head of an interim answer other than 101, of so many bytes.
    Interim(usize),
    /// A head of so many bytes.
    Head(usize, Head),
}

/// Writes a request's head. What says where its body ends is `length`'s and not the fields'.
pub(super) fn encode(head: &Parts, length: Length, out: &mut Vec<u8>) {
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(head.uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let said = fields(&head.headers, out);
    match length {
        // Said of no body, where the client said it.
        Length::None if said.is_some() => framing(out, Length::Known(0)),
        length => framing(out, length),
    }
    out.extend_from_slice(b"\r\n");
}

/// Reads the head of an answer to a request of `method`.
pub(super) fn parse(bytes: &[u8], method: &Method) -> Result<Parsed, &'static str> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut answer = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let len = match parser.parse_response_with_uninit_headers(&mut answer, bytes, &mut fields) {
        Ok(httparse::Status::Complete(len)) if len <= MAX_RESPONSE_HEAD => len,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_RESPONSE_HEAD => return Ok(Parsed::Partial),
        Ok(_) => return Err("the head is too large"),
        Err(httparse::Error::TooManyHeaders) => return Err("there are too many header fields"),
        Err(_) => return Err("the head cannot be read"),
    };
    let (Some(code), Some(version)) = (answer.code, answer.version) else { return Err("there is no status") };
    let status = StatusCode::from_u16(code).map_err(|_| "the status is none")?;
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Parsed::Interim(len));
    }
    // A copy of its own: the fields share it, and the connection's buffer stays free for what comes.
    let head = Bytes::copy_from_slice(&bytes[..len]);
    let part = |slice: &[u8]| {
        let from = slice.as_ptr() as usize - bytes.as_ptr() as usize;
        head.slice(from..from + slice.len())
    };
    let mut headers = spare::take(answer.headers.len() + ADDED);
    let mut said = Said::default();
    for field in answer.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| "a field's name is none")?;
        said.note(&name, field.value)?;
        let value = HeaderValue::from_maybe_shared(part(field.value)).map_err(|_| "a field's value is none")?;
        headers.try_append(name, value).map_err(|_| "there are too many header fields")?;
    }
    let version = if version == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    let length = said.length(version)?;
    let has_none = *method == Method::HEAD
        || matches!(status, StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let length = if has_none { Length::None } else { length };
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = version;
    let reason = answer.reason.unwrap_or("");
    if status.canonical_reason() != Some(reason)
        && let Ok(reason) = ReasonPhrase::try_from(Bytes::copy_from_slice(reason.as_bytes()))
    {
        response.extensions_mut().insert(reason);
    }
    let keep_alive = length != Length::Close && said.persistence.lasts(version);
    *response.headers_mut() = headers;
    Ok(Parsed::Head(len, Head { response, length, keep_alive }))
}

/// Fields that are added to an answer on its way to the client.
const ADDED: usize = 2;

/// What an answer's fields say of the message and its connection.
#[derive(Default)]
struct Said {
    length: Option<u64>,
    is_chunked: bool,
    persistence: Persistence,
}

impl Said {
    /// Refuses an answer whose end readers may see in different places, too.
    fn note(&mut self, name: &HeaderName, value: &[u8]) -> Result<(), &'static str> {
        if *name == header::CONTENT_LENGTH {
            if self.length.is_some() {
                return Err("more than one Content-Length");
            }
            let digits = std::str::from_utf8(value).ok().filter(|_| value.iter().all(u8::is_ascii_digit));
            self.length = digits.and_then(|digits| digits.parse().ok());
            self.length.map(|_| ()).ok_or("Content-Length is no number")
        } else if *name == header::TRANSFER_ENCODING {
            if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err("Transfer-Encoding is not chunked alone");
            }
            self.is_chunked = true;
            Ok(())
        } else {
            if *name == header::CONNECTION {
                self.persistence.note(value);
            }
            Ok(())
        }
    }

    fn length(&self, version: Version) -> Result<Length, &'static str> {
        match (self.is_chunked, self.length) {
            (false, None) => Ok(Length::Close),
            (false, Some(length)) => Ok(Length::Known(length)),
            (true, Some(_)) => Err("both Transfer-Encoding and Content-Length"),
            (true, None) if version == Version::HTTP_10 => Err("HTTP/1.0 has no Transfer-Encoding"),
            (true, None) => Ok(Length::Chunked),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(text: &str) -> Result<Head, &'static str> {
        match parse(text.as_bytes(), &Method::GET)? {
            Parsed::Head(len, head) => {
                assert_eq!(len, text.len());
                Ok(head)
            }
            Parsed::Partial | Parsed::Interim(_) => panic!("no head: {text:?}"),
        }
    }

    fn encoded(fields: &[(&str, &str)], length: Length) -> String {
        let mut request = http::Request::builder().method("PUT").uri("http://named:80/a?b");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut out = Vec::new();
        encode(&request.body(()).unwrap().into_parts().0, length, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_body_says_where_it_ends_and_not_the_fields() {
        let claims = [("content-length", "7"), ("transfer-encoding", "gzip"), ("x-own", "1")];
        for (length, line) in [
            (Length::Known(u64::MAX), "content-length: 18446744073709551615\r\n"),
            (Length::Known(10), "content-length: 10\r\n"),
            (Length::Chunked, "transfer-encoding: chunked\r\n"),
            (Length::None, "content-length: 0\r\n"),
        ] {
            assert_eq!(encoded(&claims, length), format!("PUT /a?b HTTP/1.1\r\nx-own: 1\r\n{line}\r\n"));
        }
        assert_eq!(encoded(&[], Length::None), "PUT /a?b HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn a_reason_of_its_own_is_kept() {
        let reason = |text: &str| head(text).unwrap().response.extensions().get::<ReasonPhrase>().cloned();
        assert_eq!(reason("HTTP/1.1 200 OK\r\n\r\n"), None);
        assert_eq!(reason("HTTP/1.1 200 Fine\r\n\r\n").unwrap().as_bytes(), b"Fine");
        assert_eq!(reason("HTTP/1.1 200\r\n\r\n").unwrap().as_bytes(), b"");
    }

    #[test]
    fn a_head_has_its_bounds() {
        let fields = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
        assert_eq!(head(&fields(MAX_FIELDS)).unwrap().response.headers().len(), MAX_FIELDS);
        assert!(head(&fields(MAX_FIELDS + 1)).is_err());
        let long = |bytes: usize| format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(bytes));
        let room = MAX_RESPONSE_HEAD - long(0).len();
        assert!(head(&long(room)).is_ok());
        assert!(head(&long(room + 1)).is_err());
        assert!(parse(&long(room + 1).as_bytes()[..MAX_RESPONSE_HEAD], &Method::GET).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in "HTTP/1\\.[01] [1-5][0-9]{2} [ -~]{0,9}\r\n(\\PC|[\\r\\n:]){0,80}(\r\n){0,2}") {
            for end in 0..bytes.len() {
                let _ = parse(&bytes.as_bytes()[..end], &Method::HEAD);
            }
        }
    }
}
