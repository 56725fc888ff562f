//! How a TLS stream comes to be, and what is known of its client then.
//!
//! What handshakes run with is chosen by the client's first message from the snapshot of that moment. A connection keeps
//! what it was made with; whether it still is good for a request is judged when the request comes (`Secured::serves`).

pub(super) mod sni;

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::HeaderValue;
use rustls::pki_types::CertificateDer;
use rustls::server::{self, Acceptor};
use rustls::{HandshakeKind, ProtocolVersion};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::StartHandshake;
use tokio_rustls::server::TlsStream;

use super::access::Identity;
use super::{Held, Worker};
use crate::ir::{self, ClientCertificates, Tls};
use crate::publish::{End, Snapshot, Terminator};
use crate::routing::{ListenerIndex, RuleKey, host};
use crate::telemetry::metrics::{Handshake, TlsVersion};

/// Bytes of a client's first message: more than one record, for keys that quantum computers do not break are long.
const HELLO: usize = 2048;
/// Bytes that it may have: no honest one comes near.
const MAX_HELLO: usize = 64 << 10;
/// A record with the fatal alert `unrecognized_name` (RFC 6066, section 3), in the clear as nothing is agreed on yet.
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];
/// The same with `internal_error` (RFC 8446, section 6.2).
const INTERNAL_ERROR: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 80];

/// HTTP/2 in ALPN (RFC 9113, section 3.2).
pub(super) const HTTP2: &[u8] = b"h2";

/// The protocols to agree on by ALPN (RFC 7301), the best first.
pub const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];

/// What is known of a client connection for its TLS.
pub(super) struct Secured {
    /// The host that the client asked for, in its one form; empty where it asked for none.
    host: Box<str>,
    /// What was asked of the client.
    clients: Option<ClientCertificates>,
    /// The client's certificate as the value of `Client-Cert` (RFC 9440, section 2.1), if it showed one.
    certificate: Option<HeaderValue>,
    /// What was agreed on.
    pub version: TlsVersion,
    /// Who it is for, where requests are logged.
    pub identity: Option<Box<Identity>>,
}

/// What a request finds out about its connection.
pub(super) enum Standing<'a> {
    /// It may go on, with the client's certificate if the host asks for one.
    Serves(Option<&'a HeaderValue>),
    /// Another connection is needed (RFC 9110, section 15.5.20).
    Misdirected(&'static str),
}

impl Secured {
    /// What is known of a client of `worker` that asked for `host`, was asked for `clients`, agreed on `version`, and showed
    /// `certificate`.
    pub(super) fn new(
        worker: &Worker,
        host: Box<str>,
        clients: Option<ClientCertificates>,
        (version, shown): (TlsVersion, Option<&CertificateDer<'_>>),
    ) -> Self {
        let identity = worker.access.as_ref().and_then(|_| Identity::of(shown?));
        Self { host, clients, certificate: shown.and_then(field_value), version, identity }
    }

    /// Whether the client has shown a certificate, which verified then.
    pub(super) fn is_identified(&self) -> bool {
        self.certificate.is_some()
    }

    /// Whether the connection is good for a request to `host` that `selector` takes, or would if one of its rules did.
    fn serves(
        &self,
        snapshot: &Snapshot,
        listener: ListenerIndex,
        host: &str,
        selector: &ir::Selector,
    ) -> Standing<'_> {
        if selector.tls == Some(Tls::Passthrough) {
            return Standing::Misdirected("the host's TLS connections are passed through");
        }
        let is_own = *host == *self.host;
        if is_own && !snapshot.asks_clients() {
            return Standing::Serves(None);
        }
        let now = snapshot.terminator(listener, host);
        let source = |of: Option<&Terminator>| of.and_then(Terminator::certificate).cloned();
        let same = || source(now).is_some() && source(now) == source(snapshot.terminator(listener, &self.host));
        if !is_own && !same() {
            return Standing::Misdirected("another certificate serves the host");
        }
        // What the hostname asks of clients now, whatever it asked of when the connection was made.
        let asked = now.and_then(Terminator::clients);
        let own = match &selector.tls {
            Some(Tls::Terminate(own)) => own.clients.as_ref(),
            Some(Tls::Passthrough) => None,
            None => asked,
        };
        for wanted in [asked, own].into_iter().flatten() {
            if Some(wanted) != self.clients.as_ref() {
                return Standing::Misdirected("the host asks other certificates of its clients");
            }
        }
        Standing::Serves(own.and(self.certificate.as_ref()))
    }
}

/// Whether a connection, with TLS or without, is good for a request.
pub(super) fn standing<'a>(
    secured: Option<&'a Secured>,
    snapshot: &Snapshot,
    listener: ListenerIndex,
    host: &str,
    selector: &ir::Selector,
) -> Standing<'a> {
    match secured {
        Some(secured) => secured.serves(snapshot, listener, host, selector),
        None => match selector.tls.as_ref().and_then(Tls::termination).and_then(|tls| tls.clients.as_ref()) {
            Some(ClientCertificates { required: true, .. }) => {
                Standing::Misdirected("the host asks certificates of its clients, which need TLS")
            }
            _ => Standing::Serves(None),
        },
    }
}

