//! What a client is told that the gateway has no connection for.
//!
//! As cheap as can be: the answer is made already, the request is not read but thrown away, and only few are told at a
//! time. For a client that gets none, a closed connection says the same less well.

use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::Worker;
use super::io::linger;

/// Goodbyes of one worker at a time; past them connections are closed at once.
const MAX_GOODBYES: usize = 64;
/// How long one may take.
const TIME: Duration = Duration::from_secs(1);

/// As the answers that `error` makes, for [`crate::telemetry::metrics::Refusal::ConnectionLimit`].
const ANSWER: &str = "HTTP/1.1 503 Service Unavailable\r\n\
                      content-type: text/plain; charset=utf-8\r\n\
                      x-lockgate-reason: connection-limit\r\n\
                      retry-after: 1\r\n\
                      connection: close\r\n\
                      content-length: 21\r\n\
                      \r\n\
                      503 connection-limit\n";

/// Tells the client of a plain connection to come back later. Not of TLS: a handshake is the dearest part of a connection.
pub(super) fn say(worker: &Rc<Worker>, mut stream: TcpStream) {
    let Some(goodbye) = Goodbye::begin(worker) else { return };
    tokio::task::spawn_local(async move {
        let told = async {
            if stream.write_all(ANSWER.as_bytes()).await.is_ok() {
                linger(stream).await;
            }
        };
        // Who takes longer has lost interest, or is up to no good.
        let _ = tokio::time::timeout(TIME, told).await;
        drop(goodbye);
    });
}

/// One that is being said.
struct Goodbye(Rc<Worker>);

impl Goodbye {
    fn begin(worker: &Rc<Worker>) -> Option<Self> {
        let said = worker.goodbyes.get();
        (said < MAX_GOODBYES).then(|| {
            worker.goodbyes.set(said + 1);
            Self(Rc::clone(worker))
        })
    }
}

impl Drop for Goodbye {
    fn drop(&mut self) {
        self.0.goodbyes.set(self.0.goodbyes.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONNECTION;

    use super::*;
    use crate::proxy::error::Failure;
    use crate::telemetry::metrics::Refusal;

    #[test]
    fn it_is_the_answer_that_a_request_would_have_got() {
        let answer = Failure::new(Refusal::ConnectionLimit).answer(true, false);
        assert!(answer.headers().contains_key(CONNECTION));
        let (head, body) = ANSWER.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {}\r\n", answer.status())));
        for (name, value) in answer.headers() {
            assert!(head.contains(&format!("\r\n{name}: {}", value.to_str().unwrap())), "{name}");
        }
        assert!(head.ends_with(&format!("\r\ncontent-length: {}", body.len())));
        assert_eq!(body, format!("503 {}\n", Refusal::ConnectionLimit));
    }
}
