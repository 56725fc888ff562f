//! The process, as `/proc/self` shows it, under the names that every Prometheus client uses.
//!
//! The `process` feature of the `prometheus` crate counts whole CPU seconds only, too coarse for the CPU of a request.

use std::fs;

use prometheus::proto::MetricType;

use super::family::{Family, Source, Spec};

/// Reads `/proc/self` at scrape time.
pub(super) struct Process;

/// `USER_HZ`: part of the kernel's interface to programs, 100 on every architecture that Rust's Linux targets have.
const TICKS_PER_SECOND: f64 = 100.0;

static SPECS: [Spec; 7] = [
    gauge("process_resident_memory_bytes", "Resident memory."),
    gauge("process_virtual_memory_bytes", "Virtual memory."),
    gauge("process_threads", "Threads."),
    gauge("process_open_fds", "Open file descriptors."),
    gauge("process_max_fds", "Limit of open file descriptors."),
    gauge("process_start_time_seconds", "Start of the process since the epoch."),
    Spec {
        name: "process_cpu_seconds_total",
        help: "User and system CPU time.",
        kind: MetricType::COUNTER,
        labels: &[],
    },
];

const fn gauge(name: &'static str, help: &'static str) -> Spec {
    Spec { name, help, kind: MetricType::GAUGE, labels: &[] }
}

// === impl Process ===

impl Source for Process {
    fn specs() -> &'static [Spec] {
        &SPECS
    }

    fn gather(&self) -> Vec<Family> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let values = [
            status_field(&status, "VmRSS:").map(|kib| kib * 1024.0),
            status_field(&status, "VmSize:").map(|kib| kib * 1024.0),
            status_field(&status, "Threads:"),
            // One of them is the directory that is being read.
            fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count().saturating_sub(1) as f64),
            open_files_limit(&limits),
            start_time(&stat),
            cpu_seconds(&stat),
        ];
        let mut families = Vec::with_capacity(SPECS.len());
        for (spec, value) in SPECS.iter().zip(values) {
            let mut family = spec.family();
            if let Some(value) = value {
                family.push(&[], value);
            }
            families.push(family);
        }
        families
    }
}

fn status_field(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Field `n` of `/proc/self/stat`, counted from 1 as in proc(5). The second one, the command, may hold spaces.
fn stat_field(stat: &str, n: usize) -> Option<f64> {
    let (_, after_command) = stat.rsplit_once(')')?;
    after_command.split_ascii_whitespace().nth(n - 3)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((stat_field(stat, 14)? + stat_field(stat, 15)?) / TICKS_PER_SECOND)
}

fn start_time(stat: &str) -> Option<f64> {
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = status_field(&system, "btime")?;
    Some(boot + stat_field(stat, 22)? / TICKS_PER_SECOND)
}

fn open_files_limit(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(f64::INFINITY),
        soft => soft.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_stat_are_found_behind_a_command_with_spaces_and_brackets() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 12345 1 2 3";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(stat_field(stat, 22), Some(12_345.0));
        assert_eq!(stat_field("", 22), None);
    }

    #[test]
    fn status_and_limits_are_read() {
        assert_eq!(status_field("Name:\tx\nVmRSS:\t    2048 kB\n", "VmRSS:"), Some(2048.0));
        let limits = "Max processes   1 1 processes\nMax open files            1024                 4096  files\n";
        assert_eq!(open_files_limit(limits), Some(1024.0));
        assert_eq!(open_files_limit("Max open files  unlimited unlimited files"), Some(f64::INFINITY));
    }

    #[test]
    fn every_value_is_found_on_this_machine() {
        let families: Vec<_> = Process.gather().into_iter().map(Family::finish).collect();
        assert_eq!(families.len(), SPECS.len());
        assert!(families.iter().all(|family| family.get_metric().len() == 1), "{families:?}");
    }
}
