//! What tables occupy and lookups allocate, counted by an allocator.
#![allow(clippy::unwrap_used, reason = "a benchmark whose fixture is wrong may panic")]
#![allow(clippy::print_stdout, reason = "its output")]

use std::alloc::System;
use std::sync::Arc;

use http::HeaderMap;
use lockgate::ir::Selector;
use lockgate::routing::{ListenerIndex, host, path};
use lockgate_benches::tables;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Runs `make` and gives its result with the bytes that are still allocated.
fn kept<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let region = Region::new(ALLOCATOR);
    let result = make();
    let change = region.change();
    (result, change.bytes_allocated.saturating_sub(change.bytes_deallocated))
}

fn main() {
    println!("routes      table bytes/route   objects bytes/route");
    for routes in [1_000, 10_000, 100_000] {
        let (selectors, objects) = kept(|| tables::selectors(routes).unwrap());
        let (table, bytes) = kept(|| tables::compile(&selectors, None));
        println!("{routes:<11} {:<19} {}", bytes / routes, objects / routes);
        drop(table);
    }
    let (_, bytes) = kept(|| tables::compile(&[Arc::new(tables::broad(100_000))], None));
    println!("one Selector of 100000, objects included: {} bytes/route", bytes / 100_000);

    let mut selectors: Vec<Arc<Selector>> = tables::selectors(1_000).unwrap();
    selectors.push(Arc::new(tables::deep()));
    let table = tables::compile(&selectors, None);
    let headers = HeaderMap::new();
    let deep = tables::deep_path();
    for (name, host, path) in [
        ("hit prefix", "shop-1.example.com", "/api/v1/service1/x"),
        ("hit exact", "shop-1.example.com", "/static/page0.html"),
        ("hit pattern", "shop-1.example.com", "/users/1/orders0/2"),
        ("miss path", "shop-1.example.com", "/none"),
        ("miss host", "none.example.com", "/"),
        ("worst", "deep.test", &*deep),
    ] {
        let region = Region::new(ALLOCATOR);
        for _ in 0..1000 {
            let _ = std::hint::black_box(table.find(ListenerIndex(0), &tables::get(&headers, host, path)).is_ok());
        }
        println!("{name:<12} {} allocations in 1000 lookups", region.change().allocations);
    }
    let region = Region::new(ALLOCATOR);
    let _ = std::hint::black_box((path::normalise("/api/v1/service1/x"), host::parse("shop-1.example.com:80")));
    println!("normal path and host: {} allocations", region.change().allocations);
}
