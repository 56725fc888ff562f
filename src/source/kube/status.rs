//! Status: what the compiler says of each object, written back to it by the replica that holds the Lease.
//!
//! What stands in an object's status is known from the watch; what should stand there follows from the fragment that this
//! process serves. Only a difference other than time is written, by server-side apply, so that an idle cluster sees no
//! writes, one change of a spec at most one write an object, and what others overwrite is put right again.

mod events;
mod plan;
mod statuses;
mod writer;

use std::cmp::Ordering;
use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;

pub use self::statuses::Statuses;
pub(super) use self::statuses::{Key, Seen};
use super::addresses::Known;
use super::{Hooks, controller_name};
use crate::ir::{Fragment, Kind, ObjectName, Served, Shadowed, Verdict};

/// What status is written from and with.
pub struct Links {
    /// What stands there.
    pub statuses: Arc<Statuses>,
    /// Told of every write.
    pub hooks: Arc<dyn Hooks>,
}

/// Who writes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The class of the gateway.
    pub class: String,
    /// The name under which Events are written, such as the pod's; none are without.
    pub events: Option<String>,
}

/// What there is to say.
pub struct Inputs {
    /// The fragment of the table that this process serves with its shadowed objects, set after the swap.
    pub served: watch::Receiver<Option<Arc<Served>>>,
    /// The gateway's addresses.
    pub addresses: watch::Receiver<Known>,
    /// Whether this process is the one that writes.
    pub leading: watch::Receiver<bool>,
}

/// Writes status, and Events with it, while `leading` is true, of the objects that `served` holds. Ends when one of these
/// two channels closes.
pub async fn run(client: Client, settings: Settings, links: Links, inputs: Inputs) {
    let Inputs { served, addresses, leading } = inputs;
    let controller = controller_name(&settings.class);
    let events = settings.events.map(|instance| {
        events::Events::start(client.clone(), (&controller, &instance), leading.clone(), Arc::clone(&links.hooks))
    });
    writer::Writer::new(client, &settings.class, links, events).run(served, leading, addresses).await;
}

/// The verdicts of one object, found by their order in the fragment.
fn verdicts_of<'a>(fragment: &'a Fragment, kind: Kind, object: &ObjectName) -> &'a [Arc<Verdict>] {
    of(&fragment.verdicts, |verdict| (verdict.kind, &verdict.object).cmp(&(kind, object)))
}

/// What is said of the shadows of one object.
fn shadows_of<'a>(served: &'a Served, kind: Kind, object: &ObjectName) -> &'a [Shadowed] {
    of(&served.shadowed, |shadowed| (shadowed.kind, &shadowed.object).cmp(&(kind, object)))
}

/// Those of sorted items that compare as equal.
fn of<T>(items: &[T], order: impl Fn(&T) -> Ordering) -> &[T] {
    let start = items.partition_point(|item| order(item) == Ordering::Less);
    let rest = items.get(start..).unwrap_or_default();
    let length = rest.partition_point(|item| order(item) == Ordering::Equal);
    rest.get(..length).unwrap_or_default()
}
