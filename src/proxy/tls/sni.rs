//! The host that a first message asks for, read without a judgement on the rest: what a backend ends may be older than
//! what the gateway would speak itself.

/// The type of a `ClientHello` among messages of a handshake.
const CLIENT_HELLO: usize = 1;

/// The name in `server_name` (RFC 6066, section 3) of the `ClientHello` at the front of `bytes`, which are records as
/// they came; `None` where there is none, or no such message.
pub(super) fn of(bytes: &[u8]) -> Option<String> {
    name(&message(bytes)?)
}

/// What begins a handshake that comes without records.
pub(in crate::proxy) enum First {
    /// Part of a message.
    Part,
    /// A `ClientHello`, and the host that it asks for.
    Hello(Option<String>),
    /// Another message.
    Other,
}

/// The same of a handshake without records, as QUIC carries it (RFC 9001, section 4).
pub(in crate::proxy) fn of_handshake(bytes: &[u8]) -> First {
    let mut read = Reader(bytes);
    match read.number(1) {
        None => First::Part,
        Some(CLIENT_HELLO) => read.vector(3).map_or(First::Part, |hello| First::Hello(name(hello))),
        Some(_) => First::Other,
    }
}

/// The name in the body of a `ClientHello`.
fn name(hello: &[u8]) -> Option<String> {
    let mut hello = Reader(hello);
    // Version and random, then what has a length of its own: session, cipher suites, compression methods.
    hello.take(2 + 32)?;
    hello.vector(1)?;
    hello.vector(2)?;
    hello.vector(1)?;
    let mut extensions = Reader(hello.vector(2)?);
    loop {
        let kind = extensions.number(2)?;
        let content = extensions.vector(2)?;
        if kind != 0 {
            continue;
        }
        let mut names = Reader(Reader(content).vector(2)?);
        let is_host = names.number(1)? == 0;
        let name = names.vector(2)?;
        return is_host.then(|| std::str::from_utf8(name).ok().map(str::to_owned))?;
    }
}

/// The body of the `ClientHello`, put together of its records.
fn message(bytes: &[u8]) -> Option<Vec<u8>> {
    const HANDSHAKE: usize = 22;
    let mut records = Reader(bytes);
    let mut whole = Vec::with_capacity(bytes.len());
    loop {
        if records.number(1)? != HANDSHAKE {
            return None;
        }
        records.take(2)?;
        whole.extend_from_slice(records.vector(2)?);
        let mut read = Reader(&whole);
        if let Some(kind) = read.number(1)
            && kind != CLIENT_HELLO
        {
            return None;
        }
        if let Some(body) = read.vector(3) {
            return Some(body.to_vec());
        }
    }
}

/// What is left to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of that many bytes.
    fn number(&mut self, bytes: usize) -> Option<usize> {
        self.take(bytes).map(|bytes| bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// What follows its length, a number of that many bytes.
    fn vector(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let length = self.number(bytes)?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::{First, of, of_handshake};

    fn hello(name: &str) -> Vec<u8> {
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut bytes = Vec::new();
        ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_name_is_found_and_every_part_of_the_message_is_none() {
        let bytes = hello("shop.example.com");
        assert_eq!(of(&bytes).as_deref(), Some("shop.example.com"));
        for end in 0..bytes.len() {
            assert_eq!(of(&bytes[..end]), None, "{end}");
        }
        assert_eq!(of(&hello("192.0.2.1")), None);
    }

    #[test]
    fn a_message_needs_no_records() {
        let bytes = &hello("shop.example.com")[5..];
        for end in 0..bytes.len() {
            assert!(matches!(of_handshake(&bytes[..end]), First::Part), "{end}");
        }
        let First::Hello(name) = of_handshake(bytes) else { panic!("it is none") };
        assert_eq!(name.as_deref(), Some("shop.example.com"));
        assert!(matches!(of_handshake(&[2, 0, 0, 0]), First::Other));
    }

    #[test]
    fn a_message_may_be_in_many_records() {
        let bytes = hello("shop.example.com");
        for size in [1, 2, 5, 100] {
            let record = |part: &[u8]| [&[22, 3, 1, 0, u8::try_from(part.len()).unwrap()], part].concat();
            let records: Vec<u8> = bytes[5..].chunks(size).flat_map(record).collect();
            assert_eq!(of(&records).as_deref(), Some("shop.example.com"), "{size}");
        }
    }

    #[test]
    fn whatever_comes_is_read_within_its_bounds() {
        let bytes = hello("a.test");
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut broken = bytes.clone();
                broken[at] = value;
                let _ = of(&broken);
            }
        }
        assert_eq!(of(b"GET / HTTP/1.1\r\n\r\n"), None);
    }
}
