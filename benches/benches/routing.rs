//! How long tables take to compile and requests to find their rule.
#![allow(missing_docs, reason = "criterion's macros make public items without a doc line")]
#![allow(clippy::unwrap_used, reason = "a benchmark whose fixture is wrong may panic")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http::HeaderMap;
use lockgate::ir::Selector;
use lockgate::routing::{ListenerIndex, Request, RouteTable, host, path};
use lockgate_benches::tables;

const HTTP: ListenerIndex = ListenerIndex(0);

fn compile(c: &mut Criterion) {
    let mut group = c.benchmark_group("compile");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for routes in [1_000, 10_000, 100_000] {
        let mut selectors = tables::selectors(routes).unwrap();
        group.throughput(Throughput::Elements(routes as u64));
        group.bench_function(BenchmarkId::new("all", routes), |b| {
            b.iter_with_large_drop(|| tables::compile(&selectors, None));
        });
        let previous = tables::compile(&selectors, None);
        selectors[0] = Arc::new(tables::usual(0).unwrap());
        group.bench_function(BenchmarkId::new("one edited", routes), |b| {
            b.iter_with_large_drop(|| tables::compile(&selectors, Some(&previous)));
        });
    }
    let one = [Arc::new(tables::broad(10_000))];
    group.throughput(Throughput::Elements(10_000));
    group.bench_function("one selector of 10000", |b| b.iter_with_large_drop(|| tables::compile(&one, None)));
    group.finish();
}

/// The time of one lookup, over many requests in turn.
fn lookup(
    c: &mut Criterion,
    name: &str,
    routes: usize,
    table: &RouteTable<u32>,
    requests: &[(String, String)],
    expect_hit: bool,
) {
    let headers =
        HeaderMap::from_iter([(http::HeaderName::from_static("x-tenant"), http::HeaderValue::from_static("a"))]);
    let requests: Vec<Request<'_>> = requests.iter().map(|(host, path)| tables::get(&headers, host, path)).collect();
    assert!(requests.iter().all(|request| table.find(HTTP, request).is_ok() == expect_hit), "{name}");
    let mut next = requests.iter().cycle();
    c.bench_function(&format!("find/{name}/{routes}"), |b| {
        b.iter(|| table.find(HTTP, black_box(next.next().unwrap())).map(|found| *found.payload));
    });
}

fn find(c: &mut Criterion) {
    for routes in [10, 1_000, 10_000, 100_000] {
        let mut selectors: Vec<Arc<Selector>> = tables::selectors(routes).unwrap();
        selectors.push(Arc::new(tables::deep()));
        selectors.push(Arc::new(tables::wildcard().unwrap()));
        let table = tables::compile(&selectors, None);
        let prefix = |i: usize| format!("/api/v1/service{}/item/{i}", i % 6);
        let exact = |i: usize| format!("/static/page{}.html", i % 2);
        let pattern = |i: usize| format!("/users/{i}/orders{}/7", i % 2);
        lookup(c, "hit prefix", routes, &table, &tables::requests(routes, prefix), true);
        lookup(c, "hit exact", routes, &table, &tables::requests(routes, exact), true);
        lookup(c, "hit pattern", routes, &table, &tables::requests(routes, pattern), true);
        lookup(c, "miss path", routes, &table, &tables::requests(routes, |_| "/api/v2/x".into()), false);
        lookup(c, "miss host", routes, &table, &[("shop-x.example.org".into(), "/".into())], false);
        lookup(c, "worst (64 prefixes)", routes, &table, &[("deep.test".into(), tables::deep_path())], false);
    }
    let table = tables::compile(&[Arc::new(tables::diagonal().unwrap())], None);
    let almost = tables::deep_path().replace('a', "x");
    lookup(c, "worst (matrix)", 64, &table, &[("deep.test".into(), almost)], false);
    let table = tables::compile(&[Arc::new(tables::broad(100_000))], None);
    let requests: Vec<_> = (0..4096_usize)
        .map(|i| ("one.test".to_owned(), format!("/services/name-{}/x", i * 24_001 % 100_000)))
        .collect();
    lookup(c, "hit in one selector", 100_000, &table, &requests, true);
}

fn forms(c: &mut Criterion) {
    let given = "/api/v1/users/12345/orders/67890/items";
    c.bench_function("normalise/normal path", |b| b.iter(|| path::normalise(black_box(given)).is_ok()));
    let given = "/api/v1/./users/%7e12345/orders/67890/items";
    c.bench_function("normalise/other path", |b| b.iter(|| path::normalise(black_box(given)).is_ok()));
    c.bench_function("parse/host", |b| b.iter(|| host::parse(black_box("shop-12345.example.com:8080")).is_ok()));
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1))
        .without_plots();
    targets = compile, find, forms
}
criterion_main!(benches);
