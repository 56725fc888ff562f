use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;
use crate::ir::{ClusterId, Fragment, Protocol};
use crate::source::index::HostBackends;
use crate::source::translate::tests::settings;

const SELECTOR: &str = "apiVersion: lockgate.dev/v1alpha1
kind: Selector
metadata: {name: shop}
spec: {hostnames: [shop.example.com]}
";

const SERVICE: &str = "apiVersion: v1
kind: Service
metadata: {name: cart}
spec: {ports: [{name: http, port: 8080}]}
";

fn route(name: &str) -> String {
    format!(
        "apiVersion: lockgate.dev/v1alpha1
kind: Route
metadata: {{name: {name}}}
spec:
  selectors: [{{name: shop}}]
  rules:
  - matches:
    - path: {{value: /{name}}}
    backends:
    - {{service: cart, port: 8080}}
"
    )
}

fn slice(address: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: cart-1, labels: {{kubernetes.io/service-name: cart}}}}
addressType: IPv4
ports: [{{name: http, port: 80}}]
endpoints: [{{addresses: [{address}]}}]
"
    )
}

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        write(&directory, name, text);
    }
    directory
}

fn write(directory: &TempDir, name: &str, text: &str) {
    let path = directory.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Objects as `Kind namespace/name`, and problems with paths as seen from the directory.
fn seen(directory: &TempDir, loaded: &Loaded) -> (Vec<String>, Vec<String>) {
    let root = format!("{}/", directory.path().display());
    let objects = loaded.objects.iter().map(|object| format!("{:?} {}", object.kind(), object.name));
    let problems = loaded.problems.iter().map(|problem| problem.to_string().replace(&root, ""));
    (objects.collect(), problems.collect())
}

fn seen_at(directory: &TempDir) -> (Vec<String>, Vec<String>) {
    seen(directory, &load(directory.path()))
}

#[test]
fn documents_lists_and_folders_are_read() {
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {}\n",
        SERVICE.trim_end().replace('\n', "\n  ").replace("name: cart", "name: cart, namespace: other")
    );
    let json = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}}
{"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant", "metadata": {"name": "g"},
 "spec": {"from": [], "to": []}}"#;
    let directory = directory(&[
        ("a.yaml", &format!("# nothing\n---\n{SELECTOR}---\n\n---\n{SERVICE}")),
        ("below/b.yml", &route("r")),
        ("below/list.yaml", &list),
        ("c.json", json),
        ("slice.yaml", &slice("10.0.0.1")),
        ("other.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: 5\n"),
        ("openshift.yaml", "apiVersion: route.openshift.io/v1\nkind: Route\nmetadata: {name: d}\n"),
        ("notes.txt", "{"),
        (".hidden.yaml", "{"),
    ]);
    let (objects, problems) = seen_at(&directory);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(
        objects,
        [
            "Selector default/shop",
            "Service default/cart",
            "Route default/r",
            "Service other/cart",
            "Namespace /shop",
            "ReferenceGrant default/g",
            "EndpointSlice default/cart-1",
        ]
    );
}

#[test]
fn problems_name_file_line_object_and_field() {
    let unknown = route("unknown").replace("    backends:", "    timeout: 5s\n    backends:");
    let wrong = route("wrong").replace("port: 8080", "port: 8080, weight: heavy");
    let directory = directory(&[
        ("a.yaml", &format!("{unknown}---\n{wrong}")),
        (
            "b.yaml",
            "apiVersion: lockgate.dev/v1\nkind: Route\nmetadata: {name: r}\nspec: {}\n---\nkind: Service\n---\n- 1\n",
        ),
        (
            "c.yaml",
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\nspec:\n  ports:\n  - prot: 80\n    port: 80\n",
        ),
        ("d.yaml", "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\nspec:\n  ports:\n  - port: many\n"),
        (
            "e.yaml",
            "apiVersion: v1\nkind: Service\nspec: {}\n---\napiVersion: lockgate.dev/v1alpha1\nkind: Rout\nmetadata: {name: r}\n",
        ),
        ("f.yaml", &slice("10.0.0.1").replace("IPv4", "FQDN")),
        ("g.json", "[\n"),
        ("h.yaml", "a: [\n  b: }\n"),
        (
            "i.yaml",
            "kind: List\napiVersion: v1\nitems:\n- apiVersion: lockgate.dev/v1alpha1\n  kind: Selector\n  metadata:\n    name: s\n  spec:\n    priority: high\n",
        ),
    ]);
    let (objects, problems) = seen_at(&directory);
    insta::assert_snapshot!(problems.join("\n"));
    // Verdicts tell of what has a name and could have one.
    assert_eq!(objects, ["Route default/unknown", "Route default/wrong", "Route default/r", "Selector default/s"]);
}

