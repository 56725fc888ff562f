//! What clients send.

use super::super::harness::{Origin, Reply, rule};
use super::*;
use crate::settings::{Settings, Underscores};
use Outcome::{Broken, Closed, Early, Last, Refused, Served, Stays};

/// What becomes of what a client has sent.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// The origin sees these requests, request line and body; each is answered with 200, and the connection stays.
    Served(&'static [(&'static str, &'static str)]),
    /// The same, and the connection ends behind them.
    Last(&'static [(&'static str, &'static str)]),
    /// The origin sees these; the next one is refused with a status, and the connection ends.
    Refused(&'static [(&'static str, &'static str)], u16),
    /// The gateway answers with a status, the origin sees nothing, and the connection stays.
    Stays(u16),
    /// The gateway answers with a status before it has read all, and the origin sees nothing. The connection ends or goes on.
    Early(u16),
    /// The origin sees a request whose body does not end; the client gets a status, and the connection ends.
    Broken(u16),
    /// The origin sees nothing whole, the client nothing but the end.
    Closed,
}

struct Row {
    section: &'static str,
    bytes: Vec<u8>,
    outcome: Outcome,
    /// Field lines that the origin must see.
    has: &'static [&'static str],
    /// Text that it must not.
    lacks: &'static [&'static str],
    /// The client ends its side.
    ends: bool,
}

fn row(section: &'static str, bytes: impl AsRef<[u8]>, outcome: Outcome) -> Row {
    Row { section, bytes: bytes.as_ref().to_vec(), outcome, has: &[], lacks: &[], ends: false }
}

/// A GET with these field lines.
fn get(section: &'static str, fields: &str, outcome: Outcome) -> Row {
    row(section, format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n"), outcome)
}

/// A POST with these field lines and what follows.
fn post(section: &'static str, fields: &str, rest: &str, outcome: Outcome) -> Row {
    row(section, format!("POST / HTTP/1.1\r\nhost: a\r\n{fields}\r\n{rest}"), outcome)
}

/// A POST of chunks.
fn chunks(section: &'static str, rest: &str, outcome: Outcome) -> Row {
    post(section, "transfer-encoding: chunked\r\n", rest, outcome)
}

impl Row {
    fn has(mut self, has: &'static [&'static str]) -> Self {
        self.has = has;
        self
    }

    fn lacks(mut self, lacks: &'static [&'static str]) -> Self {
        self.lacks = lacks;
        self
    }

    fn ends(mut self) -> Self {
        self.ends = true;
        self
    }
}

const GET: (&str, &str) = ("GET / ", "");
const ONE: Outcome = Served(&[GET]);
const BAD: Outcome = Refused(&[], 400);
const HELLO: Outcome = Served(&[("POST / ", "hello")]);
const EMPTY: Outcome = Served(&[("POST / ", "")]);

