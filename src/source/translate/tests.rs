use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{HostBackends, Listener, Settings};
use crate::api;
use crate::ir::{self, Fragment, ObjectName};
use crate::source::index::{Index, Object};

pub(in crate::source) fn settings(host_backends: HostBackends) -> Settings {
    let listener = |name: &str, tls| Listener { name: name.into(), tls };
    Settings {
        class_name: api::DEFAULT_CLASS.to_owned(),
        listeners: vec![listener("http", false), listener("https", true)],
        host_backends,
        default_certificate: None,
        reads_secrets: true,
    }
}

/// Decodes an object as a watch does: what does not decode is invalid, unknown fields are nothing.
pub(in crate::source) fn object(value: Value) -> Object {
    fn decode<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
    let name = ObjectName::new(text("namespace"), text("name"));
    let generation = value["metadata"]["generation"].as_i64().unwrap_or_default();
    let invalid = |kind, error: serde_json::Error| Object::invalid(kind, name, generation, error.to_string());
    match value["kind"].as_str().unwrap() {
        "Selector" => serde_json::from_value::<api::Selector>(value)
            .map_or_else(|error| invalid(ir::Kind::Selector, error), Object::from),
        "Route" => serde_json::from_value::<api::Route>(value)
            .map_or_else(|error| invalid(ir::Kind::Route, error), Object::from),
        "Service" => Object::from(&decode::<k8s_openapi::api::core::v1::Service>(value)),
        "EndpointSlice" => Object::from(&decode::<k8s_openapi::api::discovery::v1::EndpointSlice>(value)),
        "Namespace" => Object::from(&decode::<k8s_openapi::api::core::v1::Namespace>(value)),
        "Secret" => Object::from(&decode::<k8s_openapi::api::core::v1::Secret>(value)),
        "ConfigMap" => Object::from(&decode::<k8s_openapi::api::core::v1::ConfigMap>(value)),
        "ReferenceGrant" => Object::from(decode::<api::ReferenceGrant>(value)),
        kind => panic!("kind {kind}"),
    }
}

/// The cases: name, text, and what they translate to.
fn cases() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/source/translate/testdata");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.strip_suffix(".in.yaml")?.to_owned());
    paths.iter().filter_map(|path| Some((name(path)?, fs::read_to_string(path).unwrap()))).collect()
}

fn translate(text: &str) -> (Fragment, Vec<Object>) {
    let host_backends = match text.lines().next().and_then(|line| line.strip_prefix("# host backends: ")) {
        Some("never") => HostBackends::Never,
        Some("anywhere") => HostBackends::Anywhere,
        _ => HostBackends::Outside { admin_ports: vec![8081] },
    };
    let mut index = Index::new(settings(host_backends));
    let values: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let objects: Vec<Object> = values.into_iter().map(object).collect();
    for object in objects.clone() {
        index.apply(object);
    }
    ((*index.take_table().unwrap().0).clone(), objects)
}

#[test]
fn cases_translate_to_their_snapshots() {
    let cases = cases();
    assert!(cases.len() >= 20);
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("testdata");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for (name, text) in cases {
            insta::assert_yaml_snapshot!(name, translate(&text).0);
        }
    });
}

/// So that no reason that this source gives goes without a case.
#[test]
fn cases_show_every_reason() {
    use crate::api::reason;
    let mut seen: Vec<(&str, bool)> = Vec::new();
    for (_, text) in cases() {
        let verdicts = translate(&text).0.verdicts;
        seen.extend(verdicts.iter().flat_map(|verdict| {
            [&verdict.accepted, &verdict.resolved_refs].map(|finding| (finding.reason, finding.ok))
        }));
    }
    for expected in [
        (reason::ACCEPTED, true),
        (reason::RESOLVED_REFS, true),
        (reason::INVALID, false),
        (reason::UNSUPPORTED_VALUE, false),
        (reason::NO_MATCHING_SELECTOR, false),
        (reason::NOT_ALLOWED_BY_SELECTOR, false),
        (reason::HOSTNAME_CONFLICT, false),
        (reason::SUSPENDED, false),
        (reason::BACKEND_NOT_FOUND, false),
        (reason::REF_NOT_PERMITTED, false),
        (reason::UNSUPPORTED_PROTOCOL, false),
        (reason::INVALID_CERTIFICATE_REF, false),
        (reason::INVALID_CA_CERTIFICATE_REF, false),
    ] {
        assert!(seen.contains(&expected), "{expected:?}");
    }
}

/// A finding is true exactly when nothing is told but what is merely to be known.
#[test]
fn what_is_wrong_is_told() {
    use crate::api::reason::{CERTIFICATE_NOT_VALID_NOW, HOSTNAME_NOT_COVERED};
    let is_note =
        |problem: &ir::FieldProblem| [CERTIFICATE_NOT_VALID_NOW, HOSTNAME_NOT_COVERED].contains(&problem.reason);
    for (name, text) in cases() {
        for verdict in translate(&text).0.verdicts {
            for finding in [&verdict.accepted, &verdict.resolved_refs] {
                let is_to_be_known = !finding.problems.is_empty() && finding.problems.iter().all(is_note);
                assert_eq!(finding.ok, finding.message.is_empty() || is_to_be_known, "{name}: {verdict:?}");
            }
        }
    }
}

#[test]
fn the_cases_do_not_depend_on_the_order_of_objects() {
    for (name, text) in cases() {
        let (fragment, objects) = translate(&text);
        let anywhere = text.starts_with("# host backends: anywhere");
        let never = text.starts_with("# host backends: never");
        let host_backends = match (anywhere, never) {
            (true, _) => HostBackends::Anywhere,
            (_, true) => HostBackends::Never,
            _ => HostBackends::Outside { admin_ports: vec![8081] },
        };
        let mut index = Index::new(settings(host_backends));
        for object in objects.into_iter().rev() {
            index.apply(object);
            index.take_table();
        }
        // A change that nothing comes of, so that there is a fragment to look at.
        index.apply_invalid(ir::Kind::Route, ObjectName::new("x", "x"), 0, "x".to_owned());
        let mut other = (*index.take_table().unwrap().0).clone();
        other.verdicts.retain(|verdict| &*verdict.object.name != "x");
        assert_eq!(other, fragment, "{name}");
    }
}

proptest::proptest! {
    /// What objects write is brought into the form of requests, or refused.
    #[test]
    fn paths_take_the_form_of_requests(path in "/[a-c./%0-9A-Fa-f~é|\"{]{0,12}") {
        if let Ok(normal) = super::path::normal(&path) {
            let request = crate::routing::path::normalise(&path).unwrap();
            proptest::prop_assert_eq!(&request, &normal);
        }
    }
}
