mod docs;

use std::path::PathBuf;

use super::*;
use crate::source::file::{Input, read};

fn settings() -> Settings {
    Settings { listeners: None, complete: false, host_backends: HostBackends::Anywhere, now: None }
}

fn of_text(text: &str, settings: &Settings) -> Report {
    check(&read(&[Input::Text(text.to_owned())]), settings)
}

fn lines(report: &Report) -> Vec<String> {
    report.findings.iter().map(|finding| finding.to_string().lines().next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn everything_is_found_at_its_line() {
    let manifests = read(&[Input::Path(PathBuf::from("src/check/testdata"))]);
    let report = check(&manifests, &settings());
    insta::assert_snapshot!("text", report.to_text());
    let complete = check(&manifests, &Settings { complete: true, ..settings() });
    assert_eq!(complete.findings.len(), report.findings.len());
    assert!(complete.count(Severity::Error) > report.count(Severity::Error));
    let json = serde_json::to_string_pretty(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    insta::assert_snapshot!("json", json.lines().take(40).collect::<Vec<_>>().join("\n"));
}

const GOOD: &str = "apiVersion: lockgate.dev/v1alpha1
kind: Selector
metadata: {name: s}
spec: {hostnames: [x.test], listeners: [intern]}
---
apiVersion: lockgate.dev/v1alpha1
kind: Route
metadata: {name: r}
spec: {selectors: [{name: s}], rules: [{backends: [{host: 10.0.0.1, port: 80}]}]}
";

#[test]
fn good_manifests_have_no_findings() {
    let report = of_text(GOOD, &settings());
    assert_eq!((lines(&report), report.objects), (vec![], 2));
    assert_eq!(report.to_text(), "2 objects: 0 errors, 0 warnings\n");
}

#[test]
fn listeners_count_where_they_are_known() {
    let listeners = vec![Listener { name: "http".into(), tls: false }];
    let report = of_text(GOOD, &Settings { listeners: Some(listeners), ..settings() });
    assert_eq!(
        lines(&report)[0],
        "-:4: error: Selector default/s: spec.listeners[0]: the gateway has no listener intern; it has http"
    );
}

#[test]
fn what_asks_to_be_left_out_is_no_finding() {
    let report = of_text(&GOOD.replace("listeners: [intern]", "suspend: true"), &settings());
    let errors: Vec<String> = lines(&report);
    assert!(errors.iter().all(|line| !line.contains("spec.suspend")), "{errors:?}");
}

#[test]
fn selectors_that_no_route_names_are_idle() {
    let idle = "---
apiVersion: lockgate.dev/v1alpha1
kind: Selector
metadata: {name: idle}
spec: {hostnames: [idle.test]}
";
    let report = of_text(&format!("{GOOD}{idle}"), &settings());
    let reason = "no Route attaches to it: every request that it takes is answered with 404";
    assert_eq!(lines(&report), [format!("-:11: warning: Selector default/idle: {reason}")]);
    // Who checks Selectors alone has the Routes elsewhere, and a Route that does not decode may name any.
    assert_eq!(lines(&of_text(idle, &settings())), [""; 0]);
    let broken = GOOD.replace("host: 10.0.0.1", "hots: 10.0.0.1");
    assert_eq!(of_text(&format!("{broken}{idle}"), &settings()).count(Severity::Warning), 0);
}

#[test]
fn json_on_a_pipe_is_read_as_json() {
    let text = "{\"apiVersion\": \"lockgate.dev/v1alpha1\", \"kind\": \"Selector\", \"metadata\": {\"name\": \"a\"}, \"spec\": {}}
{\"apiVersion\": \"lockgate.dev/v1alpha1\", \"kind\": \"Selector\", \"metadata\": {\"name\": \"b\"}, \"spec\": {\"x\": 1}}";
    assert_eq!(lines(&of_text(text, &settings())), ["-:2: error: Selector default/b: spec.x: is not a known field"]);
}

#[test]
fn a_file_that_is_named_twice_counts_once() {
    let path = || Input::Path(PathBuf::from("src/check/testdata/shop.yaml"));
    let (once, twice) = (read(&[path()]), read(&[path(), path()]));
    assert_eq!(check(&once, &settings()), check(&twice, &settings()));
}

proptest::proptest! {
    #[test]
    fn any_text_is_checked(text in "[a-z:{}\\[\\]\\-\n \t\"'&*!|>%\u{fc}]{0,60}") {
        let report = of_text(&text, &settings());
        proptest::prop_assert!(!report.to_text().is_empty());
    }
}

#[test]
fn what_is_refused_hides_nothing_that_comes_after() {
    insta::assert_snapshot!("stages", of_text(include_str!("tests/stages.yaml"), &settings()).to_text());
}

#[test]
fn hints_show_what_would_be_right() {
    let complete = Settings { complete: true, ..settings() };
    insta::assert_snapshot!("hints", of_text(include_str!("tests/hints.yaml"), &complete).to_text());
}

#[test]
fn nothing_is_not_good() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let told = |path: PathBuf| {
        let report = check(&read(&[Input::Path(path)]), &settings());
        (lines(&report).join("\n").replace(directory.path().to_str().unwrap(), "DIR"), report.objects)
    };
    assert_eq!(told(path("")).0, "DIR/: warning: no object found");
    std::fs::write(path("empty.yaml"), "# nothing\n").unwrap();
    assert_eq!(told(path("empty.yaml")).0, "DIR/empty.yaml: warning: no object found");
    std::os::unix::fs::symlink("nowhere", path("x.yaml")).unwrap();
    assert_eq!(told(path("")).0, "DIR/x.yaml: error: is a link to a file that is not there");
    std::fs::remove_file(path("x.yaml")).unwrap();
    std::fs::write(path("a.YAML"), GOOD).unwrap();
    assert_eq!(told(path("")), (String::new(), 2));
    let missing = told(path("gone"));
    assert!(missing.0.starts_with("DIR/gone: error: cannot be read: "), "{missing:?}");
    assert_eq!(lines(&of_text("", &settings())), ["-: warning: no object found"]);
}

#[test]
fn values_that_no_request_has_are_warned_of() {
    let text = "apiVersion: lockgate.dev/v1alpha1
kind: Selector
metadata: {name: s}
spec:
  hostnames: [x.test]
  match: {mode: Any, conditions: [{source: Host, values: [\"x.test:80\", x.test]}]}
---
apiVersion: lockgate.dev/v1alpha1
kind: Route
metadata: {name: r}
spec:
  selectors: [{name: s}]
  rules:
  - matches:
    - path: {type: Regex, value: \"/%2b.*\"}
    - path: {type: Regex, value: shop/.*}
    - headers: [{name: a, value: \" b\"}]
    backends: [{host: 10.0.0.1, port: 80}]
";
    let told = lines(&of_text(text, &settings()));
    assert_eq!(
        told,
        [
            "-:6: warning: Selector default/s: spec.match.conditions[0].values[0]: no request has this: hosts are compared \
             without their port",
            "-:15: warning: Route default/r: spec.rules[0].matches[0].path.value: no request has this: paths are normalised \
             before they are compared: escapes are in upper case, such as %2B",
            "-:16: warning: Route default/r: spec.rules[0].matches[1].path.value: no request has this: a regular expression \
             is compared with the whole path, which starts with /",
            "-:17: warning: Route default/r: spec.rules[0].matches[2].headers[0].value: no request has this: the value of a \
             header does not begin or end with a blank",
        ]
    );
}

#[test]
fn a_secret_that_is_wrong_is_there_all_the_same() {
    let text = "apiVersion: v1
kind: Secret
metadata: {name: pair}
type: kubernetes.io/tls
data: {tls.crt: 'no base64', tls.key: aGk=}
---
apiVersion: lockgate.dev/v1alpha1
kind: Selector
metadata: {name: s}
spec: {hostnames: [x.test], tls: {secretName: pair}}
";
    let report = of_text(text, &Settings { complete: true, ..settings() });
    let lines = lines(&report);
    assert_eq!(lines[0], "-:5: error: Secret default/pair: data.tls.crt: must be a string in base64");
    assert!(lines.iter().all(|line| !line.contains("does not exist")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("Secret default/pair: data.tls.crt must be")), "{lines:?}");
}
