//! A backend that has so many hands, each busy for as long with each request. Who finds none waits, however long.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Requests at a time.
const HANDS: u32 = 16;
/// What one takes.
const WORK: Duration = Duration::from_millis(8);
/// Requests a second that it can do.
pub(crate) const CAPACITY: f64 = HANDS as f64 * 1000.0 / 8.0;
/// Bytes of an answer's body.
const BODY: usize = 2048;

/// Starts one on a thread of its own.
pub(crate) fn start() -> SocketAddr {
    let listener = StdListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(serve(listener));
    });
    address
}

async fn serve(listener: StdListener) {
    let listener = TcpListener::from_std(listener).expect("a listening socket");
    let hands = Arc::new(Semaphore::new(HANDS as usize));
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let hands = Arc::clone(&hands);
        tokio::spawn(async move { connection(stream, &hands).await });
    }
}

async fn connection(mut stream: TcpStream, hands: &Semaphore) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY}\r\n\r\n{}", "x".repeat(BODY));
    let mut head = Vec::with_capacity(1024);
    loop {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            let hand = hands.acquire().await;
            tokio::time::sleep(WORK).await;
            drop(hand);
            stream.write_all(answer.as_bytes()).await?;
        }
    }
}
