//! WebSocket (RFC 6455) through the gateway, with a client and a server that know nothing of it.

#[path = "websocket/cases.rs"]
mod cases;
#[path = "websocket/echo.rs"]
mod echo;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use self::echo::{Echo, transcript};
use super::support::{Gateway, header, route, service, slice_at, until};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

const RULE: &str = "  - {backends: [{service: ws, port: 80}]}";

fn manifests(echo: &Echo) -> String {
    service("ws") + &slice_at("ws", "ws", Some(echo.port())) + &route("r", "[r.test]", RULE)
}

fn on_runtime<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

/// A client's connection to `r.test` at this port.
async fn connect(port: u16, path: &str) -> WebSocketStream<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    tokio_tungstenite::client_async(format!("ws://r.test{path}"), stream).await.unwrap().0
}

async fn next(socket: &mut WebSocketStream<TcpStream>) -> Message {
    tokio::time::timeout(PATIENCE, socket.next()).await.expect("nothing came").expect("it ended").unwrap()
}

async fn echoes(socket: &mut WebSocketStream<TcpStream>, text: &str) {
    socket.send(Message::text(text)).await.unwrap();
    assert_eq!(next(socket).await, Message::text(text));
}

#[test]
fn clients_see_what_they_would_see_without_a_gateway() {
    let echo = Echo::start();
    let gateway = Gateway::start(&manifests(&echo));
    let through = gateway.address().port();
    let mut differences = Vec::new();
    let cases = cases::all();
    for case in &cases {
        let (direct, proxied) =
            on_runtime(async { (transcript(echo.port(), case).await, transcript(through, case).await) });
        assert!(direct.iter().any(|event| event.starts_with("close ")), "{}: {direct:?}", case.name);
        if let Some(echoed) = &case.echoes {
            assert!(direct.contains(echoed), "{}: {direct:?}", case.name);
        }
        if direct != proxied {
            differences.push(format!("{}: {direct:?} became {proxied:?}", case.name));
        }
    }
    assert!(cases.len() > 250, "{} cases", cases.len());
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), cases.len(), differences.join("\n"));
}

#[test]
fn a_client_library_talks_to_a_server_library() {
    let echo = Echo::start();
    let gateway = Gateway::start(&manifests(&echo));
    on_runtime(async {
        let mut socket = connect(gateway.address().port(), "/chat").await;
        echoes(&mut socket, "hello").await;
        let large = Message::binary(vec![7; 3 << 20]);
        let (mut sink, mut stream) = socket.split();
        // Larger than every buffer on the way, so that it has to be read while it is written.
        let (sent, received) = tokio::join!(sink.send(large.clone()), stream.next());
        sent.unwrap();
        assert!(received.unwrap().unwrap() == large);
        let mut socket = sink.reunite(stream).unwrap();
        socket.send(Message::Ping("p".into())).await.unwrap();
        assert_eq!(next(&mut socket).await, Message::Pong("p".into()));
        let bye = CloseFrame { code: CloseCode::Away, reason: "bye".into() };
        socket.close(Some(bye.clone())).await.unwrap();
        assert_eq!(next(&mut socket).await, Message::Close(Some(bye)));
        assert!(socket.next().await.is_none());
    });
}

#[test]
fn handshakes_are_rewritten_as_requests_are() {
    // apache/shenyu#2733 and #2840
    let echo = Echo::start();
    let strip = "
  - matches: [{path: {type: Prefix, value: /ws}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]
    backends: [{service: ws, port: 80}]
";
    let manifests = service("ws") + &slice_at("ws", "ws", Some(echo.port())) + &route("r", "[r.test]", strip);
    let gateway = Gateway::start(&manifests);
    on_runtime(async {
        let mut socket = connect(gateway.address().port(), "/ws/chat/TOM?token=a%2Fb&x=").await;
        echoes(&mut socket, "x").await;
    });
    let head = echo.take();
    assert!(head.starts_with("GET /chat/TOM?token=a%2Fb&x= HTTP/1.1\r\n"), "{head}");
    assert_eq!((header(&head, "upgrade"), header(&head, "connection")), (Some("websocket"), Some("upgrade")));
    assert_eq!(header(&head, "host"), Some("r.test"));
}

/// A Route that has nothing to do with the sockets.
fn unrelated(name: &str, status: usize) -> String {
    let rules = format!("  - {{filters: [{{type: DirectResponse, directResponse: {{status: {status}, body: x}}}}]}}");
    route(name, &format!("[{name}.test]"), &rules)
}

#[test]
fn sockets_outlive_what_happens_to_routes_and_endpoints() {
    // kubernetes/ingress-nginx#8977, #7115 and #2461
    const SOCKETS: usize = 100;
    let (echo, new) = (Echo::start(), Echo::start());
    let gateway = Gateway::start(&manifests(&echo));
    let both = slice_at("ws", "ws", Some(echo.port())) + &slice_at("ws-2", "ws", Some(new.port()));
    let rest = service("ws") + &route("r", "[r.test]", RULE);
    on_runtime(async {
        let mut sockets = Vec::new();
        for _ in 0..SOCKETS {
            sockets.push(connect(gateway.address().port(), "/").await);
        }
        let (mut changes, mut there) = (0, BTreeSet::new());
        for round in 0..20 {
            // Added, changed and deleted.
            for n in 0..9 {
                let (file, name) = (format!("b{n}.yaml"), format!("b{n}"));
                if (n + round) % 3 == 2 && there.remove(&n) {
                    gateway.delete(&file);
                } else {
                    gateway.apply(&file, &unrelated(&name, 400 + round));
                    there.insert(n);
                }
                changes += 1;
            }
            gateway.apply("last.yaml", &unrelated("last", 400 + round));
            changes += 1;
            until("the changes are served", || usize::from(gateway.get("last.test/", &[]).status) == 400 + round);
            let text = format!("round {round}");
            for socket in sockets.iter_mut().step_by(10) {
                echoes(socket, &text).await;
            }
        }
        assert_eq!(changes, 200);
        // Another endpoint comes; then the one in use leaves.
        gateway.apply("main.yaml", &(rest.clone() + &both));
        until("the other endpoint is used", || {
            knock(&gateway, 1);
            new.handshakes() > 0
        });
        gateway.apply("main.yaml", &(rest.clone() + &slice_at("ws-2", "ws", Some(new.port()))));
        until("the endpoint has left", || {
            let before = echo.handshakes();
            knock(&gateway, 4);
            echo.handshakes() == before
        });
        for socket in &mut sockets {
            echoes(socket, "still here").await;
        }
        // When the backend closes, they are closed.
        echo.close_all();
        for socket in &mut sockets {
            assert!(matches!(next(socket).await, Message::Close(_)));
        }
    });
}

/// Opens sockets and leaves them, on a thread of its own, for a runtime cannot run inside of another.
fn knock(gateway: &Gateway, times: usize) {
    let knock = async {
        for _ in 0..times {
            drop(connect(gateway.address().port(), "/").await);
        }
    };
    std::thread::scope(|scope| scope.spawn(|| on_runtime(knock)).join().unwrap());
}
