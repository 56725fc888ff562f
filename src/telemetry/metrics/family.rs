//! From sums to the families of the `prometheus` crate.

use std::collections::HashMap;
use std::sync::Arc;

use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use super::cells::Buckets;

/// A family's fixed parts.
#[derive(Clone, Copy)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricType,
    pub(super) labels: &'static [&'static str],
}

/// A family under construction.
pub(super) struct Family {
    spec: Spec,
    metrics: Vec<Metric>,
}

/// The sum of a histogram over workers; counts are per bucket, the last one is above all bounds.
#[derive(Default)]
pub(super) struct Sum {
    pub(super) counts: Vec<u64>,
    pub(super) seconds: f64,
}

/// A part of the metrics that makes its families at scrape time.
pub(super) trait Source: Send + Sync {
    /// All families it may make.
    fn specs() -> &'static [Spec];
    /// Makes them.
    fn gather(&self) -> Vec<Family>;
}

/// Shows a [`Source`] to the registry.
pub(super) struct Gather<S> {
    source: Arc<S>,
    descs: Vec<Desc>,
}

// === impl Spec ===

impl Spec {
    pub(super) fn desc(&self) -> prometheus::Result<Desc> {
        let labels = self.labels.iter().map(ToString::to_string).collect();
        Desc::new(self.name.to_owned(), self.help.to_owned(), labels, HashMap::new())
    }

    pub(super) fn family(&self) -> Family {
        Family { spec: *self, metrics: Vec::new() }
    }
}

// === impl Family ===

impl Family {
    /// Adds a sample of a counter or gauge; the values belong to the spec's labels, in order.
    pub(super) fn push(&mut self, values: &[&str], value: f64) {
        let mut metric = Metric::from_label(self.labels(values));
        if self.spec.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.metrics.push(metric);
    }

    /// Adds a sample of a histogram.
    pub(super) fn push_histogram(&mut self, values: &[&str], buckets: &Buckets, sum: &Sum) {
        let mut total = 0;
        let mut list = Vec::with_capacity(buckets.bounds().len());
        for (bound, count) in buckets.bounds().iter().zip(&sum.counts) {
            total += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(total);
            list.push(bucket);
        }
        total += sum.counts.get(buckets.bounds().len()).copied().unwrap_or(0);
        let mut histogram = Histogram::default();
        histogram.set_bucket(list);
        histogram.set_sample_count(total);
        histogram.set_sample_sum(sum.seconds);
        let mut metric = Metric::from_label(self.labels(values));
        metric.set_histogram(histogram);
        self.metrics.push(metric);
    }

    fn labels(&self, values: &[&str]) -> Vec<LabelPair> {
        let pair = |(name, value): (&&str, &&str)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        };
        self.spec.labels.iter().zip(values).map(pair).collect()
    }

    pub(super) fn finish(self) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(self.spec.name.to_owned());
        family.set_help(self.spec.help.to_owned());
        family.set_field_type(self.spec.kind);
        family.set_metric(self.metrics);
        family
    }
}

// === impl Gather ===

impl<S: Source> Gather<S> {
    pub(super) fn new(source: Arc<S>) -> prometheus::Result<Self> {
        let descs = S::specs().iter().map(Spec::desc).collect::<prometheus::Result<_>>()?;
        Ok(Self { source, descs })
    }
}

impl<S: Source> Collector for Gather<S> {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.source.gather().into_iter().map(Family::finish).collect()
    }
}

/// Registers a collector whose names are fixed in this program.
pub(super) fn register<C: Collector + 'static>(registry: &Registry, collector: prometheus::Result<C>) {
    let registered = collector.and_then(|collector| registry.register(Box::new(collector)));
    registered.expect("names and labels in this program are valid and distinct");
}

/// The same, for a metric that is written as well.
pub(super) fn registered<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("names and labels in this program are valid and distinct");
    register(registry, Ok(metric.clone()));
    metric
}
