use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use super::*;
use crate::api::{AddressType, SelectorAddress, reason};
use crate::ir::{Extent, Finding, Fragment, ObjectName, Shadowed, Verdict};
use crate::source::kube::mock::{self, Call, Server};

#[derive(Default)]
struct Counts(Mutex<Vec<Result<(), Failure>>>);

impl Hooks for Counts {
    fn status_write(&self, result: Result<(), Failure>) {
        self.0.lock().push(result);
    }
}

struct Fixture {
    server: Server,
    statuses: Arc<Statuses>,
    served: watch::Sender<Option<Arc<Served>>>,
    leading: watch::Sender<bool>,
    reached_at: watch::Sender<Known>,
    counts: Arc<Counts>,
}

fn start(leads: bool) -> Fixture {
    let (client, server) = mock::pair();
    let statuses = Arc::new(Statuses::default());
    let counts = Arc::new(Counts::default());
    let (sender, fragments) = watch::channel(None);
    let (leading, terms) = watch::channel(leads);
    let hooks: Arc<dyn Hooks> = Arc::clone(&counts) as _;
    let events = Events::start(client.clone(), ("lockgate.dev/gateway", "pod"), terms.clone(), Arc::clone(&hooks));
    let links = Links { statuses: Arc::clone(&statuses), hooks };
    let (reached_at, addresses) = watch::channel(None);
    tokio::spawn(Writer::new(client, "", links, Some(events)).run(fragments, terms, addresses));
    Fixture { server, statuses, served: sender, leading, reached_at, counts }
}

fn key(name: &str) -> Key {
    (Kind::Selector, ObjectName::new("n", name))
}

fn verdict(name: &str, generation: i64, attached_routes: u32) -> Verdict {
    let finding = |reason| Finding { ok: true, reason, message: String::new(), problems: Vec::new() };
    Verdict {
        kind: Kind::Selector,
        object: ObjectName::new("n", name),
        parent: None,
        generation,
        attached_routes,
        in_table: true,
        accepted: finding(reason::ACCEPTED),
        resolved_refs: finding(reason::RESOLVED_REFS),
    }
}

fn metadata(generation: i64, version: u64) -> ObjectMeta {
    ObjectMeta {
        uid: Some("uid".to_owned()),
        generation: Some(generation),
        resource_version: Some(version.to_string()),
        ..ObjectMeta::default()
    }
}

impl Fixture {
    /// The watch shows an object.
    fn show(&self, name: &str, generation: i64, version: u64, status: &Value) {
        self.statuses
            .observe(key(name), Seen::new(Kind::Selector, &metadata(generation, version), vec![], Some(status)));
    }

    fn serve(&self, verdicts: &[Verdict]) {
        self.serve_with(verdicts, &[]);
    }

    fn serve_with(&self, verdicts: &[Verdict], shadowed: &[Shadowed]) {
        let fragment =
            Arc::new(Fragment { verdicts: verdicts.iter().cloned().map(Arc::new).collect(), ..Fragment::default() });
        self.served.send_replace(Some(Arc::new(Served { fragment, shadowed: shadowed.to_vec() })));
    }

    async fn quiet(&mut self) {
        self.server.silent_for(Duration::from_mins(10)).await;
    }

    /// Lets one write succeed; returns the status written.
    async fn accept(&mut self, generation: i64, version: u64) -> Value {
        let call = self.server.next().await;
        let status = call.body["status"].clone();
        accept(call, generation, version);
        status
    }
}

fn accept(call: Call, generation: i64, version: u64) {
    let mut object = call.body.clone();
    object["metadata"]["generation"] = json!(generation);
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    call.json(200, &object);
}

