//! What backends answer.

use super::*;
use End::{Cut, Kept, Wrong};

/// What becomes of an answer.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The client gets this status and body; the connection to the backend is used again.
    Kept(u16, &'static str),
    /// The same, and the connection to the backend is not used again.
    Once(u16, &'static str),
    /// The client is told that there was no answer: 502.
    Wrong,
    /// The client's connection ends before the answer does.
    Cut,
}

const ROWS: &[(&str, &str, &str, bool, End)] = &[
    ("9112 6.3", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", false, Kept(200, "ok")),
    (
        "9112 6.3",
        "GET",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        false,
        Kept(200, "ok"),
    ),
    ("9112 6.3", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", false, Kept(200, "")),
    ("9112 6.3", "GET", "HTTP/1.1 200 OK\r\n\r\nok", true, End::Once(200, "ok")),
    ("9112 6.3", "GET", "HTTP/1.0 200 OK\r\n\r\nok", true, End::Once(200, "ok")),
    ("9112 6.3", "GET", "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", false, End::Once(200, "ok")),
    (
        "9112 9.6",
        "GET",
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        false,
        End::Once(200, "ok"),
    ),
    // No body, whatever the fields say.
    ("9112 6.3", "HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", false, Kept(200, "")),
    ("9112 6.3", "HEAD", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", false, Kept(200, "")),
    ("9112 6.3", "GET", "HTTP/1.1 304 Not Modified\r\ncontent-length: 2\r\n\r\n", false, Kept(304, "")),
    ("9112 6.3", "GET", "HTTP/1.1 204 No Content\r\n\r\n", false, Kept(204, "")),
    (
        "9110 15.2",
        "GET",
        "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        false,
        Kept(200, "ok"),
    ),
    (
        "9110 15.2",
        "GET",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        false,
        Kept(200, "ok"),
    ),
    ("9112 6.1", "GET", "HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n", false, Kept(204, "")),
    // Written anew, with the line ends that belong there.
    ("9112 2.2", "GET", "HTTP/1.1 200 OK\ncontent-length: 2\n\nok", false, Kept(200, "ok")),
    // More bytes than the answer has: the next answer on that connection would be the wrong one.
    ("9112 9.2", "HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad", false, End::Once(200, "")),
    ("9112 9.2", "GET", "HTTP/1.1 304 Not Modified\r\ncontent-length: 2\r\n\r\nok", false, End::Once(304, "")),
    (
        "9112 9.2",
        "GET",
        "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad",
        false,
        End::Once(204, ""),
    ),
    ("9112 9.2", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok!", false, End::Once(200, "ok")),
    (
        "9112 9.2",
        "GET",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad",
        false,
        End::Once(200, "ok"),
    ),
    (
        "9112 9.2",
        "GET",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n",
        false,
        End::Once(200, "ok"),
    ),
    // Framing that can be read in two ways.
    (
        "9112 6.3",
        "GET",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        false,
        Wrong,
    ),
    (
        "9112 6.3",
        "GET",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        false,
        Wrong,
    ),
    ("9112 6.3", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok", false, Wrong),
    ("9112 6.3", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok", false, Wrong),
    ("9112 6.3", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok", false, Wrong),
    ("9110 8.6", "GET", "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nok", false, Wrong),
    ("9110 8.6", "GET", "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nok", false, Wrong),
    ("9110 8.6", "GET", "HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\nok", false, Wrong),
    ("9112 6.3", "GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nok", true, Wrong),
    (
        "9112 6.3",
        "GET",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        false,
        Wrong,
    ),
    (
        "9112 6.1",
        "GET",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        false,
        Wrong,
    ),
    ("9112 5.2", "GET", "HTTP/1.1 200 OK\r\nx: 1\r\n 2\r\ncontent-length: 2\r\n\r\nok", false, Wrong),
    ("9112 5.1", "GET", "HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nok", false, Wrong),
    ("9110 5.5", "GET", "HTTP/1.1 200 OK\r\nx: \0\r\ncontent-length: 2\r\n\r\nok", false, Wrong),
    ("9110 5.5", "GET", "HTTP/1.1 200 OK\r\nx: a\rb\r\ncontent-length: 2\r\n\r\nok", false, Wrong),
    ("9112 4", "GET", "HTTP/1.1 2000 OK\r\ncontent-length: 2\r\n\r\nok", false, Wrong),
    ("9112 4", "GET", "HTTP/2.0 200 OK\r\ncontent-length: 2\r\n\r\nok", false, Wrong),
    ("9112 4", "GET", "hello\r\n\r\n", false, Wrong),
    (
        "9110 15.2.2",
        "GET",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        false,
        Wrong,
    ),
    // Trailers come only where they were announced; extensions never.
    (
        "9112 7.1.1",
        "GET",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;a=\"b;c\"\r\nok\r\n0;x\r\nx-late: 1\r\n\r\n",
        false,
        Kept(200, "ok"),
    ),
    ("9112 7.1", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", false, Kept(200, "")),
    (
        "9112 7.1",
        "GET",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n01\r\nk\r\n00\r\n\r\n",
        false,
        Kept(200, "ok"),
    ),
    ("9112 6.1", "GET", "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", false, Wrong),
    (
        "9112 9.3",
        "GET",
        "HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 2\r\n\r\nok",
        false,
        Kept(200, "ok"),
    ),
    (
        "9112 9.6",
        "GET",
        "HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 2\r\n\r\nok",
        false,
        End::Once(200, "ok"),
    ),
    ("9110 8.6", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551616\r\n\r\nok", false, Wrong),
    // Ends before its end.
    ("9112 8", "GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", true, Cut),
    ("9112 7.1.2", "GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx y: 1\r\n\r\n", false, Cut),
    ("9112 8", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok", true, Cut),
    ("9112 8", "GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", true, Cut),
    ("9112 7.1", "GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\nok\r\n0\r\n\r\n", false, Cut),
    ("9112 7.1", "GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok!\r\n0\r\n\r\n", false, Cut),
    ("9112 7.1", "GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nok", false, Cut),
];

#[tokio::test]
async fn every_answer_of_the_table_reaches_the_client_in_one_way() {
    try_rows(usize::MAX, |_| true).await;
}

#[tokio::test]
async fn every_answer_reaches_the_client_in_the_same_way_however_it_comes() {
    // Not those with more bytes than they have: these must not come after the next request.
    try_rows(3, |section| section != "9112 9.2").await;
}

async fn try_rows(step: usize, which: impl Fn(&str) -> bool) {
    let bench = Bench::start().await;
    let mut wrong = String::new();
    for (section, method, bytes, closes, end) in ROWS.iter().filter(|row| which(row.0)) {
        let answer = Answer { bytes: (*bytes).into(), closes: *closes, step };
        if let Err(problem) = try_row(&bench, method, answer, *end).await {
            writeln!(wrong, "RFC {section}: {method} {bytes:?}: {problem} (expected {end:?})").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

async fn try_row(bench: &Bench, method: &str, answer: Answer, end: End) -> Result<(), String> {
    bench.take_seen();
    *bench.answer.lock() = answer;
    let mut client = bench.gateway.connect().await;
    client.write(format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n")).await;
    let (status, body) = match end {
        Cut => {
            let all = client.rest_or_reset().await;
            *bench.answer.lock() = Answer::ok();
            let is_cut = all.is_empty() || (all.starts_with("HTTP/1.1 200 ") && !all.ends_with("0\r\n\r\n"));
            return if is_cut { Ok(()) } else { Err(format!("the client got {all:?}")) };
        }
        Wrong => (502, "502 upstream-invalid\n"),
        Kept(status, body) | End::Once(status, body) => (status, body),
    };
    let answer = read_answer(&mut client, method).await.ok_or("no answer came")?;
    *bench.answer.lock() = Answer::ok();
    if !answer.starts_with(&format!("HTTP/1.1 {status} ")) || !answer.ends_with(&format!("\r\n\r\n{body}")) {
        return Err(format!("the client got {answer:?}"));
    }
    // The client's connection goes on, and the next answer on it is its own.
    client.write("GET /probe HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let answer = read_answer(&mut client, "GET").await.ok_or("no second answer came")?;
    if !answer.starts_with("HTTP/1.1 200 OK\r\n") || !answer.ends_with("\r\n\r\nok") {
        return Err(format!("the client got {answer:?} next"));
    }
    match end {
        Kept(..) => Ok(()),
        _ => match &bench.take_seen()[..] {
            [first, second] if first.connection != second.connection => Ok(()),
            seen => Err(format!("the connection was used again: {seen:?}")),
        },
    }
}

#[tokio::test]
async fn interim_answers_without_end_are_an_answer_that_does_not_come() {
    let rule = service_rule("/", "s");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = Gateway::start(vec![selector(vec![rule])]).await;
    gateway.endpoints("s", &[listener.local_addr().unwrap()]).await;
    let mut client = gateway.connect().await;
    client.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
    let (mut stream, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let flood = tokio::spawn(async move {
        while stream.write_all("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".repeat(100).as_bytes()).await.is_ok() {}
    });
    let answer = read_answer(&mut client, "GET").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    // The connection is closed: the flood ends.
    tokio::time::timeout(PATIENCE, flood).await.unwrap().unwrap();
}
