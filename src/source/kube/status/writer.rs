//! The queue of objects whose status may differ from what it should be, and the writes.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Client, Resource};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::events::{Events, Notice, Told, notices};
use super::plan::plan;
use super::{Key, Links, Seen, Statuses, shadows_of, verdicts_of};
use crate::api::{Route, Selector};
use crate::ir::{Kind, Served};
use crate::source::kube::addresses::Known;
use crate::source::kube::{Failure, Hooks, controller_name, with_causes};

/// How many writes run at a time.
const CONCURRENT: usize = 8;
/// The shortest time between the beginnings of two writes.
const SPACING: Duration = Duration::from_millis(5);
/// How long one write may take.
const REQUEST: Duration = Duration::from_secs(10);
/// After a failure a write is tried again after this, doubled each time up to [`RETRY_MAX`], less up to half at random.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);
/// Writing the same again, because another writer overwrote it, waits longer each time, up to this.
const REPEAT_MAX: Duration = Duration::from_mins(5);
/// After this long without a write, writing the same again counts as the first time.
const REPEAT_FORGET: Duration = Duration::from_mins(15);

/// The writer. Knows which objects to look at; what they should say it asks of what is served each time.
pub(super) struct Writer {
    client: Client,
    controller: String,
    statuses: Arc<Statuses>,
    hooks: Arc<dyn Hooks>,
    /// Where Events go, if any are written.
    events: Option<Events>,
    /// The gateway's own.
    addresses: Known,
    served: Option<Arc<Served>>,
    leading: bool,
    queue: VecDeque<Key>,
    queued: HashSet<Key>,
    /// Objects to look at later, by when.
    delayed: BTreeMap<(Instant, u64), Key>,
    sequence: u64,
    writing: HashSet<Key>,
    writes: JoinSet<Done>,
    next_write: Instant,
    failures: HashMap<Key, u32>,
    history: HashMap<Key, Written>,
}

/// The last write of an object's status.
struct Written {
    content: u64,
    at: Instant,
    /// How often the same was written in a row.
    times: u32,
}

struct Done {
    key: Key,
    uid: String,
    /// What is to be told once it is written.
    notices: Vec<Notice>,
    result: Result<Seen, (Failure, String)>,
}

impl Writer {
    pub(super) fn new(client: Client, class: &str, links: Links, events: Option<Events>) -> Self {
        Self {
            client,
            controller: controller_name(class),
            statuses: links.statuses,
            hooks: links.hooks,
            events,
            addresses: None,
            served: None,
            leading: false,
            queue: VecDeque::new(),
            queued: HashSet::new(),
            delayed: BTreeMap::new(),
            sequence: 0,
            writing: HashSet::new(),
            writes: JoinSet::new(),
            next_write: Instant::now(),
            failures: HashMap::new(),
            history: HashMap::new(),
        }
    }

