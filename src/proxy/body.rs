//! Bodies on their way: the request's to a backend, the answer's to the client.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::connection::Client;
use super::error;
use super::exchange::Exchange;
use super::headers;
use super::incoming::{Broken, Incoming};
use super::mirror::Tee;
use super::tunnel::Agreed;
use crate::ir::UpstreamLimits;
use crate::telemetry::metrics::Refusal;
use crate::upstream::Load;
use crate::upstream::pool::{BodyError, EndpointPool, Link, Received};

/// The longest body that is kept until its answer begins, for the case that it has to be sent again.
pub(super) const MAX_KEPT: u64 = 64 << 10;

/// How far a request's body has come, seen from the answer's side.
#[derive(Debug, Default)]
pub(super) struct Upload {
    done: Cell<bool>,
    bytes: Cell<u64>,
    failure: Cell<Option<Refusal>>,
    /// What has been sent, while that is kept.
    kept: RefCell<Option<Vec<Bytes>>>,
}

impl Upload {
    /// That of a body that may be asked for again.
    pub(super) fn keeping() -> Self {
        Self { kept: RefCell::new(Some(Vec::new())), ..Self::default() }
    }

    /// The body once more, if it is kept and has been read whole.
    pub(super) fn again(&self) -> Option<RequestBody> {
        let kept = self.kept.borrow().clone().filter(|_| self.is_done())?;
        Some(RequestBody(Source::Kept(kept.into())))
    }

    /// It is not asked for again: its answer has begun.
    pub(super) fn forget(&self) {
        self.kept.take();
    }

    fn keep(&self, frame: &Frame<Bytes>) {
        if let Some((kept, data)) = self.kept.borrow_mut().as_mut().zip(frame.data_ref()) {
            kept.push(data.clone());
        }
    }

    /// Whether the whole body went to the backend.
    pub(super) fn is_done(&self) -> bool {
        self.done.get()
    }

    /// How many bytes of it went there.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Why it did not.
    pub(super) fn failure(&self) -> Option<Refusal> {
        self.failure.get()
    }
}

/// A request's body.
pub(super) struct RequestBody(Source);

enum Source {
    None,
    Client(Streamed),
    Full(Option<Bytes>),
    Kept(VecDeque<Bytes>),
}

struct Streamed {
    incoming: Incoming,
    client: Rc<Client>,
    upload: Rc<Upload>,
    left: u64,
    mirrors: Vec<Tee>,
}

impl RequestBody {
    /// No body.
    pub(super) fn empty() -> Self {
        Self(Source::None)
    }

    /// A body that is at hand.
    pub(super) fn full(bytes: Bytes) -> Self {
        Self(if bytes.is_empty() { Source::None } else { Source::Full(Some(bytes)) })
    }

    /// A body of at most `limit` bytes, of which `mirrors` get a copy.
    pub(super) fn streamed(
        incoming: Incoming,
        client: Rc<Client>,
        upload: Rc<Upload>,
        limit: Option<u64>,
        mirrors: Vec<Tee>,
    ) -> Self {
        Self(Source::Client(Streamed { incoming, client, upload, left: limit.unwrap_or(u64::MAX), mirrors }))
    }
}

impl Streamed {
    fn complete(&mut self) {
        self.upload.done.set(true);
        for mirror in self.mirrors.drain(..) {
            mirror.finish();
        }
    }