/// What became of a connection.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum Accepted {
    /// The gateway ends it.
    Ended(TlsStream<TcpStream>, Rc<Secured>),
    /// A backend is to end it.
    Passed(TcpStream, Passed),
}

/// A connection that is to be passed through.
pub(super) struct Passed {
    /// The table that says so.
    pub snapshot: Held,
    /// The rule that takes it, if there is one.
    pub rule: Option<RuleKey>,
    /// The host that the client asked for, in its one form; empty where it asked for none.
    pub host: Box<str>,
    /// What has been read of it.
    pub hello: Vec<u8>,
}

/// Why there is no TLS stream.
enum Failed {
    /// The client left without a byte, as probes do.
    Silent,
    /// For this reason.
    Because(Handshake),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        Self::Because(tls.map_or(Handshake::Closed, kind_of))
    }
}

fn kind_of(error: &rustls::Error) -> Handshake {
    match error {
        rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_) => Handshake::ClientCertificate,
        rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol => Handshake::Incompatible,
        rustls::Error::AlertReceived(_) => Handshake::ClientRefused,
        _ => Handshake::Malformed,
    }
}

/// Does the handshake in the time that a connection has for its first request's head. Counts how it ended.
pub(super) async fn accept(worker: &Rc<Worker>, stream: TcpStream, listener: ListenerIndex) -> Option<Accepted> {
    let watched = worker.watchdog.watch(worker.stage_limits());
    let mut heard = false;
    let outcome = watched.conn().unless_expired(shake(worker, stream, listener, &mut heard)).await;
    let failed = match outcome {
        Some(Ok(passed @ Accepted::Passed(..))) => return Some(passed),
        Some(Ok(Accepted::Ended(stream, secured))) => {
            let kind = match stream.get_ref().1.handshake_kind() {
                Some(HandshakeKind::Resumed) => Handshake::Resumed,
                _ => Handshake::Full,
            };
            worker.metrics.handshake(kind, secured.version);
            return Some(Accepted::Ended(stream, secured));
        }
        Some(Err(failed)) => failed,
        None if heard => Failed::Because(Handshake::Timeout),
        None => Failed::Silent,
    };
    if let Failed::Because(reason) = failed {
        tracing::debug!(%reason, "TLS handshake failed");
        worker.metrics.handshake(reason, TlsVersion::None);
    }
    None
}

