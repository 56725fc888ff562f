//! Listeners of HTTP/3: a UDP socket each, and the way of its connections to workers (ADR 16).
//!
//! One thread per listener reads the socket and tells by connection ids whose datagrams are whose. A new connection is
//! handed to a worker before anything is done for it, and lives there: handshake, packets, requests.

mod session;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use quinn::{
    Connecting, ConnectionError, Endpoint, EndpointConfig, IdleTimeout, Incoming, ServerConfig, TokioRuntime,
    TransportConfig, TransportErrorCode, VarInt,
};
use rustls::pki_types::CertificateDer;
use tokio::sync::mpsc;

use self::session::{Agreed, Sessions};
use super::accept::{self, Entry};
use super::connection::{Client, Counted, h3};
use super::headers::Peer;
use super::tls::Secured;
use super::{PanicGuard, Shared, Worker};
use crate::lifecycle::Phase;
use crate::settings::Http2;
use crate::telemetry::metrics::{Handshake, Refusal, TlsVersion};

/// Bytes of answers that wait for a client's acknowledgement, for all requests of a connection together.
const SEND_WINDOW: u64 = 1 << 20;
/// Streams of a client beside its requests: control, two of QPACK, and some that nobody knows.
const UNIDIRECTIONAL: u32 = 8;
/// How long a connection may be silent. What is served on it has limits of its own; this finds clients that are gone.
const SILENCE: Duration = Duration::from_mins(5);
/// Connections of a listener that have asked to come in and are with no worker yet.
const MAX_ASKED: usize = 1024;
/// What such a connection may send meanwhile, and all of them together.
const MAX_EARLY: u64 = 32 << 10;
const MAX_EARLY_TOTAL: u64 = 8 << 20;
/// Handshakes under way beyond which clients have to show first that their address is theirs (RFC 9000, section 8.1.2).
const MANY_HANDSHAKES: usize = 256;
/// How long the last packets may take.
const GOODBYE: Duration = Duration::from_millis(100);
/// `H3_NO_ERROR` (RFC 9114, section 8.1).
const NO_ERROR: VarInt = VarInt::from_u32(0x100);

/// A listener's UDP socket, bound.
pub(super) struct Bound {
    /// The listener's name.
    pub name: Arc<str>,
    /// Its socket.
    pub socket: UdpSocket,
    /// What its connections have of it.
    pub entry: Entry,
}

/// A connection that asks to come in, on its way to a worker.
pub(super) struct Asked {
    incoming: Incoming,
    entry: Entry,
    handshake: InHandshake,
}

/// Counts a handshake while it lives.
struct InHandshake(Arc<AtomicUsize>);

impl InHandshake {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for InHandshake {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The way to every worker. Unbounded, for what is in it is bounded by [`MAX_ASKED`].
pub(super) type Handover = Arc<[mpsc::UnboundedSender<Asked>]>;

/// Channels to every worker.
pub(super) fn handover(workers: usize) -> (Handover, Vec<mpsc::UnboundedReceiver<Asked>>) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
    (senders.into(), receivers)
}

/// Starts the thread of a listener. It ends once the process aborts.
pub(super) fn start(shared: &Arc<Shared>, bound: Bound, handover: Handover) -> io::Result<JoinHandle<()>> {
    let Bound { name, socket, entry } = bound;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = server_config(shared, &entry)?;
    let endpoint = {
        let _inside = runtime.enter();
        Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(TokioRuntime))?
    };
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name(format!("quic-{name}")).spawn(move || {
        let _guard = PanicGuard { index: shared.loads.len(), lifecycle: Arc::clone(&shared.lifecycle) };
        runtime.block_on(listen(&shared, &endpoint, &entry, &handover));
    })
}

/// Hands new connections to workers until the process aborts.
async fn listen(shared: &Shared, endpoint: &Endpoint, entry: &Entry, handover: &Handover) {
    let mut phase = shared.lifecycle.subscribe();
    let handshakes = Arc::<AtomicUsize>::default();
    let mut turn = 0;
    loop {
        tokio::select! {
            aborting = phase.wait_for(|phase| *phase >= Phase::Aborting) => {
                drop(aborting);
                break;
            }
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { break };
                if handshakes.load(Ordering::Relaxed) >= MANY_HANDSHAKES && !incoming.remote_address_validated() {
                    // It may always be asked while it has not shown anything.
                    let _ = incoming.retry();
                    continue;
                }
                turn = (turn + 1) % handover.len();
                let handshake = InHandshake::new(&handshakes);
                let asked = Asked { incoming, entry: entry.clone(), handshake };
                // A worker without a receiver has panicked, and the process drains.
                let _ = handover[accept::fair(shared, turn)].send(asked);
            }
        }
    }
    endpoint.close(NO_ERROR, b"");
    // Who has gone does not answer.
    let _ = tokio::time::timeout(GOODBYE, endpoint.wait_idle()).await;
}

