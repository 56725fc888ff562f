//! PROXY protocol, versions 1 and 2 (`HAProxy`'s `proxy-protocol.txt`): what a load balancer says of its client in front
//! of the first byte.
//!
//! `told` is what the gateway says of its own. Read here because the crates there are take lines that the text forbids, such as a port with a sign, and wait for
//! more of what cannot become a header.

pub(super) mod told;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::watchdog::Conn;

/// Bytes of the longest line of version 1, its end included (section 2.1).
const MAX_V1: usize = 107;
/// Bytes of a header of version 2 that are read: room for any addresses, and for TLVs with a small certificate.
const MAX_V2: usize = 4096;
/// Bytes looked at a time: more than most headers have.
const CHUNK: usize = 256;
const V1: &[u8] = b"PROXY ";
const V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 before the addresses.
const V2_FIXED: usize = 16;
/// Bytes of a pair of `AF_UNIX` addresses.
const UNIX_PAIR: usize = 216;
const TLV_CRC32C: u8 = 0x03;
const TLV_SSL: u8 = 0x20;
/// The bit of [`TLV_SSL`]'s first byte: the client came over TLS.
const CLIENT_SSL: u8 = 0x01;

/// What a header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Source and destination as the load balancer saw them; `None` if it speaks for itself (`LOCAL`, a health check) or
    /// does not know (`UNKNOWN`, or a family that TCP connections over IP do not have).
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// Whether the client spoke TLS to the load balancer (`PP2_TYPE_SSL`, section 2.2.6).
    pub tls: bool,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// They begin like none. A receiver must not guess (section 2).
    #[error("there is no PROXY header")]
    Absent,
    /// It is longer than its version allows, or than is read.
    #[error("the PROXY header is too long")]
    TooLong,
    /// A line of version 1 that breaks the grammar.
    #[error("the PROXY line is malformed")]
    Line,
    /// A version that there is not.
    #[error("the PROXY header's version is not 2")]
    Version,
    /// A command other than `LOCAL` and `PROXY`.
    #[error("the PROXY header's command is unknown")]
    Command,
    /// A family or transport that is not assigned.
    #[error("the PROXY header's address family is unknown")]
    Family,
    /// The addresses do not fit the length.
    #[error("the PROXY header is too short for its addresses")]
    Addresses,
    /// A TLV does not fit the length.
    #[error("the PROXY header has a malformed TLV")]
    Tlv,
    /// The connection ended inside of it.
    #[error("the connection ended inside the PROXY header")]
    Cut,
    /// The bytes are not those that were sent.
    #[error("the PROXY header's checksum is wrong")]
    Checksum,
}

/// The header at the start of `bytes` and its length; `None` while more bytes may make one.
pub fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, HeaderError> {
    if begins(bytes, V1) {
        parse_v1(bytes)
    } else if begins(bytes, V2) {
        parse_v2(bytes)
    } else {
        Err(HeaderError::Absent)
    }
}

/// Whether `bytes` begin with `signature`, or are its beginning.
fn begins(bytes: &[u8], signature: &[u8]) -> bool {
    let common = bytes.len().min(signature.len());
    bytes[..common] == signature[..common]
}

fn parse_v1(bytes: &[u8]) -> Result<Option<(Header, usize)>, HeaderError> {
    let start = &bytes[..bytes.len().min(MAX_V1)];
    let Some(end) = start.windows(2).position(|pair| pair == b"\r\n") else {
        return if start.len() < MAX_V1 { Ok(None) } else { Err(HeaderError::TooLong) };
    };
    let line = start.get(V1.len()..end).ok_or(HeaderError::Line)?;
    // Whatever follows `UNKNOWN` on the line is to be ignored.
    let addresses = match line.iter().position(|&b| b == b' ').map_or((line, &[][..]), |at| line.split_at(at)) {
        (b"UNKNOWN", _) => None,
        (b"TCP4", rest) => Some(v1_addresses::<Ipv4Addr>(rest).ok_or(HeaderError::Line)?),
        (b"TCP6", rest) => Some(v1_addresses::<Ipv6Addr>(rest).ok_or(HeaderError::Line)?),
        _ => return Err(HeaderError::Line),
    };
    Ok(Some((Header { addresses, tls: false }, end + 2)))
}

fn v1_addresses<A: FromStr + Into<IpAddr>>(rest: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let mut fields = std::str::from_utf8(rest).ok()?.strip_prefix(' ')?.split(' ');
    let source: A = fields.next()?.parse().ok()?;
    let destination: A = fields.next()?.parse().ok()?;
    let (from, to) = (v1_port(fields.next()?)?, v1_port(fields.next()?)?);
    let end = fields.next();
    end.is_none().then(|| ((source.into(), from).into(), (destination.into(), to).into()))
}

/// A decimal number without a sign or leading zeros.
fn v1_port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok())?
}

