#![expect(clippy::needless_pass_by_value, reason = "callers write json! in place")]

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::api::reason::{INVALID_CERTIFICATE_REF, RESOLVED_REFS};
use crate::ir::{Finding, Fragment, Tls};
use crate::source::index::{HostBackends, Kind, Object, Settings};
use crate::source::secrets::tests::{Authority, Pair};
use crate::source::translate::tests::{object, settings};

/// Within the life of the certificates of tests that have not expired.
const NOW: i64 = 1_800_000_000;

fn selector(name: &str, spec: Value) -> Object {
    object(json!({"kind": "Selector", "metadata": {"namespace": "test", "name": name}, "spec": spec}))
}

fn with_secret(name: &str, secret: &str) -> Object {
    selector(name, json!({"hostnames": [format!("{name}.test")], "tls": {"secretName": secret}}))
}

fn secret(name: &str, pair: &Pair) -> Object {
    object(pair.secret(name))
}

fn index(objects: impl IntoIterator<Item = Object>) -> Index {
    let mut index = Index::new(settings(HostBackends::Never));
    index.set_now(NOW);
    objects.into_iter().for_each(|object| index.apply(object));
    index
}

fn resolved<'a>(fragment: &'a Fragment, name: &str) -> &'a Finding {
    let verdict = fragment.verdicts.iter().find(|verdict| &*verdict.object.name == name);
    &verdict.unwrap().resolved_refs
}

fn certificate(fragment: &Fragment, name: &str) -> Result<Arc<Certificate>, &'static str> {
    let selector = fragment.selectors.iter().find(|selector| &*selector.origin.object.name == name).unwrap();
    selector.tls.as_ref().and_then(Tls::termination).unwrap().certificate.clone()
}

#[test]
fn what_a_route_names_for_its_backends_is_asked_for_and_concerns_it() {
    let authority = Authority::new("ca");
    let tls = json!({"caSecretName": "authorities", "secretName": "own", "hostname": "b.test"});
    let route = |tls: &Value| {
        let rules = json!([{"backends": [{"service": "b", "port": 443, "tls": tls}]}]);
        let spec = json!({"selectors": [{"name": "s"}], "rules": rules});
        object(json!({"kind": "Route", "metadata": {"namespace": "test", "name": "r"}, "spec": spec}))
    };
    let service =
        json!({"kind": "Service", "metadata": {"namespace": "test", "name": "b"}, "spec": {"ports": [{"port": 443}]}});
    let mut index = index([selector("s", json!({})), route(&tls), object(service)]);
    let named = |name: &str| Reference::Secret(ObjectName::new("test", name));
    assert_eq!(index.take_references(), Some([named("authorities"), named("own")].into()));
    let cluster = |index: &mut Index| index.take_table().unwrap().0.clusters.first().map(|cluster| cluster.id.clone());
    assert_eq!(cluster(&mut index), None, "nothing is sent before it is known how");

    let mut authorities = authority.issue(&["x.test"]).secret("authorities");
    authorities["stringData"]["ca.crt"] = authority.pem.clone().into();
    index.apply(object(authorities));
    index.apply(secret("own", &authority.issue_to_client("one")));
    let first = cluster(&mut index).unwrap();
    let made = first.tls.clone().unwrap();
    assert_eq!(made.authorities.as_ref().unwrap().certificates, std::slice::from_ref(&authority.certificate));
    // Another certificate is another Cluster: its connections are made anew.
    index.apply(secret("own", &authority.issue_to_client("two")));
    let second = cluster(&mut index).unwrap();
    assert!(first != second && first.place == second.place);

    index.apply(route(&json!({})));
    assert_eq!(index.take_references(), Some([].into()));
    assert_eq!(cluster(&mut index).unwrap().tls.unwrap().hostname, "b.test.svc".into());
}

