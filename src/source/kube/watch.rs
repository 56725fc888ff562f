//! One watch: lists a kind, follows its changes and survives whatever the API server does.
//!
//! kube's watcher does the protocol. Added here: back-off that starts over only when data came (a list about to be
//! tried is no success), a fresh list where the watcher would ask forever for a position that is gone, kinds that are
//! not installed, and the comparison with what was known, so that a list replaces the set in one step.

mod backoff;
mod kinds;
mod named;
mod once;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Client;
use kube::runtime::watcher::{self, Config, Event};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

pub(super) use self::named::Named;
pub use self::once::{ListError, list};

use self::backoff::Backoff;
use self::kinds::{Observed, Reduced, Version};
use super::feed::{Batch, Change};
use super::guard::Guard;
use super::health::Pulse;
use super::tap::Tap;
use super::{Failure, Links, label, with_causes};
use crate::api::{ReferenceGrant, Route, Selector};
use crate::ir::ObjectName;
use crate::source::index::{Content, Kind, Object};
use crate::source::translate::prepare::{self, Prepared};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// How long the API server is asked to keep a watch, in seconds. With its idle deadline of five seconds more, kube's
/// watcher notices a dead one within five minutes even where everything else fails to.
const WATCH_SECONDS: u32 = 240;
/// How many objects a list returns at a time.
const PAGE: u32 = 500;
/// How often it is looked whether an optional kind has been installed.
const OPTIONAL: Duration = Duration::from_secs(10);
/// How often an object is read that cannot be watched.
const READ: Duration = Duration::from_secs(10);
/// How long an optional kind must be gone before its objects count as gone: not on one odd answer.
const GRACE: Duration = Duration::from_secs(30);
/// The longest wait that the API server can ask for.
const PATIENCE: Duration = Duration::from_secs(4);

/// Starts the watches of every kind in every scope; returns their kinds, by the number they send batches under.
pub(super) fn spawn_all(
    tasks: &mut JoinSet<()>,
    client: &Client,
    namespaces: &[String],
    batches: &mpsc::Sender<Batch>,
    links: &Links,
) -> Vec<Kind> {
    let scopes = if namespaces.is_empty() { vec![None] } else { namespaces.iter().cloned().map(Some).collect() };
    let mut kinds = Vec::new();
    for scope in scopes {
        let mut spawner = Spawner { tasks: &mut *tasks, client, scope, batches, links, kinds: &mut kinds };
        spawner.spawn::<Route>();
        spawner.spawn::<Selector>();
        spawner.spawn::<Service>();
        spawner.spawn::<EndpointSlice>();
        spawner.spawn::<Namespace>();
        spawner.spawn::<ReferenceGrant>();
    }
    kinds
}

struct Spawner<'a> {
    tasks: &'a mut JoinSet<()>,
    client: &'a Client,
    scope: Option<String>,
    batches: &'a mpsc::Sender<Batch>,
    links: &'a Links,
    kinds: &'a mut Vec<Kind>,
}

impl Spawner<'_> {
    fn spawn<K: Observed>(&mut self) {
        let scope = Scope { namespace: self.scope.clone(), name: None };
        let watch = Watch::<K>::new(self.kinds.len(), self.client, scope, self.batches.clone(), self.links);
        self.kinds.push(K::KIND);
        self.tasks.spawn(watch.run());
    }
}

/// What of a kind is watched.
#[derive(Clone, Debug)]
struct Scope {
    /// The namespace; `None` for all.
    namespace: Option<String>,
    /// The one object; `None` for all.
    name: Option<String>,
}

impl<K: Observed> Watch<K> {
    fn new(number: usize, client: &Client, scope: Scope, batches: mpsc::Sender<Batch>, links: &Links) -> Self {
        let pulse = links.health.pulse(K::KIND);
        let Scope { namespace, name } = scope;
        Self {
            number,
            client: Tap::client(client, K::KIND, Arc::clone(&pulse)),
            scope: namespace,
            name,
            batches,
            links: links.clone(),
            pulse,
            known: HashMap::new(),
            listing: Vec::new(),
            listed: false,
            backoff: Backoff::default(),
            failing: None,
            off_since: None,
            stands_in: false,
            _kind: std::marker::PhantomData,
        }
    }
}

