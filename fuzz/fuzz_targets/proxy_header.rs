//! The PROXY header in front of a connection: no bytes break the parser, more bytes never change what it has said, and what
//! it takes is no longer than what there is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockgate::proxy::proxy_protocol::parse;

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes);
    if let Ok(Some((_, length))) = whole {
        assert!(length <= bytes.len());
        assert_eq!(parse(&bytes[..length]), whole, "what follows the header has changed it");
    }
    for cut in 0..bytes.len() {
        match parse(&bytes[..cut]) {
            Ok(None) => {}
            early => {
                assert_eq!(early, whole, "the first {cut} bytes were read otherwise");
                break;
            }
        }
    }
});
