use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;
use crate::ir::Regex;
use crate::source::index::Content;
use crate::source::kube::feed;
use crate::source::kube::mock::{self, Server, failure};
use crate::source::kube::status::Statuses;
use crate::source::secrets::Material;
use k8s_openapi::api::core::v1::Secret;

/// What this thread logs, as text.
#[derive(Clone, Default)]
struct Logged(Arc<parking_lot::Mutex<Vec<u8>>>);

impl Logged {
    fn begin() -> (Self, tracing::subscriber::DefaultGuard) {
        let logged = Self::default();
        let writer = logged.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (logged, tracing::subscriber::set_default(subscriber))
    }

    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock())).unwrap()
    }
}

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Fixture {
    server: Server,
    batches: mpsc::Receiver<Batch>,
    links: Links,
    task: JoinSet<()>,
}

fn start<K: Observed>(scope: Option<&str>) -> Fixture {
    let (client, server) = mock::pair();
    let (sender, batches) = feed::channel();
    let links = Links { hooks: Arc::new(()), health: Arc::default(), statuses: Arc::new(Statuses::default()) };
    let mut task = JoinSet::new();
    Spawner {
        tasks: &mut task,
        client: &client,
        scope: scope.map(str::to_owned),
        batches: &sender,
        links: &links,
        kinds: &mut Vec::new(),
    }
    .spawn::<K>();
    Fixture { server, batches, links, task }
}

impl Fixture {
    /// The next batch: applied and deleted names, and whether the set is complete.
    async fn batch(&mut self) -> (Vec<String>, Vec<String>, bool) {
        let batch = self.batches.recv().await.unwrap();
        let (mut applied, mut deleted) = (Vec::new(), Vec::new());
        for change in batch.changes {
            match change {
                Change::Apply(Object { name, content: Content::Invalid(_) }) => applied.push(format!("!{}", name.name)),
                Change::Apply(object) => applied.push(object.name.name.to_string()),
                Change::Delete(_, name) => deleted.push(name.name.to_string()),
            }
        }
        deleted.sort();
        (applied, deleted, batch.listed)
    }

    fn no_batch(&mut self) {
        assert!(self.batches.try_recv().is_err());
    }
}

fn lists(applied: &[&str], deleted: &[&str]) -> (Vec<String>, Vec<String>, bool) {
    let own = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    (own(applied), own(deleted), true)
}

fn route(name: &str, version: u64, generation: i64) -> Value {
    json!({
        "apiVersion": "lockgate.dev/v1alpha1", "kind": "Route",
        "metadata": {
            "name": name, "namespace": "n", "uid": name,
            "resourceVersion": version.to_string(), "generation": generation,
        },
        "spec": {"selectors": [{"name": "s"}], "rules": [{"backends": [{"service": "x", "port": 80}]}]},
    })
}

fn undecodable(name: &str, version: u64) -> Value {
    let mut object = route(name, version, 1);
    object["spec"]["rules"] = json!("none");
    object
}

#[tokio::test(start_paused = true)]
async fn slow_pages_make_one_batch_and_events_follow() {
    let mut fixture = start::<Route>(None);
    let list = fixture.server.list().await;
    assert_eq!(list.path, "/apis/lockgate.dev/v1alpha1/routes");
    list.page("10", "more", &[route("a", 1, 1)]);
    let list = fixture.server.list().await;
    assert!(list.query.contains("continue=more"));
    tokio::time::sleep(Duration::from_secs(20)).await;
    fixture.no_batch();
    list.page("10", "", &[route("b", 2, 1)]);
    assert_eq!(fixture.batch().await, lists(&["a", "b"], &[]));
    let watch = fixture.server.watch("10").await.stream();
    watch.send("ADDED", &route("c", 11, 1));
    assert_eq!(fixture.batch().await, lists(&["c"], &[]));
    watch.send("MODIFIED", &route("c", 12, 1));
    watch.send("MODIFIED", &route("c", 13, 2));
    assert_eq!(fixture.batch().await, lists(&["c"], &[]), "a status alone is no change of the table");
    watch.send("DELETED", &route("a", 14, 1));
    assert_eq!(fixture.batch().await, lists(&[], &["a"]));
    fixture.no_batch();
}

#[tokio::test(start_paused = true)]
async fn regular_expressions_are_compiled_before_the_index_has_the_object() {
    let source = "/compiled-by-its-watch/[0-9]+";
    let mut object = route("a", 1, 1);
    object["spec"]["rules"][0]["matches"] = json!([{"path": {"type": "Regex", "value": source}}]);
    let mut fixture = start::<Route>(None);
    fixture.server.list().await.items("10", &[object, route("b", 2, 1)]);
    let batch = fixture.batches.recv().await.unwrap();
    assert_eq!((batch.changes.len(), batch.prepared.len()), (2, 1));
    assert!(Regex::is_in_use(source));
    drop(batch);
    assert!(!Regex::is_in_use(source));
}