/// Where a body ends when both fields are there, or either of them in an odd form.
fn lengths() -> Vec<Row> {
    let smuggled = "GET /admin HTTP/1.1\r\nhost: a\r\n\r\n";
    vec![
        post("9112 6.3", "content-length: 5\r\n", "hello", HELLO)
            .has(&["content-length: 5"])
            .lacks(&["transfer-encoding"]),
        post("9112 6.3", "Content-Length: 5\r\n", "hello", HELLO),
        post("9112 6.3", "content-length:5\r\n", "hello", HELLO),
        post("9112 6.3", "content-length: \t 5\t \r\n", "hello", HELLO),
        post("9112 6.2", "content-length: 0\r\n", "", EMPTY),
        post("9112 6.2", "content-length: 0005\r\n", "hello", HELLO).has(&["content-length: 5"]),
        post("9112 6.3", "", "", EMPTY).lacks(&["transfer-encoding"]),
        post("9112 6.3", "transfer-encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", HELLO)
            .has(&["transfer-encoding: chunked"])
            .lacks(&["content-length"]),
        // Field case 59, in both orders.
        post("9112 6.1", "content-length: 13\r\ntransfer-encoding: chunked\r\n", &format!("0\r\n\r\n{smuggled}"), BAD),
        post("9112 6.1", "transfer-encoding: chunked\r\ncontent-length: 13\r\n", &format!("0\r\n\r\n{smuggled}"), BAD),
        post("9112 6.1", "content-length: 0\r\ntransfer-encoding: chunked\r\n", "0\r\n\r\n", BAD),
        post("9112 6.1", "content-length: 5\r\ntransfer-encoding: identity\r\n", "hello", BAD),
        post("9112 6.3", "content-length: 5\r\ncontent-length: 5\r\n", "hello", BAD),
        post("9112 6.3", "content-length: 5\r\ncontent-length: 6\r\n", "hello", BAD),
        post("9112 6.3", "content-length: 5\r\nx: 1\r\nContent-Length: 0\r\n", &format!("hello{smuggled}"), BAD),
        post("9112 6.3", "content-length: 5, 5\r\n", "hello", BAD),
        post("9112 6.3", "content-length: 5 5\r\n", "hello", BAD),
        post("9110 8.6", "content-length: +5\r\n", "hello", BAD),
        post("9110 8.6", "content-length: -5\r\n", "hello", BAD),
        post("9110 8.6", "content-length: 5.0\r\n", "hello", BAD),
        post("9110 8.6", "content-length: 0x5\r\n", "hello", BAD),
        post("9110 8.6", "content-length: 5e0\r\n", "hello", BAD),
        post("9110 8.6", "content-length: 5;\r\n", "hello", BAD),
        post("9110 8.6", "content-length: \"5\"\r\n", "hello", BAD),
        post("9110 8.6", "content-length: \r\n", "hello", BAD),
        post("9110 8.6", "content-length:\r\n", "hello", BAD),
        post("9110 8.6", "content-length: five\r\n", "hello", BAD),
        post("9110 8.6", "content-length: ٥\r\n", "hello", BAD),
        post("9110 8.6", "content-length: 18446744073709551621\r\n", "hello", BAD),
        post("9110 8.6", "content-length: 18446744073709551615\r\n", "hello", BAD),
        post("9110 8.6", "content-length: 9223372036854775808\r\n", "hello", BAD),
        post("9112 5.1", "content-length : 5\r\n", "hello", BAD),
        post("9112 5.1", "content-length\t: 5\r\n", "hello", BAD),
        post("9112 5.2", "content-length:\r\n 5\r\n", "hello", BAD),
        post("9112 5.1", "content_length: 5\r\n", "", EMPTY).lacks(&["content_length"]),
        post("9112 5.1", "x-content-length: 5\r\n", "", EMPTY),
    ]
}

/// Spellings of Transfer-Encoding.
fn codings() -> Vec<Row> {
    let body = "5\r\nhello\r\n0\r\n\r\n";
    let spelled = |value: &str, outcome| post("9112 6.1", &format!("transfer-encoding:{value}\r\n"), body, outcome);
    let unknown = Refused(&[], 501);
    vec![
        spelled(" chunked", HELLO),
        spelled("chunked", HELLO),
        spelled(" Chunked", HELLO),
        spelled(" CHUNKED", HELLO),
        spelled("\tchunked\t", HELLO),
        spelled(" chunked,", BAD),
        spelled(" ,chunked", BAD),
        spelled(" chunked, chunked", BAD),
        spelled(" chunked, identity", BAD),
        spelled(" chunked, gzip", BAD),
        spelled(" gzip", BAD),
        spelled(" identity", BAD),
        spelled("", BAD),
        spelled(" ", BAD),
        spelled(" xchunked", BAD),
        spelled(" chunkedx", BAD),
        spelled(" chunked;q=1", BAD),
        spelled(" chunked ;", BAD),
        spelled(" \"chunked\"", BAD),
        spelled(" 'chunked'", BAD),
        spelled(" chun\tked", BAD),
        spelled(" \u{b}chunked", BAD),
        spelled(" \u{c}chunked", BAD),
        spelled(" chunked\u{0}", BAD),
        spelled(" \u{a0}chunked", BAD),
        spelled(" gzip, chunked", unknown),
        spelled(" identity, chunked", unknown),
        post("9112 6.1", "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", body, BAD),
        post("9112 6.1", "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", body, BAD),
        post("9112 6.1", "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", body, BAD),
        post("9112 5.1", "transfer-encoding : chunked\r\n", body, BAD),
        post("9112 5.1", "transfer-encoding\u{b}: chunked\r\n", body, BAD),
        post("9112 5.2", "transfer-encoding:\r\n chunked\r\n", body, BAD),
        post("9112 5.2", "x: 1\r\n transfer-encoding: chunked\r\n", body, BAD),
        // No framing field to anybody who reads hyphens: there is no body, and what follows is no request.
        post("9112 6.1", "transfer_encoding: chunked\r\n", "", EMPTY).lacks(&["transfer_encoding"]),
        post("9112 6.1", "x: y\r\n\r\ntransfer-encoding: chunked\r\n", "", Refused(&[("POST / ", "")], 400)),
        row("9112 6.1", format!("POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{body}"), BAD),
        row(
            "9112 6.1",
            format!("POST / HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n{body}"),
            BAD,
        ),
        row(
            "9112 6.1",
            "GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            Served(&[("GET / ", "")]),
        ),
    ]
}

