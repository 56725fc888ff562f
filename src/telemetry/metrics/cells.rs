//! Counters with one writer each, and their sums.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::family::Sum;

/// One cache line: neighbours of other workers never share it.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Line([AtomicU64; 8]);

/// A row of counters that one worker writes and anybody reads.
pub(super) struct Block(Box<[Line]>);

/// Something of each worker, made at first use.
pub(super) struct PerWorker<T>(Box<[OnceLock<Box<T>>]>);

/// Counts by a key below `2^13`, of which few are ever seen: a line of eight, then tables of twice the size each.
#[derive(Default)]
pub(super) struct Counts {
    first: Line,
    more: OnceLock<Box<Level>>,
}

struct Level {
    lines: Box<[Line]>,
    next: OnceLock<Box<Level>>,
}

/// Upper bounds of a histogram's buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    nanos: Box<[u64]>,
    seconds: Box<[f64]>,
}

/// Why bounds are no histogram's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBuckets {
    /// None at all, or too many.
    #[error("buckets: 1 to {MAX_BUCKETS} bounds are possible, these are {0}")]
    Count(usize),
    /// A bound is not larger than the one before it, or no number of seconds at all.
    #[error("buckets: bound {0} must be a number of seconds, above 0 and above the bound before it, at most 86400")]
    Order(usize),
}

/// A series per bucket, rule and scrape: more than this costs more than it tells.
const MAX_BUCKETS: usize = 40;

/// From half a millisecond, below which the gateway itself is the noise, to 30 s, where timeouts are.
const DEFAULT_SECONDS: [f64; 20] = [
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0,
];

/// Bits of a slot that count; the key is above them. `2^51` requests take a worker centuries.
const COUNT_BITS: u32 = 51;

// === impl Block ===

impl Block {
    pub(super) fn new(words: usize) -> Self {
        Self((0..words.div_ceil(8)).map(|_| Line::default()).collect())
    }

    fn word(&self, index: usize) -> Option<&AtomicU64> {
        self.0.get(index / 8).map(|line| &line.0[index % 8])
    }

    /// Adds by the one writer. A gauge goes down by adding a negative number.
    pub(super) fn add(&self, index: usize, n: i64) {
        if let Some(word) = self.word(index) {
            word.store(word.load(Relaxed).wrapping_add_signed(n), Relaxed);
        }
    }

    pub(super) fn get(&self, index: usize) -> u64 {
        self.word(index).map_or(0, |word| word.load(Relaxed))
    }

    /// A word that goes down as well as up.
    pub(super) fn get_signed(&self, index: usize) -> i64 {
        self.get(index).cast_signed()
    }
}

// === impl PerWorker ===

impl<T> PerWorker<T> {
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| OnceLock::new()).collect())
    }

    /// The worker's own; `None` for an index past the workers.
    pub(super) fn get(&self, worker: usize, make: impl FnOnce() -> T) -> Option<&T> {
        let slot = self.0.get(worker)?;
        Some(match slot.get() {
            Some(cells) => cells,
            None => slot.get_or_init(|| Box::new(make())),
        })
    }

    /// Those that were ever used.
    pub(super) fn used(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(OnceLock::get).map(Box::as_ref)
    }
}

// === impl Counts ===

impl Counts {
    /// Counts one more of `key`, which is not 0.
    pub(super) fn add(&self, key: u64) {
        if bump(&self.first, key) {
            return;
        }
        let mut next = &self.more;
        let mut bits = 1;
        loop {
            let level = next.get_or_init(|| Box::new(Level::new(bits)));
            if level.line(key, bits).is_none_or(|line| bump(line, key)) {
                return;
            }
            next = &level.next;
            bits += 1;
        }
    }

    /// Every key seen and how often.
    pub(super) fn for_each(&self, mut f: impl FnMut(u64, u64)) {
        let mut read = |line: &Line| {
            for slot in &line.0 {
                let slot = slot.load(Relaxed);
                if slot != 0 {
                    f(slot >> COUNT_BITS, slot & ((1 << COUNT_BITS) - 1));
                }
            }
        };
        read(&self.first);
        let mut next = &self.more;
        while let Some(level) = next.get() {
            level.lines.iter().for_each(&mut read);
            next = &level.next;
        }
    }
}

impl Level {
    fn new(bits: u32) -> Self {
        Self { lines: (0..1_u64 << bits).map(|_| Line::default()).collect(), next: OnceLock::new() }
    }

    fn line(&self, key: u64, bits: u32) -> Option<&Line> {
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits);
        usize::try_from(hash).ok().and_then(|index| self.lines.get(index))
    }
}

/// Counts one more of `key` if the line has it or has room for it. Key and count change in one store, so that a
/// reader never sees one without the other.
fn bump(line: &Line, key: u64) -> bool {
    for slot in &line.0 {
        let value = slot.load(Relaxed);
        if value >> COUNT_BITS == key {
            slot.store(value + 1, Relaxed);
            return true;
        }
        if value == 0 {
            slot.store(key << COUNT_BITS | 1, Relaxed);
            return true;
        }
    }
    false
}

// === impl Buckets ===

impl Buckets {
    /// Buckets with these upper bounds in seconds, rising.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to lie between 0 and a day")]
    pub fn new(seconds: &[f64]) -> Result<Self, InvalidBuckets> {
        if seconds.is_empty() || seconds.len() > MAX_BUCKETS {
            return Err(InvalidBuckets::Count(seconds.len()));
        }
        let mut below = 0.0;
        for (index, bound) in seconds.iter().enumerate() {
            if !(*bound > below && *bound <= 86_400.0) {
                return Err(InvalidBuckets::Order(index));
            }
            below = *bound;
        }
        let nanos = seconds.iter().map(|bound| (bound * 1e9).round() as u64).collect();
        Ok(Self { nanos, seconds: seconds.into() })
    }

    /// The upper bounds in seconds.
    pub fn bounds(&self) -> &[f64] {
        &self.seconds
    }

    /// Words that a histogram takes in a [`Block`]: its buckets, the one above them, and the sum.
    pub(super) fn words(&self) -> usize {
        self.nanos.len() + 2
    }

    /// Records by the one writer; the histogram begins at word `at`.
    pub(super) fn observe(&self, block: &Block, at: usize, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        block.add(at + self.nanos.partition_point(|bound| *bound < nanos), 1);
        if let Some(word) = block.word(at + self.nanos.len() + 1) {
            // Seconds as a float: in nanoseconds, ten thousand long-lived streams would overflow within a month.
            let sum = f64::from_bits(word.load(Relaxed)) + duration.as_secs_f64();
            word.store(sum.to_bits(), Relaxed);
        }
    }

    /// Adds what one worker recorded.
    pub(super) fn sum_up(&self, block: &Block, at: usize, sum: &mut Sum) {
        sum.counts.resize(self.nanos.len() + 1, 0);
        for (index, count) in sum.counts.iter_mut().enumerate() {
            *count += block.get(at + index);
        }
        sum.seconds += f64::from_bits(block.get(at + self.nanos.len() + 1));
    }
}

impl Default for Buckets {
    fn default() -> Self {
        let nanos =
            DEFAULT_SECONDS.iter().map(|s| Duration::from_secs_f64(*s).as_nanos().try_into().unwrap_or(u64::MAX));
        Self { nanos: nanos.collect(), seconds: DEFAULT_SECONDS.into() }
    }
}
