//! How much of something a connection may do.

use std::cell::Cell;

/// What is spent comes back whole within this time.
const REFILL_MS: u64 = 10_000;

/// A number that falls with what is spent, and rises with time and with what is earned.
#[derive(Debug)]
pub(super) struct Budget {
    most: u32,
    left: Cell<u32>,
    /// When time last gave something back.
    refilled_ms: Cell<u64>,
    is_spent: Cell<bool>,
}

impl Budget {
    /// One of `most`, all of it there.
    pub(super) fn new(most: u32, now_ms: u64) -> Self {
        Self { most, left: Cell::new(most), refilled_ms: Cell::new(now_ms), is_spent: Cell::new(false) }
    }

    /// Takes one.
    pub(super) fn spend(&self, now_ms: u64) {
        let elapsed = now_ms.saturating_sub(self.refilled_ms.get());
        let back = elapsed.saturating_mul(u64::from(self.most)) / REFILL_MS;
        if back > 0 {
            self.refilled_ms.set(now_ms);
            self.earn(u32::try_from(back).unwrap_or(u32::MAX));
        }
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => self.is_spent.set(true),
        }
    }

    /// Gives some back.
    pub(super) fn earn(&self, some: u32) {
        self.left.set(self.left.get().saturating_add(some).min(self.most));
    }

    /// Whether more was taken than there was. It stays so.
    pub(super) fn is_spent(&self) -> bool {
        self.is_spent.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spend(budget: &Budget, times: u32, now_ms: u64) {
        for _ in 0..times {
            budget.spend(now_ms);
        }
    }

    #[test]
    fn what_is_there_can_be_spent_and_no_more() {
        let budget = Budget::new(100, 0);
        spend(&budget, 100, 0);
        assert!(!budget.is_spent());
        budget.spend(0);
        assert!(budget.is_spent());
        budget.earn(50);
        assert!(budget.is_spent(), "it stays so");
    }

    #[test]
    fn time_and_use_give_it_back_up_to_the_whole() {
        let budget = Budget::new(100, 0);
        spend(&budget, 100, 0);
        // A tenth each second.
        for second in 1..60 {
            spend(&budget, 10, second * 1000);
        }
        assert!(!budget.is_spent());
        budget.earn(500);
        spend(&budget, 100, 60_000);
        assert!(!budget.is_spent());
        spend(&budget, 2, 60_000);
        assert!(budget.is_spent());
    }
}
