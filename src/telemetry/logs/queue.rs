//! A bounded queue of lines and the thread that writes them.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines on their way to a sink.
pub(super) struct Queue {
    sender: SyncSender<Message>,
    dropped: AtomicU64,
}

enum Message {
    Line(Vec<u8>),
    /// Answered when all lines before it are written.
    Flush(SyncSender<()>),
}

/// What a formatter writes to.
pub(super) struct Lines(pub(super) Arc<Queue>);

/// Puts every line, which the formatter hands over in one piece, into the queue.
pub(super) struct LineWriter<'a>(&'a Queue);

/// Lines that wait are written together, up to this many bytes at a time.
const CHUNK: usize = 64 * 1024;

// === impl Queue ===

impl Queue {
    /// Starts the writer's thread, which lives as long as the process.
    pub(super) fn start(capacity: usize, sink: impl Write + Send + 'static) -> io::Result<Arc<Self>> {
        let (sender, receiver) = sync_channel(capacity.max(1));
        thread::Builder::new().name("log-writer".to_owned()).spawn(move || write(&receiver, sink))?;
        Ok(Arc::new(Self { sender, dropped: AtomicU64::new(0) }))
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Waits until what is queued is written, at most for `limit`, or not at all if the queue is full.
    pub(super) fn flush(&self, limit: Duration) {
        let (done, written) = sync_channel(1);
        if self.sender.try_send(Message::Flush(done)).is_ok() {
            // Over the limit the lines are lost: a sink that blocks must not keep the process alive.
            let _ = written.recv_timeout(limit);
        }
    }

    fn push(&self, line: &[u8]) {
        match self.sender.try_send(Message::Line(line.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Relaxed);
            }
        }
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter(&self.0)
    }
}

// === impl LineWriter ===

impl Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes until every sender is gone. A sink that fails loses lines; there is nowhere left to say so.
fn write(receiver: &Receiver<Message>, mut sink: impl Write) {
    let mut chunk = Vec::with_capacity(CHUNK);
    while let Ok(first) = receiver.recv() {
        let mut next = Some(first);
        while let Some(message) = next.take() {
            match message {
                Message::Line(line) => chunk.extend_from_slice(&line),
                Message::Flush(done) => {
                    let _ = sink.write_all(&chunk).and_then(|()| sink.flush());
                    chunk.clear();
                    let _ = done.try_send(());
                }
            }
            if chunk.len() < CHUNK {
                next = receiver.try_recv().ok();
            }
        }
        let _ = sink.write_all(&chunk).and_then(|()| sink.flush());
        chunk.clear();
    }
}
