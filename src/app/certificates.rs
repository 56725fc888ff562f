//! The default certificate where it comes from files, and the settings of TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Error;
use crate::ir::{Certificate, CertificateSource};
use crate::proxy::tls::PROTOCOLS;
use crate::publish::TlsSettings;
use crate::settings::{Tls, TlsVersion};
use crate::source::secrets::certificate_of;
use crate::source::{Update, UpdateSender};

/// How often it is looked whether the files have changed.
const LOOK: Duration = Duration::from_secs(10);

/// What the publisher has to know of TLS; the error names a setting.
pub(super) fn settings(tls: &Tls) -> Result<TlsSettings, String> {
    Ok(TlsSettings {
        tls12: tls.min_version == TlsVersion::V1_2,
        suites: tls.suites().map_err(|reason| format!("setting tls.cipherSuites: {reason}"))?,
        own_order: !tls.cipher_suites.is_empty(),
        tickets: tls.session_tickets,
        protocols: PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect(),
    })
}

/// Reads the default certificate, if it comes from files, and reads it again when they change. Files that cannot be
/// used at the start are an error; later ones leave the former certificate.
pub(super) async fn start(tls: &Tls, updates: &UpdateSender) -> Result<(), Error> {
    let Some((certificate, key)) = tls.default_certificate.files() else { return Ok(()) };
    let files = Files { certificate: certificate.clone(), key: key.clone() };
    let stamps = files.stamps();
    let first = files.read().map_err(|reason| Error::Settings(format!("setting tls.defaultCertificate: {reason}")))?;
    // A publisher that is gone has ended the process already.
    let _ = updates.send(Update::DefaultCertificate(first)).await;
    tokio::spawn(files.follow(stamps, updates.clone()));
    Ok(())
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

type Stamp = Option<(SystemTime, u64)>;

impl Files {
    fn stamps(&self) -> [Stamp; 2] {
        let stamp = |path: &Path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        [stamp(&self.certificate), stamp(&self.key)]
    }

    fn read(&self) -> Result<Arc<Certificate>, String> {
        let text = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        let (chain, key) = (text(&self.certificate)?, text(&self.key)?);
        let (chain_name, key_name) = (self.certificate.display().to_string(), self.key.display().to_string());
        certificate_of(CertificateSource::Files, (&chain_name, &chain), (&key_name, &key)).map(Arc::new)
    }

    /// Until nobody receives updates. Of a pair of which one file is new already and the other still old, nothing is used.
    async fn follow(self, mut known: [Stamp; 2], updates: UpdateSender) {
        let mut interval = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                () = updates.closed() => return,
            }
            let now = self.stamps();
            if now == known {
                continue;
            }
            match self.read() {
                Ok(certificate) => {
                    known = now;
                    tracing::info!(file = %self.certificate.display(), "the default certificate has changed");
                    if updates.send(Update::DefaultCertificate(certificate)).await.is_err() {
                        return;
                    }
                }
                Err(reason) => tracing::warn!(
                    "the default certificate has changed and cannot be used; the former one stays: {reason}"
                ),
            }
        }
    }
}
