//! The phases.

use std::fmt;

/// Where the process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Not everything is listed yet; connections are refused.
    Starting,
    /// Serves.
    Serving,
    /// Serves, asks to be left: not ready, every answer asks the client to close.
    LameDuck,
    /// Refuses what is new and waits for what is in flight.
    Draining,
    /// Cuts what is left.
    Aborting,
    /// Over.
    Stopped,
}

/// A change of phase that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a gateway that is {from} cannot become {to} by request")]
pub struct InvalidPhase {
    /// Where it is.
    pub from: Phase,
    /// Where it should have gone.
    pub to: Phase,
}

// === impl Phase ===

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 6] =
        [Self::Starting, Self::Serving, Self::LameDuck, Self::Draining, Self::Aborting, Self::Stopped];

    /// Their names, in order.
    pub const NAMES: &'static [&'static str] = &["Starting", "Serving", "LameDuck", "Draining", "Aborting", "Stopped"];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Whether requests are served, not refused. While starting, none can come before the first table is in use; one that
    /// comes between the opening of the listeners and [`Phase::Serving`] is like any other.
    pub fn serves(self) -> bool {
        self <= Self::LameDuck
    }

    /// Whether an answer asks the client to leave (`connection: close`, GOAWAY).
    pub fn asks_to_leave(self) -> bool {
        self >= Self::LameDuck
    }

    pub(super) fn from_u8(value: u8) -> Self {
        Self::ALL.get(usize::from(value)).copied().unwrap_or(Self::Stopped)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
