//! A collector for tests.

use std::net::SocketAddr;

use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) use super::otlp::Span;
use super::otlp::{AnyOf, Request};

/// A collector that answers each message as it is told.
pub(crate) struct Receiver {
    listener: TcpListener,
    stream: Option<TcpStream>,
}

/// A message that came.
pub(crate) struct Posted {
    pub(crate) head: String,
    pub(crate) spans: Vec<Span>,
    pub(super) request: Request,
}

impl Receiver {
    pub(crate) async fn start() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Self { listener, stream: None }, address)
    }

    /// Takes one message and answers it.
    pub(crate) async fn take(&mut self, status: &str) -> Posted {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.listener.accept().await.unwrap().0,
        };
        let mut read = Vec::new();
        let (head, length) = loop {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0, "the connection ended");
            let text = String::from_utf8_lossy(&read).into_owned();
            let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            break (head.to_owned(), length.parse::<usize>().unwrap());
        };
        while read.len() < head.len() + 4 + length {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0, "the connection ended");
        }
        stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
        self.stream = Some(stream);
        let request = Request::decode(&read[head.len() + 4..]).unwrap();
        let scoped = request.resource_spans.iter().flat_map(|spans| &spans.scope_spans);
        let spans = scoped.flat_map(|scope| scope.spans.clone()).collect();
        Posted { head, spans, request }
    }
}

/// An attribute of a span; empty where it has none.
pub(crate) fn attribute(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|found| found.value.as_ref()?.value.clone()) {
        Some(AnyOf::Text(text)) => text,
        Some(AnyOf::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}
