#![expect(clippy::needless_pass_by_value, reason = "callers write json! in place")]

mod isolation;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ir::{EndpointState, Selector};
use crate::source::translate::tests::{object, settings};

fn index() -> Index {
    Index::new(settings(HostBackends::Never))
}

fn named(kind: &str, namespace: &str, name: &str, mut rest: Value) -> Object {
    rest["kind"] = kind.into();
    for (field, value) in [("namespace", namespace), ("name", name)] {
        rest["metadata"][field] = value.into();
    }
    object(rest)
}

fn selector(namespace: &str, name: &str, spec: Value) -> Object {
    named("Selector", namespace, name, json!({"spec": spec}))
}

fn route(namespace: &str, name: &str, selector: &str, backends: Value) -> Object {
    let rules = json!([{"matches": [{"path": {"value": format!("/{name}")}}], "backends": backends}]);
    named("Route", namespace, name, json!({"spec": {"selectors": [{"name": selector}], "rules": rules}}))
}

fn service(namespace: &str, name: &str, ports: Value) -> Object {
    named("Service", namespace, name, json!({"spec": {"ports": ports}}))
}

fn slice(name: &str, service: &str, port: Value, addresses: &[&str]) -> Object {
    let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    let labels = json!({"labels": {"kubernetes.io/service-name": service}});
    named(
        "EndpointSlice",
        "x",
        name,
        json!({"metadata": labels, "addressType": "IPv4", "ports": [port], "endpoints": endpoints}),
    )
}

fn http() -> Value {
    json!([{"name": "http", "port": 80}])
}

/// Two Selectors with a Route each, one Service, one slice.
fn small() -> Index {
    let mut index = index();
    for (name, host) in [("a", "a.example.com"), ("b", "b.example.com")] {
        index.apply(selector("x", name, json!({"hostnames": [host]})));
        index.apply(route("x", name, name, json!([{"service": "s", "port": 80}])));
    }
    index.apply(service("x", "s", http()));
    index.apply(slice("s-1", "s", json!({"name": "http", "port": 8080}), &["10.0.0.1"]));
    index
}

fn cluster(port: u16) -> ClusterId {
    ClusterId::service(ObjectName::new("x", "s"), port, Protocol::Http1)
}

fn of<'a>(fragment: &'a Fragment, name: &str) -> &'a Arc<Selector> {
    fragment.selectors.iter().find(|selector| &*selector.origin.object.name == name).unwrap()
}

#[test]
fn an_empty_source_has_an_empty_fragment_once() {
    let mut index = index();
    assert_eq!(*index.take_table().unwrap().0, Fragment::default());
    assert!(index.take_table().is_none());
}

#[test]
fn a_change_leaves_other_selectors_as_they_were() {
    let mut index = small();
    let (before, endpoints) = index.take_table().unwrap();
    assert_eq!(endpoints.iter().map(|set| set.cluster.clone()).collect::<Vec<_>>(), [cluster(80)]);
    index.apply(route("x", "a", "a", json!([{"service": "s", "port": 80, "weight": 5}])));
    let (after, endpoints) = index.take_table().unwrap();
    assert!(endpoints.is_empty(), "the Cluster was there before");
    assert!(!Arc::ptr_eq(of(&before, "a"), of(&after, "a")));
    assert!(Arc::ptr_eq(of(&before, "b"), of(&after, "b")));
}

#[test]
fn the_same_object_again_changes_nothing() {
    let mut index = small();
    index.take_table();
    index.apply(route("x", "a", "a", json!([{"service": "s", "port": 80}])));
    index.apply(service("x", "s", http()));
    index.apply(slice("s-1", "s", json!({"name": "http", "port": 8080}), &["10.0.0.1"]));
    assert!(index.take_table().is_none());
    assert!(index.take_endpoints().is_empty());
}

