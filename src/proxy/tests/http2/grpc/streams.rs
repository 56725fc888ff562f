//! Streams of messages: both ways, cancelled, and in a drain.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use h2::Reason;
use tokio::sync::Notify;

use super::*;
use crate::lifecycle::Phase;

/// Sends each message back, and ends when its client does.
async fn echo(call: Call) {
    let (mut messages, mut stream) = call.begin_streaming(&[("content-type", "application/grpc")]);
    while let Some(Ok(data)) = messages.data().await {
        messages.flow_control().release_capacity(data.len()).unwrap();
        stream.send_data(data, false).unwrap();
    }
    // Its client may have left.
    let _ = stream.send_trailers(trailers(&[("grpc-status", "0"), ("grpc-message", "")]));
}

/// A call under way.
struct Open {
    up: SendStream<Bytes>,
    down: RecvStream,
}

impl Open {
    async fn begin(client: &mut Client, fields: &[(&str, &str)]) -> Self {
        let (response, up) = client.begin(call(fields), false).await;
        Self { up, down: response.await.unwrap().into_body() }
    }

    /// Sends a message and waits for it to come back.
    async fn play(&mut self, content: &str) {
        self.up.send_data(message(content), false).unwrap();
        let data = self.down.data().await.unwrap().unwrap();
        self.down.flow_control().release_capacity(data.len()).unwrap();
        assert_eq!(data, message(content));
    }

    /// Half-closes and gives the status.
    async fn close(mut self) -> HeaderMap {
        self.up.send_data(Bytes::new(), true).unwrap();
        while let Some(data) = self.down.data().await {
            assert_eq!(data.unwrap(), "");
        }
        self.down.trailers().await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn messages_flow_both_ways_until_the_client_half_closes() {
    let server = Server::start(None, echo).await;
    let gateway = h2c::gateway(&server).await;
    let mut client = Client::connect(&gateway).await;
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(Open::begin(&mut client, &[("grpc-timeout", "1H")]).await);
    }
    for content in ["ping", "", "pong"] {
        for call in &mut calls {
            call.play(content).await;
        }
    }
    for call in calls {
        assert_eq!(call.close().await, trailers(&[("grpc-status", "0"), ("grpc-message", "")]));
    }
    ended(&gateway, "0", 3).await;
}

#[tokio::test]
async fn messages_that_a_client_streams_are_answered_at_their_end() {
    let server = Server::start(None, |mut call: Call| async move {
        let (messages, _) = call.read().await;
        let mut stream = call.begin(&[("content-type", "application/grpc")]);
        stream.send_data(message(&messages.len().to_string()), false).unwrap();
        stream.send_trailers(trailers(&[("grpc-status", "0")])).unwrap();
    })
    .await;
    let gateway = h2c::gateway(&server).await;
    let mut client = Client::connect(&gateway).await;
    let (response, mut up) = client.begin(call(&[]), false).await;
    for content in ["one", "two", "three"] {
        up.send_data(message(content), content == "three").unwrap();
    }
    let answer = whole(response.await.unwrap()).await.unwrap();
    assert_eq!((answer.body.as_bytes(), answer.trailers), (&*message("26"), Some(trailers(&[("grpc-status", "0")]))));
}

#[tokio::test]
async fn a_client_that_cancels_cancels_at_the_backend() {
    let server = Server::start(None, Call::never).await;
    let gateway = h2c::gateway(&server).await;
    let mut client = Client::connect(&gateway).await;
    let (_response, mut before) = client.begin(call(&[]), false).await;
    server.wait_for(|server| server.heads().len() == 1).await;
    before.send_reset(Reason::CANCEL);
    server.wait_for(|server| server.cancelled() == [Reason::CANCEL]).await;
    ended(&gateway, "none", 1).await;
    assert_eq!(server.open(), server.accepted());
}

#[tokio::test]
async fn a_client_that_cancels_after_the_first_message_cancels_at_the_backend() {
    let (done, mut ends) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::start(None, move |call: Call| {
        let done = done.clone();
        async move {
            echo(call).await;
            done.send(()).unwrap();
        }
    })
    .await;
    let gateway = h2c::gateway(&server).await;
    let mut client = Client::connect(&gateway).await;
    let mut call = Open::begin(&mut client, &[]).await;
    call.play("first").await;
    call.up.send_reset(Reason::CANCEL);
    ends.recv().await.unwrap();
    ended(&gateway, "none", 1).await;
}

#[tokio::test]
async fn a_stream_goes_on_in_a_drain_and_is_cut_at_its_end() {
    let server = Server::start(None, echo).await;
    let gateway = h2c::gateway(&server).await;
    let mut client = Client::connect(&gateway).await;
    let mut call = Open::begin(&mut client, &[]).await;
    call.play("before").await;
    gateway.terminate().await;
    let has_left = |_: &Gateway| {
        let mut context = Context::from_waker(Waker::noop());
        matches!(client.0.clone().poll_ready(&mut context), Poll::Ready(Err(_)))
    };
    // GOAWAY has come.
    gateway.wait_for(has_left).await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Draining).await;
    call.play("while it waits").await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 1);
    assert!(!matches!(call.down.data().await, Some(Ok(_))));
    assert!(!matches!(call.down.trailers().await, Ok(Some(_))), "it never looks whole");
}

