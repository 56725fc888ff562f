//! Times that are printed.

use std::time::Duration;

/// What `percent` of the sorted times are at most.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

/// Prints the median, the 99th percentile and the longest.
pub fn print(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let milliseconds = |percent| percentile(&times, percent).as_secs_f64() * 1e3;
    println!(
        "{what}: median {:.1} ms, p99 {:.1} ms, most {:.1} ms, of {} changes",
        milliseconds(50),
        milliseconds(99),
        milliseconds(100),
        times.len()
    );
}

/// A number from the environment, for runs that are longer than those of CI.
pub fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable)
        .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}
