//! Certificates that are served.

use parking_lot::Mutex;
use prometheus::proto::MetricType;

use super::family::{Family, Source, Spec};

/// When each certificate expires, by the Secret that it comes from.
#[derive(Default)]
pub(super) struct Certificates(Mutex<Vec<(String, i64)>>);

static SPECS: [Spec; 1] = [Spec {
    name: "lockgate_certificate_expiry_seconds",
    help: "When a certificate that is served expires, in seconds since the epoch.",
    kind: MetricType::GAUGE,
    labels: &["secret"],
}];

impl Certificates {
    /// Replaces all of them.
    pub(super) fn set(&self, mut certificates: Vec<(String, i64)>) {
        certificates.sort();
        // The same Secret may be served under several names.
        certificates.dedup_by(|a, b| a.0 == b.0);
        *self.0.lock() = certificates;
    }
}

impl Source for Certificates {
    fn specs() -> &'static [Spec] {
        &SPECS
    }

    fn gather(&self) -> Vec<Family> {
        let [mut expiry] = SPECS.each_ref().map(Spec::family);
        for (secret, at) in self.0.lock().iter() {
            expiry.push(&[secret], *at as f64);
        }
        vec![expiry]
    }
}
