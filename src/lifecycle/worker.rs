//! What one worker tells the lifecycle, without touching a cache line of another worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// One worker's part of the lifecycle. Cheap to clone; a clone is the same part.
#[derive(Clone)]
pub struct Worker(Arc<Part>);

struct Part {
    born: Instant,
    cells: Cells,
    /// Cloned by guards alone.
    in_flight: Arc<InFlight>,
}

/// Something in flight: the drain waits until it is dropped. May be dropped on any thread.
///
/// Counting is the reference count itself: one atomic operation to begin and one to end, on a line of the worker's own,
/// and no way to lose count.
#[must_use = "what is dropped at once holds no drain"]
#[derive(Debug)]
pub struct RequestGuard {
    _held: Arc<InFlight>,
}

/// Times in milliseconds after `born`, plus one; 0 for never.
#[derive(Default)]
#[repr(align(128))]
struct Cells {
    last_connection: AtomicU64,
    last_heartbeat: AtomicU64,
}

/// Its reference count is one more than what is in flight. Aligned so that no other count is on its line.
#[derive(Debug)]
#[repr(align(128))]
struct InFlight;

// === impl Worker ===

impl Worker {
    pub(super) fn new(born: Instant) -> Self {
        Self(Arc::new(Part { born, cells: Cells::default(), in_flight: Arc::new(InFlight) }))
    }

    /// Begins a request, tunnel or stream.
    pub fn begin(&self) -> RequestGuard {
        RequestGuard { _held: Arc::clone(&self.0.in_flight) }
    }

    /// What is in flight.
    pub fn in_flight(&self) -> u64 {
        Arc::strong_count(&self.0.in_flight) as u64 - 1
    }

    /// A new connection came.
    pub fn note_connection(&self) {
        self.0.cells.last_connection.store(self.now(), Relaxed);
    }

    /// Still alive; due every [`super::HEARTBEAT_INTERVAL`].
    pub fn heartbeat(&self) {
        self.0.cells.last_heartbeat.store(self.now(), Relaxed);
    }

    pub(super) fn last_connection(&self) -> Option<Instant> {
        self.time(&self.0.cells.last_connection)
    }

    pub(super) fn last_heartbeat(&self) -> Option<Instant> {
        self.time(&self.0.cells.last_heartbeat)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.born.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    fn time(&self, cell: &AtomicU64) -> Option<Instant> {
        let millis = cell.load(Relaxed).checked_sub(1)?;
        self.0.born.checked_add(Duration::from_millis(millis))
    }
}
