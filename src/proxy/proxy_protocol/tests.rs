use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::*;
use crate::lifecycle::Phase;
use crate::proxy::watchdog::{SWEEP, StageLimits, Watchdog};

const IPV4: [u8; 12] = [203, 0, 113, 7, 192, 0, 2, 1, 0xdc, 0x04, 0x20, 0xfb];
const LIMITS: StageLimits = StageLimits { header: Duration::from_secs(10), keep_alive: Duration::from_secs(75) };

/// A header of version 2: its 13th and 14th byte, and what the length counts.
fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).unwrap().to_be_bytes();
    [&V2[..], &[command, family], &length, block].concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind][..], &u16::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
}

fn ssl(client: u8) -> Vec<u8> {
    tlv(TLV_SSL, &[&[client, 0, 0, 0, 0][..], &tlv(0x21, b"TLSv1.3")].concat())
}

fn told(source: &str, destination: &str, tls: bool) -> Header {
    Header { addresses: Some((source.parse().unwrap(), destination.parse().unwrap())), tls }
}

#[test]
fn headers_are_read_to_their_last_byte() {
    let ipv6: Vec<u8> = ["2001:db8::7", "2001:db8::1"]
        .iter()
        .flat_map(|ip| ip.parse::<Ipv6Addr>().unwrap().octets())
        .chain([0, 1, 0, 2])
        .collect();
    let with = |tlvs: &[u8]| [&IPV4[..], tlvs].concat();
    let told4 = |tls| told("203.0.113.7:56324", "192.0.2.1:8443", tls);
    let longest = "PROXY UNKNOWN ".to_owned() + &"f".repeat(MAX_V1 - 16) + "\r\n";
    let cases: Vec<(Vec<u8>, Header)> = vec![
        (b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 8443\r\n".into(), told4(false)),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 1 2\r\n".into(), told("[2001:db8::7]:1", "[2001:db8::1]:2", false)),
        (b"PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n".into(), told("0.0.0.0:0", "255.255.255.255:65535", false)),
        (b"PROXY UNKNOWN\r\n".into(), Header::default()),
        (b"PROXY UNKNOWN ffff::1 \xff\0 5\r\n".into(), Header::default()),
        (longest.into_bytes(), Header::default()),
        (v2(0x21, 0x11, &IPV4), told4(false)),
        (v2(0x21, 0x21, &ipv6), told("[2001:db8::7]:1", "[2001:db8::1]:2", false)),
        (v2(0x21, 0x11, &with(&ssl(1))), told4(true)),
        (v2(0x21, 0x11, &with(&[tlv(0x04, &[0; 3]), tlv(0x01, b"h2"), ssl(7)].concat())), told4(true)),
        (v2(0x21, 0x11, &with(&ssl(6))), told4(false)),
        (v2(0x21, 0x11, &with(&tlv(0xee, &[9; 3000]))), told4(false)),
        (v2(0x20, 0x00, b""), Header::default()),
        // LOCAL: a family that there is not, and what would be a broken TLV.
        (v2(0x20, 0xff, &[0x20, 0xff]), Header::default()),
        (v2(0x21, 0x00, b""), Header::default()),
        (v2(0x21, 0x00, &ssl(1)), Header { addresses: None, tls: true }),
        (v2(0x21, 0x12, &IPV4), Header::default()),
        (v2(0x21, 0x31, &[0; UNIX_PAIR]), Header::default()),
    ];
    for (bytes, expected) in cases {
        let followed = [&bytes[..], b"GET / HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(parse(&followed), Ok(Some((expected, bytes.len()))), "{}", bytes.escape_ascii());
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{}", bytes[..end].escape_ascii());
        }
    }
}

