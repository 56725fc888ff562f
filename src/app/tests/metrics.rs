//! `docs/reference/metrics.md`, made of what a gateway with everything on shows of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use http::Method;
use regex::Regex;

use super::super::*;
use crate::settings::{AccessLog, AccessOutput, Admin, Listener, Traces};
use crate::telemetry::metrics::{
    ConnectionState, EventWrite, GrpcStatus, Handshake, MirrorOutcome, Refusal, RetryReason, SourceError, StatusWrite,
    TlsVersion,
};

const FILE: &str = "docs/reference/metrics.md";

/// Labels whose values are a closed set that is shown whole.
const CLOSED: [&str; 9] =
    ["reason", "result", "state", "phase", "version", "outcome", "grpc_status", "tls_version", "method"];

/// A gateway that has everything, of which nothing runs.
fn gateway(folder: &Path) -> App {
    let any = "127.0.0.1:0".parse().unwrap();
    let settings = Settings {
        workers: 1,
        listeners: vec![Listener::plain("http", any)],
        admin: Admin { address: any, operator_address: any },
        access_log: AccessLog {
            enabled: true,
            output: AccessOutput::File(folder.join("access.log")),
            ..AccessLog::default()
        },
        traces: Traces { endpoint: Some("http://127.0.0.1:4318".to_owned()), ..Traces::default() },
        ..Settings::default()
    };
    App::bind(settings).unwrap()
}

/// Counts something of everything.
fn happen(metrics: &Metrics) -> Vec<Arc<dyn std::any::Any>> {
    let short = Duration::from_millis(1);
    let rule = metrics.rule("shop/web", "shop/cart", "0");
    rule.record(0, &Method::GET, 200, short);
    rule.passed(0, None);
    for status in GrpcStatus::ALL {
        rule.called(0, *status);
    }
    let cluster = metrics.cluster("shop/cart:8080");
    cluster.record(0, short);
    for state in ConnectionState::ALL {
        cluster.add_connections(0, *state, 1);
    }
    for reason in RetryReason::ALL {
        cluster.retried(0, *reason);
    }
    for outcome in MirrorOutcome::ALL {
        cluster.mirrored(0, *outcome);
    }
    cluster.retry_denied(0);
    cluster.connect_failed(0);
    if let Some(worker) = metrics.worker(0) {
        for reason in Refusal::ALL {
            worker.refused(*reason);
        }
        worker.handshake(Handshake::ALL[0], TlsVersion::ALL[0]);
    }
    let listener = metrics.listener("http");
    listener.opened(0);
    listener.paused(0);
    metrics.observe_busy(0, || Duration::from_secs(1));
    for reason in SourceError::ALL {
        metrics.source("Route").error(*reason);
    }
    metrics.set_certificates(vec![("shop/tls".to_owned(), 1)]);
    for result in StatusWrite::ALL {
        metrics.control().status_write(*result);
    }
    for result in EventWrite::ALL {
        metrics.control().event_write(*result);
    }
    metrics.control().published(1, short);
    metrics.control().endpoints_updated(short);
    vec![rule, cluster]
}

/// The labels of every family, with the values that came.
fn labels(text: &str) -> BTreeMap<String, Vec<(String, BTreeSet<String>)>> {
    let (sample, pair) = (Regex::new(r"^(\w+)\{(.*)\} ").unwrap(), Regex::new(r#"(\w+)="([^"]*)""#).unwrap());
    let mut families: BTreeMap<String, Vec<(String, BTreeSet<String>)>> = BTreeMap::new();
    for found in text.lines().filter_map(|line| sample.captures(line)) {
        let known = families.entry(found[1].trim_end_matches("_bucket").to_owned()).or_default();
        for (_, [name, value]) in pair.captures_iter(&found[2]).map(|pair| pair.extract()) {
            if name == "le" {
                continue;
            }
            match known.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) => drop(values.insert(value.to_owned())),
                None => known.push((name.to_owned(), BTreeSet::from([value.to_owned()]))),
            }
        }
    }
    families
}

fn page(text: &str) -> String {
    let mut page = "# Metrics\n\n<!-- Made of what the gateway shows by `UPDATE_REFERENCE=1 cargo test -p lockgate reference`; do not edit. -->\n\n\
         `/metrics` at `admin.address` (`:8081`), in Prometheus' text format. Labels come from configured objects and closed sets alone, so that no \
         client can make a series: `selector` and `route` are `namespace/name`, `-` where nothing took the request, and an unknown method is \
         `OTHER`. The series of an object go when it goes. Buckets of durations are `metrics.buckets` ([settings](settings.md)).\n\n\
         | metric | type | labels | |\n|---|---|---|---|\n"
        .to_owned();
    let labels = labels(text);
    let mut help = "";
    for line in text.lines() {
        if let Some(told) = line.strip_prefix("# HELP ") {
            help = told.split_once(' ').map_or("", |(_, help)| help);
        }
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|told| told.split_once(' ')) else { continue };
        let label = |(name, values): &(String, BTreeSet<String>)| {
            if !CLOSED.contains(&name.as_str()) || values.len() < 2 {
                return format!("`{name}`");
            }
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("`{name}`: {}", values.join(", "))
        };
        let labels: Vec<String> = labels.get(name).into_iter().flatten().map(label).collect();
        let _ = writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join("; "));
    }
    page
}

/// The names of metrics that stand in the sources, tests apart.
fn named(folder: &Path, names: &mut BTreeSet<String>) {
    let name = Regex::new(r#""(lockgate_[a-z0-9_]+)""#).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if is_test {
            continue;
        }
        if path.is_dir() {
            named(&path, names);
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            names.extend(name.captures_iter(&text).map(|found| found[1].to_owned()));
        }
    }
}

#[tokio::test]
async fn the_reference_of_metrics_is_what_the_gateway_shows() {
    let folder = tempfile::tempdir().unwrap();
    let app = gateway(folder.path());
    count_lost_lines(&app.shared.metrics, || 0).unwrap();
    let held = happen(&app.shared.metrics);
    let wanted = page(&app.shared.metrics.render());
    drop(held);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = BTreeSet::new();
    named(&root.join("src"), &mut names);
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(wanted.contains(&format!("| `{name}` |")), "{name} is not shown: let it happen in this test");
    }
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(root.join(FILE), &wanted).unwrap();
    }
    let found = std::fs::read_to_string(root.join(FILE)).unwrap_or_default();
    assert!(found == wanted, "{FILE} is old: run UPDATE_REFERENCE=1 cargo test -p lockgate reference");
}
