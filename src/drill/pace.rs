//! When the next request is due, and of which kind.

use std::time::Duration;

/// Spreads a fixed rate over lanes by weight, evenly and always in the same way.
#[derive(Debug)]
pub(super) struct Pace {
    rate: f64,
    sent: u64,
    /// Weight and credit of each lane: the one with the most credit is next (smooth weighted round robin).
    lanes: Vec<(i64, i64)>,
}

impl Pace {
    /// `rate` requests a second over lanes of these weights.
    pub(super) fn new(rate: f64, weights: impl Iterator<Item = u32>) -> Self {
        Self { rate, sent: 0, lanes: weights.map(|weight| (i64::from(weight), 0)).collect() }
    }

    /// Time since the beginning at which the next request is due, and its lane; `None` where there is nothing to send.
    pub(super) fn next(&mut self) -> Option<(Duration, usize)> {
        let total: i64 = self.lanes.iter().map(|lane| lane.0).sum();
        if total == 0 || self.rate <= 0.0 {
            return None;
        }
        for (weight, credit) in &mut self.lanes {
            *credit += *weight;
        }
        let (at, lane) = self.lanes.iter_mut().enumerate().rev().max_by_key(|(_, lane)| lane.1)?;
        lane.1 -= total;
        let after = Duration::from_secs_f64(self.sent as f64 / self.rate);
        self.sent += 1;
        Some((after, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_spread_evenly_by_weight() {
        let mut pace = Pace::new(10.0, [3, 0, 1].into_iter());
        let due: Vec<_> = (0..8).filter_map(|_| pace.next()).collect();
        assert_eq!(
            due.iter().map(|(after, _)| after.as_millis()).collect::<Vec<_>>(),
            [0, 100, 200, 300, 400, 500, 600, 700]
        );
        assert_eq!(due.iter().map(|(_, lane)| *lane).collect::<Vec<_>>(), [0, 0, 2, 0, 0, 0, 2, 0]);
    }

    #[test]
    fn without_a_rate_or_lanes_nothing_is_due() {
        assert_eq!(Pace::new(10.0, std::iter::empty()).next(), None);
        assert_eq!(Pace::new(0.0, [1].into_iter()).next(), None);
    }
}
