use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::ir::{Fragment, Kind as Subject, Regex};
use crate::source::index::{Content, HostBackends, Settings};
use crate::source::kube::mock;
use crate::source::translate::prepare;

fn index() -> Index {
    Index::new(Settings {
        class_name: "lockgate".to_owned(),
        listeners: Vec::new(),
        host_backends: HostBackends::Never,
        default_certificate: None,
        reads_secrets: true,
    })
}

fn links() -> Links {
    Links { hooks: Arc::new(()), health: Arc::default(), statuses: Arc::default() }
}

/// Watches of single objects at an API server that never answers.
fn named(batches: &mpsc::Sender<Batch>, first: usize) -> Named {
    Named::new(mock::pair().0, batches, links(), first)
}

fn batch(watch: usize, listed: bool, changes: Vec<Change>) -> Batch {
    Batch { watch, changes, listed, prepared: Vec::new(), received: Instant::now() }
}

fn invalid(name: &str) -> Object {
    Object::invalid(Subject::Selector, ObjectName::new("n", name), 1, "spec: wrong".to_owned())
}

fn names(fragment: &Fragment) -> Vec<&str> {
    fragment.verdicts.iter().map(|verdict| &*verdict.object.name).collect()
}

#[tokio::test]
async fn the_first_table_waits_for_every_watch_of_every_kind() {
    let (sender, batches) = channel();
    let (updates, mut published) = mpsc::channel(16);
    // Two namespaces: each kind is watched twice.
    let watches: Vec<Kind> = WHOLE.into_iter().chain(WHOLE).collect();
    let links = links();
    let named = named(&sender, watches.len());
    let task = tokio::spawn(run(index(), watches.clone(), batches, updates, (links.clone(), named)));
    sender.send(batch(0, true, vec![Change::Apply(invalid("a"))])).await.unwrap();
    for number in 1..watches.len() {
        tokio::task::yield_now().await;
        assert!(published.try_recv().is_err(), "before watch {number}");
        sender.send(batch(number, true, Vec::new())).await.unwrap();
    }
    let Some(Update::Table { fragment, .. }) = published.recv().await else { panic!("no table") };
    assert_eq!(names(&fragment), ["a"]);
    assert_eq!(links.health.pending(), []);
    drop(sender);
    task.await.unwrap();
}

#[tokio::test]
async fn what_was_prepared_is_held_until_it_is_translated() {
    let source = "/held-by-the-feed/[0-9]+";
    let spec = json!({
        "selectors": [{"name": "s"}],
        "rules": [{"matches": [{"path": {"type": "Regex", "value": source}}]}],
    });
    let origin = crate::ir::Origin { created: 0, object: ObjectName::new("n", "a") };
    let spec = serde_json::from_value(spec).unwrap();
    let route = crate::source::translate::RouteSubject { origin, generation: 1, spec };
    let (sender, _batches) = channel();
    let mut feed = Feed::new(index(), WHOLE.to_vec(), links(), named(&sender, WHOLE.len()));
    feed.take(Batch { prepared: vec![prepare::route(&route)], ..batch(0, true, Vec::new()) });
    feed.give(Instant::now());
    assert!(Regex::is_in_use(source), "the first table waits for other kinds");
    for number in 1..WHOLE.len() {
        feed.take(batch(number, true, Vec::new()));
    }
    feed.give(Instant::now());
    assert!(!Regex::is_in_use(source));
}

#[tokio::test]
async fn one_table_for_all_batches_that_are_ready_and_none_for_nothing() {
    let (sender, batches) = channel();
    let (updates, mut published) = mpsc::channel(16);
    for number in 0..WHOLE.len() {
        sender.send(batch(number, true, Vec::new())).await.unwrap();
    }
    for name in ["a", "b", "c"] {
        sender.send(batch(0, true, vec![Change::Apply(invalid(name))])).await.unwrap();
    }
    let gone = Change::Delete(Kind::Selector, ObjectName::new("n", "b"));
    sender.send(batch(0, true, vec![gone])).await.unwrap();
    let named = named(&sender, WHOLE.len());
    let task = tokio::spawn(run(index(), WHOLE.to_vec(), batches, updates, (links(), named)));
    let mut last = Arc::default();
    while let Ok(Some(Update::Table { fragment, .. })) =
        tokio::time::timeout(Duration::from_secs(1), published.recv()).await
    {
        last = fragment;
        if names(&last) == ["a", "c"] {
            break;
        }
    }
    assert_eq!(names(&last), ["a", "c"]);
    let labels = Content::Namespace(std::collections::BTreeMap::new());
    let unrelated = Object { name: ObjectName::new("", "elsewhere"), content: labels };
    sender.send(batch(5, true, vec![Change::Apply(unrelated)])).await.unwrap();
    drop(sender);
    task.await.unwrap();
    assert!(published.recv().await.is_none(), "a table for nothing");
}