#[test]
fn a_new_generation_is_a_new_fragment_of_the_same_selectors() {
    let mut index = small();
    let (before, _) = index.take_table().unwrap();
    let spec = json!({"hostnames": ["a.example.com"]});
    index.apply(named("Selector", "x", "a", json!({"metadata": {"generation": 2}, "spec": spec})));
    let (after, _) = index.take_table().unwrap();
    assert!(Arc::ptr_eq(of(&before, "a"), of(&after, "a")));
    assert_eq!(after.verdicts[0].generation, 2);
}

#[test]
fn the_service_of_a_mirror_is_awaited() {
    let mut index = index();
    index.apply(selector("x", "a", json!({"hostnames": ["a.example.com"]})));
    index.apply(service("x", "s", http()));
    let mirror = json!({"type": "RequestMirror", "requestMirror": {"backend": {"service": "copy", "port": 80}}});
    let rules = json!([{"filters": [mirror], "backends": [{"service": "s", "port": 80}]}]);
    index.apply(named("Route", "x", "a", json!({"spec": {"selectors": [{"name": "a"}], "rules": rules}})));
    let resolved = |fragment: &Fragment| fragment.verdicts.iter().all(|verdict| verdict.resolved_refs.ok);
    let (before, _) = index.take_table().unwrap();
    assert_eq!((resolved(&before), before.clusters.len()), (false, 1));
    index.apply(service("x", "copy", http()));
    let (after, _) = index.take_table().unwrap();
    assert_eq!((resolved(&after), after.clusters.len()), (true, 2));
}

#[test]
fn endpoints_change_without_a_fragment() {
    let mut index = small();
    index.take_table();
    index.take_endpoints();
    index.apply(slice("s-2", "s", json!({"name": "http", "port": 8081}), &["10.0.0.2"]));
    assert!(index.take_table().is_none());
    let sets = index.take_endpoints();
    let addresses: Vec<String> = sets[0].endpoints.iter().map(|endpoint| endpoint.addr.to_string()).collect();
    assert_eq!((sets.len(), addresses), (1, vec!["10.0.0.1:8080".to_owned(), "10.0.0.2:8081".to_owned()]));

    index.delete(Kind::EndpointSlice, &ObjectName::new("x", "s-1"));
    index.reset(Kind::EndpointSlice, Vec::new());
    assert!(index.take_table().is_none());
    assert!(index.take_endpoints()[0].endpoints.is_empty());
    assert!(index.take_endpoints().is_empty());
}