    fn fail(&mut self, reason: Refusal) {
        self.upload.failure.set(Some(reason));
        self.mirrors.clear();
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let body = match &mut self.0 {
            Source::None => return Poll::Ready(None),
            Source::Full(bytes) => return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Source::Kept(bytes) => return Poll::Ready(bytes.pop_front().map(|bytes| Ok(Frame::data(bytes)))),
            Source::Client(body) => body,
        };
        let mut polled = Pin::new(&mut body.incoming).poll_frame(cx);
        match &mut polled {
            Poll::Ready(Some(Ok(frame))) => {
                // Some backends do not tell trailers from header fields.
                if let Some(trailers) = frame.trailers_mut() {
                    headers::identify(trailers, None);
                }
                let data: &[u8] = frame.data_ref().map_or(&[], |data| data);
                // The bytes of a connection are counted where it is read.
                if body.client.is_stream() {
                    body.client.conn().read(data.len());
                } else {
                    body.client.conn().touch();
                }
                let Some(left) = body.left.checked_sub(data.len() as u64) else {
                    body.fail(Refusal::BodyTooLarge);
                    return Poll::Ready(Some(Err("the request's body is over its limit".into())));
                };
                body.left = left;
                body.upload.bytes.set(body.upload.bytes.get() + data.len() as u64);
                body.upload.keep(frame);
                for mirror in &mut body.mirrors {
                    mirror.push(data);
                }
            }
            Poll::Ready(Some(Err(Broken { reason, .. }))) => body.fail(*reason),
            Poll::Ready(None) => body.complete(),
            Poll::Pending => {}
        }
        if body.incoming.is_end_stream() {
            body.complete();
        }
        polled.map(|frame| frame.map(|result| result.map_err(|broken| broken.error)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::None => true,
            Source::Full(bytes) => bytes.is_none(),
            Source::Kept(bytes) => bytes.is_empty(),
            Source::Client(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::None => SizeHint::with_exact(0),
            Source::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Source::Kept(bytes) => SizeHint::with_exact(bytes.iter().map(|bytes| bytes.len() as u64).sum()),
            Source::Client(body) => body.incoming.size_hint(),
        }
    }
}

/// An answer's body. Ends its exchange when it has been taken whole or is dropped.
pub(super) struct ResponseBody {
    content: Content,
    exchange: Option<Box<Exchange>>,
}

enum Content {
    Full(Option<Bytes>),
    Upstream(Box<Download>),
    /// None: the connection goes on as a tunnel.
    Tunnel(Box<Agreed>),
}

/// An answer's body that comes from a backend, and what has to be given back at its end.
pub(super) struct Download {
    /// What comes.
    pub incoming: Received,
    /// The connection or stream it comes on.
    pub link: Option<Link<RequestBody>>,
    /// Where the connection came from.
    pub pool: Rc<EndpointPool<RequestBody>>,
    /// How long the connection may be kept.
    pub limits: UpstreamLimits,
    /// The request's body, if it has one.
    pub upload: Option<Rc<Upload>>,
    /// The request's part in its endpoint's load, where that is counted.
    pub load: Option<Load>,
}

impl Download {
    /// Gives the connection back if the exchange on it is over both ways; else it is closed, or its stream is cancelled.
    pub(super) fn finish(&mut self, now_ms: u64) {
        let uploaded = self.upload.as_ref().is_none_or(|upload| upload.is_done());
        self.load = None;
        if let Some(link) = self.link.take()
            && uploaded
        {
            self.pool.give_back(link, now_ms, &self.limits);
        }
    }
}

impl ResponseBody {
    /// A body that is at hand; empty for none.
    pub(super) fn full(bytes: Bytes) -> Self {
        Self { content: Content::Full((!bytes.is_empty()).then_some(bytes)), exchange: None }
    }

    /// A body that comes from a backend.
    pub(super) fn upstream(download: Download) -> Self {
        Self { content: Content::Upstream(Box::new(download)), exchange: None }
    }

    /// No body, and a tunnel after the head.
    pub(super) fn tunnel(agreed: Agreed) -> Self {
        Self { content: Content::Tunnel(Box::new(agreed)), exchange: None }
    }

    /// The tunnel after the head, if there is one.
    pub(super) fn agreed(&self) -> Option<&Agreed> {
        match &self.content {
            Content::Tunnel(agreed) => Some(agreed),
            Content::Full(_) | Content::Upstream(_) => None,
        }
    }

    /// Takes the tunnel out.
    pub(super) fn take_tunnel(&mut self) -> Option<Agreed> {
        self.agreed()?;
        match std::mem::replace(&mut self.content, Content::Full(None)) {
            Content::Tunnel(agreed) => Some(*agreed),
            Content::Full(_) | Content::Upstream(_) => None,
        }
    }

    /// The client gets nothing of it: its answer can have no body.
    pub(super) fn skip(&mut self) {
        if let Content::Full(bytes) = &mut self.content {
            *bytes = None;
        }
        self.complete();
    }

    /// Ends `exchange` with this body.
    pub(super) fn end(&mut self, exchange: Exchange) {
        self.exchange = Some(Box::new(exchange));
    }

    fn complete(&mut self) {
        if let Content::Upstream(download) = &mut self.content
            && let Some(exchange) = &self.exchange
        {
            download.finish(exchange.now_ms());
        }
        if let Some(exchange) = self.exchange.take() {
            exchange.complete();
        }
    }

    fn fail(&mut self, reason: Refusal) {
        if let Some(exchange) = self.exchange.take() {
            exchange.fail(reason);
        }
    }

    /// Whether the answer has taken longer than its client has time for.
    fn is_late(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.client().conn().is_late())
    }

    /// Whether trailers can tell how it ends: of a call of gRPC, not over HTTP/1.1, and not behind a body whose length was
    /// announced, of which some would be missing.
    fn takes_status(&self) -> bool {
        let is_call = |exchange: &Exchange| exchange.is_grpc() && exchange.client().is_stream();
        self.exchange.as_deref().is_some_and(is_call) && self.size_hint().exact().is_none()
    }

    /// Ends an answer before its end, with a status if it takes one; nothing more comes from the backend.
    fn cut(
        &mut self,
        takes_status: bool,
        reason: Refusal,
        error: impl Into<BodyError>,
    ) -> Result<Frame<Bytes>, BodyError> {
        self.content = Content::Full(None);
        let trailers = self.exchange.as_mut().filter(|_| takes_status).map(|exchange| {
            let mut trailers = HeaderMap::new();
            error::end_call(&mut trailers, reason);
            exchange.note_status(&trailers);
            trailers
        });
        self.fail(reason);
        trailers.map(Frame::trailers).ok_or_else(|| error.into())
    }

    fn cut_late(&mut self) -> Result<Frame<Bytes>, BodyError> {
        self.cut(self.takes_status(), Refusal::RequestTimeout, "the call's deadline is over")
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if this.is_late() && !this.is_end_stream() {
            return Poll::Ready(Some(this.cut_late()));
        }
        // Asked before it breaks off: afterwards nothing is to come.
        let takes_status = this.takes_status();
        let download = match &mut this.content {
            Content::Full(bytes) => {
                let bytes = bytes.take();
                if let Some((exchange, bytes)) = this.exchange.as_mut().zip(bytes.as_ref()) {
                    exchange.sends(bytes.len());
                }
                let frame = bytes.map(|bytes| Ok(Frame::data(bytes)));
                this.complete();
                return Poll::Ready(frame);
            }
            Content::Upstream(download) => download,
            Content::Tunnel(_) => return Poll::Ready(None),
        };
        match Pin::new(&mut download.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(exchange) = &mut this.exchange {
                    exchange.client().conn().touch();
                    exchange.sends(frame.data_ref().map_or(0, Bytes::len));
                    if let Some(trailers) = frame.trailers_ref() {
                        exchange.note_status(trailers);
                    }
                }
                if download.incoming.is_end_stream() {
                    this.complete();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                this.complete();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                // Who takes no more of a request that broke off is not the one who broke it.
                let upload = download.upload.as_ref().and_then(|upload| upload.failure());
                Poll::Ready(Some(this.cut(takes_status, upload.unwrap_or(Refusal::UpstreamReset), error)))
            }
            Poll::Pending => match &this.exchange {
                Some(exchange) if exchange.client().conn().poll_expired(cx) => Poll::Ready(Some(if this.is_late() {
                    this.cut_late()
                } else {
                    this.cut(takes_status, Refusal::IdleTimeout, "no byte either way for too long")
                })),
                _ => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Full(bytes) => bytes.is_none(),
            Content::Upstream(download) => download.incoming.is_end_stream(),
            Content::Tunnel(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Content::Upstream(download) => download.incoming.size_hint(),
            Content::Tunnel(_) => SizeHint::with_exact(0),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if self.is_end_stream() {
            self.complete();
        } else {
            let is_idle = self.exchange.as_ref().is_some_and(|exchange| exchange.client().conn().is_expired());
            self.fail(match (self.is_late(), is_idle) {
                (true, _) => Refusal::RequestTimeout,
                (_, true) => Refusal::IdleTimeout,
                _ => Refusal::ClientGone,
            });
        }
    }
}
