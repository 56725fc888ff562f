//! Traces: finished spans on their way to a collector, over OTLP (HTTP with protobuf).
//!
//! Whoever has a span hands it into a bounded queue and never waits: what does not fit is dropped and counted. Once in an
//! interval a task takes what there is, so that handing over wakes nobody.

mod collector;
mod message;
mod otlp;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Uri};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{info, warn};

pub use self::collector::TlsError;
use self::collector::{Collector, Refused};

/// How often spans are sent.
const INTERVAL: Duration = Duration::from_millis(500);
/// How many spans go in one message.
const BATCH: usize = 512;
/// The waits before a batch is sent again.
const BACKOFF: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];
/// How long the last spans may take when the process ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// Where spans go.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The whole URL that they are posted to.
    pub endpoint: Uri,
    /// Fields that go with every message.
    pub headers: HeaderMap,
    /// How many spans may wait.
    pub queue: usize,
    /// What this process is called among those of its service.
    pub instance: String,
}

/// What is said of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
}

/// The span of a request that was served.
#[derive(Clone, Debug)]
pub struct Span {
    /// The trace that it is a part of.
    pub trace: [u8; 16],
    /// Its own id.
    pub id: [u8; 8],
    /// The span that caused it, elsewhere.
    pub parent: Option<[u8; 8]>,
    /// The vendors' part of the context (W3C Trace Context, section 3.3).
    pub state: String,
    /// What it is called; of few different texts.
    pub name: String,
    /// When it began.
    pub started: SystemTime,
    /// How long it took.
    pub duration: Duration,
    /// What else is known.
    pub attributes: Vec<(&'static str, Value)>,
    /// Whether it failed.
    pub is_error: bool,
}

/// What became of spans.
#[derive(Debug, Default)]
struct Counts {
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// Takes spans, from any thread.
#[derive(Clone, Debug)]
pub struct Traces {
    queue: mpsc::Sender<Span>,
    counts: Arc<Counts>,
}

/// The task that sends them.
#[derive(Debug)]
pub struct Exporter {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Traces {
    /// Starts the task that sends spans. Must run inside a runtime. Fails where TLS to the collector cannot be set up.
    pub fn start(settings: Settings) -> Result<(Self, Exporter), TlsError> {
        let (queue, received) = mpsc::channel(settings.queue.max(1));
        let (stop, stopped) = watch::channel(false);
        let counts = Arc::new(Counts::default());
        let sender =
            Sender { collector: Collector::new(settings)?, received, counts: Arc::clone(&counts), is_failing: false };
        Ok((Self { queue, counts }, Exporter { stop, task: tokio::spawn(sender.run(stopped)) }))
    }

    /// Hands a span over, or drops it where too many wait. Never blocks.
    pub fn export(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Reads how many spans the collector took.
    pub fn exported(&self) -> impl Fn() -> u64 + Send + Sync + 'static + use<> {
        let counts = Arc::clone(&self.counts);
        move || counts.exported.load(Relaxed)
    }

    /// Reads how many found the queue full.
    pub fn dropped(&self) -> impl Fn() -> u64 + Send + Sync + 'static + use<> {
        let counts = Arc::clone(&self.counts);
        move || counts.dropped.load(Relaxed)
    }

    /// Reads how many the collector did not take.
    pub fn failed(&self) -> impl Fn() -> u64 + Send + Sync + 'static + use<> {
        let counts = Arc::clone(&self.counts);
        move || counts.failed.load(Relaxed)
    }
}

impl Exporter {
    /// Sends what is left, in the time there is for that.
    pub async fn finish(self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(FAREWELL, self.task).await.is_err() {
            warn!("the collector of traces did not take the last spans in time");
        }
    }
}

struct Sender {
    collector: Collector,
    received: mpsc::Receiver<Span>,
    counts: Arc<Counts>,
    is_failing: bool,
}

impl Sender {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut interval = tokio::time::interval_at(Instant::now() + INTERVAL, INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
            let is_last = *stopped.borrow();
            while let Some(batch) = self.batch() {
                self.send(batch, &mut stopped).await;
            }
            if is_last {
                return;
            }
        }
    }

    fn batch(&mut self) -> Option<Vec<Span>> {
        let first = self.received.try_recv().ok()?;
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(span) = self.received.try_recv()
        {
            batch.push(span);
        }
        Some(batch)
    }

    /// Sends a batch, again and again where that may help. A process that ends tries once.
    async fn send(&mut self, batch: Vec<Span>, stopped: &mut watch::Receiver<bool>) {
        let count = batch.len() as u64;
        let message = self.collector.encode(batch);
        let mut waits = BACKOFF.iter();
        loop {
            let refused = match self.collector.send(message.clone()).await {
                Ok(rejected) => {
                    let rejected = rejected.min(count);
                    self.counts.exported.fetch_add(count - rejected, Relaxed);
                    self.counts.failed.fetch_add(rejected, Relaxed);
                    if std::mem::take(&mut self.is_failing) {
                        info!(endpoint = %self.collector.endpoint(), "the collector takes spans again");
                    }
                    return;
                }
                Err(refused) => refused,
            };
            let Refused { reason, may_repeat } = refused;
            if !std::mem::replace(&mut self.is_failing, true) {
                warn!(endpoint = %self.collector.endpoint(), %reason, "the collector does not take spans");
            }
            let wait = waits.next().filter(|_| may_repeat && !*stopped.borrow());
            let Some(wait) = wait else {
                self.counts.failed.fetch_add(count, Relaxed);
                return;
            };
            tokio::select! {
                () = tokio::time::sleep(*wait) => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