#[tokio::test(start_paused = true)]
async fn a_history_that_is_gone_is_listed_again_and_only_differences_count() {
    let mut fixture = start::<Route>(None);
    let old = [route("same", 1, 1), route("changed", 2, 1), route("gone", 3, 1)];
    fixture.server.list().await.items("10", &old);
    fixture.batch().await;
    let watch = fixture.server.watch("10").await.stream();
    watch.send("ERROR", &failure(410, "Expired", 0));
    let list = fixture.server.list().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    fixture.no_batch();
    list.items("20", &[route("same", 1, 1), route("changed", 15, 2), route("new", 16, 1)]);
    assert_eq!(fixture.batch().await, lists(&["changed", "new"], &["gone"]));
    fixture.server.watch("20").await;
}

#[tokio::test(start_paused = true)]
async fn a_position_refused_at_the_start_of_a_watch_is_not_asked_for_again() {
    for (code, reason) in [(410, "Expired"), (504, "Timeout"), (404, "NotFound")] {
        let mut fixture = start::<Route>(None);
        fixture.server.list().await.items("10", &[]);
        fixture.server.watch("10").await.fail(code, reason, 0);
        fixture.server.list().await.items("20", &[]);
        fixture.server.watch("20").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_watch_resumes_where_it_was() {
    let mut fixture = start::<Route>(None);
    fixture.server.list().await.items("10", &[]);
    let watch = fixture.server.watch("10").await.stream();
    watch.send("ADDED", &route("a", 11, 1));
    watch.bookmark("30");
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(watch);
    let watch = fixture.server.watch("30").await.stream();
    watch.send("MODIFIED", &route("a", 31, 2));
    assert!(fixture.batch().await.2);
    assert_eq!(fixture.batch().await, lists(&["a"], &[]));
    assert_eq!(fixture.batch().await, lists(&["a"], &[]));
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_resumed_within_minutes_and_bookmarks_keep_one_alive() {
    let mut fixture = start::<Route>(None);
    fixture.server.list().await.items("10", &[]);
    let watch = fixture.server.watch("10").await.stream();
    for version in 11..14 {
        fixture.server.silent_for(Duration::from_mins(1)).await;
        watch.bookmark(&version.to_string());
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    let _watch = fixture.server.watch("13").await.stream();
    assert!(begun.elapsed() <= Duration::from_secs(110), "{:?}", begun.elapsed());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(fixture.links.health.staleness(Kind::Route) <= Duration::from_secs(1));
    drop(watch);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_is_given_up() {
    let mut fixture = start::<Route>(None);
    let unanswered = fixture.server.list().await;
    let begun = Instant::now();
    fixture.server.list().await.items("10", &[]);
    assert!(begun.elapsed() <= Duration::from_secs(32), "{:?}", begun.elapsed());
    let unanswered_too = fixture.server.watch("10").await;
    fixture.server.watch("10").await;
    drop((unanswered, unanswered_too));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_always_ends_at_once_is_no_busy_loop() {
    let mut fixture = start::<Route>(None);
    fixture.server.list().await.items("10", &[]);
    let begun = Instant::now();
    for _ in 0..60 {
        drop(fixture.server.watch("10").await.stream());
    }
    assert!(begun.elapsed() >= Duration::from_secs(25), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_of_any_length_the_next_try_is_near() {
    let mut fixture = start::<Route>(None);
    fixture.server.list().await.items("10", &[route("a", 1, 1)]);
    fixture.batch().await;
    let watch = fixture.server.watch("10").await.stream();
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(watch);
    let mut longest = Duration::ZERO;
    for _ in 0..2000 {
        let begun = Instant::now();
        fixture.server.watch("10").await.refuse();
        longest = longest.max(begun.elapsed());
    }
    assert!(longest <= Duration::from_millis(1500), "{longest:?}");
    assert!(fixture.links.health.staleness(Kind::Route) >= Duration::from_secs(1000));
    let watch = fixture.server.watch("10").await.stream();
    watch.send("DELETED", &route("a", 11, 1));
    assert_eq!(fixture.batch().await, lists(&[], &["a"]), "nothing was dropped before");
}

#[tokio::test(start_paused = true)]
async fn lists_that_fail_are_tried_less_and_less_often() {
    let mut fixture = start::<Route>(None);
    let begun = Instant::now();
    for _ in 0..20 {
        fixture.server.list().await.fail(500, "InternalError", 0);
    }
    assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_wait_that_is_asked_for_is_kept() {
    let mut fixture = start::<Route>(None);
    fixture.server.list().await.fail(429, "TooManyRequests", 3);
    let begun = Instant::now();
    fixture.server.list().await.fail(429, "TooManyRequests", 600);
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    let begun = Instant::now();
    fixture.server.list().await.items("10", &[]);
    assert!(begun.elapsed() <= Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_object_fails_alone() {
    let mut fixture = start::<Route>(None);
    fixture.server.list().await.items("10", &[undecodable("bad", 1), route("good", 2, 1)]);
    assert_eq!(fixture.batch().await, lists(&["!bad", "good"], &[]));
    let watch = fixture.server.watch("10").await.stream();
    watch.send("MODIFIED", &route("bad", 11, 2));
    assert_eq!(fixture.batch().await, lists(&["bad"], &[]));
    watch.send("ADDED", &undecodable("worse", 12));
    assert_eq!(fixture.batch().await, lists(&["!worse"], &[]));
    watch.send("DELETED", &undecodable("worse", 13));
    assert_eq!(fixture.batch().await, lists(&[], &["worse"]));
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_object_is_logged_once() {
    let (logged, _guard) = Logged::begin();
    let mut fixture = start::<Route>(None);
    fixture.server.list().await.items("10", &[undecodable("bad", 1), route("good", 2, 1)]);
    assert_eq!(fixture.batch().await, lists(&["!bad", "good"], &[]));
    let text = logged.take();
    assert!(text.contains("n/bad") && text.contains("spec.rules") && !text.contains("n/good"), "{text}");

    let watch = fixture.server.watch("10").await.stream();
    watch.send("MODIFIED", &undecodable("bad", 11));
    watch.send("ADDED", &undecodable("worse", 12));
    assert_eq!(fixture.batch().await, lists(&["!worse"], &[]));
    let text = logged.take();
    assert!(text.contains("n/worse") && !text.contains("n/bad"), "a change of nothing but the status: {text}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_no_longer_decodes_is_gone_rather_than_stale() {
    let service = |version: &str, ports: Value| json!({"metadata": {"name": "x", "namespace": "n", "resourceVersion": version}, "spec": {"ports": ports}});
    let mut fixture = start::<Service>(None);
    fixture.server.list().await.items("10", &[service("1", json!([{"port": 80}]))]);
    assert_eq!(fixture.batch().await, lists(&["x"], &[]));
    let watch = fixture.server.watch("10").await.stream();
    watch.send("MODIFIED", &service("11", json!("none")));
    assert_eq!(fixture.batch().await, lists(&[], &["x"]));
}

#[tokio::test(start_paused = true)]
async fn without_our_own_kinds_nothing_is_complete_until_they_are_installed() {
    let mut fixture = start::<Route>(None);
    for _ in 0..30 {
        fixture.server.list().await.fail(404, "NotFound", 0);
    }
    fixture.no_batch();
    fixture.server.list().await.items("10", &[]);
    assert_eq!(fixture.batch().await, lists(&[], &[]));
}

fn grant(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"}, "spec": {"from": [], "to": []}})
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_may_be_absent_come_and_go() {
    let mut fixture = start::<ReferenceGrant>(None);
    fixture.server.list().await.fail(404, "NotFound", 0);
    assert_eq!(fixture.batch().await, lists(&[], &[]));
    let begun = Instant::now();
    fixture.server.list().await.items("10", &[grant("g")]);
    assert!(begun.elapsed() >= OPTIONAL);
    assert_eq!(fixture.batch().await, lists(&["g"], &[]));
    drop(fixture.server.watch("10").await.stream());
    fixture.server.watch("10").await.fail(404, "NotFound", 0);
    for _ in 0..2 {
        fixture.server.list().await.fail(404, "NotFound", 0);
        fixture.no_batch();
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        fixture.server.list().await.fail(404, "NotFound", 0);
    }
    assert_eq!(fixture.batch().await, lists(&[], &["g"]));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_may_not_be_read_is_known_by_its_name() {
    let (logged, _guard) = Logged::begin();
    let mut fixture = start::<Namespace>(Some("team"));
    let get = fixture.server.next().await;
    // Of all that can be asked of a namespace a Role in it can permit this alone.
    assert_eq!((get.path.as_str(), get.query.as_str()), ("/api/v1/namespaces/team", ""));
    get.fail(403, "Forbidden", 0);
    let Batch { mut changes, listed, .. } = fixture.batches.recv().await.unwrap();
    let Some(Change::Apply(Object { content: Content::Namespace(labels), .. })) = changes.pop() else {
        panic!("no namespace");
    };
    assert_eq!((labels["kubernetes.io/metadata.name"].as_str(), listed), ("team", true));
    let begun = Instant::now();
    fixture.server.next().await.fail(403, "Forbidden", 0);
    assert!(begun.elapsed() >= OPTIONAL);
    let log = logged.take();
    assert_eq!(log.matches("missing permission: get namespaces in namespace team").count(), 1, "{log}");
}

#[tokio::test(start_paused = true)]
async fn labels_of_a_namespace_that_may_be_read_are_followed() {
    let mut fixture = start::<Namespace>(Some("team"));
    let tier = async |fixture: &mut Fixture| {
        let Batch { mut changes, listed, .. } = fixture.batches.recv().await.unwrap();
        assert!(listed);
        match changes.pop() {
            Some(Change::Apply(Object { content: Content::Namespace(labels), .. })) => Some(labels["tier"].clone()),
            None => None,
            other => panic!("{other:?}"),
        }
    };
    let namespace = |version: &str, tier: &str| {
        let metadata = json!({"name": "team", "uid": "u", "resourceVersion": version, "labels": {"tier": tier}});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    };
    fixture.server.next().await.json(200, &namespace("1", "gold"));
    assert_eq!(tier(&mut fixture).await.as_deref(), Some("gold"));
    let begun = Instant::now();
    fixture.server.next().await.json(200, &namespace("1", "gold"));
    assert!(begun.elapsed() >= READ);
    assert_eq!(tier(&mut fixture).await, None);
    // What cannot be read for a moment stays as it was.
    fixture.server.next().await.refuse();
    fixture.server.next().await.json(200, &namespace("2", "silver"));
    assert_eq!(tier(&mut fixture).await.as_deref(), Some("silver"));
}

#[tokio::test(start_paused = true)]
async fn one_namespace_is_asked_for_alone() {
    let mut fixture = start::<EndpointSlice>(Some("team"));
    assert_eq!(fixture.server.list().await.path, "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices");
    let _: &JoinSet<()> = &fixture.task;
}

#[tokio::test]
async fn a_watch_ends_with_its_receiver() {
    let Fixture { mut server, batches, mut task, .. } = start::<Route>(None);
    drop(batches);
    let served: JoinHandle<()> = tokio::spawn(async move { server.list().await.items("10", &[]) });
    task.join_next().await.unwrap().unwrap();
    served.await.unwrap();
}

/// A watch of the Secret `n/s`.
fn start_named() -> Fixture {
    let (client, server) = mock::pair();
    let (sender, batches) = feed::channel();
    let links = Links { hooks: Arc::new(()), health: Arc::default(), statuses: Arc::new(Statuses::default()) };
    let mut task = JoinSet::new();
    let scope = Scope { namespace: Some("n".to_owned()), name: Some("s".to_owned()) };
    task.spawn(Watch::<Secret>::new(0, &client, scope, sender, &links).run());
    Fixture { server, batches, links, task }
}

fn secret() -> Value {
    json!({"metadata": {"name": "s", "namespace": "n", "uid": "u", "resourceVersion": "1"}})
}

fn is_denied(change: &Change) -> bool {
    matches!(change, Change::Apply(Object { content: Content::Secret(Material::Denied), .. }))
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_may_no_longer_be_read_is_denied_and_comes_back() {
    let mut fixture = start_named();
    fixture.server.list().await.items("1", &[secret()]);
    assert_eq!(fixture.batch().await, (vec!["s".to_owned()], vec![], true));
    // One odd answer is not believed.
    let lost = Instant::now();
    while fixture.batches.is_empty() {
        fixture.server.next().await.fail(403, "Forbidden", 0);
    }
    assert!(lost.elapsed() >= GRACE, "{:?}", lost.elapsed());
    let batch = fixture.batches.recv().await.unwrap();
    assert!(matches!(&batch.changes[..], [Change::Delete(..), denied] if is_denied(denied)), "{:?}", batch.changes);
    // Permitted again, it is there, or it is not.
    let answer = |call: mock::Call, items: &[Value]| {
        if call.is_watch() { call.fail(410, "Expired", 0) } else { call.items("2", items) }
    };
    while fixture.batches.is_empty() {
        let call = fixture.server.next().await;
        answer(call, &[]);
    }
    assert_eq!(fixture.batch().await, (vec![], vec!["s".to_owned()], true));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_may_not_be_read_is_denied_at_once() {
    let (logged, _guard) = Logged::begin();
    let mut fixture = start_named();
    fixture.server.list().await.fail(403, "Forbidden", 0);
    let batch = fixture.batches.recv().await.unwrap();
    assert!(batch.listed && matches!(&batch.changes[..], [denied] if is_denied(denied)), "{:?}", batch.changes);
    let log = logged.take();
    assert!(log.contains("missing permission: list secrets s in namespace n"), "{log}");
    let asked = Instant::now();
    fixture.server.list().await.items("1", &[secret()]);
    assert!(asked.elapsed() <= OPTIONAL * 2, "{:?}", asked.elapsed());
    assert_eq!(fixture.batch().await, (vec!["s".to_owned()], vec![], true));
}