#[test]
fn what_is_no_header_is_refused() {
    use HeaderError::{Absent, Addresses, Checksum, Command, Family, Line, Tlv, TooLong, Version};
    let with = |tlvs: &[u8]| v2(0x21, 0x11, &[&IPV4[..], tlvs].concat());
    let line = |text: &str| format!("PROXY {text}\r\n").into_bytes();
    let cases: Vec<(Vec<u8>, HeaderError)> = vec![
        (b"G".into(), Absent),
        (b"POST / HTTP/1.1\r\n\r\n".into(), Absent),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), Absent),
        (b"\x16\x03\x01".into(), Absent),
        (b"\r\nGET / HTTP/1.1\r\n".into(), Absent),
        (b"proxy TCP4 1.1.1.1 2.2.2.2 1 2\r\n".into(), Absent),
        (b"PROXY\r\n".into(), Absent),
        (b"PROXY\tTCP4 1.1.1.1 2.2.2.2 1 2\r\n".into(), Absent),
        (line(""), Line),
        (line("TCP"), Line),
        (line("TCP4"), Line),
        (line("TCP5 1.1.1.1 2.2.2.2 1 2"), Line),
        (line("UNKNOWNX"), Line),
        (line(" TCP4 1.1.1.1 2.2.2.2 1 2"), Line),
        (line("TCP4  1.1.1.1 2.2.2.2 1 2"), Line),
        (line("TCP4 1.1.1.1 2.2.2.2 1 2 "), Line),
        (line("TCP4 1.1.1.1 2.2.2.2 1"), Line),
        (line("TCP4 1.1.1.1 2.2.2.2 1 2 3"), Line),
        (line("TCP4 1.1.1.1 2.2.2.2 +1 2"), Line),
        (line("TCP4 1.1.1.1 2.2.2.2 01 2"), Line),
        (line("TCP4 1.1.1.1 2.2.2.2 1 65536"), Line),
        (line("TCP4 1.1.1.1 2.2.2.2 1 -2"), Line),
        (line("TCP4 1.1.1.1 2.2.2.2 1 "), Line),
        (line("TCP4 1.1.1 2.2.2.2 1 2"), Line),
        (line("TCP4 1.1.1.01 2.2.2.2 1 2"), Line),
        (line("TCP4 256.1.1.1 2.2.2.2 1 2"), Line),
        (line("TCP4 ::1 ::2 1 2"), Line),
        (line("TCP4 a.test 2.2.2.2 1 2"), Line),
        (line("TCP6 1.1.1.1 2.2.2.2 1 2"), Line),
        (line("TCP6 [::1] ::2 1 2"), Line),
        (line("TCP6 fe80::1%eth0 ::2 1 2"), Line),
        (line("TCP4 1.1.1.1 2.2.2.2 1 2\n"), Line),
        (line("TCP4 1.1.1.1 2.2.2.2 1 2\r"), Line),
        (b"PROXY TCP4 \xff.1.1.1 2.2.2.2 1 2\r\n".into(), Line),
        (("PROXY UNKNOWN ".to_owned() + &"f".repeat(MAX_V1 - 15) + "\r\n").into_bytes(), TooLong),
        (("PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n".to_owned() + &"x".repeat(MAX_V1)).into_bytes(), TooLong),
        (v2(0x11, 0x11, &IPV4), Version),
        (v2(0x31, 0x11, &IPV4), Version),
        (v2(0x22, 0x11, &IPV4), Command),
        (v2(0x2f, 0x11, &IPV4), Command),
        (v2(0x21, 0x10, &IPV4), Family),
        (v2(0x21, 0x13, &IPV4), Family),
        (v2(0x21, 0x41, &IPV4), Family),
        (v2(0x21, 0x11, &IPV4[..11]), Addresses),
        (v2(0x21, 0x11, b""), Addresses),
        (v2(0x21, 0x21, &[0; 35]), Addresses),
        (v2(0x21, 0x12, &IPV4[..11]), Addresses),
        (v2(0x21, 0x31, &[0; UNIX_PAIR - 1]), Addresses),
        (with(&[1]), Tlv),
        (with(&[1, 0]), Tlv),
        (with(&[1, 0, 1]), Tlv),
        (with(&[1, 0xff, 0xff, 0]), Tlv),
        (with(&tlv(TLV_SSL, &[1, 0, 0, 0])), Tlv),
        (with(&tlv(TLV_CRC32C, &[0; 3])), Tlv),
        (with(&tlv(TLV_CRC32C, &[0; 4])), Checksum),
        // Refused for its length, before the rest has come.
        ([&V2[..], &[0x21, 0x11, 0x0f, 0xf1]].concat(), TooLong),
        ([&V2[..], &[0x20, 0x00, 0xff, 0xff]].concat(), TooLong),
    ];
    for (bytes, expected) in cases {
        assert_eq!(parse(&bytes), Err(expected), "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_checksum_covers_the_whole_header() {
    assert_eq!(crc32c(b"123456789".iter()), 0xe306_9283);
    let zeroed = v2(0x21, 0x11, &[&IPV4[..], &tlv(TLV_CRC32C, &[0; 4]), &ssl(1)].concat());
    let mut header = zeroed.clone();
    header[31..35].copy_from_slice(&crc32c(zeroed.iter()).to_be_bytes());
    let expected = told("203.0.113.7:56324", "192.0.2.1:8443", true);
    assert_eq!(parse(&header), Ok(Some((expected, header.len()))));
    for changed in [16, 30, 34, 38] {
        let mut header = header.clone();
        header[changed] ^= 0x40;
        assert!(parse(&header).is_err(), "byte {changed}");
    }
}

/// Bytes near to a header: a good one, perhaps with a byte changed, and what follows.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let tlvs = prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..9)), 0..4);
    let tlvs = tlvs.prop_map(|all| all.iter().flat_map(|(kind, value)| tlv(*kind, value)).collect::<Vec<u8>>());
    let header = prop_oneof![
        (any::<[u8; 4]>(), any::<[u8; 4]>(), any::<u16>(), any::<u16>()).prop_map(|(a, b, c, d)| {
            format!("PROXY TCP4 {} {} {c} {d}\r\n", Ipv4Addr::from(a), Ipv4Addr::from(b)).into_bytes()
        }),
        (any::<[u8; 16]>(), any::<u16>())
            .prop_map(|(a, c)| { format!("PROXY TCP6 {} ::1 {c} 443\r\n", Ipv6Addr::from(a)).into_bytes() }),
        Just(b"PROXY UNKNOWN\r\n".to_vec()),
        (any::<[u8; 12]>(), tlvs).prop_map(|(block, tlvs)| v2(0x21, 0x11, &[&block[..], &tlvs].concat())),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|block| v2(0x20, 0, &block)),
    ];
    let change = prop::option::of((any::<prop::sample::Index>(), any::<u8>()));
    (header, change, prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(mut header, change, rest)| {
        if let Some((at, byte)) = change {
            let at = at.index(header.len());
            header[at] = byte;
        }
        header.extend(rest);
        header
    })
}

