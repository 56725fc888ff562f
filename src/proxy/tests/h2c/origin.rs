//! A backend that speaks HTTP/2 with prior knowledge and does with each request what a test says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running origin.
pub(in crate::proxy::tests) struct Origin {
    pub(in crate::proxy::tests) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    heads: Mutex<Vec<Head>>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    cancelled: Mutex<Vec<Reason>>,
    changed: Notify,
    leaving: Notify,
}

/// A request's head, and on which connection it came.
#[derive(Clone, Debug)]
pub(in crate::proxy::tests) struct Head {
    pub(in crate::proxy::tests) connection: usize,
    pub(in crate::proxy::tests) method: String,
    pub(in crate::proxy::tests) uri: String,
    pub(in crate::proxy::tests) headers: HeaderMap,
}

/// One request.
pub(in crate::proxy::tests) struct Call {
    /// How many came before it.
    pub(in crate::proxy::tests) number: usize,
    pub(in crate::proxy::tests) body: RecvStream,
    respond: SendResponse<Bytes>,
    aborting: Arc<Notify>,
    state: Arc<State>,
}

impl Call {
    /// Answers with `ok`. Its client may have left.
    pub(in crate::proxy::tests) fn answer(self) {
        let mut stream = self.begin(&[("content-length", "2")]);
        let _ = stream.send_data(Bytes::from_static(b"ok"), true);
    }

    /// Sends an interim answer.
    pub(in crate::proxy::tests) fn interim(&mut self, status: u16) {
        self.respond.send_informational(Response::builder().status(status).body(()).unwrap()).unwrap();
    }

    /// Sends the head of an answer that goes on.
    pub(in crate::proxy::tests) fn begin(self, fields: &[(&'static str, &'static str)]) -> SendStream<Bytes> {
        self.respond(200, fields, false)
    }

    /// The same, and the body to go on reading.
    pub(in crate::proxy::tests) fn begin_streaming(
        mut self,
        fields: &[(&'static str, &'static str)],
    ) -> (RecvStream, SendStream<Bytes>) {
        let mut head = Response::builder();
        for (name, value) in fields {
            head = head.header(*name, *value);
        }
        let stream = self.respond.send_response(head.body(()).unwrap(), false).unwrap();
        (self.body, stream)
    }

    /// Sends the head of an answer.
    pub(in crate::proxy::tests) fn respond(
        mut self,
        status: u16,
        fields: &[(&'static str, &'static str)],
        ends: bool,
    ) -> SendStream<Bytes> {
        let mut head = Response::builder().status(status);
        for (name, value) in fields {
            head = head.header(*name, *value);
        }
        self.respond.send_response(head.body(()).unwrap(), ends).unwrap()
    }

    pub(in crate::proxy::tests) fn reset(mut self, reason: Reason) {
        self.respond.send_reset(reason);
    }

    /// Has every connection leave gracefully: two GOAWAYs, what was begun ends.
    pub(in crate::proxy::tests) fn leave(&self) {
        self.state.leaving.notify_waiters();
    }

    /// Has its connection end here and now.
    pub(in crate::proxy::tests) async fn abort(self) {
        self.aborting.notify_one();
        std::future::pending::<()>().await;
    }

    /// Never answers; notes how the stream ends.
    pub(in crate::proxy::tests) async fn never(mut self) {
        let reason = std::future::poll_fn(|cx| self.respond.poll_reset(cx)).await;
        if let Ok(reason) = reason {
            self.state.cancelled.lock().push(reason);
            self.state.changed.notify_waiters();
        }
    }

    /// The whole body and the trailers.
    pub(in crate::proxy::tests) async fn read(&mut self) -> (Vec<u8>, Option<HeaderMap>) {
        let mut whole = Vec::new();
        while let Some(data) = self.body.data().await {
            let data = data.unwrap();
            self.body.flow_control().release_capacity(data.len()).unwrap();
            whole.extend_from_slice(&data);
        }
        (whole, self.body.trailers().await.unwrap())
    }
}

impl Origin {
    /// Serves each request with `serve`; takes at most `max_streams` on a connection.
    pub(in crate::proxy::tests) async fn start<F, Fut>(max_streams: Option<u32>, serve: F) -> Self
    where
        F: Fn(Call) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let accepting = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, max_streams, serve.clone(), Arc::clone(&accepting)));
            }
        });
        Self { address, state }
    }

    /// The heads of all requests so far.
    pub(in crate::proxy::tests) fn heads(&self) -> Vec<Head> {
        self.state.heads.lock().clone()
    }

    /// How many connections were made to it.
    pub(in crate::proxy::tests) fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }

    /// How many connections there are.
    pub(in crate::proxy::tests) fn open(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    /// Why streams were cancelled.
    pub(in crate::proxy::tests) fn cancelled(&self) -> Vec<Reason> {
        self.state.cancelled.lock().clone()
    }

    /// Waits until something holds of it.
    pub(in crate::proxy::tests) async fn wait_for(&self, holds: impl Fn(&Self) -> bool) {
        let wait = async {
            loop {
                let changed = self.state.changed.notified();
                if holds(self) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("it never held of the origin");
    }
}

async fn connection<F, Fut>(stream: TcpStream, max_streams: Option<u32>, serve: F, state: Arc<State>)
where
    F: Fn(Call) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let number = state.accepted.fetch_add(1, Ordering::SeqCst);
    state.open.fetch_add(1, Ordering::SeqCst);
    let aborting = Arc::new(Notify::new());
    let mut builder = h2::server::Builder::new();
    if let Some(max) = max_streams {
        builder.max_concurrent_streams(max);
    }
    if let Ok(mut connection) = builder.handshake(stream).await {
        loop {
            tokio::select! {
                accepted = connection.accept() => {
                    let Some(Ok((request, respond))) = accepted else { break };
                    tokio::spawn(serve(note(&state, number, request, respond, &aborting)));
                }
                () = state.leaving.notified() => connection.graceful_shutdown(),
                () = aborting.notified() => break,
            }
        }
    }
    state.open.fetch_sub(1, Ordering::SeqCst);
    state.changed.notify_waiters();
}

fn note(
    state: &Arc<State>,
    connection: usize,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    aborting: &Arc<Notify>,
) -> Call {
    let (head, body) = request.into_parts();
    let head =
        Head { connection, method: head.method.to_string(), uri: head.uri.to_string(), headers: head.headers.clone() };
    let mut heads = state.heads.lock();
    heads.push(head);
    state.changed.notify_waiters();
    Call { number: heads.len() - 1, body, respond, aborting: Arc::clone(aborting), state: Arc::clone(state) }
}
