//! Headers that the gateway writes: what a backend is told of a client in front of its bytes.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use super::{CLIENT_SSL, TLV_SSL, V1, V2, pair};
use crate::ir::ProxyProtocol;

/// Bytes of [`TLV_SSL`]'s value without TLVs of its own: bits, and the verification's result.
const SSL: usize = 5;
/// The version, and the command `PROXY`.
const PROXY: u8 = 0x21;
/// TCP over IPv4, over IPv6, and what is not known.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
const UNSPEC: u8 = 0x00;

/// The header of a client whose connection has these ends, its own first, as far as they are known. `tls` is whether it came
/// over TLS that somebody has ended, and then whether it showed a certificate that verified.
pub(in crate::proxy) fn header(
    version: ProxyProtocol,
    ends: Option<(SocketAddr, SocketAddr)>,
    tls: Option<bool>,
) -> Bytes {
    // Both of one family, or there is no way to say it.
    let ends = ends.filter(|(client, gateway)| client.is_ipv4() == gateway.is_ipv4());
    match version {
        ProxyProtocol::V1 => line(ends).into(),
        ProxyProtocol::V2 => binary(ends, tls).into(),
    }
}

fn line(ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let mut line = V1.to_vec();
    let rest = match ends {
        None => "UNKNOWN\r\n".to_owned(),
        Some((client, gateway)) => {
            let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
            format!("{family} {} {} {} {}\r\n", client.ip(), gateway.ip(), client.port(), gateway.port())
        }
    };
    line.extend_from_slice(rest.as_bytes());
    line
}

fn binary(ends: Option<(SocketAddr, SocketAddr)>, tls: Option<bool>) -> Vec<u8> {
    let (family, mut rest) = (family(ends), Vec::with_capacity(pair(16) + 3 + SSL));
    if let Some((client, gateway)) = ends {
        for ip in [client.ip(), gateway.ip()] {
            match ip {
                IpAddr::V4(ip) => rest.extend_from_slice(&ip.octets()),
                IpAddr::V6(ip) => rest.extend_from_slice(&ip.octets()),
            }
        }
        for port in [client.port(), gateway.port()] {
            rest.extend_from_slice(&port.to_be_bytes());
        }
    }
    if let Some(is_verified) = tls {
        // Zero is a certificate that verified (section 2.2.6).
        let verify = u32::from(!is_verified).to_be_bytes();
        rest.extend_from_slice(&[TLV_SSL, 0, 5, CLIENT_SSL]);
        rest.extend_from_slice(&verify);
    }
    let length = u16::try_from(rest.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&V2[..], &[PROXY, family], &length, &rest].concat()
}

fn family(ends: Option<(SocketAddr, SocketAddr)>) -> u8 {
    match ends {
        None => UNSPEC,
        Some((client, _)) if client.is_ipv4() => TCP4,
        Some(_) => TCP6,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Header, parse};
    use super::*;

    fn ends(client: &str, gateway: &str) -> (SocketAddr, SocketAddr) {
        (client.parse().unwrap(), gateway.parse().unwrap())
    }

    #[test]
    fn what_is_written_is_read() {
        let v4 = ends("192.0.2.7:40000", "198.51.100.1:443");
        let v6 = ends("[2001:db8::7]:40000", "[2001:db8::1]:443");
        for addresses in [None, Some(v4), Some(v6)] {
            let line = header(ProxyProtocol::V1, addresses, Some(true));
            assert_eq!(parse(&line), Ok(Some((Header { addresses, tls: false }, line.len()))));
            for tls in [None, Some(false), Some(true)] {
                let binary = header(ProxyProtocol::V2, addresses, tls);
                assert_eq!(parse(&binary), Ok(Some((Header { addresses, tls: tls.is_some() }, binary.len()))));
            }
        }
        let line = header(ProxyProtocol::V1, Some(v4), None);
        assert_eq!(&line[..], b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\r\n");
    }

    #[test]
    fn a_certificate_that_verified_is_told() {
        let verify = |is_verified| {
            let binary = header(ProxyProtocol::V2, None, Some(is_verified));
            binary[binary.len() - 4..].to_vec()
        };
        assert_eq!((verify(true), verify(false)), (vec![0, 0, 0, 0], vec![0, 0, 0, 1]));
    }

    #[test]
    fn ends_of_two_families_are_not_known() {
        let mixed = ends("192.0.2.7:40000", "[2001:db8::1]:443");
        assert_eq!(&header(ProxyProtocol::V1, Some(mixed), None)[..], b"PROXY UNKNOWN\r\n");
        assert_eq!(&header(ProxyProtocol::V2, Some(mixed), None)[12..], [PROXY, UNSPEC, 0, 0]);
    }
}