#[tokio::test]
async fn a_stream_that_ends_in_a_drain_ends_as_ever() {
    let server = Server::start(None, echo).await;
    let gateway = h2c::gateway(&server).await;
    let mut client = Client::connect(&gateway).await;
    let mut call = Open::begin(&mut client, &[]).await;
    gateway.terminate().await;
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Draining).await;
    call.play("last").await;
    assert_eq!(call.close().await["grpc-status"], "0");
    drop(client);
    gateway.wait_for(|g| g.lifecycle().phase() == Phase::Stopped).await;
    assert_eq!(gateway.lifecycle().forced(), 0);
}

/// The status that a call ends with after its first message, of which `come` is told; `None` for a reset.
async fn broken_off(gateway: &Gateway, come: &Notify) -> Option<(String, String)> {
    let mut client = Client::connect(gateway).await;
    let (response, _) = client.begin(call(&[]), true).await;
    let mut down = response.await.unwrap().into_body();
    // A reset may overtake it.
    let first = down.data().await?.ok()?;
    down.flow_control().release_capacity(first.len()).unwrap();
    assert_eq!(first, message("first"));
    come.notify_one();
    while let Some(data) = down.data().await {
        data.ok()?;
    }
    let trailers = down.trailers().await.ok()??;
    let field = |name: &str| trailers[name].to_str().unwrap().to_owned();
    Some((field("grpc-status"), field("grpc-message")))
}

/// Answers with half a message more to come.
const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\na\r\n\0\0\0\0\x05first\r\n";
const LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ncontent-length: 99\r\n\r\n\0\0\0\0\x05first";

#[tokio::test]
async fn a_call_that_its_backend_breaks_off_ends_with_a_status() {
    let unavailable = Some(("14".to_owned(), "upstream-reset".to_owned()));
    let come = Arc::new(Notify::new());
    let waiting = Arc::clone(&come);
    let server = Server::start(None, move |call: Call| {
        let come = Arc::clone(&waiting);
        async move {
            let mut stream = call.begin(&[("content-type", "application/grpc")]);
            stream.send_data(message("first"), false).unwrap();
            come.notified().await;
            stream.send_reset(Reason::INTERNAL_ERROR);
        }
    })
    .await;
    let gateway = h2c::gateway(&server).await;
    assert_eq!(broken_off(&gateway, &come).await, unavailable);
    ended(&gateway, "14", 1).await;

    for (reply, expected) in [(CHUNKED, unavailable), (LENGTH, None)] {
        let origin = Origin::start(Reply::once_then_close(reply)).await;
        let gateway = super::super::gateway(&origin).await;
        assert_eq!(broken_off(&gateway, &come).await, expected, "{reply}");
        assert_eq!(gateway.metric("lockgate_requests_refused_total{reason=\"upstream-reset\"}"), 1);
    }
}