/// A Selector of a host whose certificate is in a Secret.
fn with_secret(name: &str, secret: &str) -> Change {
    let selector = json!({
        "apiVersion": "lockgate.dev/v1alpha1",
        "kind": "Selector",
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"hostnames": [format!("{name}.test")], "tls": {"secretName": secret}},
    });
    Change::Apply(serde_json::from_value::<crate::api::Selector>(selector).unwrap().into())
}

struct Fixture {
    server: mock::Server,
    sender: mpsc::Sender<Batch>,
    published: mpsc::Receiver<Update>,
    links: Links,
}

/// A source of which everything that is watched as a whole has been listed, with these Selectors.
async fn listed(selectors: Vec<Change>) -> Fixture {
    let (sender, batches) = channel();
    let (updates, published) = mpsc::channel(16);
    let (client, server) = mock::pair();
    let links = links();
    let named = Named::new(client, &sender, links.clone(), WHOLE.len());
    tokio::spawn(run(index(), WHOLE.to_vec(), batches, updates, (links.clone(), named)));
    sender.send(batch(0, true, selectors)).await.unwrap();
    for number in 1..WHOLE.len() {
        sender.send(batch(number, true, Vec::new())).await.unwrap();
    }
    Fixture { server, sender, published, links }
}

impl Fixture {
    /// What the next table says of the references of a Selector.
    async fn resolved(&mut self, name: &str) -> String {
        let Some(Update::Table { fragment, .. }) = self.published.recv().await else { panic!("no table") };
        let verdict = fragment.verdicts.iter().find(|verdict| &*verdict.object.name == name).unwrap();
        verdict.resolved_refs.message.clone()
    }
}

fn secret(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "n", "uid": "u"}, "type": "Opaque"})
}

#[tokio::test(start_paused = true)]
async fn secrets_are_watched_by_name_and_the_first_table_waits_for_them() {
    let mut fixture = listed(vec![with_secret("a", "s"), with_secret("b", "t")]).await;
    let (first, second) = (fixture.server.list().await, fixture.server.list().await);
    for (list, name) in [(&first, "s"), (&second, "t")] {
        assert_eq!(list.path, "/api/v1/namespaces/n/secrets");
        assert!(list.query.contains(&format!("fieldSelector=metadata.name%3D{name}")), "{}", list.query);
    }
    first.items("1", &[secret("s")]);
    tokio::task::yield_now().await;
    assert!(fixture.published.try_recv().is_err());
    assert_eq!(fixture.links.health.pending(), NAMED);
    // One that may not be read holds nothing up, and costs its own hosts.
    second.fail(403, "Forbidden", 0);
    let Some(Update::Table { fragment, .. }) = fixture.published.recv().await else { panic!("no table") };
    let messages: Vec<&str> = fragment.verdicts.iter().map(|verdict| &*verdict.resolved_refs.message).collect();
    assert!(messages[0].contains("Secret n/s is of type Opaque"), "{messages:?}");
    assert!(messages[1].contains("may not read Secret n/t"), "{messages:?}");
    assert_eq!(fixture.links.health.pending(), []);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_nobody_answers_for_is_not_waited_for_for_ever() {
    let mut fixture = listed(vec![with_secret("a", "s")]).await;
    let begun = Time::now();
    let _unanswered = fixture.server.list().await;
    assert!(fixture.resolved("a").await.contains("Secret n/s does not exist"));
    assert!((FIRST_PATIENCE..FIRST_PATIENCE * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_table_waits_for_a_secret_that_is_named_anew_and_the_former_is_let_go() {
    let mut fixture = listed(vec![with_secret("a", "s")]).await;
    fixture.server.list().await.items("1", &[secret("s")]);
    assert!(fixture.resolved("a").await.contains("Secret n/s is of type"));
    let former = fixture.server.watch("1").await;
    fixture.sender.send(batch(0, true, vec![with_secret("a", "t")])).await.unwrap();
    let new = fixture.server.list().await;
    assert!(former.is_given_up(), "the former Secret is not watched any more");
    tokio::task::yield_now().await;
    assert!(fixture.published.try_recv().is_err(), "no table without the certificate");
    new.items("1", &[secret("t")]);
    assert!(fixture.resolved("a").await.contains("Secret n/t is of type"));
}