#[test]
fn a_secret_concerns_the_selectors_that_name_it() {
    let authority = Authority::new("ca");
    let (one, two) = (authority.issue(&["a.test"]), authority.issue(&["a.test"]));
    let mut index = index([with_secret("a", "s"), with_secret("b", "t"), secret("t", &authority.issue(&["b.test"]))]);
    let (before, _) = index.take_table().unwrap();
    assert_eq!(certificate(&before, "a"), Err(INVALID_CERTIFICATE_REF));
    let expected = "spec.tls.secretName: Secret test/s does not exist; TLS connections to the hostnames fail";
    assert_eq!((resolved(&before, "a").ok, &*resolved(&before, "a").message), (false, expected));
    assert!(resolved(&before, "b").ok);

    index.apply(secret("s", &one));
    let (made, _) = index.take_table().unwrap();
    assert_eq!(certificate(&made, "a").unwrap().chain, std::slice::from_ref(&one.chain));
    assert_eq!(*resolved(&made, "a"), *resolved(&before, "b"));
    let same = |a: &Fragment, b: &Fragment| Arc::ptr_eq(&a.selectors[1], &b.selectors[1]);
    assert!(same(&before, &made), "the other Selector is as it was");

    index.apply(secret("s", &one));
    assert!(index.take_table().is_none(), "the same Secret again");
    index.apply(secret("s", &two));
    assert_eq!(certificate(&index.take_table().unwrap().0, "a").unwrap().chain, std::slice::from_ref(&two.chain));
    index
        .apply(Object { name: ObjectName::new("test", "s"), content: super::super::Content::Secret(Material::Denied) });
    let (denied, _) = index.take_table().unwrap();
    assert!(resolved(&denied, "a").message.contains("the gateway may not read Secret test/s"));
    index.delete(Kind::Secret, &ObjectName::new("test", "s"));
    let (gone, _) = index.take_table().unwrap();
    assert_eq!(resolved(&gone, "a"), resolved(&before, "a"));
    assert!(same(&before, &gone));
}

#[test]
fn only_what_selectors_of_our_class_name_is_asked_for() {
    let of = |reference: &Reference| format!("{} {}", matches!(reference, Reference::Secret(_)), reference.name());
    let names = |index: &mut Index| index.take_references().map(|all| all.iter().map(of).collect::<Vec<_>>());
    let mut index = index([
        with_secret("a", "s"),
        with_secret("b", "s"),
        selector("c", json!({"className": "other", "tls": {"secretName": "t"}})),
        selector("d", json!({"tls": {"mode": "Passthrough"}})),
        selector("e", json!({"tls": {"secretName": "u", "clientCertificates": {"caConfigMapName": "v"}}})),
        selector(
            "f",
            json!({"tls": {"secretName": "u", "clientCertificates": {"mode": "Optional", "caSecretName": "w"}}}),
        ),
    ]);
    assert_eq!(names(&mut index).unwrap(), ["true test/s", "true test/u", "true test/w", "false test/v"]);
    assert_eq!(names(&mut index), None);
    index.delete(Kind::Selector, &ObjectName::new("test", "a"));
    assert_eq!(names(&mut index), None, "another Selector names it too");
    index.delete(Kind::Selector, &ObjectName::new("test", "b"));
    assert_eq!(names(&mut index).unwrap(), ["true test/u", "true test/w", "false test/v"]);
}

#[test]
fn certificates_expire_without_a_change() {
    let authority = Authority::new("ca");
    let mut index = index([with_secret("a", "s"), secret("s", &authority.issue(&["a.test"]))]);
    let (before, _) = index.take_table().unwrap();
    assert_eq!(resolved(&before, "a").message, "");
    let not_after = certificate(&before, "a").unwrap().not_after;
    index.set_now(not_after);
    assert!(index.take_table().is_none());
    index.set_now(not_after + 1);
    let (expired, _) = index.take_table().unwrap();
    let finding = resolved(&expired, "a");
    assert_eq!((finding.ok, finding.reason), (true, RESOLVED_REFS), "it is served");
    assert_eq!(finding.message, "spec.tls.secretName: the certificate of Secret test/s has expired");
    assert!(certificate(&expired, "a").is_ok());
    assert!(Arc::ptr_eq(&before.selectors[0], &expired.selectors[0]), "nothing else changes");

    let mut index = self::index([with_secret("a", "s"), secret("s", &authority.issue_expired(&["a.test"]))]);
    let (expired, _) = index.take_table().unwrap();
    assert!(resolved(&expired, "a").message.ends_with("has expired"));
    index.set_now(0);
    let (early, _) = index.take_table().unwrap();
    assert!(resolved(&early, "a").message.ends_with("is not valid yet"));
}

#[test]
fn the_default_certificate_is_a_secret_of_any_namespace() {
    let settings =
        Settings { default_certificate: Some(ObjectName::new("test", "default")), ..settings(HostBackends::Never) };
    let mut index = Index::new(settings);
    assert_eq!(index.take_references().unwrap().len(), 1);
    let (fragment, _) = index.take_table().unwrap();
    assert_eq!(fragment.default_certificate, Some(Err("Secret test/default does not exist".to_owned())));
    let pair = Authority::new("ca").issue(&["a.test"]);
    index.apply(secret("default", &pair));
    let (fragment, _) = index.take_table().unwrap();
    assert_eq!(fragment.default_certificate.clone().unwrap().unwrap().chain, [pair.chain]);
    index.apply(with_secret("a", "s"));
    assert!(index.take_table().is_some_and(|(next, _)| next.default_certificate == fragment.default_certificate));
}
