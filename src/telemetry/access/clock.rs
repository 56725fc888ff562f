//! The time of day of moments that were measured on the clock that cannot jump.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// How long one look at the time of day is good for: how late its jumps are seen.
const ANCHORED: Duration = Duration::from_secs(1);
/// `2006-01-02T15:04:05`.
const SECOND: usize = 19;

/// Writes times as RFC 3339 has them, in UTC and to the millisecond. It asks for the time of day once a second.
#[derive(Debug)]
pub struct Clock {
    /// A moment, and when it was in milliseconds since the epoch.
    anchor: Cell<(Instant, u64)>,
    /// A second since the epoch, and its text.
    second: Cell<(u64, [u8; SECOND])>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { anchor: Cell::new(anchor()), second: Cell::new((u64::MAX, [b'0'; SECOND])) }
    }
}

impl Clock {
    /// Appends the time of a moment not long ago.
    pub fn write(&self, at: Instant, out: &mut Vec<u8>) {
        let millis = self.millis(at);
        let (second, mut text) = self.second.get();
        let now = millis / 1000;
        if now != second {
            text = written(now);
            self.second.set((now, text));
        }
        out.extend_from_slice(&text);
        let digit = |of: u64| b'0' + (millis / of % 10) as u8;
        out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1), b'Z']);
    }

    fn millis(&self, at: Instant) -> u64 {
        let whole = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let (mut from, mut millis) = self.anchor.get();
        if at.saturating_duration_since(from) >= ANCHORED {
            (from, millis) = anchor();
            self.anchor.set((from, millis));
        }
        match at.checked_duration_since(from) {
            Some(after) => millis.saturating_add(whole(after)),
            None => millis.saturating_sub(whole(from.duration_since(at))),
        }
    }
}

fn anchor() -> (Instant, u64) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (Instant::now(), u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A second's text; that of the epoch for what has no four digits of a year.
fn written(second: u64) -> [u8; SECOND] {
    let text = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok()).map(|t| t.to_string());
    let bytes = text.as_deref().and_then(|text| text.as_bytes().first_chunk());
    *bytes.unwrap_or(b"1970-01-01T00:00:00")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(clock: &Clock, at: Instant) -> String {
        let mut out = Vec::new();
        clock.write(at, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_are_those_of_the_standard() {
        let (now, millis) = (Instant::now(), 1_136_214_245_678);
        let clock = Clock { anchor: Cell::new((now, millis)), ..Clock::default() };
        assert_eq!(text(&clock, now), "2006-01-02T15:04:05.678Z");
        assert_eq!(text(&clock, now + Duration::from_millis(321)), "2006-01-02T15:04:05.999Z");
        assert_eq!(text(&clock, now + Duration::from_millis(322)), "2006-01-02T15:04:06.000Z");
        let earlier = now.checked_sub(Duration::from_millis(679)).unwrap();
        assert_eq!(text(&clock, earlier), "2006-01-02T15:04:04.999Z");
        assert_eq!(written(u64::MAX), *b"1970-01-01T00:00:00");
    }

    #[test]
    fn the_time_of_day_is_asked_for_again() {
        let now = Instant::now();
        let Some(earlier) = now.checked_sub(ANCHORED) else { return };
        let clock = Clock { anchor: Cell::new((earlier, 0)), ..Clock::default() };
        let told: Timestamp = text(&clock, now).parse().unwrap();
        assert!(Timestamp::now().duration_since(told).abs() < jiff::SignedDuration::from_mins(1));
    }
}
