use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::app::translation;
use crate::explain::Answer;
use crate::explain::routes;
use crate::lifecycle::{DrainSettings, Lifecycle};
use crate::proxy::Outputs;
use crate::publish::{Published, Publisher, TlsSettings};
use crate::settings::Settings;
use crate::source::index::Index;
use crate::source::{Update, file, translate};
use crate::telemetry::metrics::{Buckets, Metrics, SourceError};

/// A gateway that serves the test data of explanations.
struct Shop {
    pages: BTreeMap<&'static str, Page>,
    metrics: Arc<Metrics>,
    clusters: Arc<Clusters>,
    lifecycle: Arc<Lifecycle>,
}

async fn pages_of_shop() -> BTreeMap<&'static str, Page> {
    shop().await.pages
}

async fn shop() -> Shop {
    let settings = Settings::default();
    let mut index = Index::new(translation(&settings, translate::HostBackends::Anywhere));
    let loaded = file::load(Path::new("src/explain/testdata"));
    for object in loaded.objects {
        index.apply(object);
    }
    let (fragment, endpoints) = index.take_table().unwrap();

    let (lifecycle, _driver) = Lifecycle::new(1, DrainSettings::default());
    let metrics = Metrics::new(1, Buckets::default());
    let names: Vec<Arc<str>> = vec!["http".into()];
    let published = Arc::new(Published::new(&names));
    let clusters = Arc::new(Clusters::new(Arc::clone(&metrics)));
    let tables = Publisher::new(
        names,
        TlsSettings::default(),
        Arc::clone(&published),
        Arc::clone(&clusters),
        Arc::clone(&metrics),
    );
    let (mut served, mut examined) = (tables.served(), tables.examined());
    let (updates, received) = mpsc::channel(1);
    tokio::spawn(tables.run(received));
    updates.send(Update::Table { fragment, endpoints }).await.unwrap();
    let wait = tokio::time::timeout(Duration::from_secs(20), served.wait_for(Option::is_some));
    wait.await.expect("in time").expect("a publisher");
    let wait = tokio::time::timeout(Duration::from_secs(20), examined.wait_for(Option::is_some));
    wait.await.expect("in time").expect("a publisher");
    let (drained, counted) = (Arc::clone(&lifecycle), Arc::clone(&metrics));
    let shared = Shared::new(settings, 1, published, drained, counted, Outputs::default());
    Shop { pages: pages(&shared, &clusters, served, examined), metrics, clusters, lifecycle }
}

fn get(pages: &BTreeMap<&'static str, Page>, page: &str, query: &str) -> Result<Shown, String> {
    (pages[page].handler)(&Ask { query: query.to_owned(), ..Ask::default() })
}

