//! Keeps the order of the layers: reads every path that the sources name and fails where one points upward.
//!
//! Test code is not read: a test may well build its input with the layers above.

#[path = "layers/paths.rs"]
mod paths;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use paths::{module_of, paths_in};

/// A layer: the module it is, and what it may use.
struct Layer {
    /// Its module; submodules belong to it unless they are layers themselves.
    module: &'static str,
    /// Layers that it may use.
    uses: &'static [&'static str],
    /// Whether it may speak of Kubernetes.
    kubernetes: bool,
    /// Whether it is free of IO and of the runtime.
    pure: bool,
}

const fn pure(module: &'static str, uses: &'static [&'static str]) -> Layer {
    Layer { module, uses, kubernetes: false, pure: true }
}

const fn layer(module: &'static str, uses: &'static [&'static str]) -> Layer {
    Layer { module, uses, kubernetes: false, pure: false }
}

impl Layer {
    const fn kubernetes(mut self) -> Self {
        self.kubernetes = true;
        self
    }
}

/// The three that translate, and use each other.
const TRANSLATION: [&str; 6] =
    ["api", "ir", "source::endpoints", "source::index", "source::secrets", "source::translate"];

/// What a source builds on.
const SOURCE: [&str; 9] = [
    "api",
    "ir",
    "lifecycle",
    "source",
    "source::endpoints",
    "source::index",
    "source::secrets",
    "source::translate",
    "telemetry",
];

const EVERYTHING: [&str; 25] = [
    "admin",
    "api",
    "app",
    "check",
    "descriptors",
    "drill",
    "explain",
    "http1",
    "ir",
    "lifecycle",
    "limiter",
    "nearby",
    "proxy",
    "publish",
    "routing",
    "settings",
    "source",
    "source::endpoints",
    "source::file",
    "source::index",
    "source::kube",
    "source::secrets",
    "source::translate",
    "telemetry",
    "upstream",
];

/// The order of the layers.
const LAYERS: [Layer; 27] = [
    layer("socket", &[]),
    layer("descriptors", &[]),
    layer("drill", &[]),
    layer("http1", &[]),
    pure("nearby", &[]),
    pure("ir", &[]),
    pure("api", &["nearby"]).kubernetes(),
    pure("routing", &["ir", "nearby"]),
    layer("lifecycle", &[]),
    layer("limiter", &[]),
    layer("telemetry", &[]),
    layer("upstream", &["descriptors", "http1", "ir", "lifecycle", "limiter", "telemetry"]),
    // The contract between sources and publisher.
    layer("source", &["ir"]),
    layer("publish", &["ir", "lifecycle", "limiter", "routing", "source", "telemetry", "upstream"]),
    // Plain values; of `api` the forms of sizes and durations.
    layer("settings", &["api"]),
    layer(
        "proxy",
        &[
            "descriptors",
            "http1",
            "ir",
            "lifecycle",
            "limiter",
            "publish",
            "routing",
            "settings",
            "socket",
            "telemetry",
            "upstream",
        ],
    ),
    pure("source::endpoints", &TRANSLATION).kubernetes(),
    pure("source::index", &TRANSLATION).kubernetes(),
    pure("source::secrets", &TRANSLATION).kubernetes(),
    pure("source::translate", &TRANSLATION).kubernetes(),
    layer("source::file", &SOURCE).kubernetes(),
    layer("source::kube", &SOURCE).kubernetes(),
    layer("explain", &["ir", "lifecycle", "proxy", "publish", "routing", "settings", "telemetry", "upstream"]),
    layer("check", &["api", "ir", "nearby", "routing", "source::file", "source::index", "source::translate"]),
    layer("admin", &["lifecycle", "socket", "telemetry"]),
    layer("app", &EVERYTHING).kubernetes(),
    layer("cli", &EVERYTHING).kubernetes(),
];

/// Crates that speak of Kubernetes.
const KUBERNETES: [&str; 2] = ["k8s_openapi", "kube"];

/// Crates and modules of `std` that do IO or belong to a runtime.
const IMPURE: [&str; 12] = [
    "hyper",
    "hyper_util",
    "notify",
    "socket2",
    "std::env",
    "std::fs",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::process",
    "std::thread",
    "tokio",
    "tokio_rustls",
];

/// Whether `path` is `module` or inside it.
fn within(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The layer that a module inside the crate belongs to.
fn layer_of(module: &str) -> Option<&'static Layer> {
    let inside = LAYERS.iter().filter(|layer| within(module, layer.module));
    inside.max_by_key(|layer| layer.module.len())
}

/// What is wrong with a file's text; `file` is relative to `src`.
fn offences(file: &str, text: &str) -> BTreeSet<String> {
    let mut offences = BTreeSet::new();
    let Some(module) = module_of(file) else { return offences };
    let Some(own) = layer_of(&module) else {
        offences.insert(format!("{file}: belongs to no layer; add it to the order in tests/layers.rs"));
        return offences;
    };
    for path in paths_in(&module, text) {
        let Some(inside) = path.strip_prefix("crate::") else {
            if !own.kubernetes && KUBERNETES.iter().any(|of| within(&path, of)) {
                offences.insert(format!("{file}: {path}: {} must not know Kubernetes", own.module));
            }
            if own.pure && IMPURE.iter().any(|of| within(&path, of)) {
                offences.insert(format!("{file}: {path}: {} does no IO and needs no runtime", own.module));
            }
            continue;
        };
        if let Some(used) = layer_of(inside)
            && used.module != own.module
            && !own.uses.contains(&used.module)
        {
            offences.insert(format!("{file}: {path}: {} must not use {}", own.module, used.module));
        }
    }
    offences
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn no_layer_uses_one_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut all = BTreeSet::new();
    let mut layers = BTreeSet::new();
    for path in files {
        let file = path.strip_prefix(&root).expect("inside").to_str().expect("UTF-8").to_owned();
        layers.extend(module_of(&file).and_then(|module| layer_of(&module)).map(|layer| layer.module));
        all.extend(offences(&file, &fs::read_to_string(&path).expect("a source")));
    }
    assert!(all.is_empty(), "\n{}", all.into_iter().collect::<Vec<_>>().join("\n"));
    assert_eq!(layers.len(), LAYERS.len(), "a layer without a file: {layers:?}");
}

#[test]
fn the_order_has_no_cycle_but_the_translation() {
    // Taking away, again and again, the layers that use nothing left leaves exactly what uses each other.
    let mut left: Vec<&Layer> = LAYERS.iter().collect();
    loop {
        let names: Vec<_> = left.iter().map(|layer| layer.module).collect();
        let uses_some = |layer: &&Layer| layer.uses.iter().any(|used| *used != layer.module && names.contains(used));
        let after: Vec<_> = left.iter().copied().filter(uses_some).collect();
        if after.len() == left.len() {
            break;
        }
        left = after;
    }
    let mut names: Vec<_> = left.iter().map(|layer| layer.module).collect();
    names.retain(|name| !TRANSLATION.contains(name));
    // These stand on the translation.
    assert_eq!(names, ["source::file", "source::kube", "check", "app", "cli"]);
}

/// One file that must be refused, and what for.
#[track_caller]
fn refused(file: &str, text: &str, because: &str) {
    let found = offences(file, text);
    assert!(found.iter().any(|offence| offence.contains(because)), "{file}: {text}: {found:?}");
}

#[test]
fn what_points_upward_is_refused() {
    refused("ir.rs", "use crate::routing::RouteTable;", "ir must not use routing");
    refused("ir/rule.rs", "use crate::{ir, api::Route};", "ir must not use api");
    refused("routing.rs", "use crate::upstream;", "routing must not use upstream");
    refused("upstream/pool.rs", "use super::super::publish::Snapshot;", "upstream must not use publish");
    refused(
        "upstream.rs",
        "pub use crate::{\n    ir::{Cluster},\n    proxy::{self, Proxy},\n};",
        "upstream must not use proxy",
    );
    refused("publish.rs", "fn f() { let _ = crate::proxy::Proxy::new(); }", "publish must not use proxy");
    refused("publish.rs", "use crate::source::index::Index;", "publish must not use source::index");
    refused("proxy/service.rs", "fn f(_: &crate::api::Route) {}", "proxy must not use api");
    refused("proxy.rs", "use crate::source::Update;", "proxy must not use source");
    refused("source/translate.rs", "use super::kube::Watch;", "source::translate must not use source::kube");
    refused("source/file.rs", "use crate::source::kube;", "source::file must not use source::kube");
    refused("source.rs", "pub use self::kube::Watch;", "source must not use source::kube");
    refused("lifecycle.rs", "use crate::ir::Rule;", "lifecycle must not use ir");
    refused("telemetry/metrics.rs", "use crate::lifecycle::Phase;", "telemetry must not use lifecycle");
    refused("admin.rs", "use crate::publish::Snapshot;", "admin must not use publish");
    refused("proxy.rs", "use crate::app::App;", "proxy must not use app");
    refused("app.rs", "use crate::cli::Args;", "app must not use cli");
    refused("new_module.rs", "", "belongs to no layer");
}

#[test]
fn kubernetes_io_and_the_runtime_stay_where_they_belong() {
    refused("proxy.rs", "use kube::Client;", "proxy must not know Kubernetes");
    refused("publish.rs", "type T = ::k8s_openapi::api::core::v1::Service;", "publish must not know Kubernetes");
    refused("ir.rs", "use tokio::sync::mpsc;", "ir does no IO");
    refused("routing/path.rs", "async fn f() { tokio::task::yield_now().await }", "routing does no IO");
    refused("source/index.rs", "use {std::fmt, hyper::Request};", "source::index does no IO");
    refused("source/translate/route.rs", "use std::{fs::File, io};", "source::translate does no IO");
    refused("source/endpoints.rs", "use tokio::time::Instant as Clock;", "source::endpoints does no IO");
}

#[test]
fn what_may_be_is_let_pass() {
    for (file, text) in [
        ("routing.rs", "use crate::ir::{self, Rule};\nuse std::net::IpAddr;"),
        ("proxy.rs", "use crate::{ir, publish::Snapshot, routing, telemetry::metrics::Refusal, upstream};"),
        ("proxy.rs", "pub(in crate::proxy) fn f() {}\nuse self::service::Service;"),
        ("source/translate.rs", "use super::index::View;\nuse k8s_openapi::api::core::v1::Service;"),
        ("source/kube.rs", "use super::Update;\nuse kube::Client;\nuse tokio::sync::mpsc;"),
        ("app.rs", "use crate::proxy; use crate::source::kube; use kube::Client;"),
        ("cli.rs", "use crate::app::App;"),
        ("main.rs", "use lockgate::cli;"),
        (
            "ir.rs",
            "// use crate::proxy;\n/* crate::proxy /* tokio::x */ */\n/// [`crate::publish::Snapshot`]\nstruct S;",
        ),
        ("ir.rs", "const S: &str = \"crate::proxy::x\"; const R: &str = r#\"\"tokio::x\"\"#; const C: char = '\"';"),
        ("ir.rs", "fn f<'a>(x: &'a str) -> &'a str { x }\nconst C: char = '\\''; // tokio::x"),
        ("ir.rs", "#[cfg(test)]\nmod tests {\n    use crate::proxy::Proxy;\n    fn f() { if true { tokio::x() } }\n}"),
        ("ir/rule/tests.rs", "use crate::proxy::Proxy;"),
        ("ir/tests/golden.rs", "use crate::proxy::Proxy;"),
        ("source.rs", "pub mod kube;\nfn f(_: kube::Watch) {}".split_once('\n').map_or("", |(module, _)| module)),
    ] {
        assert_eq!(offences(file, text), BTreeSet::new(), "{file}: {text}");
    }
    let after_tests = "#[cfg(test)]\nmod tests { fn f() {} }\nuse crate::proxy::Proxy;";
    refused("ir.rs", after_tests, "ir must not use proxy");
    refused("ir.rs", "#[cfg(test)]\nmod tests;\nuse crate::proxy::Proxy;", "ir must not use proxy");
    refused("ir.rs", "fn f<'a>() {} use crate::proxy; fn g<'a>() {}", "ir must not use proxy");
}
