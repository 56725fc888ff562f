//! How the gateway is: its phase, its sources, its traffic as a whole.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::Live;
use crate::telemetry::metrics::{RuleTotals, SourceTold};

/// How the gateway is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Its version.
    pub version: &'static str,
    /// The class of the Selectors that it serves.
    pub class_name: String,
    /// Seconds since its start, by its own clock: what rates are made with.
    pub uptime_seconds: f64,
    /// Its phase.
    pub phase: &'static str,
    /// Whether it shows itself ready.
    pub ready: bool,
    /// What readiness waits for, a line each; empty when ready.
    pub waits_for: Vec<String>,
    /// Whether every worker moves.
    pub live: bool,
    /// Workers.
    pub workers: usize,
    /// Generation of the table that is served; 0 before the first.
    pub generation: u64,
    /// Requests, tunnels and streams in flight.
    pub in_flight: u64,
    /// Requests that a drain cut.
    pub forced: u64,
    /// How long a drain may take.
    pub drain: DrainTold,
    /// The listeners.
    pub listeners: Vec<ListenerTold>,
    /// Where objects come from.
    pub sources: Vec<SourceRow>,
    /// Upper bounds in seconds of the buckets of `traffic`.
    pub bounds: Vec<f64>,
    /// All requests answered, also those that no rule took.
    pub traffic: Traffic,
}

/// How long a drain may take, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainTold {
    /// `drain.delay`.
    pub delay_seconds: f64,
    /// `drain.maxDelay`.
    pub max_delay_seconds: f64,
    /// `drain.timeout`.
    pub timeout_seconds: f64,
    /// From a signal to the exit at the latest.
    pub longest_seconds: f64,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerTold {
    /// Its name.
    pub name: String,
    /// The port of the settings.
    pub port: u16,
    /// Whether it ends TLS.
    pub tls: bool,
}

/// A source.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceRow {
    /// Its name, such as `kube/routes`.
    pub name: String,
    /// Whether it has listed everything once.
    pub synced: bool,
    /// Seconds since it was last heard of.
    pub staleness_seconds: f64,
    /// What went wrong, and how often.
    pub errors: BTreeMap<&'static str, u64>,
}

/// Counters of requests. They only rise while the object is there: a rate is the difference of two looks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// Requests answered.
    pub requests: u64,
    /// Those of them with a code from 500 to 599.
    pub server_errors: u64,
    /// Requests by duration: a count per bucket, the last one above all bounds. Empty before the first.
    pub buckets: Vec<u64>,
}

impl From<RuleTotals> for Traffic {
    fn from(totals: RuleTotals) -> Self {
        Self { requests: totals.requests, server_errors: totals.server_errors, buckets: totals.buckets }
    }
}

impl From<SourceTold> for SourceRow {
    fn from(told: SourceTold) -> Self {
        Self {
            name: told.name.to_string(),
            synced: told.synced,
            staleness_seconds: told.staleness.as_secs_f64(),
            errors: told.errors.into_iter().map(|(reason, count)| (reason.as_str(), count)).collect(),
        }
    }
}

impl Live {
    /// How the gateway is.
    pub fn state(&self) -> State {
        let health = self.lifecycle.ready();
        let waits_for = if health.ok { Vec::new() } else { health.text.lines().map(str::to_owned).collect() };
        let drain = self.lifecycle.settings();
        let listener = |l: &super::super::Listener| ListenerTold { name: l.name.to_string(), port: l.port, tls: l.tls };
        State {
            version: env!("CARGO_PKG_VERSION"),
            class_name: self.class_name.clone(),
            uptime_seconds: self.uptime_seconds(),
            phase: self.lifecycle.phase().as_str(),
            ready: health.ok,
            waits_for,
            live: self.lifecycle.live().ok,
            workers: self.metrics.workers(),
            generation: self.published.generation(),
            in_flight: self.lifecycle.in_flight(),
            forced: self.lifecycle.forced(),
            drain: DrainTold {
                delay_seconds: drain.delay.as_secs_f64(),
                max_delay_seconds: if drain.strict() { Duration::ZERO } else { drain.max_delay }.as_secs_f64(),
                timeout_seconds: drain.timeout.as_secs_f64(),
                longest_seconds: drain.longest().as_secs_f64(),
            },
            listeners: self.gateway.listeners.iter().map(listener).collect(),
            sources: self.metrics.sources().into_iter().map(SourceRow::from).collect(),
            bounds: self.metrics.bounds().to_vec(),
            traffic: self.metrics.totals().into(),
        }
    }
}
