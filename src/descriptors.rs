//! Descriptors of the process: how many there may be, and who has to leave some to others.
//!
//! The kernel gives the lowest number that is free. So the number of a new descriptor tells how many are in use at least,
//! and nobody has to count: who gets one of the last ones knows it.

use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Fewest and most descriptors that clients leave to connections to backends and to the rest of the process.
const RESERVE: (u64, u64) = (32, 1024);
/// Of these, how many connections to backends leave to probes, metrics, the operator, the API server and files.
const LAST: u64 = 16;

/// From which numbers on a descriptor is one of the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// How many the process may have; `None` is no limit.
    pub limit: Option<u64>,
    clients: u64,
    backends: u64,
}

static PROCESS: OnceLock<Descriptors> = OnceLock::new();

/// Those of this process, as they were at the first call.
pub fn of_process() -> Descriptors {
    *PROCESS.get_or_init(|| Descriptors::of_limit(getrlimit(Resource::Nofile).current))
}

/// Has the process have as many as it is allowed to. Without effect after [`of_process`]; fails where the system refuses.
pub fn raise() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let is_less = match (current, maximum) {
        (Some(current), Some(maximum)) => current < maximum,
        (current, None) => current.is_some(),
        (None, Some(_)) => false,
    };
    if is_less {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(())
}

/// Whether an error says that descriptors or memory of the process or the system are used up.
pub fn is_exhausted(error: &io::Error) -> bool {
    let codes = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| codes.iter().any(|errno| errno.raw_os_error() == code))
}

/// What a descriptor that is given back at once is refused with.
pub fn exhausted() -> io::Error {
    Errno::MFILE.into()
}

impl Descriptors {
    /// Those of a process that may have so many; `None` is no limit.
    pub fn of_limit(limit: Option<u64>) -> Self {
        let Some(limit) = limit else { return Self { limit: None, clients: u64::MAX, backends: u64::MAX } };
        // Half of a limit that small is for clients all the same.
        let reserve = (limit / 8).clamp(RESERVE.0, RESERVE.1).min(limit / 2);
        let last = LAST.min(reserve / 2);
        Self { limit: Some(limit), clients: limit - reserve, backends: limit - last }
    }

    /// How many clients and backends may have together before no more clients are accepted.
    pub fn for_clients(&self) -> Option<u64> {
        self.limit.map(|_| self.clients)
    }

    /// Whether a client's new descriptor is one that others are to have.
    pub fn is_reserved(&self, number: RawFd) -> bool {
        u64::try_from(number).is_ok_and(|number| number >= self.clients)
    }

    /// Whether a backend's is.
    pub fn is_last(&self, number: RawFd) -> bool {
        u64::try_from(number).is_ok_and(|number| number >= self.backends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_some_to_backends_and_both_some_to_the_rest() {
        for (limit, clients, backends) in [
            (1 << 20, (1 << 20) - 1024, (1 << 20) - 16),
            (1024, 896, 1008),
            (96, 64, 80),
            (40, 20, 30),
            (1, 1, 1),
            (0, 0, 0),
        ] {
            let descriptors = Descriptors::of_limit(Some(limit));
            assert_eq!((descriptors.clients, descriptors.backends), (clients, backends), "{limit}");
        }
        let descriptors = Descriptors::of_limit(Some(1024));
        assert!(!descriptors.is_reserved(895) && descriptors.is_reserved(896));
        assert!(!descriptors.is_last(1007) && descriptors.is_last(1008));
        let unlimited = Descriptors::of_limit(None);
        assert!(!unlimited.is_reserved(RawFd::MAX) && !unlimited.is_last(RawFd::MAX));
    }

    #[test]
    fn what_is_used_up_is_told_from_other_errors() {
        assert!(is_exhausted(&exhausted()));
        assert!(!is_exhausted(&io::ErrorKind::ConnectionRefused.into()));
        assert!(!is_exhausted(&Errno::CONNREFUSED.into()));
    }

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        raise().unwrap();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
    }
}
