//! Buffers of lines on their way from workers to the writer's thread, and back.
//!
//! A worker takes no lock on that way, not even one to try: whoever holds one may have been put off the processor, and a
//! worker that waits for it, or gives up, would pay for that with time, or with lines.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use super::line::Format;
use super::sink::{Output, Sink};

/// Bytes that a worker's buffer may have, but for one longer line.
pub const CAPACITY: usize = 64 << 10;
/// Bytes from which on it is handed over; what is left is for lines that come while the queue is full.
const FULL: usize = CAPACITY - CAPACITY / 4;
/// How old a line may become in a buffer that does not fill.
const DELAY: Duration = Duration::from_millis(100);
/// Empty buffers on their way back to a worker; more of them are made in a burst.
const SPARE: usize = 8;
/// Workers that may put something into the queue in the same moment, seeing one place left.
const RACING: usize = 1024;
/// How long a worker's end waits for a place for its last lines, and how often it looks.
const LAST: (Duration, u32) = (Duration::from_millis(1), 200);

/// The log of a process: its writer's thread, which ends when this is dropped.
pub struct AccessLog {
    shared: Arc<Shared>,
    writer: Thread,
    queue: SyncSender<Buffer>,
}

struct Shared {
    /// Buffers that may wait.
    most: usize,
    /// Buffers that wait or are being written, and their lines.
    waiting: AtomicUsize,
    waiting_lines: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
    /// The sink is to be opened anew.
    reopen: AtomicBool,
    /// There will be no more.
    ended: AtomicBool,
    /// For those who wait until nothing waits.
    idle: (Mutex<()>, Condvar),
}

struct Buffer {
    bytes: Vec<u8>,
    lines: u64,
    /// The way back.
    home: SyncSender<Vec<u8>>,
}

/// A worker's hand in the log.
pub struct Pen {
    shared: Arc<Shared>,
    writer: Thread,
    queue: SyncSender<Buffer>,
    buffer: RefCell<Buffer>,
    spare: Receiver<Vec<u8>>,
    /// Told when the buffer has its first line.
    begun: Notify,
}

// === impl AccessLog ===

impl AccessLog {
    /// Opens the sink and starts the writer's thread; `bytes` of lines may wait for it, beside what workers hold. Fails if
    /// a file cannot be opened.
    pub fn start(output: &Output, bytes: usize) -> io::Result<Self> {
        Self::write_to(Sink::open(output)?, bytes)
    }

    pub(super) fn write_to(sink: Sink, bytes: usize) -> io::Result<Self> {
        let most = (bytes / CAPACITY).max(1);
        let shared = Arc::new(Shared {
            most,
            waiting: AtomicUsize::new(0),
            waiting_lines: AtomicU64::new(0),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            reopen: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            idle: Default::default(),
        });
        let (queue, received) = sync_channel(most.saturating_add(RACING));
        let writing = Arc::clone(&shared);
        let thread = thread::Builder::new().name("access-writer".to_owned());
        let writer = thread.spawn(move || writing.write(&received, sink))?.thread().clone();
        Ok(Self { shared, writer, queue })
    }

    /// A worker's hand in it.
    pub fn pen(&self) -> Pen {
        let (home, spare) = sync_channel(SPARE);
        let buffer = Buffer { bytes: Vec::with_capacity(CAPACITY), lines: 0, home };
        Pen {
            shared: Arc::clone(&self.shared),
            writer: self.writer.clone(),
            queue: self.queue.clone(),
            buffer: RefCell::new(buffer),
            spare,
            begun: Notify::new(),
        }
    }

    /// Has a file opened anew, such as one that was moved away. Takes effect when the writer comes to it.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        self.writer.unpark();
    }

    /// Reads how many lines have been written so far.
    pub fn written(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.written.load(Ordering::Relaxed)
    }

    /// Reads how many lines were dropped so far, because the sink did not keep up or failed.
    pub fn dropped(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all that was handed over is written, for `limit` at most. Gives how many lines are left.
    pub fn flush(&self, limit: Duration) -> u64 {
        let deadline = Instant::now() + limit;
        let (lock, told) = &self.shared.idle;
        let mut idle = lock.lock();
        while self.shared.waiting.load(Ordering::Acquire) > 0 {
            if told.wait_until(&mut idle, deadline).timed_out() {
                break;
            }
        }
        self.shared.waiting_lines.load(Ordering::Relaxed)
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.writer.unpark();
    }
}

