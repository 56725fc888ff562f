//! The API server as the gateway's source: watches, Lease, status.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;

use super::{Error, Source, translation};
use crate::ir::Served;
use crate::lifecycle::Latch;
use crate::proxy::Shared;
use crate::settings::Settings;
use crate::source::index::Kind;
use crate::source::kube::{
    self as source, EventOutcome, Failure, Health, Hooks, Links, addresses, definitions, lease, status,
};
use crate::source::{UpdateSender, translate};
use crate::telemetry::metrics::{EventWrite, Metrics, SourceError, StatusWrite};

/// How often the age of what is known is put into the metrics.
const STALENESS: Duration = Duration::from_secs(1);
/// Where a pod finds its own namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Starts the watches, and where status is to be written the Lease and the writer.
pub(super) async fn start(
    settings: &Settings,
    shared: &Arc<Shared>,
    updates: UpdateSender,
    served: watch::Receiver<Option<Arc<Served>>>,
) -> Result<Source, Error> {
    let config = ::kube::Config::infer().await.context("no cluster to watch: neither a pod's own nor a kubeconfig")?;
    let client = source::client(config).context("the API server's client")?;
    let hooks: Arc<dyn Hooks> = Arc::new(Counters::new(shared));
    let links = Links { hooks: Arc::clone(&hooks), health: Arc::default(), statuses: Arc::default() };
    let statuses = Arc::clone(&links.statuses);
    tokio::spawn(report_staleness(Arc::clone(&links.health), Arc::clone(&shared.metrics)));
    let watches = source::Settings {
        namespaces: settings.kubernetes.namespaces.clone(),
        translate: translation(settings, host_backends(settings)),
    };
    tokio::spawn(source::run(client.clone(), watches, updates, links));
    tokio::spawn(definitions::watch(client.clone(), Arc::clone(&hooks)));

    let (stop, mut stopped) = watch::channel(false);
    if !settings.kubernetes.write_status {
        return Ok(Source { stop, lease: None });
    }
    let pod = hostname();
    let namespace = settings.kubernetes.lease_namespace.clone().filter(|given| !given.is_empty());
    let namespace = namespace.unwrap_or_else(own_namespace);
    let (leading, is_leading) = watch::channel(false);
    let lease = lease::Settings::new(&namespace, &settings.class_name, &pod);
    let until_stopped = async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let lease = tokio::spawn(lease::hold(client.clone(), lease, leading, until_stopped));
    let addresses = own_addresses(settings, &client, &is_leading);
    let writer = status::Settings {
        class: settings.class_name.clone(),
        events: settings.kubernetes.write_events.then_some(pod),
    };
    let inputs = status::Inputs { served, addresses, leading: is_leading };
    tokio::spawn(status::run(client, writer, status::Links { statuses, hooks }, inputs));
    Ok(Source { stop, lease: Some(lease) })
}

pub(super) fn host_backends(settings: &Settings) -> translate::HostBackends {
    if settings.kubernetes.allow_host_backends {
        let admin = &settings.admin;
        translate::HostBackends::Outside { admin_ports: vec![admin.address.port(), admin.operator_address.port()] }
    } else {
        translate::HostBackends::Never
    }
}

/// Follows the Service that is the gateway's own, if there is one.
fn own_addresses(
    settings: &Settings,
    client: &::kube::Client,
    leading: &watch::Receiver<bool>,
) -> watch::Receiver<addresses::Known> {
    let Some((namespace, name)) = settings.kubernetes.own_service() else { return addresses::none() };
    let service = addresses::Settings {
        namespace: namespace.map_or_else(own_namespace, str::to_owned),
        name: name.to_owned(),
        cluster_ips: settings.kubernetes.publish_cluster_ips,
    };
    let (known, addresses) = watch::channel(None);
    tokio::spawn(addresses::follow(client.clone(), service, known, leading.clone()));
    addresses
}

/// The pod's namespace.
fn own_namespace() -> String {
    let told = std::fs::read_to_string(NAMESPACE_FILE).ok().map(|text| text.trim().to_owned());
    told.filter(|namespace| !namespace.is_empty()).unwrap_or_else(|| "default".to_owned())
}

/// The pod's name is its hostname.
pub(super) fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "lockgate".to_owned(), |h| h.trim().to_owned())
}

async fn report_staleness(health: Arc<Health>, metrics: Arc<Metrics>) {
    let mut interval = tokio::time::interval(STALENESS);
    loop {
        interval.tick().await;
        for kind in source::KINDS {
            metrics.source(source::label(kind)).heard_ago(health.staleness(kind));
        }
    }
}

/// Puts what the source tells into metrics and readiness.
struct Counters {
    metrics: Arc<Metrics>,
    pending: parking_lot::Mutex<Vec<(Kind, Latch)>>,
}

impl Counters {
    fn new(shared: &Shared) -> Self {
        let latch = |kind| (kind, shared.lifecycle.readiness().register(source::label(kind)));
        for kind in source::KINDS {
            shared.metrics.source(source::label(kind)).set_synced(false);
        }
        Self {
            metrics: Arc::clone(&shared.metrics),
            pending: parking_lot::Mutex::new(source::KINDS.into_iter().map(latch).collect()),
        }
    }
}

impl Hooks for Counters {
    fn synced(&self, source: Kind) {
        self.metrics.source(source::label(source)).set_synced(true);
        self.pending.lock().retain(|(kind, _)| *kind != source);
    }

    fn error(&self, source: Kind, failure: Failure) {
        let reason = match failure {
            Failure::Unreachable | Failure::Timeout | Failure::Throttled | Failure::Server => SourceError::Unreachable,
            Failure::Denied | Failure::Absent => SourceError::Forbidden,
            Failure::Gone => SourceError::Expired,
            Failure::Conflict | Failure::Invalid => SourceError::List,
        };
        self.metrics.source(source::label(source)).error(reason);
    }

    fn status_write(&self, result: Result<(), Failure>) {
        let result = match result {
            Ok(()) => StatusWrite::Written,
            Err(Failure::Absent | Failure::Gone) => StatusWrite::Obsolete,
            Err(Failure::Conflict) => StatusWrite::Conflict,
            Err(Failure::Denied | Failure::Invalid) => StatusWrite::Rejected,
            Err(Failure::Unreachable | Failure::Timeout | Failure::Throttled | Failure::Server) => StatusWrite::Failed,
        };
        self.metrics.control().status_write(result);
    }

    fn fields_missing(&self, count: usize) {
        self.metrics.control().fields_missing(count);
    }

    fn event_write(&self, outcome: EventOutcome) {
        self.metrics.control().event_write(match outcome {
            EventOutcome::Written => EventWrite::Written,
            EventOutcome::Failed => EventWrite::Failed,
            EventOutcome::Dropped => EventWrite::Dropped,
        });
    }
}