fn value(shown: Result<Shown, String>) -> Value {
    match shown {
        Ok(Shown::Json(value)) => value,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn explain_answers_from_the_table_that_is_served() {
    let pages = pages_of_shop().await;
    let by_query = value(get(&pages, "explain", "url=http://shop.example.com/cart/1&at=2026-01-01T00:00:00Z"));
    let answer: Answer = serde_json::from_value(by_query.clone()).unwrap();
    assert_eq!(answer.generation, Some(1));
    assert!(answer.result.summary.starts_with("forwarded to shop/cart:8080"), "{:?}", answer.result);
    assert_eq!(answer.notes, Vec::<String>::new());
    let question = json!({"method": "GET", "url": "http://shop.example.com/cart/1", "at": "2026-01-01T00:00:00Z"});
    let ask = Ask { body: Some(Bytes::from(question.to_string())), ..Ask::default() };
    assert_eq!(value((pages["explain"].handler)(&ask)), by_query);
    let broken = value(get(&pages, "explain", "url=http://shop.example.com/broken"));
    assert_eq!(broken["findings"][0]["reason"], "BackendNotFound");
}

#[tokio::test]
async fn nonsense_is_refused_with_its_reason() {
    let pages = pages_of_shop().await;
    let ask = Ask { body: Some(Bytes::from_static(b"{\"method\": 1}")), ..Ask::default() };
    assert!((pages["explain"].handler)(&ask).unwrap_err().starts_with("the body is no question: "));
    assert_eq!(get(&pages, "explain", "url=x.test&at=noon").unwrap_err().split(' ').next(), Some("at:"));
    assert_eq!(get(&pages, "explain", "url=x.test&o=xml").unwrap_err(), "o: \"xml\" is neither text nor json");
    assert_eq!(get(&pages, "routes", "limit=x").unwrap_err(), "limit: \"x\" is no number");
    assert!(get(&pages, "routes", "page=2").unwrap_err().starts_with("\"page\" is not known"));
}

#[tokio::test]
async fn routes_are_told_a_page_at_a_time() {
    let pages = pages_of_shop().await;
    let whole: routes::Page = serde_json::from_value(value(get(&pages, "routes", ""))).unwrap();
    assert_eq!((whole.generation, whole.total_selectors, whole.next), (1, 3, None));
    let rows = |page: &routes::Page| -> Vec<String> {
        let of = |s: &routes::SelectorRow| {
            s.matches.iter().map(|m| format!("{} {}", s.selector, m.rank)).collect::<Vec<_>>()
        };
        page.selectors.iter().flat_map(of).collect()
    };
    assert_eq!(rows(&whole).len(), whole.total_matches);
    let (mut offset, mut seen) = (Some(0), Vec::new());
    while let Some(at) = offset {
        let page = value(get(&pages, "routes", &format!("offset={at}&limit=2")));
        let page: routes::Page = serde_json::from_value(page).unwrap();
        seen.extend(rows(&page));
        offset = page.next;
    }
    assert_eq!(seen, rows(&whole));
    let named: routes::Page =
        serde_json::from_value(value(get(&pages, "routes", "host=shop.example.com&route=shop/beta"))).unwrap();
    assert_eq!(rows(&named), ["shop/beta 0", "shop/wild 0"]);
    let Ok(Shown::Text(text)) = get(&pages, "routes", "o=text") else { panic!("no text") };
    insta::assert_snapshot!(text);
}

/// The rows of a list whose field is this.
fn rows<'a>(told: &'a Value, field: &str, wanted: &str) -> Vec<&'a Value> {
    told["rows"].as_array().unwrap().iter().filter(|row| row[field] == wanted).collect()
}

#[tokio::test]
async fn the_state_tells_the_phase_what_readiness_waits_for_and_sources() {
    let shop = shop().await;
    let latch = shop.lifecycle.readiness().register("kube/routes");
    shop.metrics.source("file").set_synced(true);
    shop.metrics.source("file").error(SourceError::Decode);
    shop.metrics.unmatched().record(0, &http::Method::GET, 404, Duration::ZERO);
    shop.metrics.unmatched().record(0, &http::Method::GET, 503, Duration::from_secs(100));
    let state = value(get(&shop.pages, "state", ""));
    assert_eq!(
        (&state["phase"], &state["ready"], &state["generation"]),
        (&json!("Starting"), &json!(false), &json!(1))
    );
    assert_eq!(state["waitsFor"], json!(["phase Starting", "pending: kube/routes"]));
    assert_eq!((&state["sources"][0]["name"], &state["sources"][0]["synced"]), (&json!("file"), &json!(true)));
    assert_eq!(state["sources"][0]["errors"], json!({"decode": 1}));
    assert_eq!((&state["traffic"]["requests"], &state["traffic"]["serverErrors"]), (&json!(2), &json!(1)));
    let buckets = state["traffic"]["buckets"].as_array().unwrap();
    assert_eq!(buckets.len(), state["bounds"].as_array().unwrap().len() + 1);
    assert_eq!((&buckets[0], buckets.last()), (&json!(1), Some(&json!(1))));
    assert_eq!(state["drain"]["longestSeconds"], 55.0);
    latch.done();
    shop.lifecycle.serving().unwrap();
    let state = value(get(&shop.pages, "state", ""));
    assert_eq!((&state["ready"], &state["waitsFor"]), (&json!(true), &json!([])));
}