#[test]
fn of_two_declarations_the_first_counts_and_both_are_named() {
    let other = route("r").replace("/r}", "/other}");
    let directory = directory(&[("a.yaml", &format!("{SELECTOR}---\n{}", route("r"))), ("b.yaml", &other)]);
    let loaded = load(directory.path());
    let (objects, problems) = seen(&directory, &loaded);
    assert_eq!(objects.len(), 2);
    assert_eq!(problems, ["b.yaml:1: Route default/r: is already declared at a.yaml:6, which counts"]);
    assert!(format!("{:?}", loaded.objects).contains("\"/r\""));

    // A file that several paths lead to is one file.
    symlink(directory.path().join("a.yaml"), directory.path().join("link.yaml")).unwrap();
    assert_eq!(seen_at(&directory).1.len(), 1);
}

#[test]
fn a_file_that_cannot_be_read_keeps_its_objects_until_it_can() {
    let directory = directory(&[("a.yaml", &format!("{SELECTOR}---\n{SERVICE}"))]);
    let mut store = Store::default();
    let mut look = || {
        let has_changed = store.refresh(directory.path());
        let (objects, problems) = seen(&directory, &store.loaded());
        (has_changed, objects.len(), problems)
    };
    assert_eq!(look(), (true, 2, vec![]));
    assert_eq!(look(), (false, 2, vec![]));

    write(&directory, "a.yaml", "kind: Selector\nmetadata: {name: sh");
    let (_, objects, problems) = look();
    assert_eq!((objects, problems.len()), (2, 1));
    assert!(problems[0].starts_with("a.yaml:") && problems[0].contains("is no YAML"), "{problems:?}");
    assert!(problems[0].ends_with("(2 former objects of the file stay)"), "{problems:?}");

    fs::write(directory.path().join("a.yaml"), b"a: b\nc: \xff\n").unwrap();
    assert_eq!(look(), (true, 2, vec!["a.yaml:2: is not UTF-8 (2 former objects of the file stay)".to_owned()]));

    fs::File::create(directory.path().join("a.yaml")).unwrap().set_len(100 << 20).unwrap();
    assert_eq!(look(), (true, 2, vec!["a.yaml: has more than 16 MiB (2 former objects of the file stay)".to_owned()]));

    write(&directory, "a.yaml", SELECTOR);
    assert_eq!(look(), (true, 1, vec![]));
    fs::remove_file(directory.path().join("a.yaml")).unwrap();
    assert_eq!(look(), (true, 0, vec![]));
}

#[test]
fn what_an_unreadable_place_declared_stays() {
    let directory = directory(&[("sub/a.yaml", SELECTOR)]);
    let mut store = Store::default();
    assert!(store.refresh(directory.path()));
    let away = directory.path().with_extension("away");
    fs::rename(directory.path(), &away).unwrap();
    assert!(store.refresh(directory.path()));
    let loaded = store.loaded();
    assert_eq!((loaded.objects.len(), loaded.problems.len()), (1, 1));
    assert!(loaded.problems[0].reason.starts_with("cannot be read"), "{:?}", loaded.problems);
    fs::rename(&away, directory.path()).unwrap();
    store.refresh(directory.path());
    assert!(store.loaded().problems.is_empty());
}

