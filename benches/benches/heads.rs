//! What judging a head costs, and making a request of it, beside what another parser takes for the same head.
#![allow(clippy::unwrap_used, reason = "a benchmark whose fixture is wrong may panic")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lockgate::proxy::raw::{Limits, Scan};

const LIMITS: Limits = Limits { bytes: 32 << 10, fields: 100, target: 8 << 10 };

const SMALL: &str = "GET /api/v1/items/42 HTTP/1.1\r\nhost: shop.example.com\r\n\r\n";

const BROWSER: &str = "GET /products/blue-kettle?size=2&ref=start HTTP/1.1\r\nHost: shop.example.com\r\nConnection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\nsec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\n\
    Upgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 \
    Safari/537.36\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9\r\n\
    Cookie: session=8f14e45fceea167a5a36dedd4bea2543; basket=3; consent=necessary\r\n\r\n";

fn heads(criterion: &mut Criterion) {
    for (name, head) in [("small", SMALL), ("browser", BROWSER)] {
        let mut group = criterion.benchmark_group(format!("heads/{name}"));
        group.throughput(Throughput::Bytes(head.len() as u64));
        group.bench_function("judged", |bencher| {
            let mut scan = Scan::default();
            bencher.iter(|| {
                scan.clear();
                scan.advance(black_box(head.as_bytes()), &LIMITS).unwrap().unwrap()
            });
        });
        group.bench_function("made a request", |bencher| {
            let mut scan = Scan::default();
            bencher.iter(|| {
                scan.clear();
                let bytes = black_box(head.as_bytes());
                let end = scan.advance(bytes, &LIMITS).unwrap().unwrap().len;
                scan.request(&Bytes::copy_from_slice(&bytes[..end])).unwrap()
            });
        });
        group.bench_function("httparse", |bencher| {
            bencher.iter(|| {
                let mut fields = [httparse::EMPTY_HEADER; 100];
                let mut request = httparse::Request::new(&mut fields);
                request.parse(black_box(head.as_bytes())).unwrap().unwrap()
            });
        });
        group.finish();
    }
}

criterion_group!(benches, heads);
criterion_main!(benches);
