//! Waiting for what a cluster does in its own time.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep, timeout_at};

/// How long anything in the cluster may take before a test gives up. Generous: no test asserts how fast something is.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Repeats `attempt` until it succeeds; panics with its last error when [`PATIENCE`] is over.
pub async fn eventually<T>(what: &str, attempt: impl AsyncFnMut() -> Result<T>) -> T {
    within(PATIENCE, what, attempt).await
}

/// Repeats `attempt` until it succeeds; panics with its last error when `limit` is over.
pub async fn within<T>(limit: Duration, what: &str, mut attempt: impl AsyncFnMut() -> Result<T>) -> T {
    let end = Instant::now() + limit;
    let mut last = None;
    loop {
        match timeout_at(end, attempt()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(error)) => last = Some(error),
            Err(_) => {
                let why = last.map_or_else(|| "the attempt took too long".into(), |error| format!("{error:#}"));
                panic!("not within {limit:?}: {what}: {why}");
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}
