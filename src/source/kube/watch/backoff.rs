//! The pause after a failure.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
/// With the time a connection may take, a change is seen within five seconds of the API server's return.
const LAST: Duration = Duration::from_millis(1500);

/// Pauses that double, each less up to half at random so that replicas do not come back as one.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// The next pause.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next.mul_f64(1.0 - fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(LAST);
        pause
    }

    /// Starts over.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_start_over() {
        let mut backoff = Backoff::default();
        let within = |pause: Duration, millis: u64| {
            assert!(pause <= Duration::from_millis(millis) && pause >= Duration::from_millis(millis / 2), "{pause:?}");
        };
        for millis in [100, 200, 400, 800, 1500, 1500, 1500] {
            within(backoff.next(), millis);
        }
        backoff.reset();
        within(backoff.next(), 100);
    }
}