fn parse_v2(bytes: &[u8]) -> Result<Option<(Header, usize)>, HeaderError> {
    let Some(&[command, family, high, low]) = bytes.get(V2.len()..V2_FIXED) else { return Ok(None) };
    if command >> 4 != 2 {
        return Err(HeaderError::Version);
    }
    let length = V2_FIXED + usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_V2 {
        return Err(HeaderError::TooLong);
    }
    let Some(header) = bytes.get(..length) else { return Ok(None) };
    match command & 0xf {
        // What follows is to be skipped, the family included.
        0 => Ok(Some((Header::default(), length))),
        1 => Ok(Some((v2_proxied(header, family)?, length))),
        _ => Err(HeaderError::Command),
    }
}

/// The addresses and TLVs of a whole header.
fn v2_proxied(header: &[u8], family: u8) -> Result<Header, HeaderError> {
    let block = &header[V2_FIXED..];
    let (addresses, used) = match family {
        0x00 => (None, 0),
        0x11 => (Some(v2_addresses::<4>(block)?), pair(4)),
        0x21 => (Some(v2_addresses::<16>(block)?), pair(16)),
        // Datagrams, and sockets that are files: nothing that this connection could have come by.
        0x12 => (None, pair(4)),
        0x22 => (None, pair(16)),
        0x31 | 0x32 => (None, UNIX_PAIR),
        _ => return Err(HeaderError::Family),
    };
    if block.len() < used {
        return Err(HeaderError::Addresses);
    }
    Ok(Header { addresses, tls: tlvs(header, V2_FIXED + used)? })
}

/// Bytes of two addresses and two ports.
const fn pair(address: usize) -> usize {
    2 * address + 4
}

fn v2_addresses<const N: usize>(block: &[u8]) -> Result<(SocketAddr, SocketAddr), HeaderError>
where
    IpAddr: From<[u8; N]>,
{
    let address = |at: usize| {
        let bytes: Option<[u8; N]> = block.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
        bytes.map(IpAddr::from).ok_or(HeaderError::Addresses)
    };
    let port = |at: usize| {
        let bytes: Option<[u8; 2]> = block.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u16::from_be_bytes).ok_or(HeaderError::Addresses)
    };
    let source = SocketAddr::new(address(0)?, port(2 * N)?);
    Ok((source, SocketAddr::new(address(N)?, port(2 * N + 2)?)))
}

/// Reads the TLVs of a header from `at` on: whether the client spoke TLS.
fn tlvs(header: &[u8], mut at: usize) -> Result<bool, HeaderError> {
    let mut tls = false;
    while at < header.len() {
        let Some(&[kind, high, low]) = header.get(at..at + 3) else { return Err(HeaderError::Tlv) };
        let (start, end) = (at + 3, at + 3 + usize::from(u16::from_be_bytes([high, low])));
        let value = header.get(start..end).ok_or(HeaderError::Tlv)?;
        match kind {
            // A byte of bits, four of the verification's result, then TLVs of its own.
            TLV_SSL if value.len() < 5 => return Err(HeaderError::Tlv),
            TLV_SSL => tls |= value[0] & CLIENT_SSL != 0,
            TLV_CRC32C => {
                let sent: [u8; 4] = value.try_into().map_err(|_| HeaderError::Tlv)?;
                let zeroed = header[..start].iter().chain(&[0; 4]).chain(&header[end..]);
                if crc32c(zeroed) != u32::from_be_bytes(sent) {
                    return Err(HeaderError::Checksum);
                }
            }
            _ => {}
        }
        at = end;
    }
    Ok(tls)
}

/// The checksum of RFC 4960, appendix B.
fn crc32c<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let shift = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
    !bytes.fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc)))
}

/// Why a connection has no header.
#[derive(Debug)]
pub(super) enum Missing {
    /// It ended or broke, or was silent until its time was over, without a byte.
    Silent,
    /// Its time was over with part of a header.
    Slow,
    /// What came is no header, or its beginning only.
    Malformed(HeaderError),
}

/// Takes the header off a connection and not a byte more, in the time that `conn` has for its first byte.
pub(super) async fn receive(stream: &mut TcpStream, conn: &Conn) -> Result<Header, Missing> {
    let mut taken = 0;
    let received = conn.unless_expired(read(stream, &mut taken)).await;
    match received {
        Some(Ok(parsed)) => parsed.map_err(Missing::Malformed),
        _ if taken == 0 => Err(Missing::Silent),
        Some(Err(_)) => Err(Missing::Malformed(HeaderError::Cut)),
        None => Err(Missing::Slow),
    }
}

/// Looks at what has come before taking it, so that bytes of the request stay in the socket. Counts what it has taken.
async fn read(stream: &mut TcpStream, taken: &mut usize) -> io::Result<Result<Header, HeaderError>> {
    let mut bytes = vec![0; CHUNK];
    loop {
        bytes.resize(*taken + CHUNK, 0);
        let seen = *taken + stream.peek(&mut bytes[*taken..]).await?;
        if seen == *taken {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let parsed = match parse(&bytes[..seen]) {
            Ok(parsed) => parsed,
            Err(error) => return Ok(Err(error)),
        };
        let end = parsed.map_or(seen, |(_, length)| length);
        stream.read_exact(&mut bytes[*taken..end]).await?;
        *taken = end;
        if let Some((header, _)) = parsed {
            return Ok(Ok(header));
        }
    }
}

#[cfg(test)]
mod tests;
