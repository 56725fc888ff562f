//! Events on objects that are refused, and when they are mended.
//!
//! An Event is made of what a write of a status changed, so what stands in the status is the memory that keeps a restart, or
//! another holder of the Lease, from saying everything again. kube's own recorder takes two Events of one reason for the same
//! whatever they say, and keeps as many as come.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::Key;
use super::statuses::Status;
use super::writer::api_resource;
use crate::api::{condition, reason};
use crate::source::kube::{EventOutcome, Failure, Hooks, with_causes};

/// How many may wait.
const QUEUE: usize = 256;
/// The shortest time between two.
const SPACING: Duration = Duration::from_millis(100);
/// How long one write may take.
const REQUEST: Duration = Duration::from_secs(10);
/// The same, said again within this time, counts up the one there is: the time of all clients of the API.
const SERIES: Duration = Duration::from_mins(6);
/// How many an object may have at once; one more comes back each [`REFILL`].
const BURST: u32 = 10;
const REFILL: Duration = Duration::from_secs(30);
/// How many objects and Events are remembered.
const REMEMBERED: usize = 4096;
/// The longest note that the API takes, in bytes.
const MAX_NOTE: usize = 1024;

/// What is to be told of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Notice {
    pub(super) is_warning: bool,
    pub(super) reason: String,
    pub(super) note: String,
}

/// Notices about one object.
pub(super) struct Told {
    pub(super) key: Key,
    pub(super) uid: String,
    pub(super) notices: Vec<Notice>,
}

/// What a write of a status changed that is worth telling.
pub(super) fn notices(before: &Status, after: &Status, controller: &str) -> Vec<Notice> {
    match (before, after) {
        (Status::Selector(before), Status::Selector(after)) => changes(&before.conditions, &after.conditions).collect(),
        (Status::Route(before), Status::Route(after)) => {
            // The same at several Selectors is told once.
            let mut told: BTreeMap<(String, String), (bool, Vec<String>)> = BTreeMap::new();
            for entry in &after.selectors {
                let stands = before.selectors.iter().find(|stands| {
                    stands.controller_name == controller
                        && stands.namespace == entry.namespace
                        && stands.name == entry.name
                });
                for notice in changes(stands.map_or(&[], |stands| &stands.conditions), &entry.conditions) {
                    let places = told.entry((notice.reason, notice.note)).or_insert((notice.is_warning, Vec::new()));
                    places.1.push(format!("{}/{}", entry.namespace, entry.name));
                }
            }
            let notice = |((reason, note), (is_warning, places)): ((String, String), (bool, Vec<String>))| Notice {
                is_warning,
                reason,
                note: format!("at Selector {}: {note}", places.join(", ")),
            };
            told.into_iter().map(notice).collect()
        }
        _ => Vec::new(),
    }
}

fn changes<'a>(before: &'a [Condition], after: &'a [Condition]) -> impl Iterator<Item = Notice> + 'a {
    let is_told = |c: &&Condition| [condition::ACCEPTED, condition::RESOLVED_REFS].contains(&c.type_.as_str());
    after.iter().filter(is_told).filter_map(|now| {
        let was = before.iter().find(|condition| condition.type_ == now.type_);
        let was_refused = was.filter(|was| was.status == "False");
        if now.status == "False" {
            let is_new = was_refused.is_none_or(|was| was.reason != now.reason || was.message != now.message);
            // Asked for, and no refusal.
            let is_warning = now.reason != reason::SUSPENDED;
            return is_new.then(|| Notice { is_warning, reason: now.reason.clone(), note: now.message.clone() });
        }
        let was = was_refused.filter(|_| now.status == "True")?;
        let note = format!("{} is true again; it was not, with the reason {}", now.type_, was.reason);
        Some(Notice { is_warning: false, reason: now.reason.clone(), note })
    })
}

/// Hands notices over to the one who writes Events.
pub(super) struct Events {
    queue: mpsc::Sender<Told>,
    hooks: Arc<dyn Hooks>,
}

impl Events {
    /// Starts the one who writes them while `leading` is true, under this name of a controller and this of a pod.
    pub(super) fn start(
        client: Client,
        (controller, instance): (&str, &str),
        leading: watch::Receiver<bool>,
        hooks: Arc<dyn Hooks>,
    ) -> Self {
        let (queue, received) = mpsc::channel(QUEUE);
        let recorder = Recorder {
            client,
            controller: controller.to_owned(),
            instance: instance.to_owned(),
            hooks: Arc::clone(&hooks),
            series: HashMap::new(),
            allowances: HashMap::new(),
            is_failing: false,
        };
        tokio::spawn(recorder.run(received, leading));
        Self { queue, hooks }
    }

    /// Hands over, or drops, for nothing waits for Events.
    pub(super) fn tell(&self, told: Told) {
        let count = told.notices.len();
        if count > 0 && self.queue.try_send(told).is_err() {
            (0..count).for_each(|_| self.hooks.event_write(EventOutcome::Dropped));
        }
    }
}

/// An Event that was written.
struct Series {
    name: String,
    count: i32,
    at: Instant,
}

