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
use crate::telemetry::metrics::{Buckets, Metrics};

/// The pages of a gateway that serves the test data of explanations.
async fn pages_of_shop() -> BTreeMap<&'static str, Page> {
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
    let mut served = tables.served();
    let (updates, received) = mpsc::channel(1);
    tokio::spawn(tables.run(received));
    updates.send(Update::Table { fragment, endpoints }).await.unwrap();
    let wait = tokio::time::timeout(Duration::from_secs(20), served.wait_for(Option::is_some));
    wait.await.expect("in time").expect("a publisher");
    let shared = Shared::new(settings, 1, published, lifecycle, metrics, Outputs::default());
    pages(&shared, &clusters, served)
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