/// Bodies of chunks.
fn chunked() -> Vec<Row> {
    let long = |count| "a".repeat(count);
    vec![
        chunks("9112 7.1", "0\r\n\r\n", EMPTY),
        chunks("9112 7.1", "000\r\n\r\n", EMPTY),
        chunks("9112 7.1", "05\r\nhello\r\n0\r\n\r\n", HELLO),
        chunks("9112 7.1", "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", HELLO),
        chunks(
            "9112 7.1",
            "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
            Served(&[("POST / ", "01234567890123456789")]),
        ),
        // Extensions are dropped.
        chunks("9112 7.1.1", "5;a\r\nhello\r\n0\r\n\r\n", HELLO),
        chunks("9112 7.1.1", "5;a=b;c=\"d;e\"\r\nhello\r\n0;x\r\n\r\n", HELLO),
        chunks("9112 7.1.1", "5 \t;a\r\nhello\r\n0\r\n\r\n", HELLO),
        chunks("9112 7.1.1", "5 \r\nhello\r\n0\r\n\r\n", HELLO),
        chunks("9112 7.1.1", "5;a\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1.1", "5;a\rb\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1.1", "5;a\0\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1.1", &format!("5;{}\r\nhello\r\n0\r\n\r\n", long(20_000)), Broken(400)),
        chunks("9112 7.1.1", &"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n".repeat(800), Broken(400)),
        chunks("9112 7.1", "5\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "5\r\nhello\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "5\r\nhello\r0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "5\r\nhello!\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "5\r\nhell\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "5\r\nhello0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "0\n\r\n", Broken(400)),
        chunks("9112 7.1", "0\r\n\n", Broken(400)),
        chunks("9112 7.1", "\r\n5\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", " 5\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "+5\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "-5\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "0x5\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "5_0\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "g\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", ";a\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "5 5\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "100000000000000005\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "ffffffffffffffff\r\nhello\r\n0\r\n\r\n", Broken(400)),
        chunks("9112 7.1", "00000000000000000005\r\nhello\r\n0\r\n\r\n", Broken(400)),
        // A trailer's fields are never merged into the head, and reach a backend only where they were announced.
        chunks("9110 6.5", "0\r\nx-late: 1\r\n\r\n", EMPTY).lacks(&["x-late"]),
        chunks("9110 6.5.1", "0\r\ncontent-length: 5\r\n\r\n", EMPTY).lacks(&["content-length"]),
        chunks("9110 6.5.1", "0\r\ntransfer-encoding: chunked\r\nhost: b\r\n\r\n", EMPTY).lacks(&["host: b"]),
        post(
            "9110 6.5.1",
            "transfer-encoding: chunked\r\ntrailer: x-late\r\n",
            "0\r\nx-late: 1\r\n\r\n",
            Served(&[("POST / ", "[x-late: 1]")]),
        ),
        post(
            "9110 6.5.1",
            "transfer-encoding: chunked\r\ntrailer: content-length, host, authorization\r\n",
            "0\r\ncontent-length: 5\r\nhost: b\r\nauthorization: c\r\n\r\n",
            EMPTY,
        ),
        chunks("9112 7.1.2", "0\r\n x: 1\r\n\r\n", Broken(400)),
        chunks("9112 7.1.2", "0\r\nx : 1\r\n\r\n", Broken(400)),
        chunks("9112 7.1.2", "0\r\nx: 1\n\r\n", Broken(400)),
        chunks("9112 7.1.2", "0\r\nx: \0\r\n\r\n", Broken(400)),
        chunks("9112 7.1.2", "0\r\nno colon\r\n\r\n", Broken(400)),
        chunks("9112 7.1.2", &format!("0\r\nx: {}\r\n\r\n", long(40_000)), Broken(400)),
        chunks("9112 7.1.2", &format!("0\r\n{}\r\n", "x: 1\r\n".repeat(200)), Broken(400)),
        chunks("9112 8", "5\r\nhel", Broken(400)).ends(),
        post("9112 8", "content-length: 5\r\n", "hel", Broken(400)).ends(),
        chunks("9110 15.5.14", &format!("{:x}\r\n{}\r\n0\r\n\r\n", 2000, long(2000)), Broken(413)),
        post("9110 15.5.14", "content-length: 2000\r\n", &long(2000), Refused(&[], 413)),
        post("9110 15.5.14", "content-length: 1001\r\n", "", Refused(&[], 413)),
    ]
}