/// How many Events an object may still have.
struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        let back = now.saturating_duration_since(self.since).as_secs() / REFILL.as_secs();
        let back = u32::try_from(back).unwrap_or(u32::MAX);
        if back > 0 {
            self.left = self.left.saturating_add(back).min(BURST);
            self.since += REFILL.saturating_mul(back);
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

struct Recorder {
    client: Client,
    controller: String,
    instance: String,
    hooks: Arc<dyn Hooks>,
    series: HashMap<(String, Notice), Series>,
    /// By uid.
    allowances: HashMap<String, Allowance>,
    is_failing: bool,
}

impl Recorder {
    async fn run(mut self, mut queue: mpsc::Receiver<Told>, leading: watch::Receiver<bool>) {
        while let Some(Told { key, uid, notices }) = queue.recv().await {
            for notice in notices {
                if !*leading.borrow() || !self.may(&uid) {
                    self.hooks.event_write(EventOutcome::Dropped);
                    continue;
                }
                self.record(&key, &uid, notice).await;
                tokio::time::sleep(SPACING).await;
            }
        }
    }

    fn may(&mut self, uid: &str) -> bool {
        let now = Instant::now();
        if self.allowances.len() >= REMEMBERED && !self.allowances.contains_key(uid) {
            let whole = REFILL.saturating_mul(BURST);
            self.allowances.retain(|_, allowance| now.saturating_duration_since(allowance.since) < whole);
            if self.allowances.len() >= REMEMBERED {
                return false;
            }
        }
        let allowance = self.allowances.entry(uid.to_owned()).or_insert(Allowance { left: BURST, since: now });
        allowance.take(now)
    }

    async fn record(&mut self, key: &Key, uid: &str, notice: Notice) {
        let now = Instant::now();
        if self.series.len() >= REMEMBERED {
            self.series.retain(|_, series| now.saturating_duration_since(series.at) < SERIES);
        }
        let api: Api<Event> = Api::namespaced(self.client.clone(), &key.1.namespace);
        let same = (uid.to_owned(), notice);
        let known = self.series.get(&same).filter(|series| now.saturating_duration_since(series.at) < SERIES);
        let known = known.map(|series| (series.name.clone(), series.count.saturating_add(1)));
        let request = async {
            // One that somebody deleted meanwhile is made anew.
            if let Some((name, count)) = &known {
                let series = EventSeries { count: *count, last_observed_time: MicroTime(Timestamp::now()) };
                let patch = Patch::Merge(json!({ "series": series }));
                match api.patch(name, &PatchParams::default(), &patch).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    result => return result.map(|_| (name.clone(), *count)),
                }
            }
            let event = self.event(key, uid, &same.1);
            let name = event.metadata.name.clone().unwrap_or_default();
            api.create(&PostParams::default(), &event).await.map(|_| (name, 1))
        };
        let failed = match tokio::time::timeout(REQUEST, request).await {
            Ok(Ok((name, count))) => {
                self.is_failing = false;
                self.hooks.event_write(EventOutcome::Written);
                self.series.insert(same, Series { name, count, at: now });
                return;
            }
            Ok(Err(error)) if is_terminating(&error) => {
                debug!(kind = %key.0, object = %key.1, "no Event, for its namespace is on its way out");
                return;
            }
            Ok(Err(error)) => (Failure::of(&error), with_causes(&error)),
            Err(_) => (Failure::Timeout, Failure::Timeout.to_string()),
        };
        self.hooks.event_write(EventOutcome::Failed);
        let (failure, error) = failed;
        let namespace = &key.1.namespace;
        if failure == Failure::Denied && !std::mem::replace(&mut self.is_failing, true) {
            warn!(%error, "missing permission: create and patch events.events.k8s.io in namespace {namespace}");
        } else {
            debug!(kind = %key.0, object = %key.1, %error, "an Event could not be written");
        }
    }

    fn event(&self, (kind, object): &Key, uid: &str, notice: &Notice) -> Event {
        let resource = api_resource(*kind);
        let now = Timestamp::now();
        let text = |text: &str| Some(text.to_owned());
        // The API limits what it puts together of object and time.
        let stem = &object.name[..object.name.floor_char_boundary(230)];
        Event {
            metadata: ObjectMeta {
                namespace: text(&object.namespace),
                name: Some(format!("{stem}.{:x}", now.as_nanosecond())),
                ..ObjectMeta::default()
            },
            regarding: Some(ObjectReference {
                api_version: Some(resource.api_version),
                kind: Some(resource.kind),
                namespace: text(&object.namespace),
                name: text(&object.name),
                uid: text(uid),
                ..ObjectReference::default()
            }),
            type_: text(if notice.is_warning { "Warning" } else { "Normal" }),
            reason: Some(notice.reason.clone()),
            action: text("Translate"),
            note: text(&notice.note[..notice.note.floor_char_boundary(MAX_NOTE)]),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: text(&self.instance[..self.instance.floor_char_boundary(128)]),
            ..Event::default()
        }
    }
}

/// Whether nothing can be created any more where that was tried. The API server says "forbidden" to it, and no right would
/// change that.
fn is_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests;