/// How to go on after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// As kube's watcher does.
    Resume(Duration),
    /// With a list.
    Relist(Duration),
}

/// Nobody receives batches any more.
struct Closed;

struct Watch<K: Observed> {
    number: usize,
    client: Client,
    /// The namespace; `None` for all.
    scope: Option<String>,
    /// The one object that is watched; `None` for all.
    name: Option<String>,
    batches: mpsc::Sender<Batch>,
    links: Links,
    pulse: Arc<Pulse>,
    /// What the index knows of this kind and scope.
    known: HashMap<ObjectName, Version>,
    /// The list that is being read.
    listing: Vec<Reduced>,
    listed: bool,
    backoff: Backoff,
    failing: Option<Failure>,
    /// Since when an optional kind is found not to be there.
    off_since: Option<Instant>,
    /// Whether the index was told that the one object may not be read.
    stands_in: bool,
    _kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: Observed> Watch<K> {
    async fn run(mut self) {
        if let Some(name) = K::read(self.scope.as_deref()).map(str::to_owned) {
            return self.read(&name).await;
        }
        loop {
            let config = match &self.name {
                Some(name) => Config::default().fields(&format!("metadata.name={name}")),
                None => K::config(self.scope.as_deref()),
            };
            let config = config.timeout(WATCH_SECONDS).page_size(PAGE);
            let mut events = pin!(watcher::watcher(K::api(&self.client, self.scope.as_deref()), config));
            while let Some(event) = events.next().await {
                let next = match event {
                    Ok(event) => self.event(event).await.map(|()| Next::Resume(Duration::ZERO)),
                    Err(error) => self.failed(Trouble::of(error)).await,
                };
                match next {
                    Err(Closed) => return,
                    Ok(Next::Resume(Duration::ZERO)) => {}
                    Ok(Next::Resume(pause)) => tokio::time::sleep(pause).await,
                    Ok(Next::Relist(pause)) => {
                        tokio::time::sleep(pause).await;
                        break;
                    }
                }
            }
        }
    }

    /// Reads one object again and again.
    async fn read(mut self, name: &str) {
        let api = K::api(&self.client, self.scope.as_deref());
        loop {
            let done = match api.get(name).await {
                Ok(object) => {
                    self.backoff.reset();
                    self.pulse.set_healthy(true);
                    self.listing = vec![K::reduce(object)];
                    self.list().await.map(|()| Next::Resume(READ))
                }
                Err(error) => self.failed(Trouble::with("get", &error)).await,
            };
            match done {
                Err(Closed) => return,
                Ok(Next::Resume(pause) | Next::Relist(pause)) => tokio::time::sleep(pause).await,
            }
        }
    }

    async fn event(&mut self, event: Event<Guard<K>>) -> Result<(), Closed> {
        if !matches!(event, Event::Init) {
            self.backoff.reset();
        }
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(guard) => self.listing.push(K::reduce(guard)),
            Event::InitDone => return self.list().await,
            Event::Apply(guard) => {
                self.links.hooks.event(K::KIND);
                return self.apply(K::reduce(guard)).await;
            }
            Event::Delete(guard) => {
                self.links.hooks.event(K::KIND);
                let name = K::reduce(guard).name;
                self.known.remove(&name);
                let change = self.gone(name);
                return self.send(vec![change]).await;
            }
        }
        Ok(())
    }

    /// Replaces the set by the one just read, in one batch of differences.
    async fn list(&mut self) -> Result<(), Closed> {
        self.listed = true;
        self.off_since = None;
        let listing = std::mem::take(&mut self.listing);
        let mut before = std::mem::replace(&mut self.known, HashMap::with_capacity(listing.len()));
        let mut changes = Vec::new();
        for object in listing {
            let unchanged = before.remove(&object.name).is_some_and(|version| version.same_object(&object.version));
            self.known.insert(object.name.clone(), object.version.clone());
            if !unchanged {
                warn_undecodable(K::KIND, &object);
            }
            let change = self.note(object);
            if !unchanged {
                changes.push(change);
            }
        }
        changes.extend(before.into_keys().map(|name| self.gone(name)));
        // What stood in for the one object goes where there is no such object.
        if std::mem::take(&mut self.stands_in)
            && let Some(name) = self.own_name().filter(|name| !self.known.contains_key(name))
        {
            changes.push(Change::Delete(K::KIND, name));
        }
        self.send(changes).await
    }

