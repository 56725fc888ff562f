//! Values that other parts keep and a scrape reads.

use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType};

use super::family::{Family, Spec};

/// One family whose samples are read at scrape time.
pub(super) struct Sampled {
    desc: Desc,
    spec: Spec,
    read: Box<dyn Fn(&mut Family) + Send + Sync>,
}

// === impl Sampled ===

impl Sampled {
    pub(super) fn gauge(
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> prometheus::Result<Self> {
        let spec = Spec { name, help, kind: MetricType::GAUGE, labels: &[] };
        Self::new(spec, move |family| family.push(&[], read()))
    }

    pub(super) fn counter(
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> prometheus::Result<Self> {
        let spec = Spec { name, help, kind: MetricType::COUNTER, labels: &[] };
        Self::new(spec, move |family| family.push(&[], read() as f64))
    }

    /// One series per phase: 1 for the present one, 0 for the others.
    pub(super) fn phase(
        phases: &'static [&'static str],
        read: impl Fn() -> usize + Send + Sync + 'static,
    ) -> prometheus::Result<Self> {
        let spec = Spec {
            name: "lockgate_drain_phase",
            help: "1 for the phase that the gateway is in, 0 for the others.",
            kind: MetricType::GAUGE,
            labels: &["phase"],
        };
        Self::new(spec, move |family| {
            let present = read();
            for (index, phase) in phases.iter().enumerate() {
                family.push(&[phase], if index == present { 1.0 } else { 0.0 });
            }
        })
    }

    fn new(spec: Spec, read: impl Fn(&mut Family) + Send + Sync + 'static) -> prometheus::Result<Self> {
        Ok(Self { desc: spec.desc()?, spec, read: Box::new(read) })
    }
}

impl Collector for Sampled {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut family = self.spec.family();
        (self.read)(&mut family);
        vec![family.finish()]
    }
}
