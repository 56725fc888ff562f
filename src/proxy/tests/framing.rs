//! Framing at an origin that records bytes: what a client sends, what of it the origin sees, and what the client gets.
//!
//! Each row of the tables is sent on a connection of its own. One that must stay open is asked once more behind it, so
//! that bytes left over, or an answer too many, show.

mod answers;
mod requests;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::harness::{Client, Gateway, selector, service_rule};
use crate::ir;

const PATIENCE: Duration = Duration::from_secs(20);

/// A request as the origin has read it.
#[derive(Clone, Debug)]
struct Seen {
    head: String,
    body: String,
    /// The connection that it came on.
    connection: usize,
}

/// A gateway before an origin that records what reaches it and answers with `answer`.
struct Bench {
    gateway: Gateway,
    seen: Arc<Mutex<Vec<Seen>>>,
    answer: Arc<Mutex<Answer>>,
}

#[derive(Clone)]
struct Answer {
    bytes: String,
    closes: bool,
    /// Bytes sent at a time.
    step: usize,
}

impl Answer {
    fn ok() -> Self {
        Self { bytes: OK.into(), closes: false, step: usize::MAX }
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

impl Bench {
    async fn start() -> Self {
        let mut rule = service_rule("/", "s");
        rule.limits.max_body_bytes = Some(1000);
        Self::with(rule).await
    }

    async fn with(rule: ir::Rule) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let answer = Arc::new(Mutex::new(Answer::ok()));
        let (record, answers) = (Arc::clone(&seen), Arc::clone(&answer));
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((stream, _)) = listener.accept().await {
                connection += 1;
                tokio::spawn(serve((stream, connection), Arc::clone(&record), Arc::clone(&answers)));
            }
        });
        let gateway = Gateway::start(vec![selector(vec![rule])]).await;
        gateway.endpoints("s", &[address]).await;
        Self { gateway, seen, answer }
    }

    fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock())
    }
}

/// Reads requests as naively as any backend might, and records each.
async fn serve(
    (mut stream, connection): (TcpStream, usize),
    seen: Arc<Mutex<Vec<Seen>>>,
    answer: Arc<Mutex<Answer>>,
) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut bytes = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes.drain(..end);
        let index = {
            let mut seen = seen.lock();
            seen.push(Seen { head: head.clone(), body: "<unfinished>".into(), connection });
            seen.len() - 1
        };
        let body = body(&mut stream, &mut bytes, &head).await?;
        if let Some(seen) = seen.lock().get_mut(index) {
            seen.body = body;
        }
        let Answer { bytes: text, closes, step } = answer.lock().clone();
        let text = if head.starts_with("HEAD ") && text == OK { text.trim_end_matches("ok") } else { &text };
        for piece in text.as_bytes().chunks(step) {
            stream.write_all(piece).await.ok()?;
            if step < text.len() {
                // The gateway's turn: what has come by the time of a read is one piece.
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
        }
        if closes {
            return None;
        }
    }
}

/// The body behind a head, without its framing.
async fn body(stream: &mut TcpStream, bytes: &mut Vec<u8>, head: &str) -> Option<String> {
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (before, value) = line.split_once(':')?;
            before.eq_ignore_ascii_case(name).then(|| value.trim().to_ascii_lowercase())
        })
    };
    if field("transfer-encoding").is_some() {
        let mut text = String::new();
        loop {
            let size = usize::from_str_radix(&line(stream, bytes).await?, 16).ok()?;
            if size == 0 {
                loop {
                    match line(stream, bytes).await?.as_str() {
                        "" => return Some(text),
                        trailer => write!(text, "[{trailer}]").ok()?,
                    }
                }
            }
            text += &exactly(stream, bytes, size).await?;
            line(stream, bytes).await?;
        }
    }
    match field("content-length") {
        Some(length) => exactly(stream, bytes, length.parse().ok()?).await,
        None => Some(String::new()),
    }
}

async fn line(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(at) = bytes.windows(2).position(|w| w == b"\r\n") {
            let line = String::from_utf8_lossy(&bytes[..at]).into_owned();
            bytes.drain(..at + 2);
            return Some(line);
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}

async fn exactly(stream: &mut TcpStream, bytes: &mut Vec<u8>, count: usize) -> Option<String> {
    while bytes.len() < count {
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(String::from_utf8_lossy(&bytes.drain(..count).collect::<Vec<_>>()).into_owned())
}

/// Reads an answer, of which `HEAD` has no body; `None` where the connection ends before one.
async fn read_answer(client: &mut Client, method: &str) -> Option<String> {
    let mut head = client.read_head_or_end().await?;
    if head.starts_with("HTTP/1.1 100 ") {
        head = client.read_head_or_end().await?;
    }
    let lower = head.to_ascii_lowercase();
    let status: u16 = head.get(9..12)?.parse().ok()?;
    if method == "HEAD" || status == 204 || status == 304 {
        return Some(head);
    }
    if lower.contains("transfer-encoding: chunked") {
        let mut body = String::new();
        loop {
            let size = client.read_line().await;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let data = client.read_exactly(size + 2).await;
            body += &String::from_utf8_lossy(&data[..size]);
            if size == 0 {
                return Some(head + &body);
            }
        }
    }
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
    let body = client.read_exactly(length).await;
    Some(head + &String::from_utf8_lossy(&body))
}