    async fn apply(&mut self, object: Reduced) -> Result<(), Closed> {
        let before = self.known.insert(object.name.clone(), object.version.clone());
        // A status written by us comes back as an event; only a new generation concerns the table.
        let status_only = before.is_some_and(|version| version.same_spec(&object.version));
        if !status_only {
            warn_undecodable(K::KIND, &object);
        }
        let change = self.note(object);
        if status_only { Ok(()) } else { self.send(vec![change]).await }
    }

    /// Tells the status writer of an object; returns what the index is to do.
    fn note(&self, object: Reduced) -> Change {
        if let (Some(kind), Some(seen)) = (K::STATUS, object.seen) {
            self.links.statuses.observe((kind, object.name.clone()), seen);
        }
        match object.content {
            Ok(object) => Change::Apply(object),
            Err(_) => Change::Delete(K::KIND, object.name),
        }
    }

    fn gone(&self, name: ObjectName) -> Change {
        if let Some(kind) = K::STATUS {
            self.links.statuses.forget(&(kind, name.clone()));
        }
        Change::Delete(K::KIND, name)
    }

    async fn send(&self, changes: Vec<Change>) -> Result<(), Closed> {
        let received = std::time::Instant::now();
        // Here and not by the index: one object can take seconds, and changes of endpoints do not wait for it.
        let prepared = prepare(&changes).await;
        let batch = Batch { watch: self.number, changes, prepared, listed: self.listed, received };
        self.batches.send(batch).await.map_err(|_| Closed)
    }

    async fn failed(&mut self, trouble: Trouble) -> Result<Next, Closed> {
        // To have to list again is part of every long life.
        if trouble.failure != Failure::Gone && self.pulse.set_healthy(false) {
            self.backoff.reset();
            self.failing = None;
        }
        self.links.hooks.error(K::KIND, trouble.failure);
        self.report(&trouble);
        let mut pause = self.backoff.next().max(trouble.patience.min(PATIENCE));
        if matches!(trouble.failure, Failure::Absent | Failure::Denied) {
            if self.off().await? {
                pause = OPTIONAL;
            }
        } else {
            self.off_since = None;
        }
        Ok(if trouble.relist { Next::Relist(pause) } else { Next::Resume(pause) })
    }

    /// The name of the one object that is watched.
    fn own_name(&self) -> Option<ObjectName> {
        Some(ObjectName::new(self.scope.as_deref().unwrap_or_default(), self.name.as_deref()?))
    }

    /// Goes on without the kind where that is possible; returns whether it is.
    async fn off(&mut self) -> Result<bool, Closed> {
        let denied = self.own_name().and_then(K::denied);
        let stand_in: Option<Object> = denied.or_else(|| K::stand_in(self.scope.as_deref()));
        if K::KIND != Kind::ReferenceGrant && stand_in.is_none() {
            return Ok(false);
        }
        // Nothing to be stale about.
        self.pulse.beat();
        let since = *self.off_since.get_or_insert_with(Instant::now);
        if !self.listed {
            self.listed = true;
            self.stands_in = self.name.is_some();
            self.send(stand_in.into_iter().map(Change::Apply).collect()).await?;
        } else if !(self.known.is_empty() && (self.name.is_none() || self.stands_in)) && since.elapsed() >= GRACE {
            self.stands_in = self.name.is_some();
            let names = std::mem::take(&mut self.known);
            let gone = names.into_keys().map(|name| self.gone(name));
            let changes = gone.chain(stand_in.into_iter().map(Change::Apply)).collect();
            self.send(changes).await?;
        }
        Ok(true)
    }

