//! An origin made of bare frames (RFC 9113, section 4.1), for what a well-behaved server cannot be made to do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::super::harness::{Gateway, selector, service_rule};
use super::{SERVICE, all_succeed, retries};

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
/// `:status: 200` of the static table (RFC 7541, appendix A).
const STATUS_200: &[u8] = &[0x88];
const END_OF_STREAM_AND_HEADERS: u8 = 0x5;

async fn write(stream: &mut TcpStream, kind: u8, flags: u8, id: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&id.to_be_bytes());
    frame.extend_from_slice(payload);
    // The gateway may have gone.
    let _ = stream.write_all(&frame).await;
}

/// The type and the stream of the next frame.
async fn read(stream: &mut TcpStream) -> Option<(u8, u32)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).await.ok()?;
    Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]])))
}

/// The first requests that came, and those that were answered.
#[derive(Default)]
struct Counts {
    first: AtomicUsize,
    answered: AtomicUsize,
    all_came: Notify,
}

/// Answers one request of each connection, and says that others on it were not, and will not be, processed. The first
/// eight requests are held until all of them have come.
async fn serve(mut stream: TcpStream, counts: Arc<Counts>) -> Option<()> {
    const FIRST: usize = 8;
    let is_first = counts.first.load(Ordering::SeqCst) < FIRST;
    stream.read_exact(&mut [0; 24]).await.ok()?;
    write(&mut stream, SETTINGS, 0, 0, &[]).await;
    loop {
        let all_came = counts.all_came.notified();
        tokio::select! {
            frame = read(&mut stream) => match frame? {
                (HEADERS, _) if !is_first => break,
                (HEADERS, _) if counts.first.fetch_add(1, Ordering::SeqCst) + 1 == FIRST => {
                    counts.all_came.notify_waiters();
                    break;
                }
                _ => {}
            },
            () = all_came, if is_first => break,
        }
    }
    write(&mut stream, GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]).await;
    counts.answered.fetch_add(1, Ordering::SeqCst);
    write(&mut stream, HEADERS, END_OF_STREAM_AND_HEADERS, 1, STATUS_200).await;
    while read(&mut stream).await.is_some() {}
    None
}

async fn start() -> (SocketAddr, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let counts = Arc::new(Counts::default());
    let counting = Arc::clone(&counts);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&counting)));
        }
    });
    (address, counts)
}

#[tokio::test]
async fn what_a_goaway_leaves_out_is_sent_elsewhere_and_the_rest_ends_where_it_is() {
    let (address, counts) = start().await;
    let gateway = Gateway::start(vec![selector(vec![service_rule("/", SERVICE)])]).await;
    gateway.endpoints(SERVICE, &[address]).await;
    let post = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    all_succeed(&gateway, 8, post).await;
    assert_eq!(counts.answered.load(Ordering::SeqCst), 8, "each was processed once");
    // The last of four that share a connection is late three times.
    assert!(retries(&gateway, "refused") >= 6);
}
