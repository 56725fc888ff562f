//! Constant traffic in the background of a test, every failure counted by kind.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::wait::PATIENCE;
use crate::web::{Answer, Client, Failure};

/// Whether a client keeps its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// Until the server asks it to leave.
    Kept,
    /// One for every request.
    PerRequest,
}

/// What the clients saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Exchanges, whichever way they ended.
    pub requests: u64,
    /// Connections made.
    pub connections: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Answers by the demo backend's pod.
    pub pods: BTreeMap<String, u64>,
    /// Failures by their text, and the first time of each since the load began.
    pub failures: BTreeMap<String, (u64, Duration)>,
    /// The first answer of each status that is not 200, and when it came.
    pub odd: BTreeMap<u16, (String, Duration)>,
}

impl Report {
    /// Panics unless there were at least `least` requests and all of them were answered with 200.
    pub fn assert_clean(&self, least: u64) {
        println!("{self}");
        assert!(self.requests >= least, "only {} requests, {least} wanted", self.requests);
        assert!(self.failures.is_empty() && self.statuses.keys().all(|status| *status == 200), "{self}");
    }

    fn count(&mut self, result: Result<Answer, Failure>, at: Duration) {
        self.requests += 1;
        match result {
            Ok(answer) => {
                let status = answer.status.as_u16();
                *self.statuses.entry(status).or_default() += 1;
                if status != 200 {
                    self.odd.entry(status).or_insert_with(|| (answer.to_string(), at));
                }
                if let Some(pod) = answer.json()["pod"].as_str() {
                    *self.pods.entry(pod.to_owned()).or_default() += 1;
                }
            }
            Err(failure) => self.failures.entry(failure.to_string()).or_insert((0, at)).0 += 1,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests on {} connections: {:?}", self.requests, self.connections, self.statuses)?;
        for (status, (text, at)) in &self.odd {
            write!(f, "\n  {status}, first after {at:?}: {text}")?;
        }
        for (text, (times, at)) in &self.failures {
            write!(f, "\n  failed {times} times, first after {at:?}: {text}")?;
        }
        Ok(())
    }
}

/// Clients that send GET requests until they are told to stop.
#[derive(Debug)]
pub struct Load {
    clients: JoinSet<u64>,
    stop: watch::Sender<bool>,
    report: Arc<Mutex<Report>>,
}

impl Load {
    /// Starts `clients` clients, each with 10 ms between an answer and its next request.
    pub fn start(address: &str, host: &str, path: &str, clients: usize, connections: Connections) -> Self {
        let (stop, stopped) = watch::channel(false);
        let report = Arc::new(Mutex::new(Report::default()));
        let begin = Instant::now();
        let mut set = JoinSet::new();
        for _ in 0..clients {
            let mut client = match connections {
                Connections::Kept => Client::new(address),
                Connections::PerRequest => Client::one_shot(address),
            };
            let (host, path, report, stopped) =
                (host.to_owned(), path.to_owned(), Arc::clone(&report), stopped.clone());
            set.spawn(async move {
                while !*stopped.borrow() {
                    let result = client.get(&host, &path).await;
                    report.lock().count(result, begin.elapsed());
                    sleep(Duration::from_millis(10)).await;
                }
                client.connections
            });
        }
        Self { clients: set, stop, report }
    }

    /// Waits until there have been `number` more requests.
    pub async fn more(&self, number: u64) {
        let goal = self.report.lock().requests + number;
        let reached = async {
            while self.report.lock().requests < goal {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, reached).await.expect("the load goes on");
    }

    /// What the clients saw so far, but for the number of connections.
    pub fn so_far(&self) -> Report {
        self.report.lock().clone()
    }

    /// Lets every client finish its request and tells what they saw.
    pub async fn stop(mut self) -> Report {
        self.stop.send_replace(true);
        let mut connections = 0;
        while let Some(made) = self.clients.join_next().await {
            connections += made.expect("a client does not panic");
        }
        Report { connections, ..self.so_far() }
    }
}