/// Lines and fields.
fn fields() -> Vec<Row> {
    let huge = "a".repeat(40_000);
    vec![
        get("9112 5", "x: y\r\n", ONE).has(&["x: y"]),
        get("9112 5", "x:y\r\n", ONE).has(&["x: y"]),
        get("9112 5", "x: \t y \t\r\n", ONE).has(&["x: y"]),
        get("9112 5", "x:\r\n", ONE),
        get("9110 5.5", "x: a\tb\r\n", ONE).has(&["x: a\tb"]),
        get("9110 5.5", "x: é\r\n", ONE),
        get("9110 5.3", "x: 1\r\nx: 2\r\n", ONE).has(&["x: 1", "x: 2"]),
        get("9110 5.1", "!#$%&'*+-.^`|~: y\r\n", ONE).has(&["!#$%&'*+-.^`|~: y"]),
        get("9112 5.1", "x : y\r\n", BAD),
        get("9112 5.1", "x\t: y\r\n", BAD),
        get("9112 5.1", ": y\r\n", BAD),
        get("9112 5.1", "x\r\n", BAD),
        get("9112 5.1", "x y: z\r\n", BAD),
        get("9110 5.1", "x(y): z\r\n", BAD),
        get("9110 5.1", "x@y: z\r\n", BAD),
        get("9110 5.1", "é: z\r\n", BAD),
        get("9110 5.1", "x\0: z\r\n", BAD),
        get("9112 5.2", "x: y\r\n z\r\n", BAD),
        get("9112 5.2", "x: y\r\n\tz\r\n", BAD),
        get("9112 5.2", "x: y\r\n \r\n", BAD),
        row("9112 2.2", "GET / HTTP/1.1\r\n host: a\r\n\r\n", BAD),
        row("9112 2.2", "GET / HTTP/1.1\r\n\thost: a\r\nhost: a\r\n\r\n", BAD),
        get("9112 2.2", "x: y\n", BAD),
        get("9112 2.2", "x: y\nz: 1\r\n", BAD),
        row("9112 2.2", "GET / HTTP/1.1\nhost: a\r\n\r\n", BAD),
        row("9112 2.2", "GET / HTTP/1.1\nhost: a\n\n", BAD),
        row("9112 2.2", "GET / HTTP/1.1\r\nhost: a\r\n\n", BAD),
        row("9112 2.2", "GET / HTTP/1.1\r\nhost: a\n\r\n", BAD),
        get("9112 2.2", "x: y\rz: 1\r\n", BAD),
        get("9112 2.2", "x: y\r\r\n", BAD),
        get("9110 5.5", "x: y\0\r\n", BAD),
        get("9110 5.5", "x: \u{1}\r\n", BAD),
        get("9110 5.5", "x: \u{7f}\r\n", BAD),
        get("9110 5.5", "x: \u{b}\r\n", BAD),
        get("9110 5.5", "x: \u{1b}[2J\r\n", BAD),
        get("9110 17.10", "x_user: root\r\nx-user: me\r\n", ONE).has(&["x-user: me"]).lacks(&["x_user", "root"]),
        get("9110 17.10", "X_Forwarded_For: 1.1.1.1\r\n", ONE).lacks(&["1.1.1.1"]),
        get("9110 7.6.1", "connection: x-forwarded-for, host, x\r\nx: 1\r\n", ONE)
            .has(&["host: a"])
            .lacks(&["x: 1", "connection: x"]),
        get("9110 7.6.1", "connection: content-length\r\n", ONE),
        post("9110 7.6.1", "connection: content-length, transfer-encoding\r\ncontent-length: 5\r\n", "hello", HELLO)
            .has(&["content-length: 5"]),
        get("9110 7.6.1", "keep-alive: 1\r\nproxy-connection: x\r\nte: gzip\r\n", ONE).lacks(&[
            "keep-alive",
            "proxy-connection",
            "te: ",
        ]),
        get("9110 7.8", "upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: AA\r\n", ONE)
            .lacks(&["upgrade", "http2-settings"]),
        get("6585 5", &"x: 1\r\n".repeat(99), ONE),
        get("6585 5", &"x: 1\r\n".repeat(100), Refused(&[], 431)),
        get("6585 5", &format!("x: {huge}\r\n"), Refused(&[], 431)),
        get("6585 5", &format!("{huge}: x\r\n"), Refused(&[], 431)),
        row("6585 5", format!("GET / HTTP/1.1\r\nhost: a\r\nx: {huge}"), Refused(&[], 431)),
        row("9112 2.2", "GET / HTTP/1.1\r\nhost: a\r\n", Closed).ends(),
        row("9112 2.2", "GET / HTTP/1.1\r\nhost: a\r\n\r", Closed).ends(),
        row("9112 2.2", "GE", Closed).ends(),
        row("9112 2.2", "\r\n", Closed).ends(),
        row("9112 2.2", "", Closed).ends(),
    ]
}

