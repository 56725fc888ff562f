//! What a line of the access log costs the worker: writing it, and its share of handing buffers over.
#![allow(clippy::unwrap_used, reason = "a benchmark whose fixture is wrong may panic")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use lockgate::telemetry::access::{AccessLog, Clock, Format, Key, Line, Output};

const AGENT: &[u8] =
    b"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";

const TEXTS: [(&str, &[u8]); 14] = [
    ("request_id", b"8f14e45fceea167a5a36dedd4bea2543"),
    ("listener", b"http"),
    ("client_ip", b"203.0.113.7"),
    ("scheme", b"http"),
    ("protocol", b"HTTP/1.1"),
    ("method", b"GET"),
    ("host", b"shop.example.com"),
    ("path", b"/products/blue-kettle"),
    ("query", b"size=2&ref=start"),
    ("user_agent", AGENT),
    ("selector", b"shop/shop"),
    ("route", b"shop/shop"),
    ("cluster", b"shop/cart:8080"),
    ("endpoint", b"10.1.2.3:8080"),
];

fn lines(criterion: &mut Criterion) {
    let log = AccessLog::start(&Output::File("/dev/null".into()), 64 << 20).unwrap();
    let dropped = log.dropped();
    let mut group = criterion.benchmark_group("access_log");
    for (name, format) in [("json", Format::Json), ("text", Format::Text)] {
        let key = |name: &str| Key::new(format, name);
        let texts = TEXTS.map(|(name, value)| (key(name), value));
        let numbers = ["status", "rule_index", "attempts", "bytes_in", "bytes_out"].map(key);
        let millis = ["upstream_ms", "first_byte_ms", "duration_ms"].map(key);
        let (time, clock, pen, mut out) = (key("time"), Clock::default(), log.pen(), Vec::new());
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                out.clear();
                let mut line = Line::new(format, &mut out);
                line.token(&time, |out| clock.write(Instant::now(), out));
                for (key, value) in &texts {
                    line.text(key, black_box(value));
                }
                for key in &numbers {
                    line.number(key, black_box(2048));
                }
                for key in &millis {
                    line.millis(key, black_box(Duration::from_micros(1234)));
                }
                pen.push(format, &out);
            });
        });
    }
    group.finish();
    assert_eq!(dropped(), 0, "the writer did not keep up, so that less was measured");
}

criterion_group!(benches, lines);
criterion_main!(benches);
