//! How much CPU time tables take to compile and requests to find their rule.
#![allow(missing_docs, reason = "criterion's macros make public items without a doc line")]
#![allow(clippy::unwrap_used, reason = "a benchmark whose fixture is wrong may panic")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http::HeaderMap;
use lockgate::ir::Selector;
use lockgate::routing::{ListenerIndex, RouteTable, host, path};
use lockgate_benches::cache::Cache;
use lockgate_benches::cpu_time::CpuTime;
use lockgate_benches::tables::{self, Requests};

const HTTP: ListenerIndex = ListenerIndex(0);

fn compile(c: &mut Criterion<CpuTime>) {
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
    c: &mut Criterion<CpuTime>,
    name: &str,
    routes: usize,
    table: &RouteTable<u32>,
    requests: &Requests,
    expect_hit: bool,
) {
    let headers =
        HeaderMap::from_iter([(http::HeaderName::from_static("x-tenant"), http::HeaderValue::from_static("a"))]);
    let is_hit = |(host, path)| table.find(HTTP, &tables::get(&headers, host, path)).is_ok();
    assert!(requests.iter().all(|request| is_hit(request) == expect_hit), "{name}");
    let mut next = requests.iter().cycle();
    c.bench_function(&format!("find/{name}/{routes}"), |b| {
        b.iter(|| {
            let (host, path) = next.next().unwrap();
            table.find(HTTP, black_box(&tables::get(&headers, host, path))).map(|found| *found.payload)
        });
    });
}

fn find(c: &mut Criterion<CpuTime>) {
    for routes in [10, 1_000, 10_000, 100_000] {
        let mut selectors: Vec<Arc<Selector>> = tables::selectors(routes).unwrap();
        selectors.push(Arc::new(tables::deep()));
        selectors.push(Arc::new(tables::wildcard().unwrap()));
        let table = tables::compile(&selectors, None);
        let many = |paths: &[fn(usize) -> String]| Requests::new(routes, 1 << 16, paths);
        let deep = Requests::one("deep.test", &tables::deep_path());
        lookup(c, "uniform", routes, &table, &many(&tables::UNIFORM), true);
        lookup(c, "hot set of 100", routes, &table, &Requests::new(routes, 100, &tables::UNIFORM), true);
        lookup(c, "hit prefix", routes, &table, &many(&[tables::prefix]), true);
        lookup(c, "hit exact", routes, &table, &many(&[tables::exact]), true);
        lookup(c, "hit pattern", routes, &table, &many(&[tables::pattern]), true);
        lookup(c, "miss path", routes, &table, &many(&[tables::missing]), false);
        lookup(c, "miss host", routes, &table, &Requests::one("shop-x.example.org", "/"), false);
        lookup(c, "worst (64 prefixes)", routes, &table, &deep, false);
    }
    let table = tables::compile(&[Arc::new(tables::diagonal().unwrap())], None);
    let almost = tables::deep_path().replace('a', "x");
    lookup(c, "worst (matrix)", 64, &table, &Requests::one("deep.test", &almost), false);
    let table = tables::compile(&[Arc::new(tables::broad(100_000))], None);
    let mut requests = Requests::default();
    for i in 0..1_usize << 16 {
        requests.push("one.test", &format!("/services/name-{}/x", i * 24_001 % 100_000));
    }
    lookup(c, "hit in one selector", 100_000, &table, &requests, true);
}

/// Lookups behind a cache of 4096 entries: the requests that suit it best, all different ones, and ones for a host and
/// path each with a number in it, as `/users/17`.
fn cache(c: &mut Criterion<CpuTime>) {
    for routes in [1_000, 100_000] {
        let table = tables::compile(&tables::selectors(routes).unwrap(), None);
        let headers =
            HeaderMap::from_iter([(http::HeaderName::from_static("x-tenant"), http::HeaderValue::from_static("a"))]);
        for (name, requests) in [
            ("hot set of 100", Requests::new(routes, 100, &tables::UNIFORM)),
            ("hot set of 4000", Requests::new(routes, 4000, &tables::UNIFORM)),
            ("uniform", Requests::new(routes, 1 << 16, &tables::UNIFORM)),
        ] {
            let mut cache = Cache::new(4096);
            let mut next = requests.iter().cycle();
            c.bench_function(&format!("cache/{name}/{routes}"), |b| {
                b.iter(|| {
                    let (host, path) = next.next().unwrap();
                    cache.get(host, path, || {
                        *table.find(HTTP, black_box(&tables::get(&headers, host, path))).unwrap().payload
                    })
                });
            });
        }
        let hot = Requests::new(routes, 4000, &tables::UNIFORM);
        lookup(c, "hot set of 4000", routes, &table, &hot, true);
    }
}

fn forms(c: &mut Criterion<CpuTime>) {
    let given = "/api/v1/users/12345/orders/67890/items";
    c.bench_function("normalise/normal path", |b| b.iter(|| path::normalise(black_box(given)).is_ok()));
    let given = "/api/v1/./users/%7e12345/orders/67890/items";
    c.bench_function("normalise/other path", |b| b.iter(|| path::normalise(black_box(given)).is_ok()));
    c.bench_function("parse/host", |b| b.iter(|| host::parse(black_box("shop-12345.example.com:8080")).is_ok()));
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .with_measurement(CpuTime)
        .sample_size(50)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1))
        .without_plots();
    targets = compile, find, cache, forms
}
criterion_main!(benches);
