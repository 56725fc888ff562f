use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use parking_lot::Mutex;

use super::*;

/// A sink that can be read back.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).expect("UTF-8")
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A sink that does not take anything until its sender is dropped.
struct Blocked(Receiver<()>, Shared);

impl Write for Blocked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn settings(level: &str, format: Format, queue: usize) -> LogSettings {
    LogSettings { level: level.to_owned(), format, queue }
}

#[test]
fn json_lines_carry_the_fields() {
    let sink = Shared::default();
    let (subscriber, logs) = build(&settings("info", Format::Json, 16), sink.clone()).expect("valid");
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!(route = "shop/cart", "cut");
        tracing::debug!("not shown");
    });
    logs.flush();
    let text = sink.text();
    let line: serde_json::Value = serde_json::from_str(text.trim_end()).expect("one JSON object");
    assert_eq!(line["message"], "cut");
    assert_eq!(line["route"], "shop/cart");
    assert_eq!(line["level"], "INFO");
}

#[test]
fn a_library_that_repeats_what_the_gateway_said_is_not_heard() {
    let sink = Shared::default();
    let (subscriber, logs) = build(&settings("info", Format::Text, 16), sink.clone()).expect("valid");
    tracing::subscriber::with_default(subscriber, || {
        tracing::warn!(target: "kube_runtime::watcher", "refused again");
        tracing::error!(target: "kube_client::client::builder", "no connection again");
        tracing::warn!(target: "kube_client::client::tls", "trusts anybody");
        tracing::warn!(target: "lockgate::source", "refused");
    });
    logs.flush();
    let text = sink.text();
    assert!(!text.contains("again"), "{text}");
    assert!(text.contains("trusts anybody") && text.contains("refused"), "{text}");
}

#[test]
fn the_level_changes_at_run_time() {
    let sink = Shared::default();
    let (subscriber, logs) = build(&settings("warn", Format::Text, 16), sink.clone()).expect("valid");
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!("before");
        logs.set_level("warn,lockgate::telemetry=debug").expect("valid");
        tracing::debug!("after");
        assert!(logs.set_level("verbose").is_err());
        tracing::debug!("still");
    });
    logs.flush();
    let text = sink.text();
    assert!(!text.contains("before") && text.contains("after") && text.contains("still"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours in a file");
}

#[test]
fn what_is_no_level_is_refused_by_name() {
    for bad in ["", "verbose", "info,lockgate", "lockgate=verbose", "info,"] {
        let error = build(&settings(bad, Format::Text, 1), io::sink()).map(|_| ()).expect_err(bad);
        assert!(matches!(error, LogError::Level { .. } | LogError::Directives { .. }), "{error}");
    }
    let (_subscriber, logs) = build(&settings("lockgate=trace", Format::Text, 1), io::sink()).expect("valid");
    drop(logs.level());
}

#[test]
fn a_sink_that_blocks_costs_lines_and_never_waits() {
    let sink = Shared::default();
    let (unblock, blocked) = sync_channel(0);
    let (subscriber, logs) = build(&settings("info", Format::Text, 4), Blocked(blocked, sink.clone())).expect("valid");
    let dropped = logs.dropped();
    tracing::subscriber::with_default(subscriber, || (0..1000).for_each(|line| tracing::info!("line {line} end")));
    let lost = dropped();
    assert!(lost > 0);
    drop(unblock);
    // The last sender is gone with the subscriber and this, so that the writer ends after the last line.
    let queue = Arc::clone(&logs.queue);
    while sink.text().lines().count() as u64 + lost < 1000 {
        queue.flush(FLUSH_LIMIT);
    }
    assert_eq!(sink.text().lines().count() as u64 + dropped(), 1000);
}
