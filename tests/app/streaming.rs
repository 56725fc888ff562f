//! Answers that are sent bit by bit.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use super::support::{Gateway, route, service, slice_at};

fn read_head(stream: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "closed inside of a head");
    }
    head
}

#[test]
fn events_arrive_as_they_are_sent() {
    // traefik/traefik#503: an event that is held back until the next one, or a buffer's end, comes a minute late. Here the
    // next one is never sent before the client has the one before it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let manifests = service("s")
        + &slice_at("s", "s", Some(port))
        + &route("r", "[r.test]", "  - {backends: [{service: s, port: 80}]}");
    let gateway = Gateway::start(&manifests);
    let events = ["data: one\n\n", "data: two\r\r", ": keep-alive\r", "\n", "data: three\r\n\r\n"];
    for chunked in [true, false] {
        for content_type in ["text/event-stream", "text/plain", "application/grpc-web+proto"] {
            let client = TcpStream::connect(gateway.address()).unwrap();
            let mut client = BufReader::new(client);
            client.get_mut().write_all(b"GET / HTTP/1.1\r\nhost: r.test\r\nconnection: close\r\n\r\n").unwrap();
            let mut served = BufReader::new(listener.accept().unwrap().0);
            read_head(&mut served);
            let framing = if chunked { "transfer-encoding: chunked\r\n" } else { "connection: close\r\n" };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n{framing}\r\n");
            served.get_mut().write_all(head.as_bytes()).unwrap();
            assert!(read_head(&mut client).contains(content_type));
            for event in events {
                let chunk = format!("{:x}\r\n{event}\r\n", event.len());
                served.get_mut().write_all(if chunked { chunk.as_bytes() } else { event.as_bytes() }).unwrap();
                let mut seen = vec![0; chunk.len()];
                client.read_exact(&mut seen).unwrap();
                assert_eq!(String::from_utf8(seen).unwrap().to_lowercase(), chunk);
            }
            if chunked {
                served.get_mut().write_all(b"0\r\n\r\n").unwrap();
            }
            drop(served);
            let mut end = String::new();
            client.read_to_string(&mut end).unwrap();
            assert_eq!(end, "0\r\n\r\n");
        }
    }
}
