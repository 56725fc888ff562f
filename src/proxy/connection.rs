//! One client connection from accept to close.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::headers::Peer;
use super::io::ClientIo;
use super::proxy_protocol::{self, Missing};
use super::watchdog::{Conn, Stage, Watched};
use super::{Worker, service};
use crate::lifecycle::RequestGuard;
use crate::routing::ListenerIndex;
use crate::telemetry::metrics::{ListenerMetrics, Refusal};

/// Bytes that the server reads ahead of a slow backend, per connection.
const MAX_BUFFER: usize = 64 << 10;

/// A client connection, as its requests see it.
pub(super) struct Client {
    /// Who is at the other end.
    pub peer: Peer,
    /// The listener that it came in on.
    pub listener: ListenerIndex,
    watched: Watched,
    held: RefCell<Option<RequestGuard>>,
    /// The gateway asked the client to leave: what it still sends must not become a reset.
    linger: Cell<bool>,
}

impl Client {
    /// The state that the watchdog looks at.
    pub(super) fn conn(&self) -> &Rc<Conn> {
        self.watched.conn()
    }

    /// Keeps a request counted as in flight until the connection has ended.
    pub(super) fn hold_until_closed(&self, guard: RequestGuard) {
        *self.held.borrow_mut() = Some(guard);
    }

    /// Has the connection read on for a while after the last answer.
    pub(super) fn linger(&self) {
        self.linger.set(true);
    }
}

/// Counts a connection of the process and of its listener while it lives.
pub(super) struct Counted {
    worker: Rc<Worker>,
    listener: Arc<ListenerMetrics>,
}

impl Counted {
    /// Counts one more.
    pub(super) fn new(worker: &Rc<Worker>, listener: &Arc<ListenerMetrics>) -> Self {
        worker.connection_opened();
        listener.opened(worker.index);
        Self { worker: Rc::clone(worker), listener: Arc::clone(listener) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.worker.connection_closed();
        self.listener.closed(self.worker.index);
    }
}

/// hyper's server, set up once per worker.
pub(super) fn server(limits: &crate::settings::Limits) -> http1::Builder {
    let mut server = http1::Builder::new();
    let max_header_bytes = usize::try_from(limits.max_header_bytes.get()).unwrap_or(usize::MAX);
    server
        .max_headers(limits.max_headers)
        .max_header_size(max_header_bytes)
        .max_buf_size(MAX_BUFFER.max(max_header_bytes))
        // The watchdog keeps the time, for all connections together.
        .header_read_timeout(None);
    server
}

/// Serves a connection that the load balancer at `balancer` has to introduce.
pub(super) async fn serve_told(
    worker: Rc<Worker>,
    mut stream: TcpStream,
    balancer: IpAddr,
    listener: ListenerIndex,
    counted: Counted,
) {
    let received = {
        let watched = worker.watchdog.watch(worker.stage_limits());
        proxy_protocol::receive(&mut stream, watched.conn()).await
    };
    let refusal = match received {
        Ok(header) => {
            let peer = Peer::told(&header, balancer, &worker.shared.settings.trusted_proxies);
            return serve(worker, stream, peer, listener, counted).await;
        }
        Err(Missing::Silent) => return,
        Err(Missing::Slow) => Refusal::HeaderTimeout,
        Err(Missing::Malformed(error)) => {
            tracing::debug!(%error, peer = %balancer, "connection refused");
            Refusal::ProxyHeader
        }
    };
    worker.metrics.refused(refusal);
}

/// Serves a connection to its end.
pub(super) async fn serve(
    worker: Rc<Worker>,
    stream: TcpStream,
    peer: Peer,
    listener: ListenerIndex,
    counted: Counted,
) {
    let watched = worker.watchdog.watch(worker.stage_limits());
    let client = Rc::new(Client { peer, listener, watched, held: RefCell::default(), linger: Cell::new(false) });
    let io = ClientIo::new(stream, Rc::clone(client.conn()));
    let service = {
        let (worker, client) = (Rc::clone(&worker), Rc::clone(&client));
        service_fn(move |request| {
            let (worker, client) = (Rc::clone(&worker), Rc::clone(&client));
            async move { Ok::<_, Infallible>(service::handle(worker, client, request).await) }
        })
    };
    let mut connection = worker.server.serve_connection(TokioIo::new(io), service);
    let outcome = poll_fn(|cx| {
        if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(Some(result));
        }
        let conn = client.conn();
        if conn.stage() != Stage::Exchange && conn.poll_expired(cx) { Poll::Ready(None) } else { Poll::Pending }
    })
    .await;
    match outcome {
        Some(Err(error)) => refused(&worker, &client, &error),
        None if client.conn().stage() == Stage::Head => worker.metrics.refused(Refusal::HeaderTimeout),
        Some(Ok(())) | None => {}
    }
    let io = connection.into_parts().io.into_inner();
    if client.linger.get() {
        pin!(io.linger()).await;
    }
    drop(counted);
}

/// Counts what hyper answered by itself because no request could be read.
fn refused(worker: &Worker, client: &Client, error: &hyper::Error) {
    let reason = if error.is_parse_too_large() {
        Refusal::HeadersTooLarge
    } else if error.is_parse() {
        Refusal::BadRequest
    } else {
        tracing::debug!(%error, peer = %client.peer.ip, "client connection ended");
        return;
    };
    client.linger();
    worker.metrics.refused(reason);
}
