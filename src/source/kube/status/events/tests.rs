use parking_lot::Mutex;
use serde_json::Value;

use super::*;
use crate::api::{CONTROLLER_NAME, RouteStatus, SelectorStatus};
use crate::ir::{Kind, ObjectName};
use crate::source::kube::mock::{self, Server};

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "1970-01-01T00:01:00Z",
    })
}

fn selector(conditions: &[Value]) -> Status {
    let status: SelectorStatus = serde_json::from_value(json!({"conditions": conditions})).unwrap();
    Status::Selector(status)
}

fn route(places: &[(&str, &str, Value)]) -> Status {
    let entry = |(name, controller, condition): &(&str, &str, Value)| json!({"namespace": "n", "name": name, "controllerName": controller, "conditions": [condition]});
    let entries: Vec<Value> = places.iter().map(entry).collect();
    let status: RouteStatus = serde_json::from_value(json!({"selectors": entries})).unwrap();
    Status::Route(status)
}

fn told(before: &Status, after: &Status) -> Vec<String> {
    let notices = notices(before, after, CONTROLLER_NAME).into_iter();
    notices.map(|n| format!("{} {}: {}", if n.is_warning { "Warning" } else { "Normal" }, n.reason, n.note)).collect()
}

#[test]
fn what_is_refused_is_told_once_and_told_again_when_it_is_mended() {
    let fine =
        selector(&[condition("Accepted", "True", "Accepted", ""), condition("Programmed", "True", "Programmed", "")]);
    let refused = selector(&[
        condition("Accepted", "False", "HostnameConflict", "a.test belongs to m/other"),
        condition("Programmed", "False", "NotProgrammed", "not accepted: HostnameConflict"),
    ]);
    let fresh = selector(&[]);
    assert_eq!(told(&fresh, &fine), [""; 0]);
    assert_eq!(told(&fresh, &refused), ["Warning HostnameConflict: a.test belongs to m/other"]);
    assert_eq!(told(&fine, &refused), ["Warning HostnameConflict: a.test belongs to m/other"]);
    assert_eq!(told(&refused, &refused), [""; 0]);
    let mended = "Normal Accepted: Accepted is true again; it was not, with the reason HostnameConflict";
    assert_eq!(told(&refused, &fine), [mended]);
    let other = selector(&[condition("Accepted", "False", "HostnameConflict", "b.test belongs to m/other")]);
    assert_eq!(told(&refused, &other), ["Warning HostnameConflict: b.test belongs to m/other"]);
    let suspended = selector(&[condition("Accepted", "False", "Suspended", "spec.suspend is true")]);
    assert_eq!(told(&fine, &suspended), ["Normal Suspended: spec.suspend is true"]);
}

#[test]
fn a_route_tells_of_its_selectors_and_not_of_other_gateways() {
    let missing = || condition("ResolvedRefs", "False", "BackendNotFound", "rule 0: no Service n/x");
    let fine = || condition("ResolvedRefs", "True", "ResolvedRefs", "");
    let before =
        route(&[("a", CONTROLLER_NAME, fine()), ("b", CONTROLLER_NAME, fine()), ("a", "other/gateway", missing())]);
    let after = route(&[("a", CONTROLLER_NAME, missing()), ("b", CONTROLLER_NAME, missing())]);
    assert_eq!(told(&before, &after), ["Warning BackendNotFound: at Selector n/a, n/b: rule 0: no Service n/x"]);
    let half = route(&[("a", CONTROLLER_NAME, missing()), ("b", CONTROLLER_NAME, fine())]);
    let mended =
        "Normal ResolvedRefs: at Selector n/b: ResolvedRefs is true again; it was not, with the reason BackendNotFound";
    assert_eq!(told(&after, &half), [mended]);
}

#[derive(Default)]
struct Counts(Mutex<Vec<EventOutcome>>);

impl Hooks for Counts {
    fn event_write(&self, outcome: EventOutcome) {
        self.0.lock().push(outcome);
    }
}

struct Fixture {
    server: Server,
    events: Events,
    leading: watch::Sender<bool>,
    counts: Arc<Counts>,
}

fn start() -> Fixture {
    let (client, server) = mock::pair();
    let (leading, terms) = watch::channel(true);
    let counts = Arc::new(Counts::default());
    let events = Events::start(client, (CONTROLLER_NAME, "pod-1"), terms, Arc::clone(&counts) as _);
    Fixture { server, events, leading, counts }
}

