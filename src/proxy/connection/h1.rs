//! A client connection in HTTP/1.1.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use http::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::Client;
use crate::proxy::incoming::Incoming;
use crate::proxy::io::{ClientIo, Stream, linger};
use crate::proxy::watchdog::Stage;
use crate::proxy::{Worker, service};
use crate::telemetry::metrics::Refusal;

/// Bytes that the server reads ahead of a slow backend, per connection.
const MAX_BUFFER: usize = 64 << 10;

/// hyper's server, set up once per worker.
pub(in crate::proxy) fn server(limits: &crate::settings::Limits) -> http1::Builder {
    let mut server = http1::Builder::new();
    let max_header_bytes = usize::try_from(limits.max_header_bytes.get()).unwrap_or(usize::MAX);
    server
        .max_headers(limits.max_headers)
        .max_header_size(max_header_bytes)
        .max_buf_size(MAX_BUFFER.max(max_header_bytes))
        // The watchdog keeps the time, for all connections together.
        .header_read_timeout(None);
    server
}

/// Serves a connection to its end.
pub(super) async fn serve<S: Stream>(worker: Rc<Worker>, stream: S, client: Rc<Client>) {
    let io = ClientIo::new(stream, Rc::clone(client.conn()));
    let service = {
        let (worker, client) = (Rc::clone(&worker), Rc::clone(&client));
        service_fn(move |request: Request<hyper::body::Incoming>| {
            let (worker, client) = (Rc::clone(&worker), Rc::clone(&client));
            let request = request.map(Incoming::from);
            async move { Ok::<_, Infallible>(service::handle(worker, client, request).await) }
        })
    };
    let mut connection = worker.server.serve_connection(TokioIo::new(io), service);
    let outcome = poll_fn(|cx| {
        if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(Some(result));
        }
        if client.conn().poll_stuck(cx) { Poll::Ready(None) } else { Poll::Pending }
    })
    .await;
    let tunnel = client.tunnel.take().filter(|_| matches!(outcome, Some(Ok(()))));
    match outcome {
        Some(Err(error)) => refused(&worker, &client, &error),
        None if client.conn().stage() == Stage::Head => worker.metrics.refused(Refusal::HeaderTimeout),
        Some(Ok(())) | None => {}
    }
    let parts = connection.into_parts();
    let io = parts.io.into_inner();
    if let Some(tunnel) = tunnel {
        // On the heap, for most connections never become one.
        Box::pin(tunnel.run(io, parts.read_buf, client.conn())).await;
    } else if client.linger.get() {
        pin!(linger(io)).await;
    }
}

/// Counts what hyper answered by itself because no request could be read.
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
    worker.metrics.refused(reason);
}
