//! How long a drain may take.

use std::time::Duration;

/// What is left of the grace period for cutting, flushing and exiting.
pub const MARGIN: Duration = Duration::from_secs(5);

/// How long a drain may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainSettings {
    /// How long `LameDuck` lasts at least; 0 refuses new requests from the first moment.
    pub delay: Duration,
    /// How long `LameDuck` lasts at most while new connections still come.
    pub max_delay: Duration,
    /// How long `Draining` waits for what is in flight.
    pub timeout: Duration,
    /// How long `LameDuck` still shows itself ready.
    pub readiness_delay: Duration,
    /// `terminationGracePeriodSeconds`, if known.
    pub grace_period: Option<Duration>,
}

/// Why a drain cannot be run as set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDrain {
    /// The maximum is below the minimum.
    #[error("drain.maxDelay ({max:?}) is below drain.delay ({delay:?}): raise drain.maxDelay or lower drain.delay")]
    MaxDelay {
        /// `drain.delay`.
        delay: Duration,
        /// `drain.maxDelay`.
        max: Duration,
    },
    /// Readiness would outlast the phase that it belongs to.
    #[error(
        "drain.readinessDelay ({readiness:?}) is above drain.delay ({delay:?}): new requests would be refused while \
         the gateway shows itself ready; lower drain.readinessDelay or raise drain.delay"
    )]
    ReadinessDelay {
        /// `drain.readinessDelay`.
        readiness: Duration,
        /// `drain.delay`.
        delay: Duration,
    },
    /// The kubelet would kill the process within the drain.
    #[error(
        "drain.maxDelay ({delay:?}) + drain.timeout ({timeout:?}) + {MARGIN:?} to exit is {needed:?} and does not fit \
         the pod's grace period of {grace:?}: raise terminationGracePeriodSeconds to at least {}, or lower \
         drain.maxDelay or drain.timeout",
        needed.as_secs() + u64::from(needed.subsec_nanos() > 0)
    )]
    GracePeriod {
        /// What `LameDuck` takes at most.
        delay: Duration,
        /// `drain.timeout`.
        timeout: Duration,
        /// The sum with the margin.
        needed: Duration,
        /// The grace period.
        grace: Duration,
    },
}

// === impl DrainSettings ===

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            delay: Duration::from_secs(5),
            max_delay: Duration::from_secs(20),
            timeout: Duration::from_secs(30),
            readiness_delay: Duration::ZERO,
            grace_period: None,
        }
    }
}

impl DrainSettings {
    /// The strict form: no `LameDuck` after a signal.
    pub fn strict(&self) -> bool {
        self.delay.is_zero()
    }

    /// The longest time from a signal to the exit.
    pub fn longest(&self) -> Duration {
        let delay = if self.strict() { Duration::ZERO } else { self.max_delay };
        delay.saturating_add(self.timeout).saturating_add(MARGIN)
    }

    /// Checks that the parts fit each other and the grace period; the error says what to change.
    pub fn check(&self) -> Result<(), InvalidDrain> {
        if !self.strict() && self.max_delay < self.delay {
            return Err(InvalidDrain::MaxDelay { delay: self.delay, max: self.max_delay });
        }
        if self.readiness_delay > self.delay {
            return Err(InvalidDrain::ReadinessDelay { readiness: self.readiness_delay, delay: self.delay });
        }
        match self.grace_period {
            Some(grace) if self.longest() > grace => Err(InvalidDrain::GracePeriod {
                delay: if self.strict() { Duration::ZERO } else { self.max_delay },
                timeout: self.timeout,
                needed: self.longest(),
                grace,
            }),
            _ => Ok(()),
        }
    }
}
