//! Which endpoint takes a request, and which weighted backend.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Endpoint;
use crate::ir::LoadBalancing;

/// A small generator for choices that need no secrecy (xorshift64*); each worker has its own.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed; any will do.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        // Widening multiplication: no division, and a bias far below what balancing could show.
        let wide = u128::from(self.next_u64()) * (bound as u128);
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

/// The position of an endpoint in `endpoints` for the next request. Endpoints set aside and those in `tried` are
/// passed over while another one is left; `None` when every endpoint has been tried.
pub fn choose(
    policy: &LoadBalancing,
    endpoints: &[Arc<Endpoint>],
    turn: &mut usize,
    random: &mut Random,
    tried: &[u64],
) -> Option<usize> {
    let count = endpoints.len();
    if count == 0 {
        return None;
    }
    let start = match policy {
        LoadBalancing::RoundRobin => {
            *turn = turn.wrapping_add(1);
            *turn % count
        }
        LoadBalancing::Random => random.below(count),
        LoadBalancing::LeastRequest => less_loaded(endpoints, random),
    };
    let untried = |i: usize| tried.is_empty() || !tried.contains(&endpoints[i].uid);
    let from_start = || (0..count).map(|i| (start + i) % count);
    from_start().find(|&i| untried(i) && !endpoints[i].is_set_aside()).or_else(|| from_start().find(|&i| untried(i)))
}

/// The power of two choices: of two different random endpoints the one with fewer requests.
fn less_loaded(endpoints: &[Arc<Endpoint>], random: &mut Random) -> usize {
    let count = endpoints.len();
    if count == 1 {
        return 0;
    }
    let first = random.below(count);
    let second = (first + 1 + random.below(count - 1)) % count;
    let load = |i: usize| endpoints[i].in_flight.load(Ordering::Relaxed);
    // One that is set aside loses against one that is not, whatever its load.
    let key = |i: usize| (endpoints[i].is_set_aside(), load(i));
    if key(second) < key(first) { second } else { first }
}

/// A weighted choice as an even sequence: each item gets its exact share in every window of [`Weights::total`]
/// turns, interleaved rather than in runs.
#[derive(Clone, Debug)]
pub struct Weights {
    /// Running sums of the weights divided by their greatest common divisor.
    cumulative: Vec<u64>,
    /// Visits every residue of the total once, near the golden ratio so that the visits spread.
    step: u64,
}

impl Weights {
    /// Prepares the choice; items of weight 0 are never chosen. `None` when all are.
    pub fn new(weights: &[u32]) -> Option<Self> {
        let divisor = weights.iter().fold(0, |d, &w| gcd(d, u64::from(w)));
        if divisor == 0 {
            return None;
        }
        let mut sum = 0;
        let cumulative: Vec<u64> = weights
            .iter()
            .map(|&w| {
                sum += u64::from(w) / divisor;
                sum
            })
            .collect();
        Some(Self { cumulative, step: coprime_step(sum) })
    }

    /// The number of turns after which the sequence repeats.
    pub fn total(&self) -> u64 {
        self.cumulative.last().copied().unwrap_or(1)
    }

    /// The item whose turn it is.
    pub fn pick(&self, turn: u64) -> usize {
        let total = self.total();
        let point = u128::from(turn % total) * u128::from(self.step) % u128::from(total);
        self.cumulative.partition_point(|&sum| u128::from(sum) <= point)
    }
}

fn coprime_step(total: u64) -> u64 {
    let mut step = (total * 618 / 1000).max(1);
    while gcd(step, total) != 1 {
        step += 1;
    }
    step
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests;
