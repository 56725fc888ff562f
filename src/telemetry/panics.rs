//! Panics: each is a line in the log and counted, whatever it was that panicked.

use std::backtrace::Backtrace;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Has the log told of panics from now on, instead of standard error.
pub fn log() {
    std::panic::set_hook(Box::new(tell));
}

/// How many there were since.
pub fn count() -> u64 {
    COUNT.load(Relaxed)
}

fn tell(panic: &PanicHookInfo<'_>) {
    COUNT.fetch_add(1, Relaxed);
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    // Empty unless RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    tracing::error!(thread, place, %backtrace, "panic: {}", panic.payload_as_str().unwrap_or("of no text"));
}
