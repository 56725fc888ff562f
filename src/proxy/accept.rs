//! Listening and accepting.
//!
//! All workers accept from one socket per listener: one queue, so that no worker's end can lose a handshake, and a port
//! in use is an error. A worker that has clearly more connections than another hands a new one over to it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Worker;
use super::access::Source;
use super::connection::{self, Counted, Local};
use super::goodbye;
use super::headers::{self, Peer};
use super::{Shared, quic};
use crate::descriptors;
use crate::routing::ListenerIndex;
use crate::settings::Listener;
use crate::socket;
use crate::telemetry::metrics::{ListenerMetrics, Refusal};

/// A connection is handed over when that spares this many, and an eighth, more than the other worker has.
const IMBALANCE: usize = 2;
/// How long accepting pauses at least when descriptors or memory are short.
const PAUSE: Duration = Duration::from_millis(50);
/// Connections that were silent for this long end then.
const SILENCE: Duration = Duration::from_secs(1);
/// The log is told of it no more often.
const TELL: Duration = Duration::from_secs(10);

/// A listener's socket: bound, and refusing connections until [`Bound::listen`].
pub struct Bound {
    /// The listener's name.
    pub name: Arc<str>,
    /// The address; its port is the real one.
    pub address: SocketAddr,
    socket: std::net::TcpListener,
    /// For HTTP/3, at the same address.
    datagrams: Option<std::net::UdpSocket>,
    entry: Entry,
}

/// What a connection has of its listener.
#[derive(Clone)]
pub(super) struct Entry {
    proxy_protocol: bool,
    /// The port.
    pub port: u16,
    /// What requests see of it.
    pub local: Local,
    /// Its counters.
    pub metrics: Arc<ListenerMetrics>,
}

impl Entry {
    fn source(&self, peer: SocketAddr) -> Source<'static> {
        Source { ip: peer.ip().to_canonical(), local: self.local, secured: None }
    }
}

impl Bound {
    /// Binds a listener. `[::]` takes IPv4 too, and is `0.0.0.0` where there is no IPv6.
    pub fn bind(listener: &Listener, index: ListenerIndex, metrics: Arc<ListenerMetrics>) -> io::Result<Self> {
        let socket = socket::bind(listener.address)?;
        // Inherited by accepted sockets: one call instead of one per connection.
        socket.set_tcp_nodelay(true)?;
        let socket: std::net::TcpListener = socket.into();
        let address = socket.local_addr()?;
        let datagrams = listener.http3.map(|_| socket::bind_datagrams(address).map(Into::into)).transpose()?;
        let local = Local { index, tls: listener.tls, https_redirect: listener.https_redirect };
        let entry = Entry { proxy_protocol: listener.proxy_protocol, port: address.port(), local, metrics };
        Ok(Self { name: listener.name.as_str().into(), address, socket, datagrams, entry })
    }

    /// Has the kernel take connections, so many ahead of the gateway. Fails when somebody else listens on the port.
    pub fn listen(&self, backlog: u32) -> io::Result<()> {
        SockRef::from(&self.socket).listen(i32::try_from(backlog).unwrap_or(i32::MAX))
    }

    /// The same socket for another worker.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            name: Arc::clone(&self.name),
            address: self.address,
            socket: self.socket.try_clone()?,
            datagrams: None,
            entry: self.entry.clone(),
        })
    }

    /// Its half of HTTP/3, if it has one.
    pub(super) fn quic(&self) -> io::Result<Option<quic::Bound>> {
        let Some(datagrams) = &self.datagrams else { return Ok(None) };
        let (name, entry) = (Arc::clone(&self.name), self.entry.clone());
        Ok(Some(quic::Bound { name, socket: datagrams.try_clone()?, entry }))
    }
}

/// An accepted connection on its way to another worker.
pub struct Accepted {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    entry: Entry,
}

/// The way to every worker.
pub type Handover = Arc<[mpsc::UnboundedSender<Accepted>]>;

/// Channels to every worker. Unbounded, for what is in them counts as connections, which are bounded.
pub fn handover(workers: usize) -> (Handover, Vec<mpsc::UnboundedReceiver<Accepted>>) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
    (senders.into(), receivers)
}

/// Accepts connections for ever.
pub async fn accept(worker: Rc<Worker>, bound: Bound, handover: Handover) {
    let listener = match TcpListener::from_std(bound.socket) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, listener = %bound.name, "the listener's socket cannot be used");
            // As bad as a worker that is gone: what it would have accepted is served by nobody.
            worker.shared.lifecycle.worker_panicked(worker.index);
            return;
        }
    };
    let mut shortage = Shortage { worker: &worker, name: &bound.name, metrics: &bound.entry.metrics, told: None };
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if let Some(lifecycle) = worker.shared.lifecycle.worker(worker.index) {
                    lifecycle.note_connection();
                }
                let is_last = descriptors::of_process().is_reserved(stream.as_raw_fd());
                place(&worker, stream, peer, &bound.entry, &handover);
                if is_last {
                    shortage.wait(&listener, &descriptors::exhausted()).await;
                }
            }
            Err(error) => match error.kind() {
                // The client was gone before it was accepted.
                io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted => {}
                _ => shortage.wait(&listener, &error).await,
            },
        }
    }
}