/// Request lines.
fn lines() -> Vec<Row> {
    let line = |line: &str, outcome| row("9112 3", format!("{line}\r\nhost: a\r\n\r\n"), outcome);
    let target = |target: &str, outcome| row("9112 3.2", format!("GET {target} HTTP/1.1\r\nhost: a\r\n\r\n"), outcome);
    let long = |count| format!("/{}", "a".repeat(count));
    vec![
        line("GET / HTTP/1.1", ONE).has(&["host: a"]),
        line("\r\nGET / HTTP/1.1", ONE),
        line("\r\n\r\nGET / HTTP/1.1", ONE),
        line("\nGET / HTTP/1.1", BAD),
        line(" GET / HTTP/1.1", BAD),
        line("GET  / HTTP/1.1", BAD),
        line("GET /  HTTP/1.1", BAD),
        line("GET\t/ HTTP/1.1", BAD),
        line("GET /\tHTTP/1.1", BAD),
        line("GET / HTTP/1.1 ", BAD),
        line("GET /a b HTTP/1.1", BAD),
        line("GET /a\u{0} HTTP/1.1", BAD),
        line("GET /a\rb HTTP/1.1", BAD),
        line("GET /", BAD),
        line("GET", BAD),
        line("GET / ", BAD),
        line("GET / HTTP/1.2", BAD),
        line("GET / HTTP/2.0", BAD),
        line("GET / HTTP/0.9", BAD),
        line("GET / HTTP/1.10", BAD),
        line("GET / HTTP/01.1", BAD),
        line("GET / http/1.1", BAD),
        line("GET / HTTP /1.1", BAD),
        line("GET / ICAP/1.0", BAD),
        line("G(T / HTTP/1.1", BAD),
        line("G\u{e9}T / HTTP/1.1", BAD),
        line(" / HTTP/1.1", BAD),
        line("get / HTTP/1.1", Served(&[("get / ", "")])),
        line("BREW /pot HTTP/1.1", Served(&[("BREW /pot ", "")])),
        row("9113 3.4: all but HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n", BAD),
        row("9112 3", "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}", BAD),
        row("9112 3", "\u{0}", BAD),
        target("/a?b=c", Served(&[("GET /a?b=c ", "")])),
        target("/?", Served(&[("GET /? ", "")])),
        target("/a%20b", Served(&[("GET /a%20b ", "")])),
        target("/a#b", BAD),
        target("/#", BAD),
        target("/?a#b", BAD),
        target("#", BAD),
        target("a", Stays(400)),
        target("*", Stays(400)),
        target("/%", Stays(400)),
        target("/%2f", Stays(400)),
        target("/\\", Stays(400)),
        target("/a/../b", Served(&[("GET /b ", "")])),
        target("//a", Served(&[("GET //a ", "")])),
        target("http://b/x?y", Served(&[("GET /x?y ", "")])).has(&["host: b"]).lacks(&["host: a"]),
        target("http://b", ONE).has(&["host: b"]),
        target("http://b:8080/", ONE).has(&["host: b:8080"]),
        target("HTTP://B/", ONE).has(&["host: B"]),
        target("http://u@b/", BAD),
        target("http://u:p@b/", BAD),
        target("http:///x", BAD),
        target("http://", BAD),
        target("http://b#c", BAD),
        target("ftp://b/", BAD),
        target("a:80", Stays(400)),
        row("9112 3.2.4", "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", Stays(400)),
        row("9112 3.2.3", "CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n", Refused(&[], 501)),
        row("9112 3.2.3", "CONNECT / HTTP/1.1\r\nhost: a\r\n\r\nGET /x HTTP/1.1\r\nhost: a\r\n\r\n", Refused(&[], 501)),
        target(&long(8000), Served(&[("GET /aaaaaa", "")])),
        target(&long(9000), Refused(&[], 414)),
        target(&long(70_000), Refused(&[], 414)),
        row("9112 3", format!("GET {}", long(9000)), Refused(&[], 414)),
    ]
}

