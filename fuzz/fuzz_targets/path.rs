//! Path and host of a request: any text is refused or brought into a form that is stable and holds nothing which two
//! readers understand differently; the path's form is the one that a second, naive reading gives.
#![no_main]

use std::borrow::Cow;

use libfuzzer_sys::fuzz_target;
use lockgate::routing::{host, path};

fuzz_target!(|text: &str| {
    if let Ok(normal) = path::normalise(text) {
        assert!(normal.starts_with('/') && normal.bytes().all(|byte| byte.is_ascii_graphic()), "{normal:?}");
        assert!(!normal.contains(['\\', '?', '#']), "{normal:?}");
        assert!(!["%2F", "%5C", "%00", "%2E", "%41"].iter().any(|escape| normal.contains(escape)), "{normal:?}");
        assert!(normal.split('/').all(|segment| segment != "." && segment != ".."), "{normal:?}");
        assert!(matches!(path::normalise(&normal), Ok(Cow::Borrowed(_))), "{normal:?} is not stable");
        assert_eq!(normal, naive(text), "{text:?}");
    }
    if let Ok(authority) = host::parse(text) {
        let again = host::parse(&authority.host).expect("a host in its form is one");
        assert_eq!(again.host, authority.host);
        assert!(!authority.host.bytes().any(|byte| byte.is_ascii_uppercase()));
    }
});

/// RFC 3986, section 6.2.2, on a path that is known to be good.
fn naive(text: &str) -> String {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut pieces: Vec<String> = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let (byte, escaped) = match byte {
            b'%' => {
                let digits: String = bytes.by_ref().take(2).map(char::from).collect();
                (u8::from_str_radix(&digits, 16).expect("digits"), true)
            }
            byte => (byte, byte >= 0x80),
        };
        pieces.push(if escaped && !unreserved(byte) { format!("%{byte:02X}") } else { char::from(byte).to_string() });
    }
    let decoded = pieces.concat();
    let mut segments: Vec<&str> = Vec::new();
    let mut rest = decoded.split('/').skip(1).peekable();
    while let Some(segment) = rest.next() {
        let is_last = rest.peek().is_none();
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            segment => {
                segments.push(segment);
                continue;
            }
        }
        if is_last {
            segments.push("");
        }
    }
    format!("/{}", segments.join("/"))
}
