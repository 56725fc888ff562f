//! What tables occupy and lookups allocate, counted by an allocator.
#![allow(clippy::unwrap_used, reason = "a benchmark whose fixture is wrong may panic")]
#![allow(clippy::print_stdout, reason = "its output")]

use std::alloc::System;
use std::sync::Arc;

use http::HeaderMap;
use lockgate::ir::Selector;
use lockgate::routing::{ListenerIndex, RouteTable, host, path};
use lockgate_benches::tables::{self, Requests};
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

    println!("\nallocations per lookup");
    for routes in [10, 1_000, 10_000, 100_000] {
        let mut selectors: Vec<Arc<Selector>> = tables::selectors(routes).unwrap();
        selectors.push(Arc::new(tables::deep()));
        let table = tables::compile(&selectors, None);
        lookups("hit", routes, &table, &Requests::new(routes, 1000, &tables::UNIFORM));
        lookups("miss path", routes, &table, &Requests::new(routes, 1000, &[tables::missing]));
        lookups("miss host", routes, &table, &Requests::one("none.example.com", "/"));
        lookups("worst", routes, &table, &Requests::one("deep.test", &tables::deep_path()));
    }
    let region = Region::new(ALLOCATOR);
    let _ = std::hint::black_box((path::normalise("/api/v1/service1/x"), host::parse("shop-1.example.com:80")));
    println!("normal path and host: {} allocations", region.change().allocations);
}

/// Looks each request up and prints how many allocations a lookup made.
fn lookups(name: &str, routes: usize, table: &RouteTable<tables::Payload>, requests: &Requests) {
    let headers = HeaderMap::new();
    let region = Region::new(ALLOCATOR);
    for (host, path) in requests.iter() {
        let _ = std::hint::black_box(table.find(ListenerIndex(0), &tables::get(&headers, host, path)).is_ok());
    }
    let allocations = region.change().allocations;
    println!("{routes:<7} {name:<10} {allocations} in {} lookups", requests.iter().len());
}
