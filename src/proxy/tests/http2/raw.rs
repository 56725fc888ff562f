//! A client of bare frames (RFC 9113, section 4.1).

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::harness::Gateway;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const NO_ERROR: u32 = 0;
pub(super) const PROTOCOL_ERROR: u32 = 1;
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;

/// Longer than anything here takes.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    /// A number in the payload.
    pub(super) fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    pub(super) fn ends_stream(&self) -> bool {
        self.flags & END_STREAM != 0
    }
}

pub(super) struct Raw {
    pub(super) stream: TcpStream,
}

/// A frame's bytes.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A header block of literals that leave no trace in the table (RFC 7541, section 6.2.2).
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// A `GET` of `/`.
pub(super) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.example")];

/// A `POST` of `/`.
pub(super) const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a.example")];

/// The frame of a request without a body.
pub(super) fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(&GET))
}

impl Raw {
    /// A connection with no byte sent.
    pub(super) async fn silent(gateway: &Gateway) -> Self {
        let stream = gateway.connect().await.stream;
        stream.set_nodelay(true).unwrap();
        Self { stream }
    }

    /// A connection that has begun with these settings.
    pub(super) async fn with(gateway: &Gateway, settings: &[(u16, u32)]) -> Self {
        let mut raw = Self::silent(gateway).await;
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        raw.write(&[PREFACE, &frame(SETTINGS, 0, 0, &payload)].concat()).await;
        raw
    }

    pub(super) async fn connect(gateway: &Gateway) -> Self {
        Self::with(gateway, &[]).await
    }

    /// Writes bytes; false if the gateway takes none any more.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// The next frame; `None` at the end of the connection.
    pub(super) async fn frame(&mut self) -> Option<Frame> {
        tokio::time::timeout(PATIENCE, self.read()).await.expect("no frame came")
    }

    async fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of a kind; acknowledges settings on the way.
    pub(super) async fn next(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.frame().await.unwrap_or_else(|| panic!("closed before a frame of kind {kind}"));
            if frame.kind == kind {
                return frame;
            }
            if frame.kind == SETTINGS && frame.flags & ACK == 0 {
                self.write(&self::frame(SETTINGS, ACK, 0, &[])).await;
            }
        }
    }

    /// The last GOAWAY before the end of the connection: last stream and code.
    pub(super) async fn goaway(&mut self) -> Option<(u32, u32)> {
        let mut last = None;
        while let Some(frame) = self.frame().await {
            if frame.kind == GOAWAY {
                last = Some((frame.number(0), frame.number(4)));
            }
        }
        last
    }

    /// Waits until everything sent so far has been read and acted upon.
    pub(super) async fn settle(&mut self) {
        self.write(&frame(PING, 0, 0, b"settling")).await;
        loop {
            let ping = self.next(PING).await;
            if ping.flags & ACK != 0 && ping.payload == b"settling" {
                return;
            }
        }
    }
}