/// What a listener does while descriptors or memory are short: new clients wait in the kernel's queue.
struct Shortage<'a> {
    worker: &'a Worker,
    name: &'a str,
    metrics: &'a ListenerMetrics,
    /// When the log was told last.
    told: Option<Instant>,
}

impl Shortage<'_> {
    /// Waits until there is room again. Meanwhile connections end on which nothing happens.
    async fn wait(&mut self, listener: &TcpListener, error: &io::Error) {
        self.metrics.paused(self.worker.index);
        if self.told.is_none_or(|told| told.elapsed() >= TELL) {
            self.told = Some(Instant::now());
            let limit = descriptors::of_process().limit;
            tracing::warn!(%error, limit, listener = %self.name, "accepting pauses: descriptors or memory are short");
        }
        loop {
            tokio::time::sleep(PAUSE).await;
            // The lowest number that is free.
            let next = SockRef::from(listener).try_clone();
            if next.is_ok_and(|next| !descriptors::of_process().is_reserved(next.as_raw_fd())) {
                return;
            }
            self.worker.watchdog.end_silent(SILENCE);
            self.worker.pools.close_idle();
            self.worker.mirrors.close_idle();
        }
    }
}

/// Serves a new connection here, or hands it to a worker that has clearly fewer.
fn place(worker: &Rc<Worker>, stream: TcpStream, peer: SocketAddr, entry: &Entry, handover: &Handover) {
    if worker.shared.connections() >= worker.shared.settings.limits.max_connections {
        let is_tls = entry.local.tls;
        worker.refused_early(Refusal::ConnectionLimit, (!is_tls).then_some(503), entry.source(peer));
        if !is_tls {
            goodbye::say(worker, stream);
        }
        return;
    }
    let other = fair(&worker.shared, worker.index);
    if other == worker.index {
        return serve(worker, stream, peer, entry);
    }
    match stream.into_std() {
        Ok(stream) => {
            let accepted = Accepted { stream, peer, entry: entry.clone() };
            if let Err(returned) = handover[other].send(accepted) {
                // The other worker has panicked, and the process drains.
                serve_accepted(worker, returned.0);
            }
        }
        Err(error) => tracing::warn!(%error, "a connection could not be handed over"),
    }
}

/// The worker that is to have a new connection: `own`, unless another one has clearly fewer.
pub(super) fn fair(shared: &Shared, own: usize) -> usize {
    let (other, least) = shared.least_loaded();
    let load = shared.loads.get(own).map_or(0, |load| load.0.load(Ordering::Relaxed));
    if load >= least + IMBALANCE + least / 8 { other } else { own }
}

fn serve(worker: &Rc<Worker>, stream: TcpStream, peer: SocketAddr, entry: &Entry) {
    let counted = Counted::new(worker, &entry.metrics);
    let (trusted, owned) = (&worker.shared.settings.trusted_proxies, Rc::clone(worker));
    if !entry.proxy_protocol {
        let ends = stream.local_addr().ok().map(|local| (peer, local));
        let peer = Peer::new(peer.ip(), trusted, entry.local.tls).between(ends);
        if entry.local.tls {
            tokio::task::spawn_local(connection::serve_tls(owned, stream, peer, entry.local, counted));
        } else {
            tokio::task::spawn_local(connection::serve(owned, stream, peer, entry.local, counted));
        }
    } else if headers::is_trusted(peer.ip(), trusted) {
        tokio::task::spawn_local(connection::serve_told(owned, stream, peer, entry.local, counted));
    } else {
        tracing::debug!(peer = %peer.ip(), "a source that is not trusted came to a listener with PROXY protocol");
        worker.refused_early(Refusal::ProxyUntrusted, None, entry.source(peer));
    }
}

/// Serves the connections that other workers hand over.
pub async fn take_over(worker: Rc<Worker>, mut incoming: mpsc::UnboundedReceiver<Accepted>) {
    while let Some(accepted) = incoming.recv().await {
        serve_accepted(&worker, accepted);
    }
}

fn serve_accepted(worker: &Rc<Worker>, accepted: Accepted) {
    match TcpStream::from_std(accepted.stream) {
        Ok(stream) => serve(worker, stream, accepted.peer, &accepted.entry),
        Err(error) => tracing::warn!(%error, "a connection could not be taken over"),
    }
}

#[cfg(test)]
mod tests;
