use serde_json::{Value, json};

use super::*;
use crate::source::kube::mock::{self, Server};

fn service(ingress: &Value, external: &[&str]) -> Value {
    json!({
        "metadata": {"name": "edge", "namespace": "gateways", "resourceVersion": "5"},
        "spec": {"clusterIPs": ["10.96.0.7", "fd00::7"], "externalIPs": external},
        "status": {"loadBalancer": {"ingress": ingress}},
    })
}

fn of(ingress: &Value, external: &[&str], cluster_ips: bool) -> Vec<String> {
    let service: Service = serde_json::from_value(service(ingress, external)).unwrap();
    addresses(&service, cluster_ips).into_iter().map(|a| format!("{:?} {}", a.kind, a.value)).collect()
}

#[test]
fn addresses_are_those_that_are_reached_from_outside() {
    let balanced = json!([{"ip": "203.0.113.9"}, {"ip": "203.0.113.2"}, {"ip": "203.0.113.9"}]);
    assert_eq!(of(&balanced, &[], true), ["IPAddress 203.0.113.2", "IPAddress 203.0.113.9"]);
    let named = json!([{"hostname": "lb.example.net", "ip": "203.0.113.9"}]);
    assert_eq!(of(&named, &["198.51.100.1"], false), ["IPAddress 198.51.100.1", "Hostname lb.example.net"]);
    assert_eq!(of(&json!([]), &[], false), [""; 0]);
    assert_eq!(of(&json!([]), &[], true), ["IPAddress 10.96.0.7", "IPAddress fd00::7"]);
    let headless: Service = serde_json::from_value(json!({"spec": {"clusterIPs": ["None"]}})).unwrap();
    assert_eq!(addresses(&headless, true), []);
}

struct Fixture {
    server: Server,
    known: watch::Receiver<Known>,
    leading: watch::Sender<bool>,
}

fn start(leads: bool) -> Fixture {
    let (client, server) = mock::pair();
    let (sender, known) = watch::channel(None);
    let (leading, terms) = watch::channel(leads);
    let settings = Settings { namespace: "gateways".to_owned(), name: "edge".to_owned(), cluster_ips: false };
    tokio::spawn(follow(client, settings, sender, terms));
    Fixture { server, known, leading }
}

impl Fixture {
    async fn shows(&mut self, wanted: Option<&[&str]>) {
        self.known.changed().await.unwrap();
        let known = self.known.borrow_and_update();
        let values: Option<Vec<&str>> = known.as_ref().map(|k| k.iter().map(|a| a.value.as_str()).collect());
        assert_eq!(values.as_deref(), wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn one_service_is_watched_and_what_it_becomes_is_told() {
    let mut fixture = start(true);
    let list = fixture.server.list().await;
    assert_eq!(list.path, "/api/v1/namespaces/gateways/services");
    assert!(list.query.contains("fieldSelector=metadata.name%3Dedge"), "{}", list.query);
    list.items("5", &[service(&json!([]), &[])]);
    fixture.shows(Some(&[])).await;
    let events = fixture.server.watch("5").await.stream();
    events.send("MODIFIED", &service(&json!([{"ip": "203.0.113.9"}]), &[]));
    fixture.shows(Some(&["203.0.113.9"])).await;
    events.send("MODIFIED", &service(&json!([{"hostname": "lb.example.net"}]), &[]));
    fixture.shows(Some(&["lb.example.net"])).await;
    events.send("DELETED", &service(&json!([]), &[]));
    fixture.shows(Some(&[])).await;
}

#[tokio::test(start_paused = true)]
async fn only_the_holder_of_the_lease_watches_and_what_is_not_known_is_not_told() {
    let mut fixture = start(false);
    fixture.server.silent_for(std::time::Duration::from_mins(10)).await;
    fixture.leading.send_replace(true);
    fixture.server.list().await.fail(403, "Forbidden", 0);
    let list = fixture.server.list().await;
    assert!(!fixture.known.has_changed().unwrap(), "a refusal says nothing of the Service");
    list.items("5", &[service(&json!([{"ip": "203.0.113.9"}]), &[])]);
    fixture.shows(Some(&["203.0.113.9"])).await;
    let watch = fixture.server.watch("5").await;
    fixture.leading.send_replace(false);
    fixture.shows(None).await;
    assert!(watch.is_given_up());
}
