use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn fixtures(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds/testdata").join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Decodes the object of a fixture as file mode does.
fn decode_yaml(yaml: &str) -> Result<(), Vec<Problem>> {
    let value: Value = serde_saphyr::from_str(yaml).unwrap();
    match value["kind"].as_str() {
        Some("Route") => Route::from_value(value).map(|route| assert_eq!(route.validate(), [])),
        Some("Selector") => Selector::from_value(value).map(|selector| assert_eq!(selector.validate(), [])),
        kind => panic!("a fixture of kind {kind:?}"),
    }
}

#[test]
fn good_objects_are_accepted() {
    for (path, yaml) in fixtures("good") {
        assert_eq!(decode_yaml(&yaml), Ok(()), "{}", path.display());
    }
}

#[test]
fn bad_objects_are_refused_at_the_field_the_api_server_names() {
    for (path, yaml) in fixtures("bad") {
        let problems = decode_yaml(&yaml).expect_err(&path.display().to_string());
        let field = yaml.lines().find_map(|line| line.strip_prefix("# field: "));
        let field = field.unwrap_or_else(|| panic!("{} has no line `# field: `", path.display()));
        assert!(problems.iter().any(|problem| problem.field == field), "{}: {problems:?}", path.display());
    }
}

/// Examples on a page of the documentation that begin with `rules:`.
fn examples(page: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page);
    let text = fs::read_to_string(path).unwrap();
    let blocks = text.split("```yaml\n").skip(1).map(|block| block.split_once("```").unwrap().0);
    blocks.filter(|block| block.starts_with("rules:")).map(|block| serde_saphyr::from_str(block).unwrap()).collect()
}

#[test]
fn examples_in_the_documentation_are_accepted() {
    let examples = examples("filters.md");
    assert!(examples.len() >= 8, "{}", examples.len());
    for example in examples {
        let decoded = Route::from_value(route(&example["rules"]));
        assert!(decoded.is_ok(), "{example}: {decoded:?}");
    }
}

fn route(rules: &Value) -> Value {
    json!({
        "apiVersion": "lockgate.dev/v1alpha1",
        "kind": "Route",
        "metadata": {"name": "a"},
        "spec": {"selectors": [{"name": "a"}], "rules": rules},
    })
}

