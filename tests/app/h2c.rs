//! The half of an origin that speaks HTTP/2, to clients that begin with it.

use std::fmt::Write as _;
use std::net::TcpStream;

use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;

/// Whether a client begins with HTTP/2's preface.
pub(crate) fn is_spoken(stream: &TcpStream) -> bool {
    let mut begin = [0; 4];
    // The shortest request of HTTP/1.1 is longer.
    while let Ok(read @ 1..) = stream.peek(&mut begin) {
        if read == begin.len() {
            return begin == *b"PRI ";
        }
    }
    false
}

/// Answers every request with `name`; keeps heads in the form of HTTP/1.1's, with what stands for the request line in
/// front.
pub(crate) fn serve(stream: TcpStream, name: &'static str, record: &Mutex<Vec<String>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        stream.set_nonblocking(true).unwrap();
        let stream = tokio::net::TcpStream::from_std(stream).unwrap();
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            record.lock().push(head(&request));
            let answer = Response::builder().header("content-length", name.len()).body(()).unwrap();
            if let Ok(mut body) = respond.send_response(answer, false) {
                let _ = body.send_data(Bytes::from_static(name.as_bytes()), true);
            }
        }
    });
}

fn head<B>(request: &Request<B>) -> String {
    let mut head = format!("{} {} {:?}\r\n", request.method(), request.uri(), request.version());
    for (name, value) in request.headers() {
        let _ = write!(head, "{name}: {}\r\n", value.to_str().unwrap());
    }
    head + "\r\n"
}