/// A connection with what `write` sends, read to the header or the reason that there is none, and what is left after it.
async fn exchange<F: Future<Output = ()>>(
    write: impl FnOnce(TcpStream) -> F,
) -> (Result<Header, Missing>, Vec<u8>, Duration) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    client.set_nodelay(true).unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let watchdog = Watchdog::new();
    let start = Instant::now();
    let reading = async {
        let watched = watchdog.watch(LIMITS);
        let received = receive(&mut stream, watched.conn()).await;
        let took = start.elapsed();
        let mut rest = Vec::new();
        if received.is_ok() {
            stream.read_to_end(&mut rest).await.unwrap();
        }
        (received, rest, took)
    };
    let sweeper = Rc::clone(&watchdog);
    tokio::select! {
        (result, ()) = async { tokio::join!(reading, write(client)) } => result,
        () = sweeper.run(|| Phase::Serving) => unreachable!("a sweeper never ends"),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

proptest! {
    #[test]
    fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse(&bytes);
        let _ = parse(&[&V2[..], &bytes].concat());
        let _ = parse(&[V1, &bytes, b"\r\n"].concat());
    }

    #[test]
    fn more_bytes_never_change_what_was_said(bytes in nearly()) {
        let whole = parse(&bytes);
        for end in 0..bytes.len() {
            match parse(&bytes[..end]) {
                Ok(None) => {}
                // An error may get another reason once more is seen.
                Err(_) => prop_assert!(whole.is_err()),
                said => prop_assert_eq!(said, whole),
            }
        }
        if let Ok(Some((_, length))) = whole {
            prop_assert!(length <= bytes.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn split_reads_give_the_same_header_and_lose_nothing(
        bytes in nearly(),
        splits in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let mut splits: Vec<usize> = splits.iter().map(|at| at.index(bytes.len() + 1)).collect();
        splits.sort_unstable();
        let sent = bytes.clone();
        let (received, rest, _) = runtime().block_on(exchange(|mut client| async move {
            let mut from = 0;
            for at in splits.into_iter().chain([sent.len()]) {
                // A refusal may come first.
                let _ = client.write_all(&sent[from..at]).await;
                from = at;
                // Paused time moves on only when the reader has taken what there is.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }));
        match (parse(&bytes), received) {
            (Ok(Some((expected, length))), Ok(header)) => {
                prop_assert_eq!(header, expected);
                prop_assert_eq!(&rest, &bytes[length..]);
            }
            (Ok(None), Err(Missing::Malformed(HeaderError::Cut))) | (Err(_), Err(Missing::Malformed(_))) => {}
            (parsed, received) => prop_assert!(false, "{parsed:?} became {received:?}"),
        }
    }
}

#[test]
fn a_slow_header_is_cut_however_it_drips() {
    let (received, _, took) = runtime().block_on(exchange(|mut client| async move {
        for byte in b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 8443\r\n" {
            let _ = client.write_all(&[*byte]).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }));
    assert!(matches!(received, Err(Missing::Slow)), "{received:?}");
    assert!(took + SWEEP >= LIMITS.header && took <= LIMITS.header + 2 * SWEEP, "{took:?}");
}

#[test]
fn a_silent_connection_is_no_malformed_one() {
    let (received, _, took) = runtime().block_on(exchange(|client| async move {
        tokio::time::sleep(Duration::from_mins(1)).await;
        drop(client);
    }));
    assert!(matches!(received, Err(Missing::Silent)), "{received:?}");
    assert!(took <= LIMITS.header + 2 * SWEEP, "{took:?}");
    let (received, ..) = runtime().block_on(exchange(|client| async move { drop(client) }));
    assert!(matches!(received, Err(Missing::Silent)), "{received:?}");
    let (received, ..) = runtime().block_on(exchange(|mut client| async move {
        client.write_all(b"PROXY TCP4 ").await.unwrap();
    }));
    assert!(matches!(received, Err(Missing::Malformed(HeaderError::Cut))), "{received:?}");
}
