//! The addresses of the gateway's own Service, for the status of Selectors.
//!
//! Watched while this process holds the Lease, by nothing but the Service's name, so that a right to that one object will do.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::Failure;
use crate::api::{AddressType, SelectorAddress};

/// How long the API server is asked to keep a watch, in seconds.
const WATCH_SECONDS: u32 = 240;
/// The most that a status holds.
const MOST: usize = 16;

/// What is known of the addresses: `None` before the Service has been looked at.
pub type Known = Option<Arc<[SelectorAddress]>>;

/// Which Service, and what of it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Take its cluster IPs as long as it has nothing else.
    pub cluster_ips: bool,
}

/// The addresses where there is no Service to ask: none, and no one to tell otherwise.
pub fn none() -> watch::Receiver<Known> {
    watch::channel(Some(Arc::from([]))).1
}

/// Keeps `known` up to date while `leading` is true. Ends when one of the two channels closes.
pub async fn follow(
    client: Client,
    settings: Settings,
    known: watch::Sender<Known>,
    mut leading: watch::Receiver<bool>,
) {
    while leading.wait_for(|leading| *leading).await.is_ok() {
        tokio::select! {
            () = watch(&client, &settings, &known) => {}
            ended = leading.wait_for(|leading| !leading) => if ended.is_err() { return },
            () = known.closed() => return,
        }
        // Another one holds the Lease now; what it finds is not seen here.
        known.send_replace(None);
    }
}

async fn watch(client: &Client, settings: &Settings, known: &watch::Sender<Known>) {
    let Settings { namespace, name, cluster_ips } = settings;
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    let config = Config::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    let mut events = pin!(watcher::watcher(api, config).default_backoff());
    let (mut listed, mut is_failing) = (None, false);
    while let Some(event) = events.next().await {
        let found = match event {
            Ok(Event::Init) => {
                listed = None;
                continue;
            }
            Ok(Event::InitApply(service)) => {
                listed = Some(service);
                continue;
            }
            Ok(Event::InitDone) => listed.take(),
            Ok(Event::Apply(service)) => Some(service),
            Ok(Event::Delete(_)) => None,
            Err(error) => {
                report(settings, &error, std::mem::replace(&mut is_failing, true));
                continue;
            }
        };
        if std::mem::take(&mut is_failing) {
            info!(service = %format_args!("{namespace}/{name}"), "the gateway's own Service can be read again");
        }
        let found = found.map_or_else(Vec::new, |service| addresses(&service, *cluster_ips));
        known.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&*found);
            if is_new {
                *known = Some(found.into());
            }
            is_new
        });
    }
}

/// Tells of the first failure in a row.
fn report(settings: &Settings, error: &watcher::Error, is_known: bool) {
    let Settings { namespace, name, .. } = settings;
    let failure = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Failure::of(error),
        watcher::Error::WatchError(status) => Failure::of_code(status.code),
        watcher::Error::NoResourceVersion => Failure::Server,
    };
    if is_known {
        debug!(%error, "still: the gateway's own Service cannot be read");
    } else if failure == Failure::Gone {
        debug!("the history of events is gone; lists again");
    } else if failure == Failure::Denied {
        warn!(
            %error,
            "missing permission: list and watch the service {name} in namespace {namespace}; status.addresses stay as they are"
        );
    } else {
        warn!(%error, "cannot watch the service {name} in namespace {namespace}; status.addresses stay as they are");
    }
}

/// Where clients reach a Service: its load balancer's addresses and its external IPs, sorted; else perhaps its cluster IPs.
fn addresses(service: &Service, cluster_ips: bool) -> Vec<SelectorAddress> {
    let ip = |value: &String| SelectorAddress { kind: AddressType::IPAddress, value: value.clone() };
    let name = |value: &String| SelectorAddress { kind: AddressType::Hostname, value: value.clone() };
    let spec = service.spec.as_ref();
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let mut found = Vec::new();
    for ingress in balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten() {
        // Some balancers have both; the name is then what its operator wants to be used.
        found.extend(ingress.hostname.as_ref().map(name).or_else(|| ingress.ip.as_ref().map(ip)));
    }
    found.extend(spec.and_then(|spec| spec.external_ips.as_ref()).into_iter().flatten().map(ip));
    if found.is_empty() && cluster_ips {
        let ips = spec.and_then(|spec| spec.cluster_ips.as_ref()).into_iter().flatten();
        found.extend(ips.filter(|ip| !ip.is_empty() && *ip != "None").map(ip));
    }
    found.retain(|address| (1..=253).contains(&address.value.len()));
    // In one order, however the balancer tells them: another order is no change.
    found.sort_unstable();
    found.dedup();
    found.truncate(MOST);
    found
}

#[cfg(test)]
mod tests;
