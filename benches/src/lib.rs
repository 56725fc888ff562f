//! Benchmarks of Lockgate; see the `benches` folder.

pub mod cache;
pub mod cpu_time;
pub mod tables;
