//! TLS connections that a backend ends: joined with a connection to it as they are, the client's first message first.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tokio::net::TcpStream;

use super::access::{Ended, Record, Source};
use super::admission::Places;
use super::error::Failure;
use super::headers::Peer;
use super::io::ClientIo;
use super::proxy_protocol::told;
use super::tls::{self, Passed};
use super::tunnel::{Agreed, Silence, Tunnel};
use super::watchdog::Conn;
use super::{Worker, admission, forward};
use crate::ir::{self, Action};
use crate::lifecycle;
use crate::publish::RuleRuntime;
use crate::routing::CompiledRule;
use crate::telemetry::metrics::{Refusal, RetryReason};
use crate::upstream::pool::{AcquireError, Switched};
use crate::upstream::{Cluster, Load};

/// What the drain's ledger calls it.
const PROTOCOL: &str = "tls";

/// Serves a connection to its end. It holds the drain like a request.
pub(super) async fn serve(worker: &Rc<Worker>, mut stream: TcpStream, passed: Passed, source: Source<'_>, peer: &Peer) {
    let started = Instant::now();
    let desk = worker.access.as_ref();
    let record = desk.and_then(|desk| desk.begin_passed(source, &passed.host, started, || worker.random()));
    let guard = worker.shared.lifecycle.worker(worker.index).map(lifecycle::Worker::begin);
    let watched = worker.watchdog.watch(worker.stage_limits());
    let conn = watched.conn();
    conn.comes_from(peer.address());
    conn.begin_exchange(ir::Timeouts::default().idle);
    match open(worker, conn, &passed, (peer, record.as_deref())).await {
        Ok((agreed, places)) => {
            conn.switch(Arc::clone(&agreed.protocol), agreed.silence.whole);
            let tunnel = Tunnel::new(worker, agreed, (guard, places)).logged(record, None);
            // A tunnel may outlive the table by days.
            let Passed { snapshot, hello, .. } = passed;
            drop(snapshot);
            tunnel.run(ClientIo::new(stream, Rc::clone(conn)), hello.into(), conn).await;
        }
        Err(failure) => {
            tracing::debug!(reason = %failure.reason, detail = failure.detail, "connection not passed through");
            worker.metrics.refused(failure.reason);
            if let Some((desk, record)) = desk.zip(record) {
                let (reason, duration) = (Some(failure.reason), Some(started.elapsed()));
                desk.finish(record, &Ended { reason, duration, broke_off: true, ..Ended::default() });
            }
            tls::close(&mut stream).await;
        }
    }
}

/// Joins it with a backend of its rule, and counts how that went.
async fn open(
    worker: &Worker,
    conn: &Conn,
    passed: &Passed,
    (peer, record): (&Peer, Option<&Record>),
) -> Result<(Agreed, Places), Failure> {
    let found = passed.rule.and_then(|key| Some((key, passed.snapshot.table.rule(key)?)));
    let Some((key, found)) = found else {
        return Err(Failure::because(Refusal::NoRoute, "no Route is attached to the Selector"));
    };
    conn.matched(passed.snapshot.clone(), key, found.rule.timeouts.idle);
    if let Some((desk, record)) = worker.access.as_ref().zip(record) {
        desk.matched(record, found.selector, found.rule);
    }
    let outcome = join(worker, &found, (peer, record)).await;
    found.payload.metrics().passed(worker.index, outcome.as_ref().err().map(|failure| failure.reason));
    outcome
}

async fn join(
    worker: &Worker,
    found: &CompiledRule<'_, RuleRuntime>,
    (peer, record): (&Peer, Option<&Record>),
) -> Result<(Agreed, Places), Failure> {
    let (rule, runtime) = (&**found.rule, found.payload);
    if !worker.shared.lifecycle.phase().serves() {
        return Err(Failure::new(Refusal::Draining));
    }
    match &rule.action {
        Action::Forward(_) => {}
        Action::Invalid { reason } => return Err(Failure::because(Refusal::InvalidRule, reason)),
        Action::Redirect(_) | Action::DirectResponse(_) => {
            return Err(Failure::because(Refusal::InvalidRule, "the rule answers requests"));
        }
    }
    let mut places = Places::default();
    places.add(admission::rule(worker, rule, runtime, None).await?);
    let (_, cluster) = forward::pick(worker, runtime)?;
    places.add(admission::backend(worker, rule, cluster, None).await?);
    places.add(admission::gateway(worker, None).await?);
    let (backend, load) = connect(worker, rule, cluster, (peer, record)).await?;
    let silence = Silence { whole: rule.timeouts.tunnel, half: rule.timeouts.idle };
    Ok((Agreed { backend, protocol: PROTOCOL.into(), load, silence, is_extended: false }, places))
}

/// A connection to an endpoint of the Cluster; where one cannot be connected to, to another.
async fn connect(
    worker: &Worker,
    rule: &ir::Rule,
    cluster: &Arc<Cluster>,
    (peer, record): (&Peer, Option<&Record>),
) -> Result<(Switched, Option<Load>), Failure> {
    // Its TLS is the backend's to see.
    let told = cluster.id.proxy_protocol.map(|version| told::header(version, peer.ends(), None));
    let local = worker.pools.cluster(cluster);
    if let Some(record) = record {
        record.goes_to(&local, None);
    }
    let mut tried = Vec::new();
    loop {
        let Some(pool) = worker.pools.choose(&local, &rule.load_balancing, &tried) else {
            let reason = if tried.is_empty() { Refusal::NoEndpoints } else { Refusal::ConnectFailed };
            return Err(Failure::because(reason, &cluster.id));
        };
        if let Some(record) = record {
            record.tries(&pool);
        }
        let failure = match pool.dial(&rule.upstream, rule.timeouts.connect, told.as_ref()).await {
            Ok(switched) => {
                let by_load = matches!(rule.load_balancing, ir::LoadBalancing::LeastRequest);
                return Ok((switched, by_load.then(|| Load::new(&pool.endpoint))));
            }
            // Others are there now.
            Err(AcquireError::Left) => continue,
            Err(error) => forward::unconnected(pool.endpoint.addr, error),
        };
        tried.push(pool.endpoint.uid);
        let may_go_on = forward::is_unreachable(&failure) && tried.len() < forward::max_connects(rule);
        if !may_go_on || !local.has_other(&tried) {
            return Err(failure);
        }
        cluster.metrics.retried(worker.index, RetryReason::ConnectFailure);
    }
}