fn server_config(shared: &Arc<Shared>, entry: &Entry) -> io::Result<ServerConfig> {
    let sessions = Sessions::new(Arc::clone(&shared.published), entry.local.index).map_err(io::Error::other)?;
    let mut config = ServerConfig::with_crypto(Arc::new(sessions));
    config
        .transport_config(Arc::new(transport(&shared.settings.limits.http2)))
        .max_incoming(MAX_ASKED)
        .incoming_buffer_size(MAX_EARLY)
        .incoming_buffer_size_total(MAX_EARLY_TOTAL);
    Ok(config)
}

fn transport(limits: &Http2) -> TransportConfig {
    let window = |bytes: u64| VarInt::from_u64(bytes).unwrap_or(VarInt::MAX);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(limits.max_concurrent_streams.into())
        .max_concurrent_uni_streams(UNIDIRECTIONAL.into())
        .stream_receive_window(window(limits.stream_window.get()))
        .receive_window(window(limits.connection_window.get()))
        .send_window(SEND_WINDOW)
        .max_idle_timeout(IdleTimeout::try_from(SILENCE).ok())
        .datagram_receive_buffer_size(None);
    transport
}

/// Serves the connections that a worker is given.
pub(super) async fn take_over(worker: Rc<Worker>, mut asked: mpsc::UnboundedReceiver<Asked>) {
    while let Some(asked) = asked.recv().await {
        if let Some(lifecycle) = worker.shared.lifecycle.worker(worker.index) {
            lifecycle.note_connection();
        }
        if worker.shared.connections() >= worker.shared.settings.limits.max_connections {
            worker.metrics.refused(Refusal::ConnectionLimit);
            asked.incoming.refuse();
            continue;
        }
        tokio::task::spawn_local(serve(Rc::clone(&worker), asked));
    }
}

/// Does a connection's handshake and serves it to its end.
async fn serve(worker: Rc<Worker>, asked: Asked) {
    let Asked { incoming, entry, handshake } = asked;
    let counted = Counted::new(&worker, &entry.metrics);
    let outcome = match incoming.accept() {
        Ok(connecting) => shake(&worker, connecting).await,
        Err(error) => Err(error),
    };
    drop(handshake);
    match outcome {
        Ok(connection) => {
            worker.metrics.handshake(Handshake::Full, TlsVersion::V1_3);
            let remote = connection.remote_address();
            let ends = connection.local_ip().map(|ip| (remote, SocketAddr::new(ip, entry.port)));
            let peer = Peer::new(remote.ip(), &worker.shared.settings.trusted_proxies, true).between(ends);
            let client = Rc::new(Client::new(&worker, peer, entry.local, secured(&worker, &connection)));
            h3::serve(&worker, connection, client).await;
        }
        Err(error) => {
            tracing::debug!(%error, "QUIC handshake failed");
            worker.metrics.handshake(kind_of(&error), TlsVersion::None);
        }
    }
    drop(counted);
}

/// Does the handshake in the time that a connection has for its first request's head.
async fn shake(worker: &Worker, connecting: Connecting) -> Result<quinn::Connection, ConnectionError> {
    let watched = worker.watchdog.watch(worker.stage_limits());
    watched.conn().unless_expired(connecting).await.unwrap_or(Err(ConnectionError::TimedOut))
}

/// What is known of the client for its TLS.
fn secured(worker: &Worker, connection: &quinn::Connection) -> Option<Rc<Secured>> {
    let agreed = connection.handshake_data()?.downcast::<Agreed>().ok()?;
    let shown = connection.peer_identity().and_then(|shown| shown.downcast::<Vec<CertificateDer<'static>>>().ok());
    let certificate = shown.as_ref().and_then(|chain| chain.first());
    Some(Rc::new(Secured::new(worker, agreed.host, agreed.clients, (TlsVersion::V1_3, certificate))))
}

fn kind_of(error: &ConnectionError) -> Handshake {
    match error {
        ConnectionError::TransportError(error) => match alert(error.code) {
            Some(session::UNRECOGNIZED_NAME) => Handshake::NoCertificate,
            Some(session::INTERNAL_ERROR) => Handshake::BrokenCertificate,
            // RFC 8446, section 6: all that speak of a certificate.
            Some(42..=46 | 48 | 49 | 116) => Handshake::ClientCertificate,
            // Parameters, a version or a protocol that both have.
            Some(40 | 70 | 71 | 109 | 120) => Handshake::Incompatible,
            _ => Handshake::Malformed,
        },
        ConnectionError::ConnectionClosed(close) if alert(close.error_code).is_some() => Handshake::ClientRefused,
        ConnectionError::VersionMismatch => Handshake::Incompatible,
        ConnectionError::TimedOut => Handshake::Timeout,
        _ => Handshake::Closed,
    }
}

/// The alert of TLS that an error carries (RFC 9001, section 4.8).
fn alert(code: TransportErrorCode) -> Option<u8> {
    u64::from(code).checked_sub(0x100).and_then(|alert| u8::try_from(alert).ok())
}
