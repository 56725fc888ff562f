//! What clients send, after the sections of the Autobahn test suite.

use tokio_tungstenite::tungstenite::Message;

use super::echo::event;

/// A case: what a client writes after the handshake, and what of it has to come back at least.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) writes: Vec<Vec<u8>>,
    pub(super) echoes: Option<String>,
}

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A client's frame (RFC 6455, section 5.2).
pub(super) fn frame(fin: bool, rsv: u8, opcode: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = vec![(u8::from(fin) << 7) | (rsv << 4) | opcode];
    match payload.len() {
        short @ ..=125 => frame.push(0x80 | u8::try_from(short).unwrap()),
        medium @ ..=0xffff => {
            frame.push(0x80 | 0x7e);
            frame.extend(u16::try_from(medium).unwrap().to_be_bytes());
        }
        long => {
            frame.push(0x80 | 0x7f);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    frame.extend(MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

fn whole(opcode: u8, payload: &[u8]) -> Vec<u8> {
    frame(true, 0, opcode, payload)
}

fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    whole(CLOSE, &[&code.to_be_bytes(), reason].concat())
}

/// A message in frames of at most `size` bytes.
fn fragments(opcode: u8, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
    let parts: Vec<&[u8]> = payload.chunks(size).collect();
    let last = parts.len() - 1;
    let one = |(n, part): (usize, &&[u8])| frame(n == last, 0, if n == 0 { opcode } else { CONTINUATION }, part);
    parts.iter().enumerate().map(one).collect()
}

/// The same bytes in writes of `size`.
fn chopped(writes: &[Vec<u8>], size: usize) -> Vec<Vec<u8>> {
    writes.concat().chunks(size).map(<[u8]>::to_vec).collect()
}

fn text_event(payload: &[u8]) -> String {
    event(&Message::text(String::from_utf8(payload.to_vec()).unwrap()))
}

fn binary_event(payload: &[u8]) -> String {
    event(&Message::binary(payload.to_vec()))
}

/// The cases as they are put together.
#[derive(Default)]
struct Cases(Vec<Case>);

impl Cases {
    /// What is written and then closed in order.
    fn closed(&mut self, name: impl Into<String>, mut writes: Vec<Vec<u8>>, echoes: Option<String>) {
        writes.push(close(1000, b""));
        self.open(name, writes, echoes);
    }

    /// What is written and left to the server to close.
    fn open(&mut self, name: impl Into<String>, writes: Vec<Vec<u8>>, echoes: Option<String>) {
        self.0.push(Case { name: name.into(), writes, echoes });
    }
}

/// Every case.
pub(super) fn all() -> Vec<Case> {
    let mut cases = Cases::default();
    framing(&mut cases);
    pings(&mut cases);
    reserved(&mut cases);
    fragmentation(&mut cases);
    valid_utf8(&mut cases);
    invalid_utf8(&mut cases);
    closing(&mut cases);
    sizes(&mut cases);
    cases.0
}

/// Section 1: lengths on both sides of each of their encodings.
fn framing(cases: &mut Cases) {
    for size in [0, 1, 124, 125, 126, 127, 128, 65_534, 65_535, 65_536, 65_537] {
        for (kind, opcode, byte) in [("text", TEXT, b'*'), ("binary", BINARY, 0xfe)] {
            let payload = vec![byte; size];
            let echoed = if opcode == TEXT { text_event(&payload) } else { binary_event(&payload) };
            let writes = vec![whole(opcode, &payload)];
            cases.closed(format!("1 {kind} {size}"), writes.clone(), Some(echoed.clone()));
            cases.closed(format!("1 {kind} {size} in pieces"), chopped(&writes, 997), Some(echoed));
        }
    }
    let payload = vec![b'*'; 300];
    let writes = vec![whole(TEXT, &payload), close(1000, b"")];
    cases.open("1 text octet by octet", chopped(&writes, 1), Some(text_event(&payload)));
}

/// Section 2: pings and pongs.
fn pings(cases: &mut Cases) {
    let answered = |payload: &[u8]| Some(event(&Message::Pong(payload.to_vec().into())));
    for payload in [&b""[..], b"Hello, world!", &[0, 0xff, 0xfe, 0xfd, 0], &[0xfe; 125]] {
        let ping = vec![whole(PING, payload)];
        cases.closed(format!("2 ping {}", payload.len()), ping.clone(), answered(payload));
        cases.closed(format!("2 ping {} octet by octet", payload.len()), chopped(&ping, 1), answered(payload));
        cases.closed(format!("2 pong unasked {}", payload.len()), vec![whole(PONG, payload)], None);
        let both = vec![whole(PONG, b"unasked"), whole(PING, payload)];
        cases.closed(format!("2 pong unasked, ping {}", payload.len()), both, answered(payload));
    }
    cases.open("2 ping 126", vec![whole(PING, &[0xfe; 126])], None);
    let ten: Vec<Vec<u8>> = (0..10_u8).map(|n| whole(PING, &[b'0' + n])).collect();
    cases.closed("2 ten pings", ten.clone(), answered(b"9"));
    cases.closed("2 ten pings octet by octet", chopped(&ten, 1), answered(b"9"));
    let between: Vec<Vec<u8>> = (0..10_u8).flat_map(|n| [whole(TEXT, &[b'a' + n]), whole(PING, &[b'0' + n])]).collect();
    cases.closed("2 pings between texts", between, Some(text_event(b"j")));
}

/// Sections 3 and 4: bits and opcodes that mean nothing.
fn reserved(cases: &mut Cases) {
    let hello = whole(TEXT, b"Hello, world!");
    for rsv in 1..=7 {
        for (what, opcode) in [("text", TEXT), ("binary", BINARY), ("ping", PING), ("close", CLOSE)] {
            let payload: &[u8] = if opcode == CLOSE { &[3, 232] } else { b"x" };
            let bad = frame(true, rsv, opcode, payload);
            cases.open(format!("3 {what} with bits {rsv}"), vec![bad.clone()], None);
            let after = vec![hello.clone(), bad, whole(PING, b"")];
            cases.open(format!("3 text, {what} with bits {rsv}, ping"), after.clone(), None);
            cases.open(format!("3 text, {what} with bits {rsv}, ping, octet by octet"), chopped(&after, 1), None);
        }
    }
    for opcode in (3..=7).chain(11..=15) {
        for payload in [&b""[..], b"reserved"] {
            let bad = whole(opcode, payload);
            cases.open(format!("4 opcode {opcode}, {}", payload.len()), vec![bad.clone()], None);
            let after = vec![hello.clone(), bad, whole(PING, b"")];
            cases.open(format!("4 text, opcode {opcode}, {}, ping", payload.len()), after, None);
        }
    }
}

/// Section 5: messages in several frames.
fn fragmentation(cases: &mut Cases) {
    let start = frame(false, 0, TEXT, b"fragment1");
    let end = frame(true, 0, CONTINUATION, b"fragment2");
    let middle = frame(false, 0, CONTINUATION, b"");
    let ping = whole(PING, b"ping payload");
    let joined = Some(text_event(b"fragment1fragment2"));
    for (name, writes) in [
        ("two", vec![start.clone(), end.clone()]),
        ("ping between", vec![start.clone(), ping.clone(), end.clone()]),
        ("empty middle", vec![start.clone(), middle.clone(), middle.clone(), end.clone()]),
        ("pings and empty ones", vec![start.clone(), ping.clone(), middle.clone(), ping.clone(), end.clone()]),
        ("pong between", vec![start.clone(), whole(PONG, b"x"), end.clone()]),
    ] {
        cases.closed(format!("5 {name}"), writes.clone(), joined.clone());
        cases.closed(format!("5 {name} in one write"), vec![writes.concat()], joined.clone());
        cases.closed(format!("5 {name} octet by octet"), chopped(&writes, 1), joined.clone());
    }
    for (name, writes) in [
        ("ping in two", vec![frame(false, 0, PING, b"a"), end.clone()]),
        ("pong in two", vec![frame(false, 0, PONG, b"a"), end.clone()]),
        ("close in two", vec![frame(false, 0, CLOSE, &[3, 232]), end.clone()]),
        ("continuation of nothing", vec![end.clone(), whole(TEXT, b"x")]),
        ("open continuation of nothing", vec![middle.clone(), whole(TEXT, b"x")]),
        ("continuation after the end", vec![start.clone(), end.clone(), end.clone()]),
        ("text inside of text", vec![start.clone(), whole(TEXT, b"x")]),
        ("binary inside of text", vec![start.clone(), frame(false, 0, BINARY, b"x")]),
    ] {
        cases.open(format!("5 {name}"), writes.clone(), None);
        cases.open(format!("5 {name} octet by octet"), chopped(&writes, 1), None);
    }
    cases.closed("5 closed inside of a message", vec![start], None);
}

/// Section 6, the half that is right.
fn valid_utf8(cases: &mut Cases) {
    let texts = [
        "Hello-\u{b5}@\u{df}\u{f6}\u{e4}\u{fc}\u{e0}\u{e1}-UTF-8!!",
        "\u{3ba}\u{1f79}\u{3c3}\u{3bc}\u{3b5}",
        "\0",
        "\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}",
        "\u{d7ff}\u{e000}\u{fffd}",
        "\u{fffe}\u{ffff}\u{1fffe}\u{1ffff}\u{10fffe}",
    ];
    for (n, text) in texts.into_iter().enumerate() {
        let echoed = Some(text_event(text.as_bytes()));
        let writes = vec![whole(TEXT, text.as_bytes())];
        cases.closed(format!("6 valid {n}"), writes.clone(), echoed.clone());
        cases.closed(format!("6 valid {n} octet by octet"), chopped(&writes, 1), echoed.clone());
        // Frames that end inside of a character.
        cases.closed(format!("6 valid {n} in frames of 1"), fragments(TEXT, text.as_bytes(), 1), echoed.clone());
        cases.closed(format!("6 valid {n} in frames of 3"), fragments(TEXT, text.as_bytes(), 3), echoed);
    }
}

/// Section 6, the half that is wrong.
fn invalid_utf8(cases: &mut Cases) {
    let texts: [&[u8]; 14] = [
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80\x65\x64\x69\x74\x65\x64",
        b"\x80",
        b"\xbf",
        b"\xfe",
        b"\xff",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xf8\x88\x80\x80\x80",
        b"\xed\xa0\x80",
        b"\xed\xaf\xbf\xed\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xce",
        b"abc\xe2\x82",
    ];
    for (n, text) in texts.into_iter().enumerate() {
        let writes = vec![whole(TEXT, text)];
        cases.open(format!("6 invalid {n}"), writes.clone(), None);
        cases.open(format!("6 invalid {n} octet by octet"), chopped(&writes, 1), None);
        cases.open(format!("6 invalid {n} in frames of 1"), fragments(TEXT, text, 1), None);
        // Binary messages may be anything.
        cases.closed(format!("6 invalid {n} as binary"), vec![whole(BINARY, text)], Some(binary_event(text)));
    }
}

/// Section 7: the end.
fn closing(cases: &mut Cases) {
    let bye = |code: u16| close(code, b"");
    let closed = |code: u16, reason: &str| Some(format!("close {code} {reason:?}"));
    cases.open("7 nothing but a close", vec![bye(1000)], closed(1000, ""));
    cases.open("7 a close without a code", vec![whole(CLOSE, b"")], None);
    cases.open("7 a close of one byte", vec![whole(CLOSE, b"a")], None);
    cases.open("7 two closes", vec![bye(1000), bye(1000)], closed(1000, ""));
    cases.open("7 a ping after the close", vec![bye(1000), whole(PING, b"")], closed(1000, ""));
    cases.open("7 a text after the close", vec![bye(1000), whole(TEXT, b"x")], closed(1000, ""));
    cases.open("7 a large text before the close", vec![whole(TEXT, &[b'x'; 256 << 10]), bye(1000)], closed(1000, ""));
    for length in [1, 122, 123] {
        let reason = "x".repeat(length);
        cases.open(format!("7 a reason of {length}"), vec![close(1000, reason.as_bytes())], closed(1000, &reason));
    }
    cases.open("7 a reason of 124", vec![close(1000, &[b'x'; 124])], None);
    cases.open("7 a reason that is no text", vec![close(1000, b"\xce\xba\xed\xa0\x80")], None);
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        cases.open(format!("7 code {code}"), vec![bye(code)], closed(code, ""));
        cases.open(format!("7 code {code}, octet by octet"), chopped(&[bye(code)], 1), closed(code, ""));
    }
    for code in [0, 999, 1004, 1005, 1006, 1012, 1013, 1014, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        cases.open(format!("7 code {code}"), vec![bye(code)], None);
        cases.open(format!("7 code {code} and a reason"), vec![close(code, b"why")], None);
    }
}

/// Sections 9 and 10: large messages, whole, in frames and in pieces.
fn sizes(cases: &mut Cases) {
    for (kind, opcode, byte) in [("text", TEXT, b'*'), ("binary", BINARY, 0xfe)] {
        let echoed = |payload: &[u8]| Some(if opcode == TEXT { text_event(payload) } else { binary_event(payload) });
        for size in [256 << 10, 1 << 20, 4 << 20] {
            let payload = vec![byte; size];
            cases.closed(format!("9 {kind} {size}"), vec![whole(opcode, &payload)], echoed(&payload));
        }
        let payload = vec![byte; 1 << 20];
        for size in [1300, 4 << 10, 64 << 10, 256 << 10] {
            let writes = fragments(opcode, &payload, size);
            cases.closed(format!("9 {kind} in frames of {size}"), writes, echoed(&payload));
        }
        for size in [997, 16 << 10, 33 << 10] {
            let writes = chopped(&[whole(opcode, &payload)], size);
            cases.closed(format!("9 {kind} in pieces of {size}"), writes, echoed(&payload));
        }
        let many: Vec<Vec<u8>> = (0..1000).map(|n| whole(opcode, &vec![byte; n % 200])).collect();
        cases.closed(format!("9 a thousand times {kind}"), many, echoed(&[byte; 199]));
    }
}
