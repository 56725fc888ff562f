//! `lockgate drill` in the background of a test.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::wait::PATIENCE;

/// A drill that runs.
#[derive(Debug)]
pub struct Drill {
    child: Child,
}

/// What it found.
#[derive(Debug)]
pub struct Found(Value);

impl Drill {
    /// Starts `traffic` at `rate` requests a second against a host behind an address, for an hour at most.
    pub fn start(address: &str, host: &str, traffic: &str, rate: u32) -> Self {
        let binary = std::env::var("LOCKGATE_E2E_BINARY").unwrap_or_else(|_| "lockgate".to_owned());
        let mut command = Command::new(binary);
        command.args(["drill", "--quiet", "--output", "json", "--duration", "1h", "--expect", "200"]);
        command.args(["--connections", "20", "--traffic", traffic, "--rate", &rate.to_string()]);
        command.args(["--connect", address, &format!("http://{host}/")]);
        let child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("lockgate drill starts");
        Self { child }
    }

    /// Ends it and tells what it found.
    pub async fn stop(self) -> Found {
        if let Some(pid) = self.child.id() {
            let told = Command::new("kill").args(["-INT", &pid.to_string()]).status().await;
            assert!(told.is_ok_and(|status| status.success()), "the drill is told to end");
        }
        let output =
            timeout(PATIENCE, self.child.wait_with_output()).await.expect("the drill ends").expect("its report");
        Found(serde_json::from_slice(&output.stdout).expect("a report in JSON"))
    }
}

impl Found {
    /// Panics unless there were at least `least` requests and none failed.
    pub fn assert_clean(&self, least: u64) {
        let number = |name: &str| self.0[name].as_u64().unwrap_or_default();
        let lanes = self.0["traffic"].as_object().into_iter().flatten();
        let lanes: Vec<String> = lanes
            .map(|(name, lane)| {
                let of = |field: &str| lane[field].to_string();
                let (requests, connections) = (of("requests"), of("connections"));
                format!(
                    "{name}: {requests} on {connections} connections, {} resent, p99 {} ms",
                    of("resent"),
                    of("p99Ms")
                )
            })
            .collect();
        println!("drill of {} s: {}", self.0["seconds"], lanes.join("; "));
        assert_eq!(number("failed"), 0, "{:#}", self.0["failures"]);
        assert!(number("requests") >= least, "only {} requests, {least} wanted", number("requests"));
    }

    /// What 99 of 100 requests of one kind of traffic waited at most.
    pub fn p99(&self, traffic: &str) -> Duration {
        Duration::from_secs_f64(self.0["traffic"][traffic]["p99Ms"].as_f64().unwrap_or_default() / 1e3)
    }

    /// The longest wait for an answer of one kind of traffic.
    pub fn slowest(&self, traffic: &str) -> Duration {
        Duration::from_secs_f64(self.0["traffic"][traffic]["maxMs"].as_f64().unwrap_or_default() / 1e3)
    }
}