#[tokio::test(start_paused = true)]
async fn one_write_for_one_change_and_none_while_idle() {
    let mut fixture = start(true);
    fixture.show("s", 1, 10, &json!({}));
    fixture.quiet().await;
    fixture.serve(&[verdict("s", 1, 3)]);
    let call = fixture.server.next().await;
    assert_eq!(call.method, http::Method::PATCH);
    assert_eq!(call.path, "/apis/lockgate.dev/v1alpha1/namespaces/n/selectors/s/status");
    assert!(call.query.contains("force=true") && call.query.contains("fieldManager=lockgate.dev%2Fgateway"));
    assert_eq!(call.body["metadata"], json!({"namespace": "n", "name": "s", "uid": "uid"}));
    let status = call.body["status"].clone();
    assert_eq!(status["attachedRoutes"], 3);
    accept(call, 1, 11);
    fixture.show("s", 1, 11, &status);
    fixture.quiet().await;
    // The spec changes: the old verdict is not written to the new generation, the new one is, once.
    fixture.show("s", 2, 12, &status);
    fixture.quiet().await;
    fixture.serve(&[verdict("s", 2, 3)]);
    let status = fixture.accept(2, 13).await;
    assert_eq!(status["observedGeneration"], 2);
    fixture.show("s", 2, 13, &status);
    fixture.quiet().await;
    assert_eq!(fixture.counts.0.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_writes_and_a_new_one_looks_at_everything() {
    let mut fixture = start(false);
    for name in ["a", "b", "c"] {
        fixture.show(name, 1, 10, &json!({}));
    }
    fixture.serve(&[verdict("a", 1, 0), verdict("b", 1, 0), verdict("c", 1, 0)]);
    fixture.quiet().await;
    fixture.leading.send_replace(true);
    let status = fixture.accept(1, 11).await;
    fixture.accept(1, 12).await;
    fixture.accept(1, 13).await;
    fixture.quiet().await;
    fixture.leading.send_replace(false);
    fixture.show("a", 1, 14, &json!({}));
    fixture.quiet().await;
    fixture.show("b", 1, 15, &status);
    fixture.leading.send_replace(true);
    assert_eq!(fixture.server.next().await.body["metadata"]["name"], "a");
}

#[tokio::test(start_paused = true)]
async fn what_others_overwrite_is_put_right_ever_more_slowly() {
    let mut fixture = start(true);
    fixture.show("s", 1, 10, &json!({}));
    fixture.serve(&[verdict("s", 1, 0)]);
    fixture.accept(1, 11).await;
    let mut version = 12;
    let mut waits = Vec::new();
    for _ in 0..12 {
        fixture.show("s", 1, version, &json!({"attachedRoutes": 9}));
        let begun = Instant::now();
        assert_eq!(fixture.accept(1, version + 1).await["attachedRoutes"], 0);
        waits.push(begun.elapsed());
        version += 2;
    }
    assert!(waits[0] <= Duration::from_millis(10), "{waits:?}");
    assert!(waits.is_sorted() && waits.iter().all(|wait| *wait <= REPEAT_MAX), "{waits:?}");
    assert_eq!(waits.last(), Some(&REPEAT_MAX));
    // Something new to say is not held up.
    let begun = Instant::now();
    fixture.serve(&[verdict("s", 1, 1)]);
    assert_eq!(fixture.accept(1, version).await["attachedRoutes"], 1);
    assert!(begun.elapsed() <= Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn failed_writes_are_tried_again_and_gone_objects_are_not() {
    let mut fixture = start(true);
    fixture.show("s", 1, 10, &json!({}));
    fixture.serve(&[verdict("s", 1, 0)]);
    fixture.server.next().await.fail(409, "Conflict", 0);
    fixture.server.next().await.fail(500, "InternalError", 0);
    fixture.server.next().await.refuse();
    let hanging = fixture.server.next().await;
    fixture.accept(1, 11).await;
    drop(hanging);
    fixture.quiet().await;
    let results = std::mem::take(&mut *fixture.counts.0.lock());
    let failures = [Failure::Conflict, Failure::Server, Failure::Unreachable, Failure::Timeout].map(Err);
    assert_eq!(results, [&failures[..], &[Ok(())]].concat());
    fixture.serve(&[verdict("s", 1, 1)]);
    let call = fixture.server.next().await;
    fixture.statuses.forget(&key("s"));
    call.fail(404, "NotFound", 0);
    fixture.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_written_a_few_at_a_time() {
    let mut fixture = start(true);
    let names: Vec<String> = (0..100).map(|number| format!("s{number:03}")).collect();
    for name in &names {
        fixture.show(name, 1, 10, &json!({}));
    }
    fixture.serve(&names.iter().map(|name| verdict(name, 1, 0)).collect::<Vec<_>>());
    let mut open = Vec::new();
    for _ in 0..CONCURRENT {
        open.push(fixture.server.next().await);
    }
    fixture.server.silent_for(Duration::from_secs(1)).await;
    for call in open {
        accept(call, 1, 11);
    }
    for _ in CONCURRENT..100 {
        fixture.accept(1, 11).await;
    }
    fixture.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_shadow_is_one_write_when_it_falls_and_one_when_it_goes() {
    let mut fixture = start(true);
    fixture.show("s", 1, 10, &json!({}));
    let shadow = Shadowed {
        kind: Kind::Selector,
        object: ObjectName::new("n", "s"),
        parent: None,
        extent: Extent::Whole,
        message: "no request reaches it".into(),
    };
    fixture.serve_with(&[verdict("s", 1, 0)], std::slice::from_ref(&shadow));
    let status = fixture.accept(1, 11).await;
    let shadowed = &status["conditions"][3];
    assert_eq!((&shadowed["type"], &shadowed["reason"]), (&json!("Shadowed"), &json!("NeverWins")));
    fixture.show("s", 1, 11, &status);
    // Another table in which it is the same.
    fixture.serve_with(&[verdict("s", 1, 0), verdict("t", 1, 0)], &[shadow]);
    fixture.quiet().await;
    fixture.serve(&[verdict("s", 1, 0)]);
    let status = fixture.accept(1, 12).await;
    assert_eq!(status["conditions"].as_array().unwrap().len(), 3);
    fixture.show("s", 1, 12, &status);
    fixture.quiet().await;
    assert_eq!(fixture.counts.0.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn addresses_are_written_when_they_are_known_and_kept_while_they_are_not() {
    let mut fixture = start(true);
    let addresses = |values: &[&str]| -> Known {
        let address = |value: &&str| SelectorAddress { kind: AddressType::IPAddress, value: (*value).to_owned() };
        Some(values.iter().map(address).collect())
    };
    fixture.show("s", 1, 10, &json!({"addresses": [{"type": "IPAddress", "value": "203.0.113.1"}]}));
    fixture.serve(&[verdict("s", 1, 0)]);
    let status = fixture.accept(1, 11).await;
    assert_eq!(status["addresses"], json!([{"type": "IPAddress", "value": "203.0.113.1"}]), "of the holder before");
    fixture.show("s", 1, 11, &status);
    fixture.reached_at.send_replace(addresses(&["203.0.113.1"]));
    fixture.quiet().await;
    fixture.reached_at.send_replace(addresses(&["203.0.113.2"]));
    let status = fixture.accept(1, 12).await;
    assert_eq!(status["addresses"], json!([{"type": "IPAddress", "value": "203.0.113.2"}]));
    fixture.show("s", 1, 12, &status);
    // Whoever has no place in the table is reached nowhere.
    let mut refused = verdict("s", 1, 0);
    refused.in_table = false;
    refused.accepted =
        Finding { ok: false, reason: reason::INVALID, message: "wrong".to_owned(), problems: Vec::new() };
    fixture.serve(&[refused]);
    let status = fixture.accept(1, 13).await;
    assert_eq!(status.get("addresses"), None);
    let event = fixture.server.next().await;
    assert_eq!((&event.body["reason"], &event.body["note"]), (&json!("Invalid"), &json!("wrong")));
}