/// Who is asked, and how.
fn hosts() -> Vec<Row> {
    let host = |fields: &str, outcome| row("9112 3.2", format!("GET / HTTP/1.1\r\n{fields}\r\n"), outcome);
    let continued = "expect: 100-continue\r\ncontent-length: 5\r\n";
    vec![
        host("", BAD),
        host("host:\r\n", BAD),
        host("host: \r\n", BAD),
        host("host: a\r\nhost: a\r\n", BAD),
        host("host: a\r\nHost: b\r\n", BAD),
        host("host: a, b\r\n", BAD),
        host("host: a b\r\n", BAD),
        host("host: a/b\r\n", BAD),
        host("host: a@b\r\n", BAD),
        host("host: a:b\r\n", BAD),
        host("host: a:99999\r\n", BAD),
        host("host: http://a\r\n", BAD),
        host("host: A.EXAMPLE\r\n", ONE).has(&["host: A.EXAMPLE"]),
        host("host: a.\r\n", ONE),
        host("host: a:80\r\n", ONE).has(&["host: a:80"]),
        host("host: [::1]:80\r\n", ONE),
        row("9112 3.2", "GET / HTTP/1.0\r\n\r\n", Last(&[GET])),
        row("9112 9.3", "GET / HTTP/1.0\r\nhost: a\r\n\r\n", Last(&[GET])),
        row("9112 9.3", "GET / HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\n\r\n", ONE),
        row("9112 9.3", "POST / HTTP/1.0\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello", Last(&[("POST / ", "hello")])),
        get("9112 9.6", "connection: close\r\n", Last(&[GET])),
        get("9112 9.6", "connection: close, keep-alive\r\n", Last(&[GET])),
        get("9112 9.6", "connection: close\r\nconnection: keep-alive\r\n", Last(&[GET])),
        post("9110 10.1.1", continued, "hello", HELLO).lacks(&["expect"]),
        get("9110 10.1.1", "expect: 100-continue\r\n", ONE).lacks(&["expect"]),
        get("9110 10.1.1", "expect: 100-Continue\r\n", ONE).lacks(&["expect"]),
        get("9110 10.1.1", "expect: magic\r\n", Stays(417)),
        get("9110 10.1.1", "expect: 100-continue\r\nexpect: magic\r\n", Stays(417)),
        post("9110 10.1.1", "expect: magic\r\ncontent-length: 5\r\n", "hello", Stays(417)),
        post("9110 10.1.1", "expect: 100-continue\r\ncontent-length: 2000\r\n", "", Refused(&[], 413)),
        row(
            "9110 10.1.1",
            "POST / HTTP/1.0\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\nhello",
            Last(&[("POST / ", "hello")]),
        ),
        row(
            "9110 9.3.1",
            "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
            Served(&[("GET / ", "hello")]),
        ),
        row(
            "9110 9.3.2",
            "HEAD / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
            Served(&[("HEAD / ", "hello")]),
        ),
        row(
            "9110 9.3.5",
            "DELETE / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
            Served(&[("DELETE / ", "hello")]),
        ),
        row("9110 9.3.8", "TRACE / HTTP/1.1\r\nhost: a\r\n\r\n", Served(&[("TRACE / ", "")])),
        row("9110 9.3.2", "HEAD / HTTP/1.1\r\nhost: a\r\nx : y\r\n\r\n", BAD),
    ]
}

/// More than one message.
fn pipelines() -> Vec<Row> {
    let one = "GET /1 HTTP/1.1\r\nhost: a\r\n\r\n";
    let two = "GET /2 HTTP/1.1\r\nhost: a\r\n\r\n";
    let sized = "POST /3 HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
    let chunked = "POST /4 HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let bad = "GET /5 HTTP/1.1\r\nhost: a\r\nx : y\r\n\r\n";
    let all = |parts: &[&str], outcome| row("9112 9.3.2", parts.concat(), outcome);
    vec![
        all(&[one, two], Served(&[("GET /1 ", ""), ("GET /2 ", "")])),
        all(&[one, sized, two], Served(&[("GET /1 ", ""), ("POST /3 ", "hello"), ("GET /2 ", "")])),
        all(&[sized, sized], Served(&[("POST /3 ", "hello"), ("POST /3 ", "hello")])),
        all(&[chunked, one], Served(&[("POST /4 ", "hello"), ("GET /1 ", "")])),
        all(&[chunked, chunked, two], Served(&[("POST /4 ", "hello"), ("POST /4 ", "hello"), ("GET /2 ", "")])),
        all(&[sized, "\r\n", two], Served(&[("POST /3 ", "hello"), ("GET /2 ", "")])),
        all(&[one, bad, two], Refused(&[("GET /1 ", "")], 400)),
        all(&[sized, bad, two], Refused(&[("POST /3 ", "hello")], 400)),
        all(&[chunked, bad, two], Refused(&[("POST /4 ", "hello")], 400)),
        all(&[one, "\0"], Refused(&[("GET /1 ", "")], 400)),
        all(&[sized, "!", two], Served(&[("POST /3 ", "hello"), ("!GET /2 ", "")])),
        all(&[bad, two], BAD),
        all(&["GET /1 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", two], Last(&[("GET /1 ", "")])),
        // A body with a request in it is a body.
        row(
            "9112 6",
            format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{two}", two.len()),
            Served(&[("POST / ", "GET /2 HTTP/1.1\r\nhost: a\r\n\r\n")]),
        ),
        row(
            "9112 6",
            format!(
                "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
                two.len()
            ),
            Served(&[("POST / ", "GET /2 HTTP/1.1\r\nhost: a\r\n\r\n")]),
        ),
        // What asks to change the protocol and is not let: the next request is one all the same.
        row(
            "9110 7.8",
            format!("GET /1 HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n{two}"),
            Served(&[("GET /1 ", ""), ("GET /2 ", "")]),
        ),
        // What asks and may: what is sent ahead is neither tunnel nor request.
        row(
            "9110 7.8",
            format!("GET /1 HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n{two}"),
            Last(&[("GET /1 ", "")]),
        ),
        // Answered early: what is left of a body is never a request.
        row(
            "9112 9.3",
            format!("POST /%2f HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{two}", two.len()),
            Early(400),
        ),
    ]
}

