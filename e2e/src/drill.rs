//! `lockgate drill` in the background of a test.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::cluster::repository;
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
    /// Starts `traffic` at `rate` requests a second against a host behind an address, for a day at most.
    pub fn start(address: &str, host: &str, traffic: &str, rate: u32) -> Self {
        Self::run(Command::new(binary()), address, host, traffic, rate)
    }

    /// The same from a machine outside of the cluster of `e2e/cluster`.
    pub fn start_outside(address: &str, host: &str, traffic: &str, rate: u32) -> Self {
        let mut command = Command::new(repository().join("e2e/cluster/cluster"));
        command.args(["outside", &binary()]);
        Self::run(command, address, host, traffic, rate)
    }

    fn run(mut command: Command, address: &str, host: &str, traffic: &str, rate: u32) -> Self {
        command.args(["drill", "--quiet", "--output", "json", "--duration", "24h", "--expect", "200"]);
        command.args(["--connections", "40", "--traffic", traffic, "--rate", &rate.to_string()]);
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

fn binary() -> String {
    std::env::var("LOCKGATE_E2E_BINARY").unwrap_or_else(|_| "lockgate".to_owned())
}

impl Found {
    /// Requests that ended, one way or the other.
    pub fn requests(&self) -> u64 {
        self.0["requests"].as_u64().unwrap_or_default()
    }

    /// Requests that failed.
    pub fn failed(&self) -> u64 {
        self.0["failed"].as_u64().unwrap_or_default()
    }

    /// Failures by kind.
    pub fn kinds(&self) -> BTreeMap<String, u64> {
        serde_json::from_value(self.0["kinds"].clone()).expect("numbers by kind")
    }

    /// The first failures: the kind of traffic, the phase, the kind of failure, and more for people.
    pub fn failures(&self) -> impl Iterator<Item = [&str; 4]> {
        let all = self.0["failures"].as_array().into_iter().flatten();
        all.map(|failure| ["traffic", "phase", "kind", "detail"].map(|name| failure[name].as_str().unwrap_or_default()))
    }

    /// A number that is known of one kind of traffic, such as `failed`.
    pub fn lane(&self, traffic: &str, name: &str) -> u64 {
        self.0["traffic"][traffic][name].as_u64().unwrap_or_default()
    }

    /// Prints what it found.
    pub fn print(&self) {
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
        println!("drill of {} s: {} requests; {}", self.0["seconds"], self.requests(), lanes.join("; "));
        if self.failed() > 0 {
            println!("{} failed: {}", self.failed(), self.0["kinds"]);
        }
    }

    /// Panics unless there were at least `least` requests and none failed.
    pub fn assert_clean(&self, least: u64) {
        self.print();
        assert_eq!(self.failed(), 0, "{:#}", self.0["failures"]);
        assert!(self.requests() >= least, "only {} requests, {least} wanted", self.requests());
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
