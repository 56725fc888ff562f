//! Where signals come from.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// A signal that ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: drain. Repeated it changes nothing.
    Terminate,
    /// SIGINT: drain. The second one ends the drain at once.
    Interrupt,
}

/// Listens to the process's signals; must run inside a runtime. Fails if the handlers cannot be installed.
pub fn watch_signals() -> io::Result<mpsc::Receiver<Signal>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(async move {
        loop {
            let signal = tokio::select! {
                Some(()) = terminate.recv() => Signal::Terminate,
                Some(()) = interrupt.recv() => Signal::Interrupt,
                else => return,
            };
            if sender.send(signal).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}
