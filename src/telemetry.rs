//! What the gateway tells about itself: metrics and logs. Knows no domain type: callers hand in names and closed enums.

pub mod logs;
pub mod metrics;
pub mod panics;