    /// Logs a failure when it begins or becomes another one.
    fn report(&mut self, trouble: &Trouble) {
        if self.failing.replace(trouble.failure) == Some(trouble.failure) {
            debug!(source = label(K::KIND), error = %trouble.message, "still: {}", trouble.failure);
            return;
        }
        let (failure, error) = (trouble.failure, &trouble.message);
        let kind = label(K::KIND);
        let resource = match (K::plural(&()), K::group(&())) {
            (plural, group) if group.is_empty() => plural.into_owned(),
            (plural, group) => format!("{plural}.{group}"),
        };
        let resource = self.name.as_ref().map_or_else(|| resource.clone(), |name| format!("{resource} {name}"));
        let place = self.scope.as_ref().map_or("all namespaces".to_owned(), |name| format!("namespace {name}"));
        match failure {
            Failure::Absent if K::KIND == Kind::ReferenceGrant => {
                info!(
                    source = kind,
                    "{resource} is not installed; goes on without, and looks for it every {OPTIONAL:?}"
                );
            }
            Failure::Absent => {
                warn!(source = kind, "the CustomResourceDefinition {resource} is not installed; waits for it");
            }
            Failure::Denied => {
                warn!(source = kind, %error, "missing permission: {} {resource} in {place}", trouble.verb);
            }
            Failure::Gone => info!(source = kind, "the history of events is gone; lists again"),
            _ => warn!(source = kind, %error, "cannot {} {resource} in {place}: {failure}", trouble.verb),
        }
    }
}

/// Does what takes long about objects, where it is worth a thread.
async fn prepare(changes: &[Change]) -> Vec<Prepared> {
    let objects = changes.iter().filter_map(|change| match change {
        Change::Apply(object) => Some(&object.content),
        Change::Delete(..) => None,
    });
    let is_worth_it = |content: &&Content| match content {
        Content::Route(route) => prepare::route_is_worth_it(route),
        Content::Selector(selector) => prepare::selector_is_worth_it(selector),
        _ => false,
    };
    let long: Vec<Content> = objects.filter(is_worth_it).cloned().collect();
    if long.is_empty() {
        return Vec::new();
    }
    let prepare = |content: &Content| match content {
        Content::Route(route) => Some(prepare::route(route)),
        Content::Selector(selector) => Some(prepare::selector(selector)),
        _ => None,
    };
    // Without it the index only takes longer.
    tokio::task::spawn_blocking(move || long.iter().filter_map(prepare).collect()).await.unwrap_or_default()
}

/// Logs why an object does not decode: where nothing of its Selectors can be read, its status cannot tell.
fn warn_undecodable(kind: Kind, object: &Reduced) {
    if let Some(error) = object.undecodable() {
        // The error of a Secret may show a piece of it.
        let error = if kind == Kind::Secret { "it is not of the right form" } else { error };
        warn!(kind = label(kind), object = %object.name, %error, "an object does not decode and is ignored");
    }
}

/// What a failure of kube's watcher comes down to.
struct Trouble {
    verb: &'static str,
    failure: Failure,
    message: String,
    /// How long the API server asks to wait.
    patience: Duration,
    /// kube's watcher would ask again for what it was just refused.
    relist: bool,
}

impl Trouble {
    fn of(error: watcher::Error) -> Self {
        let (verb, error) = match error {
            watcher::Error::InitialListFailed(error) => ("list", error),
            watcher::Error::WatchStartFailed(error) => ("watch", error),
            watcher::Error::WatchFailed(error) => ("read the watch of", error),
            watcher::Error::WatchError(status) => ("read the watch of", kube::Error::Api(status)),
            error @ watcher::Error::NoResourceVersion => {
                let (failure, message) = (Failure::Server, error.to_string());
                return Self { verb: "list", failure, message, patience: Duration::ZERO, relist: true };
            }
        };
        Self::with(verb, &error)
    }

    fn with(verb: &'static str, error: &kube::Error) -> Self {
        let failure = Failure::of(error);
        let (code, patience, message) = match error {
            kube::Error::Api(status) => {
                let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                (status.code, Duration::from_secs(seconds.into()), status.message.clone())
            }
            other => (0, Duration::ZERO, with_causes(other)),
        };
        // 504 is the answer to a position that this API server has not reached: one restored from a backup never will.
        let relist = verb == "watch" && (matches!(failure, Failure::Gone | Failure::Absent) || code == 504);
        Self { verb, failure, message, patience, relist }
    }
}

#[cfg(test)]
mod tests;
