//! Traces, as the settings want them.

use anyhow::Context as _;

use super::Error;
use crate::settings;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::{Exporter, Settings, Traces};

/// Starts sending spans, if they are to be, and has them counted. Must run inside a runtime.
pub(super) fn start(
    settings: &settings::Traces,
    instance: String,
    metrics: &Metrics,
) -> Result<Option<(Traces, Exporter)>, Error> {
    let wrong =
        |field: &str, reason: &dyn std::fmt::Display| Error::Settings(format!("setting traces.{field}: {reason}"));
    let Some(endpoint) = settings.collector().map_err(|url| wrong("endpoint", &format!("{url:?} is no URL")))? else {
        return Ok(None);
    };
    let headers = settings.fields().map_err(|_| wrong("headers", &"is no list of `name: value`"))?;
    let settings = Settings { endpoint, headers, queue: settings.queue, instance };
    let (traces, exporter) = Traces::start(settings).map_err(|error| wrong("endpoint", &error))?;
    count(&traces, metrics).context("metrics")?;
    Ok(Some((traces, exporter)))
}

fn count(traces: &Traces, metrics: &Metrics) -> Result<(), prometheus::Error> {
    metrics.counter_fn("lockgate_spans_exported_total", "Spans that the collector took.", traces.exported())?;
    metrics.counter_fn(
        "lockgate_spans_dropped_total",
        "Spans that were dropped because too many waited for the collector.",
        traces.dropped(),
    )?;
    metrics.counter_fn("lockgate_spans_failed_total", "Spans that the collector did not take.", traces.failed())
}