#[test]
fn a_slice_may_move_to_another_service() {
    let mut index = small();
    index.apply(service("x", "t", http()));
    index.apply(route("x", "c", "a", json!([{"service": "t", "port": 80}])));
    index.take_table();
    index.take_endpoints();
    index.apply(slice("s-1", "t", json!({"name": "http", "port": 8080}), &["10.0.0.1"]));
    let sets = index.take_endpoints();
    assert_eq!(sets.iter().map(|set| set.endpoints.len()).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_service_port_matters_to_those_who_name_it() {
    let mut index = small();
    let (before, _) = index.take_table().unwrap();
    index.take_endpoints();

    // The name leads to other ports of the slices: endpoints change, the table does not.
    index.apply(service("x", "s", json!([{"name": "web", "port": 80}, {"name": "http", "port": 81}])));
    assert!(index.take_table().is_none());
    let sets = index.take_endpoints();
    assert_eq!((sets.len(), sets[0].endpoints.len()), (1, 0));

    // The number is gone: the reference means something else.
    index.apply(service("x", "s", json!([{"name": "http", "port": 81}])));
    let (after, _) = index.take_table().unwrap();
    assert!(!Arc::ptr_eq(of(&before, "a"), of(&after, "a")));
    assert!(after.clusters.is_empty());

    // By name it is the new number.
    index.apply(route("x", "a", "a", json!([{"service": "s", "port": "http"}])));
    let (fragment, endpoints) = index.take_table().unwrap();
    assert_eq!(fragment.clusters[0].id, cluster(81));
    assert_eq!(endpoints[0].endpoints[0].state, EndpointState::Ready);
}

#[test]
fn an_object_that_does_not_decode_leaves_the_table() {
    let mut index = small();
    index.take_table();
    index.apply_invalid(ir::Kind::Route, ObjectName::new("x", "a"), 2, "spec.rules: missing".to_owned());
    let (fragment, _) = index.take_table().unwrap();
    assert!(of(&fragment, "a").rules.is_empty());
    let verdict = fragment.verdicts.iter().find(|v| v.kind == ir::Kind::Route && &*v.object.name == "a").unwrap();
    assert_eq!((verdict.parent.as_ref(), verdict.generation), (None, 2));
    assert_eq!(verdict.accepted.message, "spec.rules: missing");

    index.apply_invalid(ir::Kind::Selector, ObjectName::new("x", "b"), 2, "spec: missing".to_owned());
    let (fragment, _) = index.take_table().unwrap();
    assert_eq!(fragment.selectors.len(), 1);
    index.apply(selector("x", "b", json!({"hostnames": ["b.example.com"]})));
    index.apply(route("x", "a", "a", json!([{"service": "s", "port": 80}])));
    let (fragment, _) = index.take_table().unwrap();
    assert!(fragment.verdicts.iter().all(|verdict| verdict.accepted.ok), "{:?}", fragment.verdicts);
    assert_eq!(fragment.selectors.iter().map(|selector| selector.rules.len()).sum::<usize>(), 2);
}

#[test]
fn a_hostname_goes_to_the_next_owner_when_its_owner_leaves() {
    let mut index = index();
    let at = |namespace: &str, year: u16| {
        let created = format!("{year}-01-01T00:00:00Z");
        let spec = json!({"hostnames": ["a.example.com"]});
        named("Selector", namespace, "s", json!({"metadata": {"creationTimestamp": created}, "spec": spec}))
    };
    let owner = |index: &mut Index| {
        let (fragment, _) = index.take_table().unwrap();
        fragment.selectors.iter().map(|selector| selector.origin.object.namespace.to_string()).collect::<Vec<_>>()
    };
    index.apply(at("young", 2026));
    assert_eq!(owner(&mut index), ["young"]);
    index.apply(at("old", 2024));
    assert_eq!(owner(&mut index), ["old"]);
    index.apply(at("middle", 2025));
    assert_eq!(owner(&mut index), ["old"]);
    index.delete(Kind::Selector, &ObjectName::new("old", "s"));
    assert_eq!(owner(&mut index), ["middle"]);
    index.apply(named("Selector", "middle", "s", json!({"spec": {"suspend": true}})));
    assert_eq!(owner(&mut index), ["young"]);
}

// === any order of changes gives what the objects give ===

/// Objects that refer to each other, a few variants of each.
fn universe() -> Vec<Object> {
    let mut objects = Vec::new();
    for namespace in ["x", "y"] {
        let ours = |kind: &str, name: &str, rest: Value| named(kind, namespace, name, rest);
        for (name, created) in [("a", "2025-01-01T00:00:00Z"), ("b", "2024-01-01T00:00:00Z")] {
            for spec in [
                json!({}),
                json!({"hostnames": ["h.example.com", "i.example.com"], "listeners": ["http"]}),
                json!({"hostnames": ["h.example.com"], "allowedRoutes": {"namespaces": {"from": "All"}}}),
                json!({"hostnames": ["i.example.com"], "policy": {"timeouts": {"request": "1s"}}}),
                json!({"suspend": true}),
                json!({"className": "other"}),
                json!({"priority": "high"}),
                json!({"tls": {"secretName": "t", "clientCertificates": {"caConfigMapName": "t"}}}),
                json!({"allowedRoutes": {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"l": "1"}}}}}),
            ] {
                objects.push(ours("Selector", name, json!({"metadata": {"creationTimestamp": created}, "spec": spec})));
            }
        }
        for name in ["r", "q"] {
            for (to, service, of, port) in [
                (json!([{"name": "a"}]), "s", "x", json!(80)),
                (json!([{"name": "a"}, {"name": "b", "namespace": "x"}]), "s", "y", json!("http")),
                (json!([{"name": "b", "namespace": "y"}]), "t", "x", json!(81)),
                (json!([{"name": "b"}]), "gone", "y", json!(0)),
            ] {
                let backends = json!([{"service": service, "namespace": of, "port": port}]);
                let mirror =
                    json!({"type": "RequestMirror", "requestMirror": {"backend": {"service": "t", "port": 80}}});
                let rules = json!([
                    {"backends": backends},
                    {"matches": [{"path": {"value": "/q"}}], "backends": backends, "filters": [mirror]},
                ]);
                objects.push(ours("Route", name, json!({"spec": {"selectors": to, "rules": rules}})));
            }
        }
        for name in ["s", "t"] {
            for ports in [
                json!([{"name": "http", "port": 80}]),
                json!([{"name": "http", "port": 81}, {"name": "web", "port": 80}]),
            ] {
                objects.push(ours("Service", name, json!({"spec": {"ports": ports}})));
            }
            for (slice, address) in [("1", "10.0.0.1"), ("1", "10.0.0.2"), ("2", "10.0.0.1")] {
                let ports = json!([{"name": "http", "port": 8080}, {"name": "web", "port": 8081}]);
                let labels = json!({"labels": {"kubernetes.io/service-name": name}});
                let endpoints = json!([{"addresses": [address]}]);
                objects.push(ours(
                    "EndpointSlice",
                    slice,
                    json!({"metadata": labels, "addressType": "IPv4", "ports": ports, "endpoints": endpoints}),
                ));
            }
        }
        for to in [json!({"group": "", "kind": "Service"}), json!({"group": "", "kind": "Service", "name": "s"})] {
            let from = if namespace == "x" { "y" } else { "x" };
            let from = json!([{"group": "lockgate.dev", "kind": "Route", "namespace": from}]);
            objects.push(ours("ReferenceGrant", "g", json!({"spec": {"from": from, "to": [to]}})));
        }
        for why in ["is empty", "is odd"] {
            let held = || Material::Held { certificate: Err(why.to_owned()), authorities: Err(why.to_owned()) };
            let name = || ObjectName::new(namespace, "t");
            objects.push(Object { name: name(), content: Content::Secret(held()) });
            objects.push(Object { name: name(), content: Content::ConfigMap(held()) });
        }
        objects.push(Object { name: ObjectName::new(namespace, "t"), content: Content::Secret(Material::Denied) });
        for label in ["1", "2"] {
            objects.push(object(json!({"kind": "Namespace", "metadata": {"name": namespace, "labels": {"l": label}}})));
        }
    }
    objects
}