fn problems(value: Value) -> Vec<String> {
    Route::from_value(value).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn defaults_are_those_of_the_schema() {
    let route = Route::from_value(route(&json!([{
        "matches": [{}],
        "backends": [{"service": "a", "port": 80}],
        "timeouts": {},
        "retry": {},
        "limits": {},
        "upstream": {},
        "loadBalancing": {},
    }])));
    let rule = &route.unwrap().spec.rules[0];
    let defaults = json!({
        "matches": [{"path": {"type": "Prefix", "value": "/"}}],
        "backends": [{"service": "a", "port": 80, "weight": 1}],
        "timeouts": {"request": "0s", "backendRequest": "0s", "connect": "2s", "idle": "1m", "tunnel": "1h"},
        "retry": {"attempts": 2, "when": ["connect-failure", "502", "503"], "backoff": "25ms", "budgetPercent": 20},
        "limits": {"maxQueued": 100, "queueTimeout": "1s", "reject": "Newest"},
        "upstream": {
            "maxConnections": 512,
            "maxPending": 1024,
            "acquireTimeout": "1s",
            "idleTimeout": "50s",
            "maxLifetime": "1h",
        },
        "loadBalancing": {"type": "RoundRobin"},
    });
    assert_eq!(serde_json::to_value(rule).unwrap(), defaults);
}

#[test]
fn every_problem_is_told_with_its_field() {
    let value = route(&json!([
        {"backends": [{"service": "a", "port": 80, "weigth": 2}], "timeouts": {"request": "soon"}},
        {"Backend": []},
    ]));
    assert_eq!(
        problems(value),
        [
            "spec.rules[0].backends[0].weigth: is not a known field; did you mean weight?",
            "spec.rules[0].timeouts.request: \"soon\" does not have the form ^([0-9]{1,5}(h|m|s|ms)){1,4}$",
            "spec.rules[1].Backend: is not a known field; did you mean backends?",
        ]
    );
}

#[test]
fn wrong_types_are_told_in_words() {
    assert_eq!(problems(route(&json!("all"))), ["spec.rules: must be a list, not a string"]);
    assert_eq!(problems(route(&json!([[]]))), ["spec.rules[0]: must be an object, not a list"]);
    assert_eq!(problems(json!([])).last().unwrap(), "must be an object, not a list");
}

#[test]
fn null_is_absent_as_for_the_api_server() {
    let value =
        route(&json!([{"matches": null, "backends": [{"service": "a", "port": 80, "weight": null}], "retry": null}]));
    let rule = &Route::from_value(value).unwrap().spec.rules[0];
    assert_eq!((rule.matches.len(), rule.backends[0].weight, &rule.retry), (0, 1, &None));
    let value = route(&json!([{"backends": [{"service": "a", "port": null}, null], "backend": null}]));
    assert_eq!(
        problems(value),
        [
            "spec.rules[0].backend: is not a known field; did you mean backends?",
            "spec.rules[0].backends[0].port: is required",
            "spec.rules[0].backends[1]: must be an object, not null",
        ]
    );
}

#[test]
fn other_kinds_and_names_are_refused() {
    let mut value = route(&json!([{"backends": [{"service": "a", "port": 80}]}]));
    value["kind"] = json!("Selector");
    value["apiVersion"] = json!("lockgate.dev/v2");
    value["metadata"] = json!({"name": "A_b", "namespace": "a.b"});
    let fields: Vec<String> = Route::from_value(value).unwrap_err().into_iter().map(|problem| problem.field).collect();
    assert_eq!(fields, ["apiVersion", "kind", "metadata.name", "metadata.namespace"]);
}

#[test]
fn a_status_of_any_form_does_not_matter() {
    let mut value = route(&json!([{"backends": [{"service": "a", "port": 80}]}]));
    value["status"] = json!({"selectors": 5});
    assert_eq!(Route::from_value(value).unwrap().status, None);
}

#[test]
fn an_object_already_decoded_is_checked_for_limits_too() {
    let mut route = Route::from_value(route(&json!([{"backends": [{"service": "a", "port": 80}]}]))).unwrap();
    assert_eq!(route.validate(), []);
    route.spec.rules = vec![route.spec.rules[0].clone(); 65];
    route.spec.rules[0].backends[0].weight = 2_000_000;
    let fields: Vec<String> = route.validate().into_iter().map(|problem| problem.field).collect();
    assert_eq!(fields, ["spec.rules"]);
    route.spec.rules.truncate(1);
    let fields: Vec<String> = route.validate().into_iter().map(|problem| problem.field).collect();
    assert_eq!(fields, ["spec.rules[0].backends[0].weight"]);
}

/// What the API server lets through because its cost limit allows no rule.
#[test]
fn values_of_conditions_are_checked_here_alone() {
    for condition in [
        json!({"source": "Header", "name": "a b", "values": ["c"]}),
        json!({"source": "Path", "values": ["no-slash"]}),
        json!({"source": "Path", "operator": "Pattern", "values": ["/a*"]}),
        json!({"source": "ClientIP", "values": ["10.0.0.0/8"]}),
        json!({"source": "ClientIP", "operator": "Cidr", "values": ["10.0.0.0/33"]}),
        json!({"source": "Time", "operator": "Before", "values": ["24:00"]}),
        json!({"source": "Time", "operator": "Before", "values": ["2026-13-01T00:00:00Z"]}),
        json!({"source": "Time", "operator": "Before", "values": ["2026-12-01 00:00Z"]}),
    ] {
        let value = route(&json!([
            {"matches": [{"conditions": [condition]}], "backends": [{"service": "a", "port": 80}]},
        ]));
        let found = Route::from_value(value).unwrap_err();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].field, "spec.rules[0].matches[0].conditions[0]");
    }
}

#[test]
fn group_and_version_are_what_the_constants_say() {
    assert_eq!(Route::api_version(&()), format!("{}/{}", crate::api::GROUP, crate::api::VERSION));
    assert_eq!(Selector::api_version(&()), Route::api_version(&()));
}

#[test]
fn what_only_the_types_refuse_is_told_of_at_every_place() {
    let rules = json!([
        {"name": "a", "upgrades": ["websocket", "h2c"], "backends": [{"service": "web", "port": 80}]},
        {"name": "b", "upgrades": ["TLS/1.2"], "backends": [{"service": "web", "port": 80}],
         "limits": {"maxBodyBytes": "999999999999999Ti"}},
    ]);
    let refused = Route::examine(route(&rules)).unwrap_err();
    let mut fields: Vec<&str> = refused.problems.iter().map(|problem| problem.field.as_str()).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        ["spec.rules[0].upgrades[1]", "spec.rules[1].limits.maxBodyBytes", "spec.rules[1].upgrades[0]"],
        "{:?}",
        refused.problems
    );
    assert_eq!(refused.draft.unwrap().spec.rules.len(), 2);
}
