use serde_json::{Value, json};

use super::*;
use crate::ir::Protocol;

fn service(spec: &Value) -> Service {
    let object: core::Service = serde_json::from_value(json!({"metadata": {"name": "cart"}, "spec": spec})).unwrap();
    Service::from(&object)
}

fn read(slice: Value) -> Result<Slice, UnusableSlice> {
    let mut slice = slice;
    slice["metadata"] = json!({"namespace": "shop", "name": "s", "labels": {SERVICE_LABEL: "cart"}});
    let object: discovery::EndpointSlice = serde_json::from_value(slice).unwrap();
    Slice::try_from(&object)
}

fn slice(ports: &Value, endpoints: &Value) -> Slice {
    read(json!({"addressType": "IPv4", "ports": ports, "endpoints": endpoints})).unwrap()
}

fn http() -> Service {
    service(&json!({"ports": [{"name": "http", "port": 80}]}))
}

fn set(service: &Service, slices: &[Slice]) -> Vec<String> {
    let cluster = ClusterId::service(ObjectName::new("shop", "cart"), 80, Protocol::Http1);
    let set = endpoint_set(&cluster, Some(service), slices.iter());
    set.endpoints.iter().map(|endpoint| format!("{} {:?}", endpoint.addr, endpoint.state)).collect()
}

fn at(address: &str) -> Value {
    json!({"addresses": [address]})
}

#[test]
fn an_address_in_two_slices_counts_once_and_stays_while_one_copy_stays() {
    let port = json!([{"name": "http", "port": 8080}]);
    let both = slice(&port, &json!([at("10.0.0.1"), at("10.0.0.2")]));
    let copy = slice(&port, &json!([at("10.0.0.1")]));
    let expected = ["10.0.0.1:8080 Ready", "10.0.0.2:8080 Ready"];
    assert_eq!(set(&http(), &[both.clone(), copy.clone()]), expected);
    assert_eq!(set(&http(), &[copy.clone(), both.clone()]), expected);
    assert_eq!(set(&http(), &[both]), expected);
    assert_eq!(set(&http(), &[copy]), ["10.0.0.1:8080 Ready"]);
}

#[test]
fn no_slice_or_an_empty_one_is_no_endpoint() {
    assert!(set(&http(), &[]).is_empty());
    assert!(set(&http(), &[slice(&json!([{"name": "http", "port": 8080}]), &json!([]))]).is_empty());
    assert!(set(&http(), &[slice(&json!(null), &json!([at("10.0.0.1")]))]).is_empty());
}

#[test]
fn the_ports_name_leads_to_each_slices_own_number() {
    let one =
        slice(&json!([{"name": "http", "port": 8080}, {"name": "metrics", "port": 9090}]), &json!([at("10.0.0.1")]));
    let two = slice(&json!([{"name": "http", "port": 8081}]), &json!([at("10.0.0.1"), at("10.0.0.2")]));
    assert_eq!(set(&http(), &[one, two]), ["10.0.0.1:8080 Ready", "10.0.0.1:8081 Ready", "10.0.0.2:8081 Ready"]);

    let unnamed = service(&json!({"ports": [{"port": 80}]}));
    for name in [json!(null), json!("")] {
        let slice = slice(&json!([{"name": name, "port": 8080}]), &json!([at("10.0.0.1")]));
        assert_eq!(set(&unnamed, &[slice]), ["10.0.0.1:8080 Ready"]);
    }
}