fn table() -> Vec<Row> {
    let parts = [lengths(), codings(), chunked(), fields(), lines(), hosts(), pipelines()];
    let mut rows: Vec<Row> = parts.into_iter().flatten().collect();
    // Those that break off may reach the origin when their client has gone: nothing else comes after them.
    rows.sort_by_key(|row| matches!(row.outcome, Broken(_)));
    rows
}

#[tokio::test]
async fn every_row_of_the_table_is_read_in_one_way() {
    let table = table();
    assert!(table.len() >= 150, "{}", table.len());
    for whole in [true, false] {
        let bench = Bench::start().await;
        let mut wrong = String::new();
        for row in &table {
            if let Err(problem) = try_row(&bench, row, whole).await {
                let bytes = String::from_utf8_lossy(&row.bytes);
                writeln!(wrong, "RFC {}: {bytes:.200?}: {problem} (expected {:?})", row.section, row.outcome).unwrap();
            }
        }
        assert!(wrong.is_empty(), "whole: {whole}\n{wrong}");
    }
}

/// Sends a row, at once or in two parts, and says what is not as it must be.
async fn try_row(bench: &Bench, row: &Row, whole: bool) -> Result<(), String> {
    bench.take_seen();
    let mut client = bench.gateway.connect().await;
    if whole {
        let _ = client.stream.write_all(&row.bytes).await;
    } else {
        // The gateway may refuse the first part already.
        let (first, second) = row.bytes.split_at(row.bytes.len() * 2 / 3);
        let _ = client.stream.write_all(first).await;
        tokio::task::yield_now().await;
        let _ = client.stream.write_all(second).await;
    }
    if row.ends {
        let _ = client.stream.shutdown().await;
    }
    let method = if row.bytes.starts_with(b"HEAD ") { "HEAD" } else { "GET" };
    let mut answers = Answers { client, method };
    let is_cut = match row.outcome {
        Served(expected) => {
            answers.are_ok(expected.len()).await?;
            answers.goes_on(bench, expected.len()).await?;
            false
        }
        Last(expected) => {
            answers.are_ok(expected.len()).await?;
            answers.ends().await?;
            false
        }
        Refused(expected, status) => {
            answers.are_ok(expected.len()).await?;
            answers.refuses(status).await?;
            answers.ends().await?;
            false
        }
        Stays(status) => {
            answers.refuses(status).await?;
            answers.goes_on(bench, 0).await?;
            false
        }
        Early(status) => {
            answers.refuses(status).await?;
            match answers.goes_on(bench, 0).await {
                Ok(()) => {}
                Err(_) => answers.ends().await?,
            }
            false
        }
        Broken(status) => {
            // A client that has ended its side may or may not be told.
            if !row.ends {
                answers.refuses(status).await?;
            }
            answers.client.rest_or_reset().await;
            true
        }
        Closed => {
            answers.ends().await?;
            false
        }
    };
    let seen = bench.take_seen();
    if is_cut {
        // Another one before it may only now have been seen so far.
        let unfinished = seen.iter().all(|seen| seen.body == "<unfinished>");
        return if unfinished { Ok(()) } else { Err(format!("the origin saw {seen:?}")) };
    }
    let expected = match row.outcome {
        Served(expected) | Last(expected) | Refused(expected, _) => expected,
        Stays(_) | Early(_) | Broken(_) | Closed => &[],
    };
    saw(&seen, expected)?;
    for seen in &seen {
        is_clean(&seen.head)?;
    }
    let heads: String = seen.iter().map(|seen| &*seen.head).collect();
    for line in row.has {
        if !heads.split("\r\n").any(|there| there == *line) {
            return Err(format!("the origin did not see {line:?} in {heads:?}"));
        }
    }
    for text in row.lacks {
        if heads.to_ascii_lowercase().contains(text) {
            return Err(format!("the origin saw {text:?} in {heads:?}"));
        }
    }
    Ok(())
}

fn saw(seen: &[Seen], expected: &[(&str, &str)]) -> Result<(), String> {
    let matches = seen.len() == expected.len()
        && seen.iter().zip(expected).all(|(seen, (line, body))| seen.head.starts_with(line) && seen.body == *body);
    if matches { Ok(()) } else { Err(format!("the origin saw {seen:?}")) }
}

