//! Heads of requests: what passes is the same to another parser, ends there too, and has the framing that its fields say; and
//! it matters not in which pieces bytes come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate::http1::{Chunks, Length};
use lockgate::proxy::raw::{Limits, Scan};

const LIMITS: Limits = Limits { bytes: 4096, fields: 32, target: 1024 };

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = input;
    let whole = Scan::default().advance(bytes, &LIMITS);
    let mut scan = Scan::default();
    let first = scan.advance(&bytes[..usize::from(cut).min(bytes.len())], &LIMITS);
    let pieces = if first == Ok(None) { scan.advance(bytes, &LIMITS) } else { first };
    assert_eq!(pieces.map_err(|_| ()), whole.map_err(|_| ()), "cut at {cut}");

    if let Ok(Some(head)) = whole {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut fields);
        let end = request.parse(bytes).expect("what passes can be read");
        assert_eq!(end, httparse::Status::Complete(head.len));
        let mut whole = Scan::default();
        whole.advance(bytes, &LIMITS).expect("the same as before");
        let read = whole.request(&bytes::Bytes::copy_from_slice(&bytes[..head.len]));
        let read = read.expect("what passes is a request");
        assert_eq!(read.method().as_str(), request.method.expect("a method"));
        assert_eq!(*read.uri(), request.path.expect("a target").parse::<http::Uri>().expect("a URI"));
        assert_eq!(read.headers().len(), request.headers.len());
        for field in request.headers.iter() {
            let is_there = |value: &http::HeaderValue| value.as_bytes() == field.value;
            assert!(read.headers().get_all(field.name).iter().any(is_there), "{}", field.name);
        }
        let named = |name: &str| request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).count();
        let framing = (named("content-length"), named("transfer-encoding"));
        let fits = match head.body {
            Length::None => framing.1 == 0 && framing.0 <= 1,
            Length::Known(length) => length > 0 && framing == (1, 0),
            Length::Chunked => framing == (0, 1),
            Length::Close => false,
        };
        assert!(fits, "{head:?} of {framing:?}");
        assert!(!bytes[..head.len].contains(&0));
    }

    let mut chunks = Chunks::default();
    if let Ok(taken) = chunks.advance(bytes) {
        assert!(taken == bytes.len() || chunks.has_ended());
        assert!(!chunks.has_ended() || bytes[..taken].ends_with(b"\r\n\r\n") || bytes[..taken].ends_with(b"\n\r\n"));
    }
});