#[test]
fn links_may_lead_in_circles_and_nowhere() {
    let directory = directory(&[("sub/a.yaml", SELECTOR)]);
    symlink(directory.path(), directory.path().join("sub/up")).unwrap();
    symlink(directory.path().join("gone"), directory.path().join("dangling.yaml")).unwrap();
    symlink("self.yaml", directory.path().join("self.yaml")).unwrap();
    let (objects, problems) = seen_at(&directory);
    assert_eq!(objects, ["Selector default/shop"]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("self.yaml: cannot be read"), "{problems:?}");
}

/// As the kubelet mounts a `ConfigMap`: files are links through `..data`, which is swapped.
#[test]
fn a_mounted_config_map_is_read_once_and_swaps() {
    let directory = directory(&[("..1/a.yaml", SELECTOR), ("..2/a.yaml", SERVICE)]);
    let link = |to: &str| {
        symlink(to, directory.path().join("..tmp")).unwrap();
        fs::rename(directory.path().join("..tmp"), directory.path().join("..data")).unwrap();
    };
    link("..1");
    symlink("..data/a.yaml", directory.path().join("a.yaml")).unwrap();
    let mut store = Store::default();
    assert!(store.refresh(directory.path()));
    assert_eq!(seen(&directory, &store.loaded()), (vec!["Selector default/shop".to_owned()], vec![]));
    link("..2");
    assert!(store.refresh(directory.path()));
    assert_eq!(seen(&directory, &store.loaded()), (vec!["Service default/cart".to_owned()], vec![]));
}

#[test]
fn large_and_hostile_files_end_in_problems() {
    let bomb: String = (1..12).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, level| {
        let former = format!("*a{}, ", level - 1).repeat(9);
        format!("{text}a{level}: &a{level} [{former}]\n")
    });
    let deep = format!("a: {}1{}\n", "[".repeat(100_000), "]".repeat(100_000));
    let hosts = "h.example.com, ".repeat(70_000);
    let large = SELECTOR.replace("shop.example.com", &hosts);
    assert!(large.len() > 1 << 20);
    let directory = directory(&[("bomb.yaml", &bomb), ("deep.yaml", &deep), ("large.yaml", &large)]);
    let (objects, problems) = seen_at(&directory);
    assert_eq!(objects, ["Selector default/shop"]);
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert_eq!(
        problems[2],
        "large.yaml:4: Selector default/shop: spec.hostnames: has 70000 entries, at most 64 are allowed"
    );
}

// === following changes ===

struct Run {
    updates: mpsc::Receiver<Update>,
    problems: channel::Receiver<Arc<Vec<Problem>>>,
}

fn start(directory: &TempDir) -> Run {
    let (sender, updates) = mpsc::channel(16);
    let (told, problems) = channel::channel(Arc::default());
    tokio::spawn(run(directory.path().to_owned(), settings(HostBackends::Anywhere), sender, told));
    Run { updates, problems }
}

impl Run {
    async fn table(&mut self) -> (Arc<Fragment>, usize) {
        match self.updates.recv().await.unwrap() {
            Update::Table { fragment, endpoints } => (fragment, endpoints.len()),
            Update::Endpoints { set, .. } => panic!("endpoints of {}", set.cluster),
            Update::DefaultCertificate(certificate) => panic!("{certificate:?}"),
        }
    }
}

