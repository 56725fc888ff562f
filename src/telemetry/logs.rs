//! Logs: text or JSON lines, a level that changes at run time, and a writer that never holds up who logs.
//!
//! Lines go through a bounded queue to a thread of their own. A line that finds the queue full is dropped and counted:
//! a slow log collector costs lines, never requests.

mod queue;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_global_default;
use tracing::{Level, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use self::queue::{Lines, Queue};

/// What the HTTP/2 library tells of peers: anybody could fill the log with it.
const OF_PEERS: &str = "h2::";
/// Targets whose errors are left out: they tell of every request and every try, where the gateway's own line comes once.
const REPEATS: [&str; 3] = ["kube_client::client", "kube_client::client::builder", "kube_runtime::watcher"];
/// How long the end of the process waits for the last lines.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, the event's fields beside time, level and target.
    Json,
}

/// How to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// A level, or directives such as `info,lockgate::proxy=debug`.
    pub level: String,
    /// How lines look.
    pub format: Format,
    /// Lines that may wait for the writer.
    pub queue: usize,
}

/// Why logging cannot be set so.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Not a level.
    #[error("log level {directive:?}: expected off, error, warn, info, debug or trace, or target=level")]
    Level {
        /// The offending directive.
        directive: String,
    },
    /// Not a list of directives.
    #[error("log level {text:?}: {source}")]
    Directives {
        /// What was given.
        text: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The writer's thread did not start.
    #[error("cannot start the log writer: {0}")]
    Writer(#[from] io::Error),
    /// Another part of the process logs already.
    #[error("logging is set up already: {0}")]
    Taken(#[from] tracing::subscriber::SetGlobalDefaultError),
    /// The subscriber is gone.
    #[error("cannot change the log level: {0}")]
    Reload(#[from] reload::Error),
}

/// Controls the logs of the process. When dropped it waits for the lines that are queued.
pub struct Logs {
    filter: reload::Handle<EnvFilter, Registry>,
    level: Mutex<String>,
    queue: Arc<Queue>,
}

// === impl LogSettings ===

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: Format::Text, queue: 8192 }
    }
}

// === impl Logs ===

/// Logs to standard error from now on. Fails for a bad level and when called twice.
pub fn init(settings: &LogSettings) -> Result<Logs, LogError> {
    let (subscriber, logs) = build(settings, io::stderr())?;
    set_global_default(subscriber)?;
    Ok(logs)
}

/// The subscriber and its control, writing to any sink.
pub fn build(
    settings: &LogSettings,
    sink: impl io::Write + Send + 'static,
) -> Result<(impl Subscriber + Send + Sync, Logs), LogError> {
    let (filter, handle) = reload::Layer::new(parse(&settings.level)?);
    let queue = Queue::start(settings.queue, sink)?;
    let lines = fmt::layer().with_ansi(false).with_writer(Lines(Arc::clone(&queue)));
    let lines = match settings.format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    let is_noise = |target: &str| REPEATS.contains(&target) || target.starts_with(OF_PEERS);
    let said_once = filter_fn(move |event| !is_noise(event.target()) || *event.level() > Level::WARN);
    let subscriber = tracing_subscriber::registry().with(filter).with(lines.with_filter(said_once));
    Ok((subscriber, Logs { filter: handle, level: Mutex::new(settings.level.clone()), queue }))
}

impl Logs {
    /// The present level or directives, as they were set.
    pub fn level(&self) -> String {
        self.level.lock().clone()
    }

    /// Changes the level. Fails, and changes nothing, for what is no level.
    pub fn set_level(&self, level: &str) -> Result<(), LogError> {
        let filter = parse(level)?;
        self.filter.reload(filter)?;
        level.trim().clone_into(&mut self.level.lock());
        tracing::info!(level, "log level changed");
        Ok(())
    }

    /// Reads how many lines were dropped so far; for the metric `lockgate_log_lines_dropped_total`.
    pub fn dropped(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let queue = Arc::clone(&self.queue);
        move || queue.dropped()
    }

    /// Waits until everything logged before is written, for a second at most.
    pub fn flush(&self) {
        self.queue.flush(FLUSH_LIMIT);
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.flush();
    }
}

fn parse(text: &str) -> Result<EnvFilter, LogError> {
    // A bare word that is no level would be taken for the name of a target: a typo that turns all logs off.
    for directive in text.split(',').map(str::trim) {
        let is_level = !directive.is_empty() && directive.parse::<LevelFilter>().is_ok();
        if !is_level && !directive.contains('=') {
            return Err(LogError::Level { directive: directive.to_owned() });
        }
    }
    let builder = EnvFilter::builder().with_regex(false);
    builder.parse(text).map_err(|source| LogError::Directives { text: text.to_owned(), source })
}
