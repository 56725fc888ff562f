//! Which certificate a TLS connection gets, and what is asked of its client: made with the table, off the request threads.
//!
//! What is made of a certificate is kept while the certificate and what goes with it stay the same, tickets included: a
//! new certificate or other authorities make new tickets, so that no session outlives what it was agreed under.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, Ticketer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};

use super::Snapshot;
use crate::ir::{self, Certificate, CertificateSource, ClientCertificates, Termination, Tls};
use crate::routing::{ListenerIndex, RuleKey};

/// HTTP/3 in ALPN (RFC 9114, section 3.1).
const HTTP3: &[u8] = b"h3";

/// What holds for all TLS connections.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// Whether TLS 1.2 may be spoken.
    pub tls12: bool,
    /// The cipher suites.
    pub suites: Vec<SupportedCipherSuite>,
    /// Whether the order of `suites` counts rather than the client's.
    pub own_order: bool,
    /// Whether clients get tickets to resume with.
    pub tickets: bool,
    /// The protocols to agree on (RFC 7301), the best first.
    pub protocols: Vec<Vec<u8>>,
}

impl Default for TlsSettings {
    fn default() -> Self {
        let suites = aws_lc_rs::ALL_CIPHER_SUITES.to_vec();
        Self { tls12: true, suites, own_order: false, tickets: true, protocols: Vec::new() }
    }
}

/// What ends the TLS connections of some hosts.
pub struct Terminator {
    /// What it was made of.
    wanted: Termination,
    /// What handshakes run with; `None` where they have to fail.
    pub config: Option<Arc<ServerConfig>>,
    /// The same for QUIC, once it was asked for.
    quic: OnceLock<Option<Arc<ServerConfig>>>,
}

impl Terminator {
    /// Where its certificate comes from.
    pub fn certificate(&self) -> Option<&CertificateSource> {
        self.wanted.certificate.as_ref().ok().map(|certificate| &certificate.source)
    }

    /// What handshakes over QUIC run with (RFC 9001); `None` where they have to fail. Made when the first one comes.
    pub fn quic(&self) -> Option<&Arc<ServerConfig>> {
        self.quic.get_or_init(|| for_quic(self.config.as_deref()?).map(Arc::new)).as_ref()
    }

    /// What it asks of clients.
    pub fn clients(&self) -> Option<&ClientCertificates> {
        self.wanted.clients.as_ref()
    }
}

/// The same for QUIC: with the same certificate and demands, and with tickets of its own.
fn for_quic(config: &ServerConfig) -> Option<ServerConfig> {
    let is_usable = |suite: &SupportedCipherSuite| suite.tls13().is_some_and(|suite| suite.quic.is_some());
    if !config.crypto_provider().cipher_suites.iter().any(is_usable) {
        return None;
    }
    let mut config = config.clone();
    config.alpn_protocols = vec![HTTP3.to_vec()];
    if config.ticketer.enabled() {
        config.ticketer = Ticketer::new().ok()?;
    }
    Some(config)
}

/// Makes terminators.
pub(super) struct Terminators {
    settings: TlsSettings,
    provider: Arc<CryptoProvider>,
    made: HashMap<Termination, Weak<Terminator>>,
}

