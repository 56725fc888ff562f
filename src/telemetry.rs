//! What the gateway tells about itself: metrics, logs, the access log and traces. Knows no domain type: callers hand in names and
//! closed enums.

pub mod access;
pub mod logs;
pub mod metrics;
pub mod panics;
pub mod traces;
