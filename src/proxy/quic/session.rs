//! TLS of QUIC connections, with the certificate that the snapshot of that moment has for the host that is asked for.
//!
//! quinn wants one configuration before it has read anything. So a session here begins as one that only listens for the
//! client's first message, and becomes one of the configuration that belongs to its host.

use std::any::Any;
use std::mem;
use std::sync::Arc;

use quinn::ConnectionId;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::crypto::{self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{Side, TransportError, TransportErrorCode};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::quic::Suite;
use rustls::server::ResolvesServerCertUsingSni;

use crate::ir::ClientCertificates;
use crate::proxy::tls::sni::{self, First};
use crate::publish::{End, Published};
use crate::routing::{ListenerIndex, host};

/// Bytes that a client's first message may have: no honest one comes near.
const MAX_HELLO: usize = 64 << 10;

/// Alerts of TLS (RFC 8446, section 6).
const UNEXPECTED_MESSAGE: u8 = 10;
pub(super) const INTERNAL_ERROR: u8 = 80;
pub(super) const UNRECOGNIZED_NAME: u8 = 112;

/// Begins sessions of a listener.
pub(super) struct Sessions {
    published: Arc<Published>,
    listener: ListenerIndex,
    /// What everything before the first message is protected with.
    initial: Suite,
    /// Has no certificate, and answers for what needs none.
    none: Arc<QuicServerConfig>,
}

/// What a handshake has agreed on.
#[derive(Clone)]
pub(super) struct Agreed {
    /// The host that the client asked for, in its one form; empty where it asked for none.
    pub host: Box<str>,
    /// What was asked of the client.
    pub clients: Option<ClientCertificates>,
}

impl Sessions {
    /// Those of a listener, with certificates of what is published.
    pub(super) fn new(published: Arc<Published>, listener: ListenerIndex) -> Result<Self, rustls::Error> {
        let wrong = |error: &dyn std::fmt::Display| rustls::Error::General(error.to_string());
        let suite = cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().and_then(rustls::Tls13CipherSuite::quic_suite);
        let initial = suite.ok_or_else(|| wrong(&"the provider has no suite for QUIC"))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?.with_no_client_auth();
        let none = builder.with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        let none = QuicServerConfig::with_initial(Arc::new(none), initial).map_err(|error| wrong(&error))?;
        Ok(Self { published, listener, initial, none: Arc::new(none) })
    }

    /// What a session for a host goes on with, or the alert that it ends with.
    fn choose(&self, host: &str) -> Result<(Arc<QuicServerConfig>, Option<ClientCertificates>), u8> {
        let snapshot = self.published.load();
        // What is passed through is TLS over TCP.
        let Some(End::Here(terminator)) = snapshot.end(self.listener, host) else { return Err(UNRECOGNIZED_NAME) };
        let config = terminator.quic().ok_or(INTERNAL_ERROR)?;
        let config = QuicServerConfig::with_initial(Arc::clone(config), self.initial).map_err(|_| INTERNAL_ERROR)?;
        Ok((Arc::new(config), terminator.clients().cloned()))
    }
}

impl crypto::ServerConfig for Sessions {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.none.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.none.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, params: &TransportParameters) -> Box<dyn crypto::Session> {
        let inner = Arc::clone(&self.none).start_session(version, params);
        Box::new(Session { version, params: *params, hello: Vec::new(), agreed: None, inner, sessions: self })
    }
}

/// A session.
struct Session {
    sessions: Arc<Sessions>,
    version: u32,
    params: TransportParameters,
    /// What has come of the first message.
    hello: Vec<u8>,
    /// Known once that was whole.
    agreed: Option<Agreed>,
    /// The session without a certificate, then that of the host.
    inner: Box<dyn crypto::Session>,
}

impl Session {
    /// Becomes a session of the host that the first message asks for, if that has come.
    fn begin(&mut self) -> Result<bool, u8> {
        let name = match sni::of_handshake(&self.hello) {
            First::Part if self.hello.len() <= MAX_HELLO => return Ok(false),
            First::Part | First::Other => return Err(UNEXPECTED_MESSAGE),
            First::Hello(name) => name,
        };
        // A name that is none of a host is that of no Selector.
        let host: Box<str> = match name.as_deref().map(host::parse) {
            Some(Ok(parsed)) => parsed.host.into(),
            Some(Err(_)) | None => Box::default(),
        };
        let (config, clients) = self.sessions.choose(&host)?;
        self.inner = crypto::ServerConfig::start_session(config, self.version, &self.params);
        self.agreed = Some(Agreed { host, clients });
        Ok(true)
    }
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let agreed = self.agreed.clone()?;
        Some(Box::new(agreed))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        // Early data can be replayed, and is not taken over TCP either.
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        if self.agreed.is_some() {
            // That there are data has been said.
            return self.inner.read_handshake(bytes).map(|_| false);
        }
        self.hello.extend_from_slice(bytes);
        match self.begin() {
            Ok(false) => Ok(false),
            Ok(true) => self.inner.read_handshake(&mem::take(&mut self.hello)).map(|_| true),
            Err(alert) => Err(TransportErrorCode::crypto(alert).into()),
        }
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, bytes: &mut Vec<u8>) -> Option<Keys> {
        self.agreed.as_ref()?;
        self.inner.write_handshake(bytes)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.inner.next_1rtt_keys()
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}