#[tokio::test]
async fn objects_are_told_with_verdicts_and_traffic_and_are_found() {
    let shop = shop().await;
    let rule = shop.metrics.rule("shop/shop", "shop/cart", "cart");
    rule.record(0, &http::Method::GET, 200, Duration::ZERO);
    rule.record(0, &http::Method::GET, 500, Duration::ZERO);
    let all = value(get(&shop.pages, "objects", ""));
    assert_eq!((&all["selectors"], &all["routes"], &all["found"]), (&json!(3), &json!(3), &json!(6)));
    let cart = rows(&all, "object", "shop/cart")[0];
    assert_eq!((&cart["kind"], &cart["selector"]), (&json!("Route"), &json!("shop/shop")));
    assert_eq!(cart["hostnames"], json!(["shop.example.com"]));
    assert_eq!((&cart["accepted"]["ok"], &cart["programmed"]), (&json!(true), &json!(true)));
    assert_eq!(
        (&cart["resolvedRefs"]["ok"], &cart["resolvedRefs"]["reason"]),
        (&json!(false), &json!("BackendNotFound"))
    );
    assert_eq!((&cart["traffic"]["requests"], &cart["traffic"]["serverErrors"]), (&json!(2), &json!(1)));
    let selector = rows(&all, "object", "shop/shop")[0];
    assert_eq!((&selector["attachedRoutes"], &selector["traffic"]["requests"]), (&json!(1), &json!(2)));
    let found = |query| value(get(&shop.pages, "objects", query))["found"].clone();
    assert_eq!(found("q=SHOP/WILD&kind=Route"), 1);
    assert_eq!(found("q=*.example.com"), 2);
    assert_eq!(found("q=cart+nowhere&state=trouble"), 1);
    assert_eq!(found("q=cart+everywhere"), 0);
    let (mut offset, mut seen) = (Some(0), Vec::new());
    while let Some(at) = offset {
        let part = value(get(&shop.pages, "objects", &format!("offset={at}&limit=2")));
        seen.extend(part["rows"].as_array().unwrap().clone());
        offset = part["next"].as_u64();
    }
    assert_eq!(json!(seen), all["rows"]);
    assert_eq!(get(&shop.pages, "objects", "kind=Pod").unwrap_err(), r#"kind: "Pod" is none of Selector, Route"#);
}

#[tokio::test]
async fn clusters_are_told_with_the_health_of_endpoints_and_why() {
    let shop = shop().await;
    let all = value(get(&shop.pages, "clusters", ""));
    assert_eq!((&all["total"], &all["troubled"]), (&json!(2), &json!(2)));
    let canary = rows(&all, "cluster", "shop/cart-canary:80")[0];
    assert_eq!((&canary["ready"], &canary["reason"]), (&json!(0), &json!("the Service has no endpoint that is ready")));
    let cluster = shop.clusters.all().into_iter().find(|c| c.id.to_string() == "shop/cart:8080").unwrap();
    cluster.endpoints().all[0].connect_failed();
    cluster.endpoints().all[0].connect_failed();
    cluster.metrics.record(0, Duration::from_millis(7));
    cluster.metrics.connect_failed(0);
    let told = value(get(&shop.pages, "clusters", "q=10.0.0.1"));
    assert_eq!(told["found"], 1);
    let cart = &told["rows"][0];
    assert_eq!((&cart["ready"], &cart["connectFailures"]), (&json!(1), &json!(1)));
    let endpoints: Vec<_> =
        cart["endpoints"].as_array().unwrap().iter().map(|e| (&e["address"], &e["state"])).collect();
    let is = [("10.0.0.1:8080", "setAside"), ("10.0.0.2:8080", "ready"), ("10.0.0.3:8080", "draining")];
    assert_eq!(json!(endpoints), json!(is));
    let reason = cart["endpoints"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("2 connects in a row failed; used only where no other is left, for "), "{reason}");
    assert_eq!(cart["buckets"].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>(), 1);
}

/// What the page asks for while somebody looks at it must not take long where there is much.
#[tokio::test]
async fn the_lists_of_the_page_have_bounds() {
    let pages = pages_of_shop().await;
    for list in ["objects", "clusters"] {
        let told = value(get(&pages, list, "limit=1"));
        assert_eq!((told["rows"].as_array().unwrap().len(), &told["next"]), (1, &json!(1)), "{list}");
        assert!(get(&pages, list, "limit=many").is_err());
    }
}
