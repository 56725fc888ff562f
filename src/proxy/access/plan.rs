//! What is logged and how, made of the settings once.

use std::ops::RangeInclusive;

use http::HeaderName;
use ipnet::IpNet;

use super::redact::Redacted;
use super::{Ended, error};
use crate::routing::ListenerIndex;
use crate::settings::{AccessField as Field, AccessFormat, Settings, StatusRange};
use crate::telemetry::access::{Format, Key};
use crate::telemetry::metrics::GrpcStatus;

/// What every line is made by.
pub(in crate::proxy) struct Plan {
    /// How lines look.
    pub format: Format,
    /// By field; `None` for those that are not wanted.
    keys: [Option<Key>; Field::ALL.len()],
    /// Of requests.
    pub request_headers: Box<[Shown]>,
    /// Of answers.
    pub response_headers: Box<[Shown]>,
    /// What is not told of URLs.
    pub redacted: Redacted,
    /// Who is believed about clients' addresses.
    pub trusted: Vec<IpNet>,
    share: f64,
    error_share: f64,
    statuses: Box<[RangeInclusive<u16>]>,
    listeners: Box<[Box<str>]>,
}

/// A header field that is wanted.
pub(in crate::proxy) struct Shown {
    pub name: HeaderName,
    pub key: Key,
    /// Only that it was there.
    pub is_redacted: bool,
}

impl Plan {
    /// The settings' plan.
    pub(in crate::proxy) fn new(settings: &Settings) -> Self {
        let log = &settings.access_log;
        let format = match log.format {
            AccessFormat::Json => Format::Json,
            AccessFormat::Text => Format::Text,
        };
        let mut keys = [const { None }; Field::ALL.len()];
        let wanted = if log.fields.is_empty() { Field::ALL } else { &log.fields };
        for field in wanted {
            keys[*field as usize] = Some(Key::new(format, field.name()));
        }
        let is_redacted = |name: &str| log.redact_headers.iter().any(|redacted| redacted.eq_ignore_ascii_case(name));
        let shown = |group: Field, names: &[String]| {
            // Names that are none have been refused with the settings.
            let names = names.iter().filter_map(|name| name.parse::<HeaderName>().ok());
            let shown = names.map(|name| Shown {
                key: Key::member(format, group.name(), name.as_str()),
                is_redacted: is_redacted(name.as_str()),
                name,
            });
            shown.collect()
        };
        Self {
            format,
            keys,
            request_headers: shown(Field::RequestHeaders, &log.request_headers),
            response_headers: shown(Field::ResponseHeaders, &log.response_headers),
            redacted: Redacted::new(&log.redact_query),
            trusted: settings.trusted_proxies.clone(),
            share: log.share,
            error_share: log.error_share,
            statuses: log.statuses.iter().map(|StatusRange(range)| range.clone()).collect(),
            listeners: settings.listeners.iter().map(|listener| listener.name.as_str().into()).collect(),
        }
    }

    /// The name of a field in a line, if it is wanted.
    pub(super) fn key(&self, field: Field) -> Option<&Key> {
        self.keys[field as usize].as_ref()
    }

    /// The name of a listener.
    pub(super) fn listener(&self, index: ListenerIndex) -> &str {
        self.listeners.get(index.0).map_or("-", |name| name)
    }

    /// A lot for a request, from 0 up to 1; `None` when it is not logged however it ends.
    pub(super) fn draw(&self, random: impl FnOnce() -> u64) -> Option<f64> {
        if self.share >= 1.0 {
            return Some(0.0);
        }
        let draw = (random() >> 11) as f64 / (1_u64 << 53) as f64;
        (draw < self.share.max(self.error_share)).then_some(draw)
    }

    /// Whether what has ended so is logged.
    pub(super) fn takes(&self, draw: f64, ended: &Ended<'_>) -> bool {
        // Of whoever was told none there is the one that would have fitted.
        let status = ended.status.or_else(|| Some(error::status(ended.reason?).as_u16()));
        let is_wanted = self.statuses.is_empty()
            || status.is_some_and(|status| self.statuses.iter().any(|range| range.contains(&status)));
        let is_error = || {
            ended.broke_off
                || status.is_some_and(|status| status >= 500)
                || ended.grpc.is_some_and(|s| s != GrpcStatus::Ok)
        };
        is_wanted && (draw < self.share || (draw < self.error_share && is_error()))
    }
}
