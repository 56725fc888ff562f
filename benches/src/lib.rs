//! Benchmarks of Lockgate; see the `benches` folder.

pub mod tables;
