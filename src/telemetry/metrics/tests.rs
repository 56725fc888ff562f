use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use proptest::prelude::*;

use super::*;

/// The samples of an exposition by their full name with labels. Fails on what is no exposition.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            assert!(comment.starts_with("HELP ") || comment.starts_with("TYPE "), "{line}");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').expect(line);
        let value = value.parse().expect(line);
        assert!(samples.insert(name.to_owned(), value).is_none(), "twice: {line}");
    }
    samples
}

fn metrics(workers: usize) -> Arc<Metrics> {
    Metrics::new(workers, Buckets::default())
}

fn series_of<'a>(samples: &'a BTreeMap<String, f64>, family: &str) -> Vec<&'a str> {
    samples.keys().map(String::as_str).filter(|name| name.starts_with(family)).collect()
}

#[test]
fn a_rule_sums_its_workers() {
    let metrics = metrics(3);
    let rule = metrics.rule("shop/web", "shop/cart", "0");
    rule.record(0, &Method::GET, 200, Duration::from_millis(1));
    rule.record(2, &Method::GET, 200, Duration::from_millis(40));
    rule.record(2, &Method::POST, 503, Duration::from_mins(1));
    let samples = parse(&metrics.render());
    let labels = r#"route="shop/cart",rule="0",selector="shop/web""#;
    let labels_in_order = r#"selector="shop/web",route="shop/cart",rule="0""#;
    assert!(!samples.keys().any(|name| name.contains(labels)), "labels come in the order of the family");
    let total = |method, code| {
        samples[&format!(r#"lockgate_http_requests_total{{{labels_in_order},method="{method}",code="{code}"}}"#)]
    };
    assert_eq!(total("GET", 200).to_bits(), 2.0_f64.to_bits());
    assert_eq!(total("POST", 503).to_bits(), 1.0_f64.to_bits());
    let bucket =
        |le| samples[&format!(r#"lockgate_http_request_duration_seconds_bucket{{{labels_in_order},le="{le}"}}"#)];
    let buckets = ["0.0005", "0.001", "0.05", "30", "+Inf"].map(|le| bucket(le).to_string());
    assert_eq!(buckets, ["0", "1", "2", "2", "3"]);
    let sum = samples[&format!("lockgate_http_request_duration_seconds_sum{{{labels_in_order}}}")];
    assert!((sum - 60.041).abs() < 1e-9, "{sum}");
}

#[test]
fn calls_of_grpc_have_series_where_there_were_any() {
    let metrics = metrics(2);
    let (called, other) = (metrics.rule("a/s", "a/r", "0"), metrics.rule("a/s", "a/r", "1"));
    other.record(0, &Method::GET, 200, Duration::ZERO);
    called.called(0, GrpcStatus::Ok);
    called.called(1, GrpcStatus::Ok);
    called.called(1, GrpcStatus::Unavailable);
    called.called(1, GrpcStatus::None);
    let samples = parse(&metrics.render());
    let of = |status: &str| {
        let labels = format!(r#"selector="a/s",route="a/r",rule="0",grpc_status="{status}""#);
        samples.get(&format!("lockgate_grpc_responses_total{{{labels}}}")).copied()
    };
    assert_eq!([of("0"), of("14"), of("none"), of("other")], [Some(2.0), Some(1.0), Some(1.0), None]);
    assert_eq!(series_of(&samples, "lockgate_grpc").len(), 3);
    drop(called);
    assert_eq!(series_of(&parse(&metrics.render()), "lockgate_grpc"), Vec::<&str>::new());
}

#[test]
fn a_series_lives_as_long_as_its_rule_and_is_never_reset_before() {
    let metrics = metrics(1);
    let old_table = metrics.rule("a/s", "a/r", "0");
    old_table.record(0, &Method::GET, 200, Duration::ZERO);
    let new_table = metrics.rule("a/s", "a/r", "0");
    drop(old_table);
    new_table.record(0, &Method::GET, 200, Duration::ZERO);
    let count = |samples: &BTreeMap<String, f64>| {
        samples
            .get(r#"lockgate_http_requests_total{selector="a/s",route="a/r",rule="0",method="GET",code="200"}"#)
            .copied()
    };
    assert_eq!(count(&parse(&metrics.render())), Some(2.0));
    drop(new_table);
    let samples = parse(&metrics.render());
    assert_eq!(series_of(&samples, "lockgate_http_request"), Vec::<&str>::new());
}

#[test]
fn whatever_clients_send_adds_nothing_beyond_closed_sets() {
    let metrics = metrics(2);
    let rule = metrics.rule("a/s", "a/r", "0");
    let mut random = 1_u64;
    for _ in 0..100_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let method = Method::from_bytes(format!("FOO{}", random >> 40).as_bytes()).expect("a token");
        let code = u16::try_from((random >> 20) % 700).expect("16 bits");
        rule.record(usize::from(random >> 63 == 1), &method, code, Duration::from_nanos(random >> 30));
    }
    let samples = parse(&metrics.render());
    let series = series_of(&samples, "lockgate_http_requests_total");
    assert_eq!(series.len(), 501);
    assert!(series.iter().all(|name| name.contains(r#"method="OTHER""#)));
    assert!(series.iter().any(|name| name.contains(r#"code="other""#)));
    let total: f64 = series.iter().map(|name| samples[*name]).sum();
    assert_eq!(total.to_bits(), 100_000.0_f64.to_bits());
}

#[test]
fn a_worker_out_of_range_is_ignored() {
    let metrics = metrics(1);
    let rule = metrics.unmatched();
    rule.record(1, &Method::GET, 404, Duration::ZERO);
    metrics.cluster("a").record(1, Duration::ZERO);
    metrics.listener("http").opened(1);
    assert!(metrics.worker(1).is_none());
    assert!(series_of(&parse(&metrics.render()), "lockgate_http_requests_total").is_empty());
}

#[test]
fn unmatched_requests_have_a_series_of_their_own() {
    let metrics = metrics(1);
    metrics.unmatched().record(0, &Method::GET, 404, Duration::ZERO);
    let samples = parse(&metrics.render());
    let name = r#"lockgate_http_requests_total{selector="-",route="-",rule="-",method="GET",code="404"}"#;
    assert_eq!(samples.get(name), Some(&1.0));
}

#[test]
fn a_cluster_shows_connections_retries_and_durations() {
    let metrics = metrics(2);
    let cluster = metrics.cluster("shop/cart:8080");
    cluster.add_connections(0, ConnectionState::Active, 1);
    cluster.add_connections(1, ConnectionState::Active, 2);
    cluster.add_connections(1, ConnectionState::Active, -1);
    cluster.add_connections(1, ConnectionState::Idle, 1);
    cluster.retried(0, RetryReason::Status);
    cluster.retry_denied(1);
    cluster.connect_failed(0);
    cluster.record(0, Duration::from_millis(3));
    let samples = parse(&metrics.render());
    let of = |name: &str| samples.get(name).copied();
    assert_eq!(of(r#"lockgate_upstream_connections{cluster="shop/cart:8080",state="active"}"#), Some(2.0));
    assert_eq!(of(r#"lockgate_upstream_connections{cluster="shop/cart:8080",state="idle"}"#), Some(1.0));
    assert_eq!(of(r#"lockgate_upstream_retries_total{cluster="shop/cart:8080",reason="status"}"#), Some(1.0));
    assert_eq!(of(r#"lockgate_upstream_retries_denied_total{cluster="shop/cart:8080"}"#), Some(1.0));
    assert_eq!(of(r#"lockgate_upstream_connect_failures_total{cluster="shop/cart:8080"}"#), Some(1.0));
    assert_eq!(of(r#"lockgate_upstream_request_duration_seconds_count{cluster="shop/cart:8080"}"#), Some(1.0));
    drop(cluster);
    assert!(series_of(&parse(&metrics.render()), "lockgate_upstream").is_empty());
}

#[test]
fn workers_listeners_and_sampled_values_are_shown() {
    let metrics = metrics(2);
    let worker = metrics.worker(1).expect("a worker");
    worker.refused(Refusal::NoSelector);
    worker.queued();
    worker.queued();
    worker.unqueued(Duration::from_millis(2));
    let listener = metrics.listener("https");
    listener.opened(0);
    listener.opened(1);
    listener.closed(1);
    metrics.observe_busy(0, || Duration::from_secs(3));
    metrics.gauge_fn("lockgate_http_requests_in_flight", "In flight.", || 7.0).expect("a free name");
    metrics.counter_fn("lockgate_drain_forced_total", "Cut.", || 3).expect("a free name");
    assert!(metrics.counter_fn("lockgate_drain_forced_total", "Cut.", || 3).is_err());
    metrics.observe_phase(&["Starting", "Serving"], || 1).expect("a free name");
    let samples = parse(&metrics.render());
    let of = |name: &str| samples.get(name).copied();
    assert_eq!(of(r#"lockgate_requests_refused_total{reason="no-selector"}"#), Some(1.0));
    assert_eq!(of(r#"lockgate_requests_refused_total{reason="rule-limit"}"#), Some(0.0));
    assert_eq!(of("lockgate_queue_length"), Some(1.0));
    assert_eq!(of("lockgate_queue_wait_seconds_count"), Some(1.0));
    assert_eq!(of(r#"lockgate_connections{listener="https"}"#), Some(1.0));
    assert_eq!(of(r#"lockgate_connections_accepted_total{listener="https"}"#), Some(2.0));
    assert_eq!(of(r#"lockgate_worker_busy_seconds_total{worker="0"}"#), Some(3.0));
    assert_eq!(of(r#"lockgate_worker_busy_ratio{worker="0"}"#), Some(0.0));
    assert_eq!(of("lockgate_http_requests_in_flight"), Some(7.0));
    assert_eq!(of("lockgate_drain_forced_total"), Some(3.0));
    assert_eq!(of(r#"lockgate_drain_phase{phase="Starting"}"#), Some(0.0));
    assert_eq!(of(r#"lockgate_drain_phase{phase="Serving"}"#), Some(1.0));
}

#[test]
fn the_controller_and_its_sources_are_shown() {
    let metrics = metrics(1);
    metrics.control().published(42, Duration::from_millis(3));
    metrics.control().endpoints_updated(Duration::from_millis(3));
    metrics.control().status_write(StatusWrite::Conflict);
    let source = metrics.source("kube/routes");
    source.set_synced(true);
    source.heard();
    source.error(SourceError::Decode);
    let samples = parse(&metrics.render());
    let of = |name: &str| samples.get(name).copied();
    assert_eq!(of("lockgate_table_generation"), Some(42.0));
    assert_eq!(of("lockgate_table_publish_seconds_count"), Some(1.0));
    assert_eq!(of("lockgate_endpoint_update_lag_seconds_count"), Some(1.0));
    assert_eq!(of(r#"lockgate_status_writes_total{result="conflict"}"#), Some(1.0));
    assert_eq!(of(r#"lockgate_source_synced{source="kube/routes"}"#), Some(1.0));
    assert_eq!(of(r#"lockgate_source_errors_total{source="kube/routes",reason="decode"}"#), Some(1.0));
    assert!(of(r#"lockgate_source_staleness_seconds{source="kube/routes"}"#).is_some_and(|age| age >= 0.0));
    let build = concat!(r#"lockgate_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""}"#);
    assert_eq!(of(build), Some(1.0));
}

#[test]
fn a_label_cannot_break_out_of_its_quotes() {
    let metrics = metrics(1);
    let rule = metrics.rule("a/s", "a/r", "x\"} 1\nevil 2\\");
    rule.record(0, &Method::GET, 200, Duration::ZERO);
    let text = metrics.render();
    assert!(text.contains(r#"rule="x\"} 1\nevil 2\\""#), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("evil")));
}

#[test]
fn handles_nobody_holds_are_forgotten_without_a_scrape() {
    let map = weak::WeakMap::<usize, usize>::new();
    for key in 0..10_000 {
        assert_eq!(*map.get(key, |key| key + 1), key + 1);
    }
    assert!(map.len() <= 65, "{}", map.len());
}

#[test]
fn bounds_must_rise() {
    assert_eq!(Buckets::new(&[]), Err(InvalidBuckets::Count(0)));
    assert_eq!(Buckets::new(&[0.1; 41]), Err(InvalidBuckets::Count(41)));
    assert_eq!(Buckets::new(&[0.1, 0.1]), Err(InvalidBuckets::Order(1)));
    assert_eq!(Buckets::new(&[0.1, f64::NAN]), Err(InvalidBuckets::Order(1)));
    assert_eq!(Buckets::new(&[-1.0]), Err(InvalidBuckets::Order(0)));
    assert_eq!(Buckets::new(&[f64::INFINITY]), Err(InvalidBuckets::Order(0)));
    assert_eq!(Buckets::new(Buckets::default().bounds()), Ok(Buckets::default()));
}

#[test]
fn labels_are_distinct_and_in_kebab_case() {
    let all = Refusal::ALL.iter().map(|label| label.as_str());
    let distinct: std::collections::BTreeSet<_> = all.clone().collect();
    assert_eq!(distinct.len(), Refusal::ALL.len());
    assert!(all.clone().all(|label| label.chars().all(|c| c.is_ascii_lowercase() || c == '-')));
    assert!(Refusal::ALL.iter().enumerate().all(|(index, label)| *label as usize == index));
}

proptest! {
    /// Whatever is counted in whatever order comes out again.
    #[test]
    fn counts_are_exact(keys in proptest::collection::vec(1_u64..=5010, 0..3000)) {
        let counts = cells::Counts::default();
        let mut expected = BTreeMap::<u64, u64>::new();
        for key in keys {
            counts.add(key);
            *expected.entry(key).or_default() += 1;
        }
        let mut seen = BTreeMap::new();
        counts.for_each(|key, count| assert!(seen.insert(key, count).is_none(), "{key} is kept twice"));
        prop_assert_eq!(seen, expected);
    }

    /// A duration goes to the first bucket whose bound is not below it.
    #[test]
    fn a_duration_goes_to_its_bucket(nanos in 0_u64..60_000_000_000) {
        let buckets = Buckets::default();
        let block = cells::Block::new(buckets.words());
        buckets.observe(&block, 0, Duration::from_nanos(nanos));
        let seconds = nanos as f64 / 1e9;
        let expected = buckets.bounds().iter().position(|bound| seconds <= *bound);
        let expected = expected.unwrap_or(buckets.bounds().len());
        prop_assert_eq!((0..=buckets.bounds().len()).position(|index| block.get(index) == 1), Some(expected));
    }
}