    pub(super) async fn run(
        mut self,
        mut served: watch::Receiver<Option<Arc<Served>>>,
        mut leading: watch::Receiver<bool>,
        mut addresses: watch::Receiver<Known>,
    ) {
        let statuses = Arc::clone(&self.statuses);
        let mut may_move = true;
        self.addresses.clone_from(&addresses.borrow_and_update());
        self.serve(served.borrow_and_update().clone());
        self.lead(*leading.borrow_and_update());
        loop {
            self.start_writes();
            let wake = self.wake();
            tokio::select! {
                changed = leading.changed() => {
                    if changed.is_err() { return }
                    self.lead(*leading.borrow_and_update());
                }
                changed = served.changed() => {
                    if changed.is_err() { return }
                    self.serve(served.borrow_and_update().clone());
                }
                changed = addresses.changed(), if may_move => {
                    may_move = changed.is_ok();
                    let addresses = addresses.borrow_and_update().clone();
                    self.reached_at(addresses);
                }
                () = statuses.changed() => {
                    for key in statuses.take_changed() {
                        self.enqueue(key);
                    }
                }
                Some(done) = self.writes.join_next(), if !self.writes.is_empty() => match done {
                    Ok(done) => self.done(done),
                    Err(error) => debug!(%error, "a status write was given up"),
                },
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    fn lead(&mut self, leading: bool) {
        self.leading = leading;
        self.queue.clear();
        self.queued.clear();
        self.delayed.clear();
        self.failures.clear();
        self.history.clear();
        if leading {
            self.statuses.keys().into_iter().for_each(|key| self.enqueue(key));
        } else {
            self.writes.abort_all();
            self.writes = JoinSet::new();
            self.writing.clear();
        }
    }

    /// Takes a new fragment and looks at the objects whose verdicts or shadows differ from before.
    fn serve(&mut self, served: Option<Arc<Served>>) {
        let before = std::mem::replace(&mut self.served, served.clone());
        let (Some(served), true) = (served, self.leading) else { return };
        let before = before.as_deref();
        let old = before.map_or(&[][..], |before| &before.fragment.verdicts);
        for verdict in differing(old, &served.fragment.verdicts) {
            self.enqueue((verdict.kind, verdict.object.clone()));
        }
        let old = before.map_or(&[][..], |before| &before.shadowed);
        for shadowed in differing(old, &served.shadowed) {
            self.enqueue((shadowed.kind, shadowed.object.clone()));
        }
        let now = Instant::now();
        self.history.retain(|_, written| now.saturating_duration_since(written.at) < REPEAT_FORGET);
    }

    /// The gateway's addresses are others.
    fn reached_at(&mut self, addresses: Known) {
        self.addresses = addresses;
        let keys = self.statuses.keys().into_iter().filter(|(kind, _)| *kind == Kind::Selector);
        keys.for_each(|key| self.enqueue(key));
    }

    fn enqueue(&mut self, key: Key) {
        if self.leading && self.queued.insert(key.clone()) {
            self.queue.push_back(key);
        }
    }

    fn delay(&mut self, key: Key, until: Instant) {
        self.sequence += 1;
        self.delayed.insert((until, self.sequence), key);
    }

    /// When there is something to do without being told.
    fn wake(&self) -> Option<Instant> {
        let next = (!self.queue.is_empty() && self.writes.len() < CONCURRENT).then_some(self.next_write);
        let delayed = self.delayed.first_key_value().map(|((until, _), _)| *until);
        [next, delayed].into_iter().flatten().min()
    }

    fn start_writes(&mut self) {
        let now = Instant::now();
        while let Some(entry) = self.delayed.first_entry()
            && entry.key().0 <= now
        {
            let key = entry.remove();
            self.enqueue(key);
        }
        while self.writes.len() < CONCURRENT && self.next_write <= now {
            let Some(key) = self.queue.pop_front() else { break };
            self.queued.remove(&key);
            // What changes while an object is written is looked at again when the write is done.
            if !self.writing.contains(&key) && self.start_write(&key, now) {
                self.writing.insert(key);
                self.next_write = now + SPACING;
            }
        }
    }

    /// Begins to write an object's status if it should differ. Returns whether it began.
    fn start_write(&mut self, key: &Key, now: Instant) -> bool {
        let Some(served) = &self.served else { return false };
        let verdicts = verdicts_of(&served.fragment, key.0, &key.1);
        let shadows = shadows_of(served, key.0, &key.1);
        let time = Time(Timestamp::now());
        let planned = self.statuses.with(key, |seen| {
            let status = plan(verdicts, shadows, seen, (&self.controller, self.addresses.as_deref()), &time)?;
            let told = self.events.as_ref().map(|_| notices(&seen.status, &status, &self.controller));
            Some((seen.uid.clone(), status, told.unwrap_or_default()))
        });
        let Some(Some((uid, status, notices))) = planned else {
            self.failures.remove(key);
            return false;
        };
        let status = match serde_json::to_value(&status) {
            Ok(status) => status,
            Err(error) => {
                warn!(kind = %key.0, object = %key.1, %error, "a status cannot be encoded");
                return false;
            }
        };
        if let Err(until) = self.admit(key, &status, now) {
            self.delay(key.clone(), until);
            return false;
        }
        let write = write(self.client.clone(), key.clone(), uid.clone(), status, self.controller.clone());
        let key = key.clone();
        self.writes.spawn(async move { Done { key, uid, notices, result: write.await } });
        true
    }

    /// Whether a status may be written now, or else when. Slows down only what is written again and again.
    fn admit(&mut self, key: &Key, status: &Value, now: Instant) -> Result<(), Instant> {
        let content = content(status);
        let last = self.history.get(key).filter(|last| last.content == content);
        let last = last.filter(|last| now.saturating_duration_since(last.at) < REPEAT_FORGET);
        let times = last.map_or(0, |last| last.times);
        if let Some(last) = last.filter(|last| last.times >= 2) {
            let wait = Duration::from_secs(1).saturating_mul(1 << last.times.min(16)).min(REPEAT_MAX);
            if last.at + wait > now {
                return Err(last.at + wait);
            }
        }
        if times == 3 {
            warn!(kind = %key.0, object = %key.1, "somebody else overwrites this status again and again");
        }
        self.history.insert(key.clone(), Written { content, at: now, times: times.saturating_add(1) });
        Ok(())
    }

    fn done(&mut self, Done { key, uid, notices, result }: Done) {
        self.writing.remove(&key);
        match result {
            Ok(seen) => {
                if let Some(events) = &self.events {
                    events.tell(Told { key: key.clone(), uid, notices });
                }
                self.hooks.status_write(Ok(()));
                self.failures.remove(&key);
                self.statuses.written(&key, seen);
                self.enqueue(key);
            }
            Err((failure, error)) => {
                self.hooks.status_write(Err(failure));
                self.history.remove(&key);
                let failures = self.failures.entry(key.clone()).or_insert(0);
                *failures += 1;
                let (first, shift) = (*failures == 1, (*failures - 1).min(10));
                match failure {
                    // The watch will say that it is gone.
                    Failure::Absent => debug!(kind = %key.0, object = %key.1, "gone before its status was written"),
                    Failure::Denied if first => warn!(
                        kind = %key.0, object = %key.1, %error,
                        "missing permission: patch {}/status in namespace {}", plural(key.0), key.1.namespace
                    ),
                    Failure::Invalid if first => {
                        warn!(kind = %key.0, object = %key.1, %error, "the API server refuses a status; is the CRD old?");
                    }
                    _ => debug!(kind = %key.0, object = %key.1, %error, "a status could not be written"),
                }
                let wait = RETRY.saturating_mul(1 << shift).min(RETRY_MAX);
                self.delay(key, Instant::now() + wait.mul_f64(1.0 - fastrand::f64() / 2.0));
            }
        }
    }
}

/// What stands in only one of two sorted lists.
fn differing<'a, T: Ord>(old: &'a [T], new: &'a [T]) -> Vec<&'a T> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    let mut differing = Vec::new();
    loop {
        match (old.peek(), new.peek()) {
            (None, None) => return differing,
            (Some(a), Some(b)) if a == b => {
                old.next();
                new.next();
            }
            (Some(a), Some(b)) if a < b => differing.extend(old.next()),
            (Some(_), None) => differing.extend(old.next()),
            _ => differing.extend(new.next()),
        }
    }
}

/// What a status says, without its times.
fn content(status: &Value) -> u64 {
    fn walk(value: &Value, hasher: &mut DefaultHasher) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields.iter().filter(|(name, _)| *name != "lastTransitionTime") {
                    name.hash(hasher);
                    walk(value, hasher);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, hasher)),
            other => other.to_string().hash(hasher),
        }
    }
    let mut hasher = DefaultHasher::new();
    walk(status, &mut hasher);
    hasher.finish()
}

