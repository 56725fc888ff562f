use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::api::CONTROLLER_NAME;
use crate::ir::{Kind, ObjectName};

fn time(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

fn finding(ok: bool, reason: &'static str) -> Finding {
    Finding { ok, reason, message: format!("{reason}!"), problems: Vec::new() }
}

fn verdict(kind: Kind, parent: Option<&str>, accepted: bool) -> Verdict {
    Verdict {
        kind,
        object: ObjectName::new("n", "o"),
        parent: parent.map(|name| ObjectName::new("n", name)),
        generation: 4,
        attached_routes: 2,
        in_table: false,
        accepted: finding(accepted, if accepted { reason::ACCEPTED } else { reason::INVALID }),
        resolved_refs: finding(true, reason::RESOLVED_REFS),
    }
}

fn seen(kind: Kind, status: &Value) -> Seen {
    let metadata = ObjectMeta { uid: Some("u".to_owned()), generation: Some(4), ..ObjectMeta::default() };
    Seen::new(kind, &metadata, vec![ObjectName::new("n", "p"), ObjectName::new("m", "q")], Some(status))
}

fn planned(verdicts: &[Verdict], kind: Kind, status: &Value, second: i64) -> Option<Value> {
    planned_with(verdicts, &[], kind, status, second)
}

fn planned_with(verdicts: &[Verdict], shadows: &[Shadowed], kind: Kind, status: &Value, second: i64) -> Option<Value> {
    let verdicts: Vec<_> = verdicts.iter().cloned().map(Arc::new).collect();
    let status = plan(&verdicts, shadows, &seen(kind, status), (CONTROLLER_NAME, None), &time(second))?;
    Some(serde_json::to_value(status).unwrap())
}

#[test]
fn a_selector_gets_its_status_once() {
    let verdicts = [verdict(Kind::Selector, None, true)];
    let status = planned(&verdicts, Kind::Selector, &json!({}), 60).unwrap();
    let condition = |type_: &str, message: &str| {
        json!({
            "type": type_, "status": "True", "reason": type_, "message": message,
            "observedGeneration": 4, "lastTransitionTime": "1970-01-01T00:01:00Z",
        })
    };
    let conditions =
        [condition("Accepted", "Accepted!"), condition("ResolvedRefs", "ResolvedRefs!"), condition("Programmed", "")];
    assert_eq!(status, json!({"observedGeneration": 4, "attachedRoutes": 2, "conditions": conditions}));
    assert_eq!(planned(&verdicts, Kind::Selector, &status, 999), None);
}

#[test]
fn the_order_and_conditions_of_others_do_not_count() {
    let verdicts = [verdict(Kind::Selector, None, true)];
    let mut status = planned(&verdicts, Kind::Selector, &json!({}), 60).unwrap();
    let conditions = status["conditions"].as_array_mut().unwrap();
    conditions.reverse();
    conditions.push(json!({
        "type": "example.com/Paid", "status": "True", "reason": "Yes", "message": "",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }));
    assert_eq!(planned(&verdicts, Kind::Selector, &status, 999), None);
}

#[test]
fn times_move_only_with_the_status_of_their_condition() {
    let good = [verdict(Kind::Selector, None, true)];
    let status = planned(&good, Kind::Selector, &json!({}), 60).unwrap();
    let status = planned(&[verdict(Kind::Selector, None, false)], Kind::Selector, &status, 120).unwrap();
    let times: Vec<&str> = (0..3).map(|i| status["conditions"][i]["lastTransitionTime"].as_str().unwrap()).collect();
    assert_eq!(times, ["1970-01-01T00:02:00Z", "1970-01-01T00:01:00Z", "1970-01-01T00:02:00Z"]);
    assert_eq!(status["conditions"][2]["reason"], "NotProgrammed");
    let mut reworded = [verdict(Kind::Selector, None, false)];
    reworded[0].accepted.message = "other words".to_owned();
    let status = planned(&reworded, Kind::Selector, &status, 180).unwrap();
    assert_eq!(status["conditions"][0]["lastTransitionTime"], "1970-01-01T00:02:00Z");
}

#[test]
fn what_another_writer_changed_is_put_right() {
    let verdicts = [verdict(Kind::Selector, None, true)];
    let status = planned(&verdicts, Kind::Selector, &json!({}), 60).unwrap();
    for (pointer, value) in [
        ("/attachedRoutes", json!(7)),
        ("/observedGeneration", json!(3)),
        ("/conditions/0/message", json!("x")),
        ("/conditions/2/status", json!("False")),
        ("/conditions", json!([])),
    ] {
        let mut changed = status.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        assert!(planned(&verdicts, Kind::Selector, &changed, 999).is_some(), "{pointer}");
    }
}

#[test]
fn a_verdict_on_another_generation_says_nothing() {
    let mut old = verdict(Kind::Selector, None, true);
    old.generation = 3;
    assert_eq!(planned(&[old], Kind::Selector, &json!({}), 60), None);
}

#[test]
fn a_selector_without_a_verdict_belongs_to_somebody_else() {
    assert_eq!(planned(&[], Kind::Selector, &json!({"attachedRoutes": 3}), 60), None);
}

#[test]
fn a_route_gets_an_entry_for_each_parent_and_loses_those_it_no_longer_names() {
    let both = [verdict(Kind::Route, Some("a"), true), verdict(Kind::Route, Some("b"), false)];
    let status = planned(&both, Kind::Route, &json!({}), 60).unwrap();
    let entries = status["selectors"].as_array().unwrap();
    assert_eq!(entries.iter().map(|e| e["name"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(entries[0]["controllerName"], CONTROLLER_NAME);
    assert_eq!(entries[1]["conditions"][2]["status"], "False");
    assert_eq!(planned(&both, Kind::Route, &status, 999), None);
    let one = planned(&both[..1], Kind::Route, &status, 120).unwrap();
    assert_eq!(one["selectors"], json!([entries[0]]));
    assert_eq!(planned(&[], Kind::Route, &one, 180), Some(json!({})));
    assert_eq!(planned(&[], Kind::Route, &json!({}), 180), None);
}

#[test]
fn entries_of_other_controllers_are_none_of_ours() {
    let verdicts = [verdict(Kind::Route, Some("a"), true)];
    let mut status = planned(&verdicts, Kind::Route, &json!({}), 60).unwrap();
    let mut other = status["selectors"][0].clone();
    other["controllerName"] = json!("example.com/other");
    other["conditions"] = json!([]);
    status["selectors"].as_array_mut().unwrap().insert(0, other.clone());
    assert_eq!(planned(&verdicts, Kind::Route, &status, 999), None);
    let fresh = planned(&verdicts, Kind::Route, &json!({"selectors": [other]}), 60).unwrap();
    assert_eq!(fresh["selectors"].as_array().unwrap().len(), 1);
}

#[test]
fn a_verdict_on_a_whole_route_goes_to_each_parent_it_names() {
    let status = planned(&[verdict(Kind::Route, None, false)], Kind::Route, &json!({}), 60).unwrap();
    let entries = status["selectors"].as_array().unwrap();
    let names: Vec<_> = entries.iter().map(|e| (e["namespace"].as_str(), e["name"].as_str())).collect();
    assert_eq!(names, [(Some("m"), Some("q")), (Some("n"), Some("p"))]);
    assert_eq!(planned(&[verdict(Kind::Route, None, false)], Kind::Route, &status, 999), None);
}

#[test]
fn a_long_message_is_cut_to_what_the_schema_takes() {
    let mut long = verdict(Kind::Selector, None, false);
    long.accepted.message = "ü".repeat(MAX_MESSAGE);
    let status = planned(&[long], Kind::Selector, &json!({}), 60).unwrap();
    assert_eq!(status["conditions"][0]["message"].as_str().unwrap().len(), MAX_MESSAGE);
}

fn shadow(kind: Kind, parent: Option<&str>, extent: Extent) -> Shadowed {
    Shadowed {
        kind,
        object: ObjectName::new("n", "o"),
        parent: parent.map(|name| ObjectName::new("n", name)),
        extent,
        message: "rule 0 match 0 never wins".into(),
    }
}

#[test]
fn a_shadow_stands_at_its_parent_alone_and_goes_with_its_reason() {
    let both = [verdict(Kind::Route, Some("a"), true), verdict(Kind::Route, Some("b"), true)];
    let at_b = [shadow(Kind::Route, Some("b"), Extent::Part)];
    let status = planned_with(&both, &at_b, Kind::Route, &json!({}), 60).unwrap();
    assert_eq!(status["selectors"][0]["conditions"].as_array().unwrap().len(), 3);
    assert_eq!(
        status["selectors"][1]["conditions"][3],
        json!({
            "type": "Shadowed", "status": "True", "reason": "PartlyTaken", "message": "rule 0 match 0 never wins",
            "observedGeneration": 4, "lastTransitionTime": "1970-01-01T00:01:00Z",
        })
    );
    assert_eq!(planned_with(&both, &at_b, Kind::Route, &status, 999), None);
    // Worse than before: the reason changes, the time stays.
    let worse =
        planned_with(&both, &[shadow(Kind::Route, Some("b"), Extent::Whole)], Kind::Route, &status, 120).unwrap();
    let condition = &worse["selectors"][1]["conditions"][3];
    assert_eq!(condition["reason"], "NeverWins");
    assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:01:00Z");
    let free = planned(&both, Kind::Route, &worse, 180).unwrap();
    assert_eq!(free["selectors"][1]["conditions"].as_array().unwrap().len(), 3);
    assert_eq!(planned(&both, Kind::Route, &free, 999), None);
}

#[test]
fn a_selector_that_nothing_reaches_says_so() {
    let verdicts = [verdict(Kind::Selector, None, true)];
    let shadows = [shadow(Kind::Selector, None, Extent::Whole)];
    let status = planned_with(&verdicts, &shadows, Kind::Selector, &json!({}), 60).unwrap();
    assert_eq!(status["conditions"][3]["reason"], "NeverWins");
    assert_eq!(planned_with(&verdicts, &shadows, Kind::Selector, &status, 999), None);
    let free = planned(&verdicts, Kind::Selector, &status, 120).unwrap();
    assert_eq!(free["conditions"].as_array().unwrap().len(), 3);
}