impl Fixture {
    fn tell(&self, uid: &str, reason: &str, note: &str) {
        let notice = Notice { is_warning: true, reason: reason.to_owned(), note: note.to_owned() };
        let key = (Kind::Route, ObjectName::new("n", "shop"));
        self.events.tell(Told { key, uid: uid.to_owned(), notices: vec![notice] });
    }

    fn count(&self, outcome: EventOutcome) -> usize {
        self.counts.0.lock().iter().filter(|counted| **counted == outcome).count()
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_says_what_is_wrong_with_which_object_and_the_same_again_counts_up() {
    let mut fixture = start();
    fixture.tell("u", "Invalid", "spec.rules[0]: wrong");
    let call = fixture.server.next().await;
    assert_eq!((call.method.as_str(), call.path.as_str()), ("POST", "/apis/events.k8s.io/v1/namespaces/n/events"));
    let name = call.body["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("shop."), "{name}");
    assert_eq!(
        call.body["regarding"],
        json!({"apiVersion": "lockgate.dev/v1alpha1", "kind": "Route", "namespace": "n", "name": "shop", "uid": "u"})
    );
    for (field, value) in [
        ("type", "Warning"),
        ("reason", "Invalid"),
        ("note", "spec.rules[0]: wrong"),
        ("action", "Translate"),
        ("reportingController", CONTROLLER_NAME),
        ("reportingInstance", "pod-1"),
    ] {
        assert_eq!(call.body[field], value);
    }
    let body = call.body.clone();
    call.json(201, &body);
    fixture.tell("u", "Invalid", "spec.rules[0]: wrong");
    let call = fixture.server.next().await;
    assert_eq!(
        (call.method.as_str(), &call.path),
        ("PATCH", &format!("/apis/events.k8s.io/v1/namespaces/n/events/{name}"))
    );
    assert_eq!(call.body["series"]["count"], 2);
    // It is gone: said anew.
    call.fail(404, "NotFound", 0);
    let call = fixture.server.next().await;
    assert_eq!(call.method.as_str(), "POST");
    let body = call.body.clone();
    call.json(201, &body);
    // Another note, and the same after a long time, are Events of their own.
    fixture.tell("u", "Invalid", "spec.rules[1]: wrong");
    let call = fixture.server.next().await;
    assert_eq!(call.method.as_str(), "POST");
    call.fail(500, "InternalError", 0);
    fixture.server.silent_for(SERIES).await;
    fixture.tell("u", "Invalid", "spec.rules[0]: wrong");
    let call = fixture.server.next().await;
    assert_eq!(call.method.as_str(), "POST");
    call.json(201, &body);
    fixture.server.silent_for(SERIES).await;
    assert_eq!((fixture.count(EventOutcome::Written), fixture.count(EventOutcome::Failed)), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn one_object_cannot_say_much_and_the_others_still_can() {
    let mut fixture = start();
    for number in 0..30 {
        fixture.tell("noisy", "Invalid", &number.to_string());
    }
    fixture.tell("quiet", "Invalid", "once");
    let begun = Instant::now();
    for _ in 0..=BURST {
        let call = fixture.server.next().await;
        let body = call.body.clone();
        call.json(201, &body);
    }
    assert!(begun.elapsed() >= SPACING * BURST, "spread over time");
    fixture.server.silent_for(SERIES).await;
    assert_eq!((fixture.count(EventOutcome::Written), fixture.count(EventOutcome::Dropped)), (11, 20));
    fixture.tell("noisy", "Invalid", "later");
    assert_eq!(fixture.server.next().await.body["note"], "later");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_the_queue_and_whoever_does_not_hold_the_lease_says_nothing() {
    let mut fixture = start();
    for number in 0..QUEUE + 50 {
        fixture.tell(&number.to_string(), "Invalid", "");
    }
    assert_eq!(fixture.count(EventOutcome::Dropped), 50);
    fixture.leading.send_replace(false);
    fixture.server.silent_for(SERIES).await;
    assert_eq!(fixture.count(EventOutcome::Dropped), QUEUE + 50);
}

#[test]
fn a_namespace_on_its_way_out_is_no_missing_right() {
    let refused = |causes: Value| {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "events.events.k8s.io \"shop\" is forbidden: unable to create new content in namespace a because it is being terminated",
            "details": {"name": "shop", "kind": "events", "causes": causes},
        });
        kube::Error::Api(serde_json::from_value(status).unwrap())
    };
    let cause = json!([{"reason": "NamespaceTerminating", "message": "namespace a is being terminated", "field": "metadata.namespace"}]);
    assert!(is_terminating(&refused(cause)));
    assert!(!is_terminating(&refused(json!([]))));
    assert!(!is_terminating(&kube::Error::LinesCodecMaxLineLengthExceeded));
}
