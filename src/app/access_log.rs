//! The access log, as the settings want it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Error;
use crate::proxy::Shared;
use crate::settings::{self, AccessOutput};
use crate::telemetry::access::{AccessLog, Output};
use crate::telemetry::metrics::Metrics;

/// How long the end of the process waits for the last lines.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// Opens the log, if there is to be one, and has its lines counted.
pub(super) fn open(settings: &settings::AccessLog, metrics: &Metrics) -> Result<Option<AccessLog>, Error> {
    if !settings.enabled {
        return Ok(None);
    }
    let output = match &settings.output {
        AccessOutput::Stdout => Output::Stdout,
        AccessOutput::Stderr => Output::Stderr,
        AccessOutput::File(path) => Output::File(path.clone()),
    };
    let bytes = usize::try_from(settings.buffer.get()).unwrap_or(usize::MAX);
    let log = AccessLog::start(&output, bytes)
        .with_context(|| format!("setting accessLog.output: {}", String::from(settings.output.clone())))?;
    let counters: [(_, _, Box<dyn Fn() -> u64 + Send + Sync>); 2] = [
        ("lockgate_access_log_lines_total", "Lines of the access log that were written.", Box::new(log.written())),
        (
            "lockgate_access_log_dropped_total",
            "Lines of the access log that were dropped, because its output did not take them in time or failed.",
            Box::new(log.dropped()),
        ),
    ];
    for (name, help, read) in counters {
        metrics.counter_fn(name, help, read).context("metrics")?;
    }
    Ok(Some(log))
}

/// Writes what is left, in the time there is for that.
pub(super) fn finish(shared: &Shared) {
    let left = shared.access_log.as_ref().map_or(0, |log| log.flush(FLUSH_LIMIT));
    if left > 0 {
        tracing::warn!(lines = left, "the access log's output did not take its last lines");
    }
}

/// SIGHUP from now on: it no longer ends the process. Must run inside a runtime.
pub(super) fn hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Opens the log anew with every SIGHUP.
pub(super) async fn reopen(shared: Arc<Shared>, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        if let Some(log) = &shared.access_log {
            tracing::info!("SIGHUP: the access log is opened anew");
            log.reopen();
        } else {
            tracing::info!("SIGHUP: there is no access log to open anew; settings are read at the start only");
        }
    }
}
