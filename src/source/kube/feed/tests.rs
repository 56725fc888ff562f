use std::sync::Arc;

use super::*;
use crate::ir::{Fragment, Kind as Subject, Regex};
use crate::source::index::{Content, HostBackends, Settings};
use crate::source::translate::prepare;

fn index() -> Index {
    Index::new(Settings {
        class_name: "lockgate".to_owned(),
        listeners: Vec::new(),
        host_backends: HostBackends::Never,
    })
}

fn links() -> Links {
    Links { hooks: Arc::new(()), health: Arc::default(), statuses: Arc::default() }
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
    let watches: Vec<Kind> = KINDS.into_iter().chain(KINDS).collect();
    let links = links();
    let task = tokio::spawn(run(index(), watches.clone(), batches, updates, links.clone()));
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
    let spec = serde_json::json!({
        "selectors": [{"name": "s"}],
        "rules": [{"matches": [{"path": {"type": "Regex", "value": source}}]}],
    });
    let origin = crate::ir::Origin { created: 0, object: ObjectName::new("n", "a") };
    let spec = serde_json::from_value(spec).unwrap();
    let route = crate::source::translate::RouteSubject { origin, generation: 1, spec };
    let watches = KINDS.to_vec();
    let pending = watches.iter().copied().enumerate().collect();
    let mut feed = Feed { index: index(), watches, pending, links: links(), prepared: Vec::new(), complete: false };
    feed.take(Batch { prepared: vec![prepare::route(&route)], ..batch(0, true, Vec::new()) });
    feed.give(Instant::now());
    assert!(Regex::is_in_use(source), "the first table waits for other kinds");
    for number in 1..KINDS.len() {
        feed.take(batch(number, true, Vec::new()));
    }
    feed.give(Instant::now());
    assert!(!Regex::is_in_use(source));
}

#[tokio::test]
async fn one_table_for_all_batches_that_are_ready_and_none_for_nothing() {
    let (sender, batches) = channel();
    let (updates, mut published) = mpsc::channel(16);
    for number in 0..KINDS.len() {
        sender.send(batch(number, true, Vec::new())).await.unwrap();
    }
    for name in ["a", "b", "c"] {
        sender.send(batch(0, true, vec![Change::Apply(invalid(name))])).await.unwrap();
    }
    let gone = Change::Delete(Kind::Selector, ObjectName::new("n", "b"));
    sender.send(batch(0, true, vec![gone])).await.unwrap();
    let task = tokio::spawn(run(index(), KINDS.to_vec(), batches, updates, links()));
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