async fn shake(
    worker: &Rc<Worker>,
    mut stream: TcpStream,
    listener: ListenerIndex,
    heard: &mut bool,
) -> Result<Accepted, Failed> {
    let Hello { bytes, outcome } = hello(&mut stream, heard).await?;
    let name = match &outcome {
        Ok(accepted) => accepted.client_hello().server_name().map(str::to_owned),
        Err(_) => sni::of(&bytes),
    };
    // A name that is none of a host is that of no Selector.
    let host = match name.as_deref().map(host::parse) {
        Some(Ok(parsed)) => parsed.host.into(),
        Some(Err(_)) | None => Box::default(),
    };
    let snapshot = worker.snapshot();
    let end = snapshot.end(listener, &host);
    let accepted = match outcome {
        Ok(accepted) => Some(accepted),
        // Whether it will do is the backend's to say, if it can be told whose that is.
        Err(_) if name.is_some() && matches!(end, Some(End::Backend(_))) => None,
        Err(refused) => {
            send_last(&mut stream, &refused.alert).await;
            return Err(Failed::Because(refused.reason));
        }
    };
    let terminator = match end {
        Some(End::Here(terminator)) => Arc::clone(terminator),
        Some(End::Backend(rule)) => {
            let passed = Passed { rule, host, hello: bytes, snapshot: snapshot.clone() };
            return Ok(Accepted::Passed(stream, passed));
        }
        None => return refuse(&mut stream, Handshake::NoCertificate).await,
    };
    let Some(config) = terminator.config.clone() else {
        return refuse(&mut stream, Handshake::BrokenCertificate).await;
    };
    let clients = terminator.clients().cloned();
    let Some(accepted) = accepted else { return Err(Failed::Because(Handshake::Malformed)) };
    let stream = StartHandshake::from_parts(accepted, stream).into_stream(config).await?;
    let session = stream.get_ref().1;
    let version = match session.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => TlsVersion::V1_2,
        _ => TlsVersion::V1_3,
    };
    let shown = session.peer_certificates().and_then(|chain| chain.first());
    let secured = Rc::new(Secured::new(worker, host, clients, (version, shown)));
    Ok(Accepted::Ended(stream, secured))
}

/// A client's first message.
struct Hello {
    /// All bytes that have been read.
    bytes: Vec<u8>,
    /// The message, or why the gateway goes no further with it.
    outcome: Result<server::Accepted, Unacceptable>,
}

/// A first message that the gateway cannot answer but with an alert.
struct Unacceptable {
    reason: Handshake,
    /// The alert's record.
    alert: Vec<u8>,
}

/// Reads the client's first message.
async fn hello(stream: &mut TcpStream, heard: &mut bool) -> Result<Hello, Failed> {
    let mut acceptor = Acceptor::default();
    let mut bytes = Vec::with_capacity(HELLO);
    let mut taken = 0;
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(if *heard { Failed::Because(Handshake::Closed) } else { Failed::Silent });
        }
        *heard = true;
        while taken < bytes.len() {
            let mut rest = &bytes[taken..];
            taken += acceptor.read_tls(&mut rest)?;
            match acceptor.accept() {
                Ok(Some(accepted)) => return Ok(Hello { bytes, outcome: Ok(accepted) }),
                Ok(None) if bytes.len() <= MAX_HELLO => {}
                Ok(None) => return Err(Failed::Because(Handshake::Malformed)),
                Err((error, mut told)) => {
                    let mut alert = Vec::new();
                    // Into memory: it cannot fail.
                    let _ = told.write_all(&mut alert);
                    let refused = Unacceptable { reason: kind_of(&error), alert };
                    return Ok(Hello { bytes, outcome: Err(refused) });
                }
            }
        }
    }
}

async fn refuse<T>(stream: &mut TcpStream, reason: Handshake) -> Result<T, Failed> {
    send_last(stream, &UNRECOGNIZED_NAME).await;
    Err(Failed::Because(reason))
}

/// Closes a connection of which nothing was agreed on, because no backend can be had.
pub(super) async fn close(stream: &mut TcpStream) {
    send_last(stream, &INTERNAL_ERROR).await;
}

/// Sends an alert. A client that does not take it learns from the closing connection.
async fn send_last(stream: &mut TcpStream, record: &[u8]) {
    if stream.write_all(record).await.is_ok() {
        let _ = stream.shutdown().await;
    }
}

/// A certificate as a Byte Sequence of structured fields (RFC 8941, section 3.3.5).
fn field_value(certificate: &CertificateDer<'_>) -> Option<HeaderValue> {
    let mut text = String::with_capacity(certificate.len() * 4 / 3 + 6);
    text.push(':');
    STANDARD.encode_string(certificate, &mut text);
    text.push(':');
    HeaderValue::try_from(text).ok()
}