// Time is paused: looking again costs no waiting, whether the system tells of a change or not.
#[tokio::test(start_paused = true)]
async fn changes_become_updates() {
    let directory = directory(&[("a.yaml", SELECTOR), ("b.yaml", SERVICE), ("c.yaml", &slice("10.0.0.1"))]);
    let mut run = start(&directory);
    let (fragment, _) = run.table().await;
    assert!(fragment.clusters.is_empty());
    run.problems.changed().await.unwrap();

    write(&directory, "r.yaml", &route("r"));
    let (fragment, endpoints) = run.table().await;
    assert_eq!((fragment.selectors[0].rules.len(), endpoints), (1, 1));

    write(&directory, "c.yaml", &slice("10.0.0.2"));
    match run.updates.recv().await.unwrap() {
        Update::Endpoints { set, .. } => {
            assert_eq!(set.cluster, ClusterId::service(ObjectName::new("default", "cart"), 8080, Protocol::Http1));
            assert_eq!(set.endpoints[0].addr.to_string(), "10.0.0.2:80");
        }
        other => panic!("{other:?} for endpoints"),
    }

    write(&directory, "below/q.yaml", &route("q").replace("backends", "backend"));
    let (fragment, _) = run.table().await;
    assert_eq!(fragment.selectors[0].rules.len(), 1);
    run.problems.changed().await.unwrap();
    assert_eq!(run.problems.borrow()[0].field, "spec.rules[0].backend");

    fs::remove_file(directory.path().join("r.yaml")).unwrap();
    let (fragment, _) = run.table().await;
    assert!(fragment.selectors[0].rules.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_empty_directory_has_a_table_and_a_missing_one_is_an_error() {
    let directory = directory(&[]);
    let mut empty = start(&directory);
    assert_eq!(*empty.table().await.0, Fragment::default());
    // Told although there is none: it says that all was read.
    empty.problems.changed().await.unwrap();
    assert!(empty.problems.borrow_and_update().is_empty());
    let (updates, _receiver) = mpsc::channel(1);
    let missing = directory.path().join("gone");
    let error = run(missing.clone(), settings(HostBackends::Anywhere), updates, channel::Sender::default()).await;
    assert_eq!(error.unwrap_err().to_string(), format!("cannot read the manifests at {}", missing.display()));
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_its_receiver() {
    let directory = directory(&[]);
    let (updates, mut receiver) = mpsc::channel(1);
    let path = directory.path().to_owned();
    let run = tokio::spawn(run(path, settings(HostBackends::Anywhere), updates, channel::Sender::default()));
    receiver.recv().await.unwrap();
    drop(receiver);
    run.await.unwrap().unwrap();
}

#[test]
fn a_file_that_is_being_written_keeps_what_it_held() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.yaml");
    let object = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";
    fs::write(&file, object).unwrap();
    let mut store = Store::following();
    store.refresh(directory.path());
    assert_eq!(store.loaded().objects.len(), 1);

    fs::write(&file, "").unwrap();
    assert!(!store.refresh(directory.path()), "an empty file of this moment is half a file");
    assert!(!store.is_settled());
    assert_eq!(store.loaded().objects.len(), 1);

    let long_ago = std::time::SystemTime::now() - Duration::from_mins(1);
    fs::File::options().write(true).open(&file).unwrap().set_modified(long_ago).unwrap();
    assert!(store.refresh(directory.path()) && store.is_settled());
    assert_eq!(store.loaded().objects.len(), 0);
}

#[test]
fn a_secret_is_told_of_without_its_values() {
    let secret =
        |name: &str, rest: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\n{rest}\n---\n");
    let text = [
        secret("a", "data: {tls.key: 'not_base64!'}"),
        secret("b", "stringData: hunter2"),
        secret("c", "stringData: {tls.key: 4711}"),
        secret("d", "type: kubernetes.io/tls\nstringDaat: {tls.key: hunter2}"),
    ]
    .concat();
    let (objects, problems) = seen_at(&directory(&[("s.yaml", &text)]));
    assert_eq!(objects.len(), 3, "they are there, with nothing to be used: {objects:?}");
    let expected = [
        "data.tls.key: must be a string in base64",
        "stringData: is not of the right form",
        "stringData.tls.key: is not of the right form",
        "stringDaat: is not a known field",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.contains(expected), "{problem}");
    }
    for value in ["not_base64", "hunter2", "4711"] {
        assert!(!problems.concat().contains(value), "{problems:?}");
    }
}
