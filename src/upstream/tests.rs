use super::*;
use crate::ir::{ClusterId, EndpointState, ObjectName, Target};
use crate::telemetry::metrics::Buckets;

fn registry() -> Clusters {
    Clusters::new(Metrics::new(1, Buckets::default()))
}

fn id(port: u16) -> ClusterId {
    ClusterId::service(ObjectName::new("ns", "svc"), port, ir::Protocol::Http1)
}

fn declare(clusters: &Clusters, port: u16) {
    clusters.declare(&[Arc::new(ir::Cluster { id: id(port), target: Target::Slices })]);
}

fn set(port: u16, endpoints: &[(&str, EndpointState)]) -> ir::EndpointSet {
    let endpoint = |(addr, state): &(&str, EndpointState)| ir::Endpoint { addr: addr.parse().unwrap(), state: *state };
    ir::EndpointSet { cluster: id(port), endpoints: endpoints.iter().map(endpoint).collect() }
}

const READY: EndpointState = EndpointState::Ready;
const DRAINING: EndpointState = EndpointState::Draining;

#[test]
fn endpoints_that_stay_keep_what_is_known_of_them() {
    let clusters = registry();
    declare(&clusters, 80);
    clusters.update(&set(80, &[("10.0.0.1:80", READY), ("10.0.0.2:80", READY)]));
    let cluster = clusters.get(&id(80)).unwrap();
    let before = cluster.endpoints();
    before.usable[1].connect_failed();
    let version = cluster.version();
    clusters.update(&set(80, &[("10.0.0.2:80", READY), ("10.0.0.3:80", READY)]));
    assert_ne!(cluster.version(), version);
    let after = cluster.endpoints();
    assert!(Arc::ptr_eq(&before.usable[1], &after.usable[0]));
    assert!(after.usable[0].is_set_aside());
    assert!(!after.usable[1].is_set_aside());
}

#[test]
fn an_address_that_comes_back_is_a_new_endpoint() {
    let clusters = registry();
    declare(&clusters, 80);
    clusters.update(&set(80, &[("10.0.0.1:80", READY)]));
    let cluster = clusters.get(&id(80)).unwrap();
    let first = cluster.endpoints().usable[0].uid;
    clusters.update(&set(80, &[]));
    assert!(cluster.endpoints().usable.is_empty());
    clusters.update(&set(80, &[("10.0.0.1:80", READY)]));
    assert_ne!(cluster.endpoints().usable[0].uid, first);
}

#[test]
fn draining_endpoints_are_used_only_when_none_is_ready() {
    let clusters = registry();
    declare(&clusters, 80);
    let cluster = clusters.get(&id(80)).unwrap();
    clusters.update(&set(80, &[("10.0.0.1:80", DRAINING), ("10.0.0.2:80", READY)]));
    assert_eq!(cluster.endpoints().usable.len(), 1);
    assert_eq!(cluster.endpoints().all.len(), 2);
    clusters.update(&set(80, &[("10.0.0.1:80", DRAINING)]));
    assert_eq!(cluster.endpoints().usable.len(), 1);
}

#[test]
fn a_slot_is_given_again_only_when_no_table_refers_to_its_cluster() {
    let clusters = registry();
    declare(&clusters, 80);
    let held = clusters.get(&id(80)).unwrap();
    clusters.retain(|_| false);
    assert!(held.is_removed() && clusters.get(&id(80)).is_none());
    declare(&clusters, 81);
    assert_ne!(clusters.get(&id(81)).unwrap().slot, held.slot);
    let slot = held.slot;
    drop(held);
    clusters.retain(|_| true);
    declare(&clusters, 82);
    assert_eq!(clusters.get(&id(82)).unwrap().slot, slot);
}

#[test]
fn unknown_clusters_and_repeated_declarations_change_nothing() {
    let clusters = registry();
    clusters.update(&set(80, &[("10.0.0.1:80", READY)]));
    declare(&clusters, 80);
    clusters.update(&set(80, &[("10.0.0.1:80", READY)]));
    declare(&clusters, 80);
    assert_eq!(clusters.get(&id(80)).unwrap().endpoints().usable.len(), 1);
}
