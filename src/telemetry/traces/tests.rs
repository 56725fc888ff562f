use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::testing::{Receiver, attribute};
use super::*;

fn settings(address: SocketAddr, queue: usize) -> Settings {
    let headers = [("x-tenant".parse().unwrap(), "a".parse().unwrap())].into_iter().collect::<HeaderMap>();
    let endpoint = format!("http://{address}/v1/traces").parse().unwrap();
    Settings { endpoint, headers, queue, instance: "pod-1".to_owned() }
}

fn span(number: u8) -> Span {
    Span {
        trace: [7; 16],
        id: [number; 8],
        parent: Some([9; 8]),
        state: "vendor=1".to_owned(),
        name: "GET shop/cart".to_owned(),
        started: SystemTime::UNIX_EPOCH + Duration::from_secs(5),
        duration: Duration::from_millis(3),
        attributes: vec![("url.path", Value::Text("/a".to_owned())), ("http.response.status_code", Value::Number(503))],
        is_error: true,
    }
}

#[tokio::test]
async fn spans_go_out_as_otlp_has_them_and_the_last_ones_too() {
    let (mut receiver, address) = Receiver::start().await;
    let (traces, exporter) = Traces::start(settings(address, 100)).unwrap();
    traces.export(span(1));
    traces.export(span(2));
    let posted = receiver.take("200 OK").await;
    for line in ["POST /v1/traces HTTP/1.1", "content-type: application/x-protobuf", "x-tenant: a"] {
        assert!(posted.head.lines().any(|given| given == line), "{line} not in {}", posted.head);
    }
    assert!(posted.head.contains(&format!("host: {address}")), "{}", posted.head);
    let first = &posted.spans[0];
    assert_eq!(
        (&first.trace_id[..], &first.span_id[..], &first.parent_span_id[..]),
        (&[7; 16][..], &[1; 8][..], &[9; 8][..])
    );
    assert_eq!((first.name.as_str(), first.trace_state.as_str(), first.flags), ("GET shop/cart", "vendor=1", 0x301));
    assert_eq!((first.start_time_unix_nano, first.end_time_unix_nano), (5_000_000_000, 5_003_000_000));
    assert_eq!((first.kind, first.status.as_ref().unwrap().code), (2, 2));
    assert_eq!(
        (attribute(first, "url.path"), attribute(first, "http.response.status_code")),
        ("/a".into(), "503".into())
    );
    let resource = posted.request.resource_spans[0].resource.as_ref().unwrap();
    let names: Vec<&str> = resource.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
    assert_eq!(names, ["service.name", "service.version", "service.instance.id"]);
    // On the same connection, and without waiting for the interval.
    traces.export(span(3));
    let (last, ()) = tokio::join!(receiver.take("200 OK"), exporter.finish());
    assert_eq!(last.spans.len(), 1);
    assert_eq!((traces.exported()(), traces.dropped()(), traces.failed()()), (3, 0, 0));
}

#[tokio::test]
async fn what_the_collector_is_too_busy_for_is_sent_again_and_what_it_refuses_is_not() {
    let (mut receiver, address) = Receiver::start().await;
    let (traces, exporter) = Traces::start(settings(address, 100)).unwrap();
    traces.export(span(1));
    receiver.take("503 Service Unavailable").await;
    assert_eq!(receiver.take("200 OK").await.spans[0].span_id, [1; 8]);
    traces.export(span(2));
    receiver.take("400 Bad Request").await;
    traces.export(span(3));
    assert_eq!(receiver.take("200 OK").await.spans[0].span_id, [3; 8]);
    exporter.finish().await;
    assert_eq!((traces.exported()(), traces.failed()()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_the_queue_is_dropped_and_a_collector_that_is_gone_costs_nobody_time() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (traces, exporter) = Traces::start(settings(gone, 10)).unwrap();
    for number in 0..15 {
        traces.export(span(number));
    }
    assert_eq!(traces.dropped()(), 5);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((traces.failed()(), traces.exported()()), (10, 0));
    exporter.finish().await;
}