#[test]
fn only_tcp_counts() {
    let udp = slice(&json!([{"name": "http", "port": 8080, "protocol": "UDP"}]), &json!([at("10.0.0.1")]));
    assert!(set(&http(), &[udp]).is_empty());
    assert!(service(&json!({"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]})).ports.is_empty());
}

#[test]
fn conditions_decide_who_takes_requests() {
    let endpoint =
        |last: u8, conditions: Value| json!({"addresses": [format!("10.0.0.{last}")], "conditions": conditions});
    let port = || json!([{"name": "http", "port": 8080}]);
    let some_ready = slice(
        &port(),
        &json!([
            endpoint(1, json!({})),
            endpoint(2, json!({"ready": true})),
            endpoint(3, json!({"ready": false})),
            endpoint(4, json!({"ready": false, "serving": true, "terminating": true})),
            endpoint(5, json!({"ready": false, "serving": false, "terminating": true})),
            endpoint(6, json!({"ready": false, "terminating": true})),
            endpoint(7, json!({"ready": false, "serving": true})),
        ]),
    );
    assert_eq!(
        set(&http(), &[some_ready]),
        ["10.0.0.1:8080 Ready", "10.0.0.2:8080 Ready", "10.0.0.4:8080 Draining", "10.0.0.6:8080 Draining"]
    );

    let none_ready = slice(
        &port(),
        &json!([
            endpoint(3, json!({"ready": false})),
            endpoint(4, json!({"ready": false, "serving": true, "terminating": true})),
        ]),
    );
    let all_gone = slice(&port(), &json!([endpoint(3, json!({"ready": false}))]));
    assert_eq!(set(&http(), std::slice::from_ref(&none_ready)), ["10.0.0.4:8080 Ready"]);
    assert!(set(&http(), &[all_gone]).is_empty());

    // One ready endpoint in another slice is enough.
    let ready = slice(&port(), &json!([at("10.0.0.9")]));
    assert_eq!(set(&http(), &[none_ready, ready]), ["10.0.0.4:8080 Draining", "10.0.0.9:8080 Ready"]);
}

#[test]
fn the_first_ip_family_of_the_service_is_used() {
    let v4 = slice(&json!([{"name": "http", "port": 80}]), &json!([at("10.0.0.1")]));
    let v6 = json!({"addressType": "IPv6", "ports": [{"name": "http", "port": 80}], "endpoints": [at("fd00::1")]});
    let slices = [v4, read(v6).unwrap()];
    let with = |spec: Value| {
        let mut spec = spec;
        spec["ports"] = json!([{"name": "http", "port": 80}]);
        set(&service(&spec), &slices)
    };
    assert_eq!(with(json!({"ipFamilies": ["IPv6", "IPv4"]})), ["[fd00::1]:80 Ready"]);
    assert_eq!(with(json!({"ipFamilies": ["IPv4", "IPv6"]})), ["10.0.0.1:80 Ready"]);
    assert_eq!(with(json!({"clusterIP": "fd00::9"})), ["[fd00::1]:80 Ready"]);
    assert_eq!(with(json!({"clusterIP": "None"})), ["10.0.0.1:80 Ready"]);
    assert_eq!(set(&http(), &slices[1..]), ["[fd00::1]:80 Ready"]);
}

#[test]
fn what_is_no_address_is_left_out() {
    let odd = slice(
        &json!([{"name": "http", "port": 80}]),
        &json!([{"addresses": []}, at("fd00::1"), at("pod-1"), {"addresses": ["10.0.0.1", "10.0.0.2"]}]),
    );
    assert_eq!(set(&http(), &[odd]), ["10.0.0.1:80 Ready"]);
    let error = read(json!({"addressType": "FQDN", "endpoints": [at("example.com")]})).unwrap_err();
    assert_eq!(error.to_string(), "addressType: FQDN is not supported; it must be IPv4 or IPv6");
}

#[test]
fn a_slice_without_a_service_is_refused() {
    let slice: discovery::EndpointSlice =
        serde_json::from_value(json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": []})).unwrap();
    assert_eq!(Slice::try_from(&slice), Err(UnusableSlice::NoService));
}

#[test]
fn a_missing_service_or_port_has_no_endpoints() {
    let slices = [slice(&json!([{"name": "http", "port": 80}]), &json!([at("10.0.0.1")]))];
    let cluster = ClusterId::service(ObjectName::new("shop", "cart"), 81, Protocol::Http1);
    assert!(endpoint_set(&cluster, Some(&http()), slices.iter()).endpoints.is_empty());
    assert!(endpoint_set(&cluster, None, slices.iter()).endpoints.is_empty());
}
