//! A client connection in HTTP/1.1.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use http::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::{Client, sniff};
use crate::proxy::access::Source;
use crate::proxy::error::status;
use crate::proxy::incoming::Incoming;
use crate::proxy::io::{ClientIo, Replayed, Stream, linger};
use crate::proxy::raw;
use crate::proxy::screen::Screen;
use crate::proxy::watchdog::Stage;
use crate::proxy::{Worker, service};
use crate::telemetry::metrics::Refusal;

/// Bytes that the server reads ahead of a slow backend, per connection.
const MAX_BUFFER: usize = 64 << 10;

/// Fields that hyper takes without being told. Once it is told a number it allocates and fills room for as many with each
/// head, which costs more than all else that it does with it. Fewer are the screen's to count.
const USUAL_FIELDS: usize = 100;

/// hyper's server, set up once per worker.
pub(in crate::proxy) fn server(limits: &crate::settings::Limits) -> http1::Builder {
    let mut server = http1::Builder::new();
    let heads = heads(limits);
    if heads.fields > USUAL_FIELDS {
        server.max_headers(heads.fields);
    }
    server
        .max_header_size(heads.bytes)
        .max_buf_size(MAX_BUFFER.max(heads.bytes))
        // The watchdog keeps the time, for all connections together.
        .header_read_timeout(None);
    server
}

/// What a head may take.
pub(in crate::proxy) fn heads(limits: &crate::settings::Limits) -> raw::Limits {
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    raw::Limits {
        bytes: bytes(limits.max_header_bytes.get()),
        fields: limits.max_headers,
        target: bytes(limits.max_uri_bytes.get()),
    }
}

/// What came of a conversation.
enum End<S> {
    /// The connection is over.
    Over,
    /// The client has nothing to say for now. With what it said after all.
    Idle(S, Bytes),
}

/// Serves a connection, of which `first` has been read, to its end.
pub(super) async fn serve<S: Stream>(worker: Rc<Worker>, first: Bytes, stream: S, client: Rc<Client>) {
    let (mut first, mut stream) = (first, stream);
    loop {
        // In a box, which an idle connection does not have: with what is in it, it is most of a connection.
        let conversation = Box::pin(converse(&worker, Replayed::new(first, stream), &client));
        match conversation.await {
            End::Over => return,
            End::Idle(idle, said) => (stream, first) = (idle, said),
        }
        if first.is_empty() {
            client.conn().cool();
            let Some(bytes) = sniff::next(&mut stream, client.conn()).await else { return };
            first = bytes;
        }
    }
}

/// Serves a connection to its end, or until it has been idle for long.
async fn converse<S: Stream>(worker: &Rc<Worker>, stream: Replayed<S>, client: &Rc<Client>) -> End<S> {
    let io = ClientIo::new(stream, Rc::clone(client.conn()));
    let io = Screen::new(io, Rc::clone(client), worker.shared.heads);
    let service = {
        let (worker, client) = (Rc::clone(worker), Rc::clone(client));
        service_fn(move |request: Request<hyper::body::Incoming>| {
            client.screened.compare(request.body());
            let (worker, client) = (Rc::clone(&worker), Rc::clone(&client));
            let request = request.map(Incoming::from);
            async move { Ok::<_, Infallible>(service::handle(worker, client, request).await) }
        })
    };
    let mut connection = worker.server.serve_connection(TokioIo::new(io), service);
    let mut is_idle = false;
    let outcome = poll_fn(|cx| {
        if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(Some(result));
        }
        is_idle = client.conn().is_to_park() && client.screened.is_between();
        if is_idle {
            return Poll::Ready(None);
        }
        if client.screened.must_go_on(client.conn().stage()) {
            cx.waker().wake_by_ref();
        }
        if client.conn().poll_stuck(cx) { Poll::Ready(None) } else { Poll::Pending }
    })
    .await;
    if is_idle {
        let parts = connection.into_parts();
        let (io, held) = parts.io.into_inner().into_parts();
        let (stream, first) = io.into_inner().into_parts();
        // All empty, or something came in between.
        return End::Idle(stream, [parts.read_buf, held.freeze(), first].concat().into());
    }
    let tunnel = client.tunnel.take().filter(|_| matches!(outcome, Some(Ok(()))));
    let is_stuck = outcome.is_none();
    match outcome {
        Some(Err(error)) => refused(worker, client, &error),
        None if client.conn().stage() == Stage::Head => {
            worker.refused_early(Refusal::HeaderTimeout, None, Source::of(client));
        }
        Some(Ok(())) | None => {}
    }
    let parts = connection.into_parts();
    let screen = parts.io.into_inner();
    // An answer that came before the end of its request must not be lost to a reset.
    let linger_on = client.linger.get() || (!is_stuck && screen.has_unread());
    let (io, held) = screen.into_parts();
    if let Some(tunnel) = tunnel {
        // On the heap, for most connections never become one.
        let early = if held.is_empty() { parts.read_buf } else { [parts.read_buf, held.freeze()].concat().into() };
        Box::pin(tunnel.run(io, early, client.conn())).await;
    } else if linger_on {
        pin!(linger(io)).await;
    }
    End::Over
}

/// Counts what hyper answered by itself because it could not read what passed the screen.
fn refused(worker: &Worker, client: &Client, error: &hyper::Error) {
    let reason = if error.is_parse_too_large() {
        Refusal::HeadersTooLarge
    } else if error.is_parse() {
        Refusal::BadRequest
    } else {
        tracing::debug!(%error, peer = %client.peer.ip, "client connection ended");
        return;
    };
    client.linger();
    worker.refused_early(reason, Some(status(reason).as_u16()), Source::of(client));
}
