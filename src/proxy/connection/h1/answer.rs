//! The head of an answer as bytes (RFC 9112, sections 4, 6 and 9).

use http::header::{self, HeaderName, HeaderValue};
use http::response::Parts;
use http::{StatusCode, Version};
use hyper::ext::ReasonPhrase;

use crate::http1::{Length, announced, field, fields, framing};

/// What of a request decides on the form of its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The client's version.
    pub version: Version,
    /// Whether the method is HEAD.
    pub is_head: bool,
    /// Whether the client may send another request.
    pub keep_alive: bool,
    /// Whether the client takes trailers.
    pub takes_trailers: bool,
}

/// What an answer's head has told.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// Where the body ends.
    pub length: Length,
    /// Whether another request may follow.
    pub keep_alive: bool,
    /// The fields that the client expects behind the body.
    pub trailers: Vec<HeaderName>,
}

/// Writes the head of an answer with a body of `size` bytes, if that is known. `may_follow` is false where the connection
/// is not fit for another request.
pub(super) fn encode(
    head: &Parts,
    size: Option<u64>,
    asked: Asked,
    may_follow: bool,
    date: Option<&HeaderValue>,
    out: &mut Vec<u8>,
) -> Told {
    let is_bodiless =
        head.status.is_informational() || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let length = match size {
        _ if is_bodiless || asked.is_head => Length::None,
        Some(size) => Length::Known(size),
        None if asked.version == Version::HTTP_11 => Length::Chunked,
        None => Length::Close,
    };
    let option = head.headers.get(header::CONNECTION);
    let keep_alive = asked.keep_alive
        && may_follow
        && length != Length::Close
        && head.status != StatusCode::SWITCHING_PROTOCOLS
        && option.is_none_or(|option| option != "close");

    status_line(head, out);
    let said = fields(&head.headers, out);
    match (length, said) {
        // That of the answer which is not sent (RFC 9110, section 8.6).
        (Length::None, Some(said)) if asked.is_head || head.status == StatusCode::NOT_MODIFIED => {
            field(out, "content-length", said.as_bytes());
        }
        // What the backend does not say of the body that GET would have, nobody knows.
        (Length::None, _) if !is_bodiless => framing(out, size.filter(|size| *size > 0).map_or(length, Length::Known)),
        _ => framing(out, length),
    }
    if option.is_none() {
        match asked.version {
            _ if !keep_alive => out.extend_from_slice(b"connection: close\r\n"),
            Version::HTTP_11 => {}
            _ => out.extend_from_slice(b"connection: keep-alive\r\n"),
        }
    }
    if let Some(date) = date
        && !head.headers.contains_key(header::DATE)
    {
        field(out, "date", date.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    let has_trailers = length == Length::Chunked && asked.takes_trailers;
    Told { length, keep_alive, trailers: if has_trailers { announced(&head.headers) } else { Vec::new() } }
}

fn status_line(head: &Parts, out: &mut Vec<u8>) {
    if head.status == StatusCode::OK && head.extensions.is_empty() {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(head.status.as_str().as_bytes());
    out.push(b' ');
    let reason = head.extensions.get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
    out.extend_from_slice(reason.unwrap_or_else(|| head.status.canonical_reason().unwrap_or("").as_bytes()));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    const ASKED: Asked = Asked { version: Version::HTTP_11, is_head: false, keep_alive: true, takes_trailers: false };
    const HEAD: Asked = Asked { is_head: true, ..ASKED };
    const LEAVES: Asked = Asked { keep_alive: false, ..ASKED };
    const OLD: Asked = Asked { version: Version::HTTP_10, keep_alive: false, ..ASKED };
    const OLD_STAYS: Asked = Asked { keep_alive: true, ..OLD };

    fn encoded(status: u16, given: &[(&str, &str)], size: Option<u64>, asked: Asked) -> (String, Told) {
        let mut builder = Response::builder().status(status);
        for (name, value) in given {
            builder = builder.header(*name, *value);
        }
        let mut out = Vec::new();
        let told = encode(&builder.body(()).unwrap().into_parts().0, size, asked, true, None, &mut out);
        let text = String::from_utf8(out).unwrap();
        let lines = text.strip_prefix("HTTP/1.1 ").unwrap().strip_suffix("\r\n\r\n").unwrap();
        (lines.split("\r\n").skip(1).collect::<Vec<_>>().join("|"), told)
    }

    #[test]
    fn an_answer_says_where_it_ends_in_words_its_client_knows() {
        for (status, given, size, asked, lines, length, keep_alive) in [
            (200, &[][..], Some(0), ASKED, "content-length: 0", Length::Known(0), true),
            (200, &[("content-length", "9")], Some(2), ASKED, "content-length: 2", Length::Known(2), true),
            (200, &[("transfer-encoding", "x")], None, ASKED, "transfer-encoding: chunked", Length::Chunked, true),
            (200, &[("content-length", "9")], Some(0), HEAD, "content-length: 9", Length::None, true),
            (200, &[], Some(0), HEAD, "", Length::None, true),
            (404, &[], Some(7), HEAD, "content-length: 7", Length::None, true),
            (204, &[("content-length", "9")], Some(0), ASKED, "", Length::None, true),
            (204, &[], None, HEAD, "", Length::None, true),
            (304, &[("content-length", "9")], Some(0), ASKED, "content-length: 9", Length::None, true),
            (304, &[], Some(0), ASKED, "", Length::None, true),
            (200, &[], Some(2), LEAVES, "content-length: 2|connection: close", Length::Known(2), false),
            (
                503,
                &[("connection", "close")],
                Some(0),
                ASKED,
                "connection: close|content-length: 0",
                Length::Known(0),
                false,
            ),
            (200, &[], None, OLD, "connection: close", Length::Close, false),
            (200, &[], Some(2), OLD, "content-length: 2|connection: close", Length::Known(2), false),
            (200, &[], Some(2), OLD_STAYS, "content-length: 2|connection: keep-alive", Length::Known(2), true),
            (200, &[], None, OLD_STAYS, "connection: close", Length::Close, false),
            (101, &[("connection", "upgrade")], Some(0), ASKED, "connection: upgrade", Length::None, false),
        ] {
            let case = format!("{status} {given:?} {size:?} {asked:?}");
            let told = Told { length, keep_alive, trailers: Vec::new() };
            assert_eq!(encoded(status, given, size, asked), (lines.to_owned(), told), "{case}");
        }
    }

    #[test]
    fn trailers_come_to_who_takes_them() {
        let given = [("trailer", "x-sum, x-more")];
        let takes = Asked { takes_trailers: true, ..ASKED };
        assert_eq!(encoded(200, &given, None, takes).1.trailers, ["x-sum", "x-more"]);
        assert!(encoded(200, &given, None, ASKED).1.trailers.is_empty());
        assert!(encoded(200, &given, Some(1), takes).1.trailers.is_empty());
    }

    #[test]
    fn a_backend_may_have_words_of_its_own() {
        let mut head = Response::builder().status(299).body(()).unwrap().into_parts().0;
        let mut out = Vec::new();
        status_line(&head, &mut out);
        assert_eq!(out, b"HTTP/1.1 299 \r\n");
        head.extensions.insert(ReasonPhrase::from_static(b"Odd"));
        out.clear();
        status_line(&head, &mut out);
        assert_eq!(out, b"HTTP/1.1 299 Odd\r\n");
    }
}
