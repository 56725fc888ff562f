//! A WebSocket server that sends back what it gets, and what a client sees of a case.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{SinkExt, StreamExt};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::PATIENCE;
use super::cases::{Case, frame};

/// A running server. Its thread ends with the process.
pub(super) struct Echo {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    handshakes: Arc<AtomicUsize>,
    closing: watch::Sender<bool>,
}

impl Echo {
    pub(super) fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let handshakes = Arc::new(AtomicUsize::new(0));
        let (closing, closed) = watch::channel(false);
        let (record, count) = (Arc::clone(&heads), Arc::clone(&handshakes));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&record), Arc::clone(&count), closed.clone()));
                }
            });
        });
        Self { address, heads, handshakes, closing }
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The head of the last handshake.
    pub(super) fn take(&self) -> String {
        self.heads.lock().pop().unwrap()
    }

    /// How many handshakes there were.
    pub(super) fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::Relaxed)
    }

    /// Closes every connection.
    pub(super) fn close_all(&self) {
        self.closing.send_replace(true);
    }
}

async fn serve(
    stream: TcpStream,
    record: Arc<Mutex<Vec<String>>>,
    count: Arc<AtomicUsize>,
    mut closing: watch::Receiver<bool>,
) {
    #[allow(clippy::result_large_err, reason = "the library's type")]
    let keep = |request: &Request, response: Response| {
        let fields = request.headers().iter().map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()));
        let fields: String = fields.collect();
        record.lock().push(format!("{} {} {:?}\r\n{fields}\r\n", request.method(), request.uri(), request.version()));
        count.fetch_add(1, Ordering::Relaxed);
        Ok(response)
    };
    let config = WebSocketConfig::default().max_message_size(Some(8 << 20)).max_frame_size(Some(8 << 20));
    let Ok(mut socket) = tokio_tungstenite::accept_hdr_async_with_config(stream, keep, Some(config)).await else {
        return;
    };
    let code = loop {
        let message = tokio::select! {
            message = socket.next() => message,
            true = async { closing.wait_for(|closing| *closing).await.is_ok() } => {
                let _ = socket.close(None).await;
                break None;
            }
        };
        match message {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                if socket.send(message).await.is_err() {
                    break None;
                }
            }
            Some(Ok(_)) => {}
            Some(Err(Error::Utf8(_))) => break Some(1007_u16),
            Some(Err(Error::Capacity(_))) => break Some(1009),
            Some(Err(Error::Protocol(_))) => break Some(1002),
            Some(Err(_)) | None => break None,
        }
    };
    // Nothing of what was said is lost in a reset: the client is told, and heard to its end.
    let _ = socket.flush().await;
    let mut stream = socket.into_inner();
    if let Some(code) = code {
        let mut close = frame(true, 0, 8, &code.to_be_bytes());
        // A server does not mask.
        close.drain(2..6);
        close[1] &= 0x7f;
        let _ = stream.write_all(&close).await;
    }
    let _ = stream.shutdown().await;
    let mut sink = [0; 4096];
    while let Ok(1..) = stream.read(&mut sink).await {}
}

/// What a client sees that does as the case says.
pub(super) async fn transcript(port: u16, case: &Case) -> Vec<String> {
    let stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nonblocking(true).unwrap();
    // Written beside the library, which would not send what is wrong.
    let mut writer = TcpStream::from_std(stream.try_clone().unwrap()).unwrap();
    let stream = TcpStream::from_std(stream).unwrap();
    let (socket, answer) = tokio_tungstenite::client_async("ws://r.test/", stream).await.unwrap();
    let mut seen = vec![answer.status().to_string()];
    let write = async {
        for piece in &case.writes {
            // The other side may have had enough.
            if writer.write_all(piece).await.is_err() {
                break;
            }
        }
    };
    let ((), mut events) = tokio::time::timeout(PATIENCE, async { tokio::join!(write, events(socket)) })
        .await
        .unwrap_or_else(|_| panic!("{} never ended", case.name));
    seen.append(&mut events);
    seen
}

async fn events(mut socket: WebSocketStream<TcpStream>) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(message) = socket.next().await {
        match message {
            Ok(message) => seen.push(event(&message)),
            Err(error) => {
                seen.push(format!("error {error}"));
                break;
            }
        }
    }
    seen
}

/// A message in a word.
pub(super) fn event(message: &Message) -> String {
    let digest = |bytes: &[u8]| {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        format!("{} {:x}", bytes.len(), hasher.finish())
    };
    match message {
        Message::Text(text) => format!("text {}", digest(text.as_bytes())),
        Message::Binary(bytes) => format!("binary {}", digest(bytes)),
        Message::Ping(bytes) => format!("ping {bytes:?}"),
        Message::Pong(bytes) => format!("pong {bytes:?}"),
        Message::Close(Some(frame)) => format!("close {} {:?}", u16::from(frame.code), frame.reason.as_str()),
        Message::Close(None) => "close -".to_owned(),
        Message::Frame(frame) => format!("frame {frame:?}"),
    }
}
