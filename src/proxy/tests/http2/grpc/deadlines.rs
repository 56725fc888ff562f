//! `grpc-timeout`: before the answer, in its middle, while waiting for a place.

use std::time::Duration;

use h2::Reason;

use super::*;

#[tokio::test]
async fn a_call_that_is_late_ends_with_4_and_its_backend_is_told() {
    let server = Server::start(None, Call::never).await;
    let gateway = h2c::gateway(&server).await;
    let mut client = Client::connect(&gateway).await;
    let answer = client.call(&[("grpc-timeout", "00030m")]).await;
    assert_ended(&answer, "4", "request-timeout");
    assert_eq!(server.heads()[0].headers["grpc-timeout"], "00030m", "as it came");
    server.wait_for(|server| server.cancelled() == [Reason::CANCEL]).await;
    ended(&gateway, "4", 1).await;
}

#[tokio::test]
async fn the_smaller_of_both_times_holds() {
    let server = Server::start(None, Call::never).await;
    for (own, calls) in [(20, "1H"), (3_600_000, "20000u")] {
        let gateway = h2c::gateway_with(&[&server], |rule| rule.timeouts.request = Duration::from_millis(own)).await;
        let answer = Client::connect(&gateway).await.call(&[("grpc-timeout", calls)]).await;
        assert_ended(&answer, "4", "request-timeout");
    }
}

#[tokio::test]
async fn what_is_no_timeout_is_the_backends_to_judge() {
    let server = Server::start(None, |mut call: Call| async move {
        call.read().await;
        drop(call.respond(200, &[("grpc-status", "0")], true));
    })
    .await;
    let gateway = h2c::gateway(&server).await;
    let mut client = Client::connect(&gateway).await;
    for (number, value) in ["1", "123456789n", "1s"].into_iter().enumerate() {
        assert_eq!(client.call(&[("grpc-timeout", value)]).await.field("grpc-status"), Some("0"));
        assert_eq!(server.heads()[number].headers["grpc-timeout"], value);
    }
}

#[tokio::test]
async fn an_answer_that_is_late_in_its_middle_ends_with_a_status() {
    let (cancelled, mut cancellations) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::start(None, move |call: Call| {
        let cancelled = cancelled.clone();
        async move {
            let mut stream = call.begin(&[("content-type", "application/grpc")]);
            // Bytes that flow do not make it longer.
            let reason = loop {
                stream.send_data(message("tick"), false).unwrap();
                let reset = std::future::poll_fn(|cx| stream.poll_reset(cx));
                if let Ok(reason) = tokio::time::timeout(Duration::from_millis(10), reset).await {
                    break reason.unwrap();
                }
            };
            cancelled.send(reason).unwrap();
        }
    })
    .await;
    let gateway = h2c::gateway(&server).await;
    let mut client = Client::connect(&gateway).await;
    let answer = client.call(&[("grpc-timeout", "100m")]).await;
    assert_eq!((answer.head.status.as_u16(), answer.field("grpc-status")), (200, None));
    assert!(answer.body.as_bytes().starts_with(&message("tick")));
    assert_eq!(answer.trailers.unwrap(), trailers(&[("grpc-status", "4"), ("grpc-message", "request-timeout")]));
    assert_eq!(cancellations.recv().await, Some(Reason::CANCEL));
    ended(&gateway, "4", 1).await;
    assert_eq!(gateway.metric("lockgate_requests_refused_total{reason=\"request-timeout\"}"), 1);
}

#[tokio::test]
async fn a_call_waits_for_a_place_no_longer_than_its_client() {
    let server = Server::start(None, Call::never).await;
    let gateway = h2c::gateway_with(&[&server], |rule| {
        (rule.limits.max_in_flight, rule.limits.max_queued) = (Some(1), 1);
        rule.limits.queue_timeout = Duration::ZERO;
    })
    .await;
    let mut client = Client::connect(&gateway).await;
    let _first = client.begin(call(&[]), false).await;
    server.wait_for(|server| server.heads().len() == 1).await;
    assert_ended(&client.call(&[("grpc-timeout", "20m")]).await, "4", "request-timeout");
    assert_eq!((server.heads().len(), gateway.metric("lockgate_queue_length")), (1, 0));
}
