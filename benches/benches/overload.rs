//! Goodput under overload: `cargo build --release && cargo bench -p lockgate-benches --bench overload`.
//!
//! A backend that does so many requests a second and no more, queueing the rest as servers do; a gateway in front of it, the
//! release binary as a process of its own; clients that send at a fixed rate whatever becomes of their requests, each of
//! which is in vain after a second. Told is how much of what was asked was answered in time, and how fast. Fails if that is
//! less than nine tenths of the peak at three times the load, or if those that were served waited too long for it.

mod overload {
    pub(crate) mod backend;
    pub(crate) mod clients;
    pub(crate) mod gateway;
}

use std::time::Duration;

use overload::backend::{self, CAPACITY};
use overload::clients::{self, Outcome};
use overload::gateway::Gateway;

/// The offered loads, in shares of what the backend can do.
const LOADS: [f64; 6] = [0.5, 0.9, 1.0, 1.5, 2.0, 3.0];
/// How long each is offered before it is measured, and then.
const PHASES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Time after which an answer is of no use to its client.
const DEADLINE: Duration = Duration::from_secs(1);
/// What has to be left of the peak at the highest load.
const GOODPUT: f64 = 0.9;
/// The longest that 99 in 100 of the served may have taken: twice what a full queue and its turn take.
const LATENCY: Duration = Duration::from_millis(100);

/// What the rule says of limits.
const LIMITS: [(&str, &str, bool); 3] = [
    ("defaults", "{}", false),
    ("maxInFlight 32, maxQueued 32", "{limits: {maxInFlight: 32, maxQueued: 32, queueTimeout: 50ms}}", true),
    ("the same, reject Oldest", "{limits: {maxInFlight: 32, maxQueued: 32, queueTimeout: 50ms, reject: Oldest}}", true),
];

fn main() {
    let backend = backend::start();
    let mut failures = Vec::new();
    println!("backend: at most {CAPACITY:.0} requests a second; answers are good within {} s", DEADLINE.as_secs());
    println!(
        "| limits | offered/s | good/s | of the peak | 503/s | late or failed/s | p50 ms | p99 ms | 503: p99 ms | peak RSS MB |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (name, policy, must_hold) in LIMITS {
        let rows: Vec<(f64, Outcome, u64)> = LOADS
            .iter()
            .map(|load| {
                let gateway = Gateway::start(backend, policy);
                let rate = load * CAPACITY;
                let outcome = clients::offer(gateway.address, rate, PHASES, DEADLINE);
                (rate, outcome, gateway.peak_memory())
            })
            .collect();
        let peak = rows.iter().map(|(_, outcome, _)| outcome.good).fold(0.0, f64::max);
        for (rate, outcome, memory) in &rows {
            let share = outcome.good / peak;
            println!("| {name} | {rate:.0} | {:.0} | {share:.2} | {outcome} | {memory} |", outcome.good);
        }
        let Some((_, last, _)) = rows.last() else { continue };
        if must_hold && last.good < GOODPUT * peak {
            failures.push(format!("{name}: {:.0} good answers a second of {peak:.0} at the peak", last.good));
        }
        if must_hold && last.served_p99 > LATENCY {
            failures.push(format!("{name}: 99 in 100 of the served took up to {:?}", last.served_p99));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("; "));
}
