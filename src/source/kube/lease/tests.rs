use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;
use crate::source::kube::mock::{self, Server};

/// An API server with one Lease.
async fn serve(mut server: Server, down: Arc<AtomicBool>, mut lease: Option<Value>) {
    let mut version = 1;
    loop {
        let call = server.next().await;
        if down.load(Ordering::Relaxed) {
            call.refuse();
            continue;
        }
        let current = lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        let fits = current.as_ref() == Some(&call.body["metadata"]["resourceVersion"]);
        match (call.method.clone(), &lease) {
            (Method::GET, Some(lease)) => call.json(200, &lease.clone()),
            (Method::PUT, Some(_)) if !fits => call.fail(409, "Conflict", 0),
            (Method::POST, Some(_)) => call.fail(409, "AlreadyExists", 0),
            (Method::POST | Method::PUT, _) => {
                version += 1;
                let mut written = call.body.clone();
                written["metadata"]["resourceVersion"] = json!(version.to_string());
                written["metadata"]["uid"] = json!("uid");
                call.json(200, &written);
                lease = Some(written);
            }
            _ => call.fail(404, "NotFound", 0),
        }
    }
}

struct World {
    client: Client,
    down: Arc<AtomicBool>,
}

struct Replica {
    leading: watch::Receiver<bool>,
    task: JoinHandle<()>,
    stop: tokio::sync::oneshot::Sender<()>,
}

impl World {
    fn new(lease: Option<Value>) -> Self {
        let (client, server) = mock::pair();
        let down = Arc::new(AtomicBool::new(false));
        tokio::spawn(serve(server, Arc::clone(&down), lease));
        Self { client, down }
    }

    fn replica(&self, pod: &str) -> Replica {
        let (sender, leading) = watch::channel(false);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let shutdown = async { drop(stopped.await) };
        let task = tokio::spawn(hold(self.client.clone(), Settings::new("ns", "", pod), sender, shutdown));
        Replica { leading, task, stop }
    }
}

impl Replica {
    /// How long it takes until it leads, or no longer does.
    async fn until(&mut self, leads: bool) -> Duration {
        let begun = Instant::now();
        self.leading.wait_for(|leading| *leading == leads).await.unwrap();
        begun.elapsed()
    }

    fn leads(&self) -> bool {
        *self.leading.borrow()
    }
}

#[test]
fn identities_of_one_pod_name_differ() {
    let [a, b] = [Settings::new("ns", "blue", "pod"), Settings::new("ns", "blue", "pod")];
    assert_eq!((a.name.as_str(), b.name.as_str()), ("lockgate-blue", "lockgate-blue"));
    assert_ne!(a.identity, b.identity);
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_replaced_after_its_duration_and_not_before() {
    let world = World::new(None);
    let mut first = world.replica("a");
    first.until(true).await;
    let mut second = world.replica("b");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(first.leads() && !second.leads());
    first.task.abort();
    let waited = second.until(true).await;
    assert!(waited >= Duration::from_secs(10) && waited <= Duration::from_secs(18), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_given_back_is_taken_at_once() {
    let world = World::new(None);
    let mut first = world.replica("a");
    first.until(true).await;
    let mut second = world.replica("b");
    tokio::time::sleep(Duration::from_secs(7)).await;
    drop(first.stop);
    first.task.await.unwrap();
    let waited = second.until(true).await;
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn the_holder_stops_leading_while_the_lease_still_protects_it() {
    let world = World::new(None);
    let mut first = world.replica("a");
    first.until(true).await;
    tokio::time::sleep(Duration::from_secs(21)).await;
    world.down.store(true, Ordering::Relaxed);
    let waited = first.until(false).await;
    assert!(waited <= TRUST, "{waited:?}");
    tokio::time::sleep(Duration::from_mins(30)).await;
    world.down.store(false, Ordering::Relaxed);
    let waited = first.until(true).await;
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn never_two_lead_however_often_the_api_server_goes() {
    let world = World::new(None);
    let replicas = [world.replica("a"), world.replica("b"), world.replica("c")];
    for round in 0_u64..600 {
        world.down.store(round % 23 >= 12, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(replicas.iter().filter(|replica| replica.leads()).count() <= 1, "round {round}");
    }
    world.down.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(replicas.iter().filter(|replica| replica.leads()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn clocks_do_not_matter() {
    for renewed in ["2001-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let world = World::new(Some(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "lockgate-lockgate", "namespace": "ns", "uid": "uid", "resourceVersion": "1"},
            "spec": {"holderIdentity": "other", "renewTime": renewed, "leaseDurationSeconds": 15, "leaseTransitions": 4},
        })));
        let waited = world.replica("a").until(true).await;
        assert!(waited >= DURATION && waited <= Duration::from_secs(18), "{renewed}: {waited:?}");
    }
}

#[test]
fn a_claim_counts_a_transition_only_when_the_holder_changes() {
    let now = Timestamp::now();
    let first = claim(None, "a", now);
    assert_eq!((first.lease_transitions, first.lease_duration_seconds), (Some(0), Some(15)));
    let renewed = claim(Some(&first), "a", now + Duration::from_secs(5));
    assert_eq!((renewed.lease_transitions, &renewed.acquire_time), (Some(0), &first.acquire_time));
    let taken = claim(Some(&renewed), "b", now + Duration::from_secs(30));
    assert_eq!(taken.lease_transitions, Some(1));
    assert_ne!(taken.acquire_time, first.acquire_time);
}