/// What holds for every head that a backend gets, whatever the client has sent.
fn is_clean(head: &str) -> Result<(), String> {
    let lines: Vec<&str> = head.trim_end_matches("\r\n").split("\r\n").collect();
    let named =
        |name: &str| lines.iter().filter(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:"))).count();
    let framed = named("content-length") + named("transfer-encoding");
    let names_are_plain =
        lines[1..].iter().all(|line| line.split_once(':').is_some_and(|(name, _)| !name.contains([' ', '\t', '_'])));
    let ends_plainly = lines[0].ends_with(" HTTP/1.1") && !lines.iter().any(|line| line.contains(['\r', '\n', '\0']));
    if named("host") == 1 && framed <= 1 && names_are_plain && ends_plainly {
        return Ok(());
    }
    Err(format!("the origin saw a head that can be read in two ways: {head:?}"))
}

struct Answers {
    client: Client,
    method: &'static str,
}

impl Answers {
    async fn next(&mut self) -> Result<String, String> {
        read_answer(&mut self.client, self.method).await.ok_or_else(|| "no answer came".to_owned())
    }

    async fn are_ok(&mut self, count: usize) -> Result<(), String> {
        for index in 0..count {
            let answer = self.next().await.map_err(|problem| format!("{index}: {problem}"))?;
            if !answer.starts_with("HTTP/1.1 200 OK\r\n") && !answer.starts_with("HTTP/1.0 200 OK\r\n") {
                return Err(format!("the client got {answer:?}"));
            }
        }
        Ok(())
    }

    /// The gateway answers by itself, and says why.
    async fn refuses(&mut self, status: u16) -> Result<(), String> {
        let answer = self.next().await?;
        if answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains("\r\nx-lockgate-reason: ") {
            return Ok(());
        }
        Err(format!("the client got {answer:?}"))
    }

    async fn ends(&mut self) -> Result<(), String> {
        match self.client.rest_or_reset().await.as_str() {
            "" => Ok(()),
            more => Err(format!("the client got {more:?} at the end")),
        }
    }

    /// Another request is answered, and nothing comes before its answer. `count` requests came before it.
    async fn goes_on(&mut self, bench: &Bench, count: usize) -> Result<(), String> {
        let request = b"GET /probe HTTP/1.1\r\nhost: a\r\n\r\n";
        self.client.stream.write_all(request).await.map_err(|error| format!("the connection ended: {error}"))?;
        self.method = "GET";
        let answer = self.next().await.map_err(|problem| format!("after it: {problem}"))?;
        let probe = {
            let mut seen = bench.seen.lock();
            if seen.len() > count { Some(seen.remove(count)) } else { None }
        };
        match probe {
            Some(probe) if probe.head.starts_with("GET /probe ") && answer.ends_with("\r\n\r\nok") => Ok(()),
            probe => Err(format!("after it the origin saw {probe:?}, the client {answer:?}")),
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_not_yet_taken_comes_whole_before_a_refusal() {
    const LENGTH: usize = 4 << 20;
    let bench = Bench::start().await;
    bench.answer.lock().bytes = format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n{}", "x".repeat(LENGTH));
    let mut client = bench.gateway.connect().await;
    client.write("GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\nhost: a\n\n").await;
    let mut answers = Answers { client, method: "GET" };
    let whole = answers.next().await.unwrap();
    assert!(whole.starts_with("HTTP/1.1 200 OK\r\n") && whole.ends_with(&"x".repeat(LENGTH)));
    answers.refuses(400).await.unwrap();
    answers.ends().await.unwrap();
}

#[tokio::test]
async fn names_with_underscores_stay_where_that_is_set_and_are_counted_where_not() {
    let origin = Origin::start(Reply::always(OK)).await;
    let selectors = || vec![selector(vec![rule("/", &[(&origin, 1)])])];
    let request = "GET / HTTP/1.1\r\nhost: a\r\nx_a: 1\r\nx_b: 2\r\n\r\n";
    let dropping = Gateway::start(selectors()).await;
    dropping.send(request).await;
    assert!(dropping.metrics().contains("\nlockgate_fields_dropped_total 2\n"));
    let allow = |settings: &mut Settings| {
        settings.headers.underscores = Underscores::Allow;
    };
    let allowing = Gateway::with(selectors(), allow).await;
    allowing.send(request).await;
    let seen = origin.requests();
    assert!(!seen[0].contains('_') && seen[1].contains("x_a: 1\r\nx_b: 2\r\n"), "{seen:?}");
    assert!(allowing.metrics().contains("\nlockgate_fields_dropped_total 0\n"));
}
