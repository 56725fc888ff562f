//! One client connection from accept to close.

mod budget;
mod date;
pub(super) mod h1;
pub(super) mod h2;
pub(super) mod h3;
mod message;
mod sniff;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::TcpStream;

pub(super) use self::date::Date;
use self::sniff::First;

use super::Worker;
use super::access::Source;
use super::headers::Peer;
use super::io::Replayed;
use super::passthrough;
use super::proxy_protocol::{self, Missing, told};
use super::raw::Fault;
use super::tls::{self, Accepted, Secured};
use super::tunnel::Tunnel;
use super::watchdog::{Conn, Watched};
use crate::ir;
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

/// A client connection, as its requests see it; with HTTP/2 and HTTP/3 one for each stream.
pub(super) struct Client {
    /// Who is at the other end.
    pub peer: Rc<Peer>,
    /// The listener that it came in on.
    pub local: Local,
    /// What is known for its TLS, if the gateway ends that.
    pub secured: Option<Rc<Secured>>,
    /// Why the request that is served is refused: it only stands in for a head of HTTP/1.1 that could not be read.
    pub fault: Cell<Option<Fault>>,
    watched: Watched,
    held: RefCell<Option<RequestGuard>>,
    /// The gateway asked the client to leave: what it still sends must not become a reset.
    linger: Cell<bool>,
    /// It was made while requests were served.
    early: bool,
    /// What begins when the connection has ended as HTTP.
    tunnel: RefCell<Option<Tunnel>>,
    /// The connection of a stream.
    connection: Option<Rc<Client>>,
}

impl Client {
    /// A connection that was just made.
    pub(super) fn new(worker: &Worker, peer: Peer, local: Local, secured: Option<Rc<Secured>>) -> Self {
        let watched = worker.watchdog.watch(worker.stage_limits());
        worker.wear(watched.conn());
        watched.conn().comes_from(peer.address());
        Self {
            peer: Rc::new(peer),
            local,
            secured,
            watched,
            fault: Cell::default(),
            held: RefCell::default(),
            linger: Cell::new(false),
            early: worker.shared.lifecycle.phase().serves(),
            tunnel: RefCell::default(),
            connection: None,
        }
    }

    /// A stream of a connection.
    fn stream(connection: &Rc<Self>, watched: Watched) -> Self {
        watched.conn().comes_from(connection.peer.address());
        Self {
            peer: Rc::clone(&connection.peer),
            local: connection.local,
            secured: connection.secured.clone(),
            watched,
            fault: Cell::default(),
            held: RefCell::default(),
            linger: Cell::new(false),
            // GOAWAY has told its connection long ago.
            early: false,
            tunnel: RefCell::default(),
            connection: Some(Rc::clone(connection)),
        }
    }

    /// The state that the watchdog looks at.
    pub(super) fn conn(&self) -> &Rc<Conn> {
        self.watched.conn()
    }

    /// Whether it is a stream of HTTP/2 or HTTP/3.
    pub(super) fn is_stream(&self) -> bool {
        self.connection.is_some()
    }

    /// An answer has been handed over whole, or has broken off. Its last bytes are still on their way, and the drain has to
    /// wait for them: until they are written, and after the last answer of a connection until that has ended.
    pub(super) fn exchange_ended(&self, guard: Option<RequestGuard>, is_last: bool) {
        match &self.connection {
            None => {
                self.conn().end_exchange();
                *self.held.borrow_mut() = guard;
            }
            // The last bytes of a stream may wait for its client's window.
            Some(connection) => {
                let holder = if is_last { connection } else { self };
                if is_last {
                    connection.conn().lasts();
                }
                *holder.held.borrow_mut() = guard;
            }
        }
    }

    /// The last bytes of an answer are written.
    fn release(&self) {
        self.held.take();
        self.conn().release();
    }

    /// What a backend is told of it in front of its bytes.
    pub(super) fn told(&self, version: ir::ProxyProtocol) -> Bytes {
        let is_verified = || self.secured.as_ref().is_some_and(|secured| secured.is_identified());
        told::header(version, self.peer.ends(), self.peer.is_https().then(is_verified))
    }

    /// Whether it may still ask for something while the gateway drains: nobody has told it to leave, for it asked for nothing
    /// in all the time that answers said so.
    pub(super) fn is_untold(&self) -> bool {
        self.early
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
    balancer: SocketAddr,
    local: Local,
    counted: Counted,
) {
    let received = {
        let watched = worker.watchdog.watch(worker.stage_limits());
        proxy_protocol::receive(&mut stream, watched.conn()).await
    };
    let refusal = match received {
        Ok(header) => {
            let ends = stream.local_addr().ok().map(|local| (balancer, local));
            let trusted = &worker.shared.settings.trusted_proxies;
            let peer = Peer::told(&header, balancer.ip(), trusted, local.tls).between(ends);
            if local.tls {
                return Box::pin(serve_tls(worker, stream, peer, local, counted)).await;
            }
            return serve(worker, stream, peer, local, counted).await;
        }
        Err(Missing::Silent) => return,
        Err(Missing::Slow) => Refusal::HeaderTimeout,
        Err(Missing::Malformed(error)) => {
            tracing::debug!(%error, peer = %balancer.ip(), "connection refused");
            Refusal::ProxyHeader
        }
    };
    worker.refused_early(refusal, None, Source { ip: balancer.ip(), local, secured: None });
}

/// Does the TLS handshake of a connection and serves it to its end.
pub(super) async fn serve_tls(worker: Rc<Worker>, stream: TcpStream, peer: Peer, local: Local, counted: Counted) {
    match tls::accept(&worker, stream, local.index).await {
        Some(Accepted::Ended(stream, secured)) => {
            let is_h2 = stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2);
            let client = Rc::new(Client::new(&worker, peer, local, Some(secured)));
            if is_h2 {
                Box::pin(h2::serve(worker, stream, client)).await;
            } else {
                h1::serve(worker, Bytes::new(), stream, client).await;
            }
        }
        Some(Accepted::Passed(stream, passed)) => {
            let source = Source { ip: peer.ip, local, secured: None };
            Box::pin(passthrough::serve(&worker, stream, passed, source, &peer)).await;
        }
        None => {}
    }
    drop(counted);
}

/// Serves a connection to its end.
pub(super) async fn serve(worker: Rc<Worker>, mut stream: TcpStream, peer: Peer, local: Local, counted: Counted) {
    let client = Rc::new(Client::new(&worker, peer, local, None));
    match sniff::first(&mut stream, client.conn()).await {
        First::Http1(bytes) => h1::serve(worker, bytes, stream, client).await,
        // In a box, for connections of HTTP/1.1 are not to pay for what they do not use.
        First::Http2(bytes) => Box::pin(h2::serve(worker, Replayed::new(bytes, stream), client)).await,
        First::Slow => worker.refused_early(Refusal::HeaderTimeout, None, Source::of(&client)),
        First::Nothing => {}
    }
    drop(counted);
}