#[derive(Clone, Debug)]
enum Change {
    Apply(usize),
    Delete(usize),
    /// All objects of the first one's kind are replaced by these.
    Reset(usize, Vec<usize>),
    TakeTable,
    TakeEndpoints,
}

fn change(count: usize) -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => (0..count).prop_map(Change::Apply),
        3 => (0..count).prop_map(Change::Delete),
        1 => (0..count, proptest::collection::vec(0..count, 0..20)).prop_map(|(kind, all)| Change::Reset(kind, all)),
        3 => Just(Change::TakeTable),
        2 => Just(Change::TakeEndpoints),
    ]
}

type Model = BTreeMap<(Kind, ObjectName), Object>;
type Sets = BTreeMap<ClusterId, Arc<EndpointSet>>;

/// What a consumer of the updates has in hand.
#[derive(Default)]
struct Consumer {
    fragment: Option<Arc<Fragment>>,
    sets: Sets,
}

impl Consumer {
    fn take_table(&mut self, index: &mut Index) {
        let Some((fragment, new)) = index.take_table() else { return };
        if let Some(old) = &self.fragment {
            assert_ne!(**old, *fragment, "a fragment comes only with a change");
            for (old, new) in old.selectors.iter().flat_map(|old| fragment.selectors.iter().map(move |new| (old, new)))
            {
                assert!(old != new || Arc::ptr_eq(old, new), "an equal Selector is the same one");
            }
        }
        let is_there = |id: &ClusterId| fragment.clusters.iter().any(|cluster| cluster.id == *id);
        self.sets.retain(|id, _| is_there(id));
        for set in new {
            assert!(is_there(&set.cluster));
            assert!(self.sets.insert(set.cluster.clone(), set).is_none(), "the former fragment had the Cluster");
        }
        self.fragment = Some(fragment);
    }

