//! One client connection from accept to close.

pub(super) mod h1;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::net::TcpStream;

use super::Worker;
use super::headers::Peer;
use super::proxy_protocol::{self, Missing};
use super::tls::{self, Secured};
use super::tunnel::Tunnel;
use super::watchdog::{Conn, Watched};
use crate::lifecycle::RequestGuard;
use crate::routing::ListenerIndex;
use crate::telemetry::metrics::{ListenerMetrics, Refusal};

/// What a connection has of its listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    /// Its position.
    pub index: ListenerIndex,
    /// Whether it ends TLS.
    pub tls: bool,
    /// The port of https that its requests are sent to.
    pub https_redirect: Option<u16>,
}

/// A client connection, as its requests see it.
pub(super) struct Client {
    /// Who is at the other end.
    pub peer: Peer,
    /// The listener that it came in on.
    pub local: Local,
    /// What is known for its TLS, if the gateway ends that.
    pub secured: Option<Box<Secured>>,
    watched: Watched,
    held: RefCell<Option<RequestGuard>>,
    /// The gateway asked the client to leave: what it still sends must not become a reset.
    linger: Cell<bool>,
    /// What begins when the connection has ended as HTTP.
    tunnel: RefCell<Option<Tunnel>>,
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

    /// Has the connection go on as a tunnel after its answer.
    pub(super) fn go_on_as(&self, tunnel: Tunnel) {
        *self.tunnel.borrow_mut() = Some(tunnel);
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

/// Serves a connection that the load balancer at `balancer` has to introduce.
pub(super) async fn serve_told(
    worker: Rc<Worker>,
    mut stream: TcpStream,
    balancer: IpAddr,
    local: Local,
    counted: Counted,
) {
    let received = {
        let watched = worker.watchdog.watch(worker.stage_limits());
        proxy_protocol::receive(&mut stream, watched.conn()).await
    };
    let refusal = match received {
        Ok(header) => {
            let peer = Peer::told(&header, balancer, &worker.shared.settings.trusted_proxies, local.tls);
            if local.tls {
                return Box::pin(serve_tls(worker, stream, peer, local, counted)).await;
            }
            return serve(worker, stream, peer, local, counted).await;
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

/// Does the TLS handshake of a connection and serves it to its end.
pub(super) async fn serve_tls(worker: Rc<Worker>, stream: TcpStream, peer: Peer, local: Local, counted: Counted) {
    if let Some((stream, secured)) = tls::accept(&worker, stream, local.index).await {
        let client = client(&worker, peer, local, Some(Box::new(secured)));
        h1::serve(worker, stream, client).await;
    }
    drop(counted);
}

/// Serves a connection to its end.
pub(super) async fn serve(worker: Rc<Worker>, stream: TcpStream, peer: Peer, local: Local, counted: Counted) {
    let client = client(&worker, peer, local, None);
    h1::serve(worker, stream, client).await;
    drop(counted);
}

fn client(worker: &Worker, peer: Peer, local: Local, secured: Option<Box<Secured>>) -> Rc<Client> {
    let watched = worker.watchdog.watch(worker.stage_limits());
    Rc::new(Client {
        peer,
        local,
        secured,
        watched,
        held: RefCell::default(),
        linger: Cell::new(false),
        tunnel: RefCell::default(),
    })
}