impl Terminators {
    pub(super) fn new(settings: TlsSettings) -> Self {
        let cipher_suites = settings.suites.clone();
        let provider = Arc::new(CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() });
        Self { settings, provider, made: HashMap::new() }
    }

    /// The one for this, which is that of before if nothing changed.
    fn get(&mut self, wanted: &Termination) -> Arc<Terminator> {
        if let Some(made) = self.made.get(wanted).and_then(Weak::upgrade) {
            return made;
        }
        let config = self.config(wanted);
        if let Some(Err(error)) = &config {
            // The translation has looked at it all; what is left is a set of versions and suites that cannot be.
            tracing::error!(%error, "a certificate cannot be used");
        }
        let config = config.and_then(Result::ok).map(Arc::new);
        let made = Arc::new(Terminator { wanted: wanted.clone(), config, quic: OnceLock::new() });
        self.made.insert(wanted.clone(), Arc::downgrade(&made));
        made
    }

    fn config(&self, wanted: &Termination) -> Option<Result<ServerConfig, Error>> {
        let certificate = wanted.certificate.as_ref().ok()?;
        let authorities = match &wanted.clients {
            None => None,
            Some(clients) => Some((clients.authorities.as_ref().ok()?, clients.required)),
        };
        Some(self.server_config(certificate, authorities))
    }

    fn server_config(
        &self,
        certificate: &Certificate,
        authorities: Option<(&Arc<ir::Authorities>, bool)>,
    ) -> Result<ServerConfig, Error> {
        const BOTH: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
        const NEW: &[&SupportedProtocolVersion] = &[&version::TLS13];
        let versions = if self.settings.tls12 { BOTH } else { NEW };
        let key = CertifiedKey::from_der(certificate.chain.clone(), certificate.key.clone_key(), &self.provider)?;
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&self.provider)).with_protocol_versions(versions)?;
        let builder = match authorities {
            None => builder.with_no_client_auth(),
            Some((authorities, required)) => builder.with_client_cert_verifier(self.verifier(authorities, required)?),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.ignore_client_order = self.settings.own_order;
        config.alpn_protocols.clone_from(&self.settings.protocols);
        // Sessions are in the clients' tickets or nowhere. A resumed session shows no certificate again, so where one is
        // asked for every connection shows it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if self.settings.tickets && authorities.is_none() {
            config.ticketer = Ticketer::new()?;
        } else {
            config.send_tls13_tickets = 0;
        }
        Ok(config)
    }

    fn verifier(&self, authorities: &ir::Authorities, required: bool) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in &authorities.certificates {
            roots.add(certificate.clone())?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider));
        Ok(if required { builder } else { builder.allow_unauthenticated() }.build()?)
    }

    /// What ends the connections of every Selector of a table, in its order, and of hosts that have nothing of their own.
    pub(super) fn table<'a>(
        &mut self,
        selectors: impl Iterator<Item = &'a Arc<ir::Selector>>,
        default: Option<&Arc<Certificate>>,
    ) -> TlsTable {
        let selectors: Box<[Option<Own>]> = selectors.map(|selector| Some(self.own(selector.tls.as_ref()?))).collect();
        let asks = |own: &Own| matches!(own, Own::Here(terminator) if terminator.clients().is_some());
        let asks_clients = selectors.iter().flatten().any(asks);
        let default = default
            .map(|certificate| self.get(&Termination { certificate: Ok(Arc::clone(certificate)), clients: None }));
        let table = TlsTable { selectors, default, asks_clients };
        self.made.retain(|_, made| made.strong_count() > 0);
        table
    }

    fn own(&mut self, tls: &Tls) -> Own {
        match tls {
            Tls::Terminate(wanted) => Own::Here(self.get(wanted)),
            Tls::Passthrough => Own::Backend,
        }
    }
}

/// Why a configuration cannot be made.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Where TLS connections end, Selector by Selector.
#[derive(Default)]
pub struct TlsTable {
    /// In the order of the table's Selectors; `None` of one that says nothing.
    selectors: Box<[Option<Own>]>,
    default: Option<Arc<Terminator>>,
    asks_clients: bool,
}

/// What a Selector says.
enum Own {
    Here(Arc<Terminator>),
    Backend,
}

/// Where a TLS connection ends.
pub enum End<'a> {
    /// Here.
    Here(&'a Arc<Terminator>),
    /// At a backend of this rule; `None` where the Selector that takes it has none.
    Backend(Option<RuleKey>),
}

impl Snapshot {
    /// Where TLS connections to a host end; `None` where they have to fail. The host's most specific hostname decides, of
    /// its Selectors the first one that says anything of TLS, else the default certificate. `host` is in the form of
    /// [`crate::routing::host::parse`], or empty.
    pub fn end(&self, listener: ListenerIndex, host: &str) -> Option<End<'_>> {
        let mut of_host = self.table.of_host(listener, host);
        let said = of_host.find_map(|position| Some((position, self.tls.selectors.get(position)?.as_ref()?)));
        match said {
            Some((_, Own::Here(terminator))) => Some(End::Here(terminator)),
            Some((position, Own::Backend)) => Some(End::Backend(self.table.first_rule(position))),
            None => self.tls.default.as_ref().map(End::Here),
        }
    }

    /// The same, where the gateway ends them.
    pub fn terminator(&self, listener: ListenerIndex, host: &str) -> Option<&Terminator> {
        match self.end(listener, host)? {
            End::Here(terminator) => Some(terminator),
            End::Backend(_) => None,
        }
    }

    /// Whether any host asks certificates of its clients.
    pub fn asks_clients(&self) -> bool {
        self.tls.asks_clients
    }
}
