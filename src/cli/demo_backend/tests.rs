use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::*;

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

async fn start() -> Running {
    start_with(Server { name: "one".into(), pod: "pod-1".into(), delay: Duration::ZERO, record: None }).await
}

async fn start_with(server: Server) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = tokio::spawn(serve(listener, Arc::new(server), async { stopped.await.unwrap() }));
    Running { address, stop, ended }
}

/// Sends `request` on a connection of its own and reads to its end.
async fn exchange(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.into(), body.into())
}

async fn get(path: &str) -> (String, String) {
    let running = start().await;
    exchange(running.address, &format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")).await
}

#[tokio::test]
async fn tells_what_reached_it() {
    let running = start().await;
    let request = "POST /a/b?c=d HTTP/1.1\r\nhost: shop.example.com\r\nx-twice: 1\r\nx-twice: 2\r\n\
                   content-length: 5\r\nconnection: close\r\n\r\nhello";
    let (head, body) = exchange(running.address, request).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let told: Value = serde_json::from_str(&body).unwrap();
    let expected = json!({
        "name": "one", "pod": "pod-1", "method": "POST", "path": "/a/b", "query": "c=d", "bodyLength": 5,
        "headers": {"host": "shop.example.com", "x-twice": "1, 2", "content-length": "5", "connection": "close"},
    });
    assert_eq!(told, expected);
}

#[tokio::test]
async fn posts_are_recorded_when_they_come() {
    let path = std::env::temp_dir().join(format!("lockgate-demo-{}", std::process::id()));
    let record = Some(Mutex::new(File::create(&path).unwrap()));
    let running = start_with(Server { name: "one".into(), pod: String::new(), delay: Duration::ZERO, record }).await;
    let head = "HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\nx-request-id";
    exchange(running.address, &format!("POST / {head}: one\r\n\r\n")).await;
    exchange(running.address, &format!("GET / {head}: two\r\n\r\n")).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n");
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn answers_the_status_asked_for() {
    assert!(get("/status/503").await.0.starts_with("HTTP/1.1 503 "));
    let (head, body) = get("/status/204").await;
    assert!(head.starts_with("HTTP/1.1 204 ") && body.is_empty(), "{head} {body}");
    assert!(get("/status/101").await.0.starts_with("HTTP/1.1 400 "));
    assert!(get("/status/many").await.0.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn sends_the_number_of_bytes_asked_for() {
    let (head, body) = get("/bytes/100000").await;
    assert!(head.contains("content-length: 100000"), "{head}");
    assert_eq!(body.len(), 100_000);
    assert!(get("/bytes/0").await.1.is_empty());
}

#[tokio::test(start_paused = true)]
async fn waits_as_long_as_asked() {
    let before = tokio::time::Instant::now();
    let (head, _) = get("/delay/90000/status/418").await;
    assert!(head.starts_with("HTTP/1.1 418 "), "{head}");
    assert!(before.elapsed() >= Duration::from_secs(90));
}

#[test]
fn other_paths_ask_for_nothing() {
    let nothing = Wanted { status: StatusCode::OK, delay: Duration::ZERO, bytes: None };
    for path in ["/", "/a", "/a/status/500", "/status", "*"] {
        assert_eq!(Wanted::parse(path).as_ref(), Ok(&nothing), "{path}");
    }
}

#[tokio::test]
async fn stops_accepting_and_finishes_what_is_in_flight() {
    let running = start().await;
    let mut idle = TcpStream::connect(running.address).await.unwrap();
    idle.write_all(b"GET /first HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert!(idle.read(&mut [0; 4096]).await.unwrap() > 0);
    let mut busy = TcpStream::connect(running.address).await.unwrap();
    busy.write_all(b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n").await.unwrap();
    // The 100 shows that the request has begun.
    assert!(busy.read(&mut [0; 4096]).await.unwrap() > 0);
    busy.write_all(b"a").await.unwrap();

    running.stop.send(()).unwrap();
    assert_eq!(idle.read(&mut [0; 4096]).await.unwrap(), 0, "an idle connection is closed");
    assert!(TcpStream::connect(running.address).await.is_err());
    assert!(!running.ended.is_finished());

    busy.write_all(b"b").await.unwrap();
    let mut answer = String::new();
    busy.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close"), "{answer}");
    running.ended.await.unwrap();
}

#[tokio::test]
async fn a_websocket_gets_its_messages_back_and_is_told_of_the_end() {
    let running = start().await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    let (mut socket, _) = client_async("ws://a/ws", stream).await.unwrap();
    for message in [Message::text("one"), Message::binary(vec![0_u8; 100_000])] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
    }
    running.stop.send(()).unwrap();
    let Some(Ok(Message::Close(Some(frame)))) = socket.next().await else { panic!("no close frame") };
    assert_eq!(frame.code, CloseCode::Away);
    drop(socket);
    running.ended.await.unwrap();
}

#[tokio::test]
async fn the_path_of_websockets_asks_others_to_upgrade() {
    let (head, _) = get("/ws").await;
    assert!(head.starts_with("HTTP/1.1 426 ") && head.contains("upgrade: websocket"), "{head}");
}