    fn take_endpoints(&mut self, index: &mut Index) {
        for set in index.take_endpoints() {
            let old = self.sets.insert(set.cluster.clone(), Arc::clone(&set)).expect("a Cluster of the fragment");
            assert_ne!(old, set, "a set comes only with a change");
        }
    }
}

fn apply(change: &Change, objects: &[Object], index: &mut Index, model: &mut Model, consumer: &mut Consumer) {
    let key = |object: &Object| (object.kind(), object.name.clone());
    match change {
        Change::Apply(at) => {
            index.apply(objects[*at].clone());
            model.insert(key(&objects[*at]), objects[*at].clone());
        }
        Change::Delete(at) => {
            index.delete(objects[*at].kind(), &objects[*at].name);
            model.remove(&key(&objects[*at]));
        }
        Change::Reset(at, all) => {
            let kind = objects[*at].kind();
            let new: Vec<Object> = all.iter().map(|at| objects[*at].clone()).filter(|o| o.kind() == kind).collect();
            model.retain(|(other, _), _| *other != kind);
            model.extend(new.iter().map(|object| (key(object), object.clone())));
            index.reset(kind, new);
        }
        Change::TakeTable => consumer.take_table(index),
        Change::TakeEndpoints => consumer.take_endpoints(index),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_order_of_changes_gives_the_table_of_the_objects(
        changes in proptest::collection::vec(change(universe().len()), 1..60),
        order in any::<u64>(),
    ) {
        let (objects, mut model, mut consumer, mut index) = (universe(), Model::new(), Consumer::default(), index());
        for change in &changes {
            apply(change, &objects, &mut index, &mut model, &mut consumer);
        }
        consumer.take_table(&mut index);
        consumer.take_endpoints(&mut index);

        let mut rest: Vec<Object> = model.into_values().collect();
        let mut fresh = self::index();
        let mut seed = order;
        while !rest.is_empty() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = usize::try_from(seed >> 33).unwrap() % rest.len();
            fresh.apply(rest.swap_remove(at));
        }
        let mut expected = Consumer::default();
        expected.take_table(&mut fresh);
        expected.take_endpoints(&mut fresh);
        prop_assert_eq!(consumer.fragment, expected.fragment);
        prop_assert_eq!(consumer.sets, expected.sets);
    }
}

#[test]
fn another_protocol_of_a_port_is_another_cluster_with_the_same_endpoints() {
    let mut index = small();
    let (before, _) = index.take_table().unwrap();
    assert_eq!(before.clusters.iter().map(|cluster| cluster.id.protocol()).collect::<Vec<_>>(), [Protocol::Http1]);
    let port = |protocol: &str| json!([{"name": "http", "port": 80, "appProtocol": protocol}]);
    index.apply(service("x", "s", port("kubernetes.io/h2c")));
    let (after, endpoints) = index.take_table().unwrap();
    let h2c = ClusterId::service(ObjectName::new("x", "s"), 80, Protocol::Http2);
    assert_eq!(after.clusters.iter().map(|cluster| cluster.id.clone()).collect::<Vec<_>>(), std::slice::from_ref(&h2c));
    assert_eq!(endpoints.len(), 1);
    assert_eq!((&endpoints[0].cluster, endpoints[0].endpoints.len()), (&h2c, 1));
    // Endpoints go on to the Cluster that there is now.
    index.apply(slice("s-1", "s", json!({"name": "http", "port": 8080}), &["10.0.0.1", "10.0.0.2"]));
    let changed = index.take_endpoints();
    assert_eq!(changed.iter().map(|set| (&set.cluster, set.endpoints.len())).collect::<Vec<_>>(), [(&h2c, 2)]);
    // A name that means HTTP/1.1, as its absence does.
    index.apply(service("x", "s", port("http")));
    assert_eq!(index.take_table().unwrap().0.clusters[0].id, cluster(80));
    index.apply(service("x", "s", http()));
    assert!(index.take_table().is_none());
}
