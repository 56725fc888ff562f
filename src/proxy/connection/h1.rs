//! A client connection in HTTP/1.1.

mod answer;
mod body;
mod heads;
mod wire;

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use http::Method;

use self::answer::Asked;
pub(in crate::proxy) use self::body::Body;
use self::wire::{Outcome, Silent, Wire};
use super::{Client, sniff};
use crate::proxy::access::Source;
use crate::proxy::io::{ClientIo, Stream};
use crate::proxy::raw;
use crate::proxy::{Worker, service};
use crate::telemetry::metrics::Refusal;

/// What a head may take.
pub(in crate::proxy) fn heads(limits: &crate::settings::Limits) -> raw::Limits {
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    raw::Limits {
        bytes: bytes(limits.max_header_bytes.get()),
        fields: limits.max_headers,
        target: bytes(limits.max_uri_bytes.get()),
    }
}

/// Serves a connection, of which `first` has been read, to its end.
pub(super) async fn serve<S: Stream>(worker: Rc<Worker>, mut first: Bytes, mut stream: S, client: Rc<Client>) {
    loop {
        // In a box, which an idle connection does not have: with what is in it, it is most of a connection.
        let Some(idle) = Box::pin(converse(&worker, first, stream, &client)).await else { return };
        stream = idle;
        client.conn().cool();
        let Some(bytes) = sniff::next(&mut stream, client.conn()).await else { return };
        first = bytes;
    }
}

/// Serves a connection to its end, or until it has been idle for long: then this gives it back.
async fn converse<S: Stream>(worker: &Rc<Worker>, first: Bytes, stream: S, client: &Rc<Client>) -> Option<S> {
    let wire = Wire::new(stream, first, Rc::clone(client), worker.shared.heads);
    loop {
        let (request, head) = match wire.next().await {
            Ok(next) => next,
            Err(Silent::Idle) => return wire.take().map(|(stream, _)| stream),
            Err(why) => {
                if why == Silent::Slow {
                    worker.refused_early(Refusal::HeaderTimeout, None, Source::of(client));
                }
                break;
            }
        };
        let asked = Asked {
            version: head.version,
            is_head: *request.method() == Method::HEAD,
            keep_alive: head.keep_alive,
            takes_trailers: head.takes_trailers,
        };
        let response = {
            // Where it stays: it is a few kilobytes.
            let mut answering = pin!(service::handle(Rc::clone(worker), Rc::clone(client), request));
            poll_fn(|cx| wire.poll_unless_gone(cx, answering.as_mut())).await?
        };
        match wire.answer(response, asked, worker.date.now()).await {
            Outcome::Sent => client.release(),
            Outcome::Last => break,
            Outcome::Cut => return None,
        }
    }
    match client.tunnel.take() {
        Some(tunnel) => {
            let (stream, early) = wire.take()?;
            let io = ClientIo::new(stream, Rc::clone(client.conn()));
            // On the heap, for most connections never become one.
            Box::pin(tunnel.run(io, early, client.conn())).await;
        }
        None => wire.close(client.linger.get()).await,
    }
    None
}