/// The kind as the API server knows it.
pub(super) fn api_resource(kind: Kind) -> ApiResource {
    match kind {
        Kind::Selector => ApiResource::erase::<Selector>(&()),
        Kind::Route => ApiResource::erase::<Route>(&()),
    }
}

fn plural(kind: Kind) -> String {
    match kind {
        Kind::Selector => format!("{}.{}", Selector::plural(&()), Selector::group(&())),
        Kind::Route => format!("{}.{}", Route::plural(&()), Route::group(&())),
    }
}

/// One write. The uid keeps a status from an object that took the place of the one judged.
async fn write(
    client: Client,
    key: Key,
    uid: String,
    status: Value,
    manager: String,
) -> Result<Seen, (Failure, String)> {
    let (kind, object) = &key;
    let resource = api_resource(*kind);
    let patch = Patch::Apply(json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"namespace": object.namespace, "name": object.name, "uid": uid},
        "status": status,
    }));
    let api: Api<DynamicObject> = Api::namespaced_with(client, &object.namespace, &resource);
    // Undecodable objects get a status too, hence no typed object.
    let params = PatchParams::apply(&manager).force();
    let request = api.patch_status(&object.name, &params, &patch);
    match tokio::time::timeout(REQUEST, request).await {
        Ok(Ok(answer)) => Ok(Seen::new(*kind, &answer.metadata, Vec::new(), answer.data.get("status"))),
        Ok(Err(error)) => Err((Failure::of(&error), with_causes(&error))),
        Err(_) => Err((Failure::Timeout, Failure::Timeout.to_string())),
    }
}

#[cfg(test)]
mod tests;
