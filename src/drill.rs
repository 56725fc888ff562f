//! A load that notices everything: traffic of several kinds at a fixed rate against one URL, and a report of each
//! request that failed, with when, how far it had come and how.
//!
//! Requests are due at fixed times whatever became of those before (an open loop), and latency counts from then: a
//! gateway that stalls is not asked less, and does not look fast. What a good client would do unnoticed is no failure: a
//! request that was certainly not begun is sent again.

mod lane;
mod pace;
mod report;
mod target;
mod traffic;
mod websocket;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::lane::Lane;
use self::pace::Pace;
pub use self::report::{Failure, Kind, Lane as LaneReport, Log, Phase, Report};
pub use self::target::{InvalidTarget, Target, Trust};
pub use self::traffic::{InvalidTraffic, Shape, Traffic};

/// What to do.
#[derive(Debug)]
pub struct Plan {
    /// Where to.
    pub target: Target,
    /// The kinds of traffic.
    pub traffic: Vec<Traffic>,
    /// Requests a second, of all kinds together but `websocket`.
    pub rate: f64,
    /// How long; `None` is until told to stop.
    pub duration: Option<Duration>,
    /// For one request, from when it was due.
    pub timeout: Duration,
    /// Connections that each kind keeps open.
    pub connections: usize,
    /// The one status that is right; without it, any below 500.
    pub expect: Option<u16>,
}

/// Runs a plan into `log` until its time is over or `stop` is true; requests under way are waited for.
pub async fn run(plan: Plan, log: Arc<Log>, mut stop: watch::Receiver<bool>) -> Report {
    let plan = Arc::new(plan);
    let begin = log.begin();
    let end = plan.duration.map(|duration| begin + duration);
    let (ending, ended) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let paced: Vec<&Traffic> = plan.traffic.iter().filter(|traffic| !traffic.shape.is_held()).collect();
    let lanes: Vec<Arc<Lane>> = paced.iter().map(|traffic| Lane::new(&plan, traffic, &log)).collect();
    for traffic in plan.traffic.iter().filter(|traffic| traffic.shape.is_held()) {
        for number in 0..traffic.weight {
            tasks.spawn(websocket::hold(Arc::clone(&plan), traffic.clone(), number, Arc::clone(&log), ended.clone()));
        }
    }
    let mut pace = Pace::new(plan.rate, paced.iter().map(|traffic| traffic.weight));
    loop {
        // Without paced traffic there is nothing to be due before the end.
        let (due, lane) = pace.next().map_or((None, 0), |(after, lane)| (Some(begin + after), lane));
        let next = match (due, end) {
            (Some(due), Some(end)) if due >= end => None,
            (due, _) => due,
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            () = until(next.or(end)) => {}
        }
        let Some(due) = next else { break };
        if let Some(lane) = lanes.get(lane) {
            log.offered();
            tasks.spawn(Arc::clone(lane).request(due));
        }
        while tasks.try_join_next().is_some() {}
    }
    ending.send_replace(true);
    let took = begin.elapsed();
    while tasks.join_next().await.is_some() {}
    log.report(took)
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