// === impl Shared ===

impl Shared {
    /// The writer's thread.
    fn write(&self, queue: &Receiver<Buffer>, mut sink: Sink) {
        loop {
            if self.reopen.swap(false, Ordering::AcqRel) {
                sink.reopen();
            }
            // Before the queue is looked at: what was put there before the end is written.
            let ended = self.ended.load(Ordering::Acquire);
            match queue.try_recv() {
                Ok(buffer) => self.write_buffer(buffer, &mut sink),
                Err(_) if ended => return,
                Err(_) => thread::park(),
            }
        }
    }

    fn write_buffer(&self, buffer: Buffer, sink: &mut Sink) {
        let Buffer { mut bytes, lines, home } = buffer;
        let lost = sink.write(&bytes);
        self.drop_lines(lost);
        self.written.fetch_add(lines.saturating_sub(lost), Ordering::Relaxed);
        bytes.clear();
        if bytes.capacity() <= 2 * CAPACITY {
            // There are enough, or the worker has ended.
            let _ = home.try_send(bytes);
        }
        self.waiting_lines.fetch_sub(lines, Ordering::Relaxed);
        if self.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            let (lock, told) = &self.idle;
            drop(lock.lock());
            told.notify_all();
        }
    }

    fn drop_lines(&self, lines: u64) {
        if lines > 0 {
            self.dropped.fetch_add(lines, Ordering::Relaxed);
        }
    }
}

// === impl Pen ===

impl Pen {
    /// Writes a line that a [`super::Line`] has made, unless neither buffer nor queue has room: then it is dropped and
    /// counted. Never waits.
    pub fn push(&self, format: Format, line: &[u8]) {
        let Some((_, fields)) = line.split_first() else { return };
        let (before, after) = format.frame();
        let mut buffer = self.buffer.borrow_mut();
        let length = buffer.bytes.len() + before.len() + fields.len() + after.len();
        if length > FULL && buffer.lines > 0 && !self.hand_over(&mut buffer, self.shared.most) && length > CAPACITY {
            self.shared.drop_lines(1);
            return;
        }
        if buffer.lines == 0 {
            self.begun.notify_one();
        }
        buffer.lines += 1;
        buffer.bytes.extend_from_slice(before);
        buffer.bytes.extend_from_slice(fields);
        buffer.bytes.extend_from_slice(after);
    }

    /// Gives the buffer to the writer and takes an empty one for it, unless `most` wait already.
    fn hand_over(&self, buffer: &mut Buffer, most: usize) -> bool {
        if self.shared.waiting.load(Ordering::Relaxed) >= most {
            return false;
        }
        let bytes = self.spare.try_recv().unwrap_or_else(|_| Vec::with_capacity(CAPACITY));
        let empty = Buffer { bytes, lines: 0, home: buffer.home.clone() };
        let full = std::mem::replace(buffer, empty);
        // Before the writer can have done with it.
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        self.shared.waiting_lines.fetch_add(full.lines, Ordering::Relaxed);
        match self.queue.try_send(full) {
            Ok(()) => {
                self.writer.unpark();
                true
            }
            Err(TrySendError::Full(full) | TrySendError::Disconnected(full)) => {
                self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
                self.shared.waiting_lines.fetch_sub(full.lines, Ordering::Relaxed);
                *buffer = full;
                false
            }
        }
    }

    /// Hands over what does not fill a buffer, for ever. Runs on the worker.
    pub async fn run(&self) {
        loop {
            self.begun.notified().await;
            loop {
                tokio::time::sleep(DELAY).await;
                let mut buffer = self.buffer.borrow_mut();
                // Where the writer does not keep up small ones would fill the queue.
                if buffer.lines == 0 || self.hand_over(&mut buffer, (self.shared.most / 8).max(1)) {
                    break;
                }
            }
        }
    }

    /// Hands over the last lines. Waits for a place in the queue, for a fraction of a second.
    pub fn finish(&self) {
        let mut buffer = self.buffer.borrow_mut();
        let (pause, tries) = LAST;
        for _ in 0..tries {
            if buffer.lines == 0 || self.hand_over(&mut buffer, self.shared.most) {
                return;
            }
            thread::park_timeout(pause);
        }
        self.shared.drop_lines(std::mem::take(&mut buffer.lines));
        buffer.bytes.clear();
    }
}
