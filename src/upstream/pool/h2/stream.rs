//! One request on a stream: its head, its body in a task, and its answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use ::h2::client::ResponseFuture;
use ::h2::{Reason, RecvStream, SendStream};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response};
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use super::super::{BodyError, Received, SendError, millis};
use super::{Lease, message};
use crate::http1::keep_trailers;
use crate::ir::UpstreamLimits;

/// A stream, lent to one request.
pub struct Link<B> {
    // Dropped first: what the stream still carries ends before its place is given to another.
    upload: Option<Upload<B>>,
    lease: Lease,
}

impl<B> Link<B> {
    pub(in super::super) fn new(lease: Lease) -> Self {
        Self { upload: None, lease }
    }

    pub(in super::super) fn is_reused(&self) -> bool {
        self.lease.is_reused
    }

    /// The answer has ended.
    pub(in super::super) fn end(self, now_ms: u64, limits: &UpstreamLimits) {
        let connection = &self.lease.connection;
        connection.idle_for_ms.set(millis(limits.idle_timeout));
        let ends_ms = connection.opened_ms.saturating_add(millis(limits.max_lifetime));
        connection.ends_ms.set(connection.ends_ms.get().min(ends_ms));
        if let Some(pool) = connection.pool.upgrade() {
            pool.now_ms.set(now_ms);
        }
        if connection.ends_ms.get() <= now_ms {
            connection.close();
        }
    }
}

impl<B> Link<B>
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BodyError>,
{
    /// Sends a request; then waits for the head of its answer. Interim answers are not passed on.
    pub(in super::super) async fn send(
        &mut self,
        head: &Parts,
        body: &mut Option<B>,
    ) -> Result<Response<Received>, SendError> {
        let written = self.lease.connection.written.get();
        match self.begin(head, body)?.await {
            Ok(response) => Ok(received(response)),
            Err(error) => Err(self.failure(error, written, body).await),
        }
    }

    fn begin(&mut self, head: &Parts, body: &mut Option<B>) -> Result<ResponseFuture, SendError> {
        let mut handle = self.lease.connection.send.borrow().clone();
        // Never pending: that it would be only after a stream of this very handle.
        if let Poll::Ready(Err(error)) = handle.poll_ready(&mut Context::from_waker(Waker::noop())) {
            return Err(if error.is_go_away() && error.is_remote() {
                SendError::Unprocessed { is_leaving: true, error: error.into() }
            } else {
                SendError::Unsent(error.into())
            });
        }
        let ends = body.as_ref().is_none_or(Body::is_end_stream);
        let sent = handle.send_request(message::request(head.clone(), &self.lease.connection.scheme), ends);
        let (answer, stream) = sent.map_err(|error| SendError::Broken(error.into()))?;
        if let Some(body) = body.take_if(|_| !ends) {
            self.upload = Some(Upload(tokio::task::spawn_local(upload(body, stream))));
        }
        Ok(answer)
    }

    /// What an error says of the request, of which nothing was written when the socket had taken `written` bytes.
    async fn failure(&mut self, error: ::h2::Error, written: u64, body: &mut Option<B>) -> SendError {
        let is_leaving = (error.is_remote() && error.is_go_away())
            || (error.is_io() && self.lease.connection.written.get() == written);
        let is_refused = error.is_remote() && error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
        if is_leaving || is_refused {
            if let Some(upload) = self.upload.take() {
                *body = upload.reclaim().await;
            }
            return SendError::Unprocessed { is_leaving, error: error.into() };
        }
        if error.is_library() && error.is_reset() {
            return SendError::Invalid(error.into());
        }
        SendError::Broken(error.into())
    }
}

/// A request's body on its way. Dropped, it ends where it is.
struct Upload<B>(JoinHandle<Option<B>>);

impl<B> Upload<B> {
    /// The body, if none of it was sent before the stream broke.
    async fn reclaim(mut self) -> Option<B> {
        (&mut self.0).await.ok().flatten()
    }
}

impl<B> Drop for Upload<B> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What comes next for a body.
enum Step<T> {
    /// The peer wants none of it any more, or is gone.
    Over,
    Next(T),
}

/// Waits for `next` unless the stream ends.
async fn step<T>(
    stream: &mut SendStream<Bytes>,
    mut next: impl FnMut(&mut SendStream<Bytes>, &mut Context<'_>) -> Poll<T>,
) -> Step<T> {
    poll_fn(|cx| match stream.poll_reset(cx) {
        Poll::Ready(_) => Poll::Ready(Step::Over),
        Poll::Pending => next(stream, cx).map(Step::Next),
    })
    .await
}

/// Sends a body as fast as the peer takes it. Gives it back if the stream ended before any of it was read.
async fn upload<B>(mut body: B, mut stream: SendStream<Bytes>) -> Option<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut begun = false;
    loop {
        let frame = match step(&mut stream, |_, cx| Pin::new(&mut body).poll_frame(cx)).await {
            Step::Over => return (!begun).then_some(body),
            Step::Next(frame) => frame,
        };
        begun = true;
        let sent = match frame {
            None => stream.send_data(Bytes::new(), true),
            Some(Err(_)) => {
                // Never a clean end of half a body.
                stream.send_reset(Reason::CANCEL);
                return None;
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if data.is_empty() && !body.is_end_stream() => continue,
                Ok(data) => {
                    if !data.is_empty() && !has_capacity(&mut stream).await {
                        return None;
                    }
                    let ends = body.is_end_stream();
                    let sent = stream.send_data(data, ends);
                    if !ends && sent.is_ok() {
                        continue;
                    }
                    sent
                }
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => end_with(&mut stream, trailers),
                    Err(_) => continue,
                },
            },
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a request's body was not sent whole");
        }
        return None;
    }
}

/// Waits until the peer takes data. Asks for one byte: what is asked for is taken from other streams, and the crate asks
/// for the rest when it has it.
async fn has_capacity(stream: &mut SendStream<Bytes>) -> bool {
    stream.reserve_capacity(1);
    while stream.capacity() == 0 {
        match step(stream, SendStream::poll_capacity).await {
            Step::Next(Some(Ok(_))) => {}
            Step::Next(Some(Err(_)) | None) | Step::Over => return false,
        }
    }
    true
}

fn end_with(stream: &mut SendStream<Bytes>, mut trailers: HeaderMap) -> Result<(), ::h2::Error> {
    stream.reserve_capacity(0);
    keep_trailers(&mut trailers);
    if trailers.is_empty() { stream.send_data(Bytes::new(), true) } else { stream.send_trailers(trailers) }
}

fn received(response: Response<RecvStream>) -> Response<Received> {
    let (mut parts, stream) = response.into_parts();
    if !stream.is_end_stream() {
        message::announce_trailers(&mut parts.headers);
    }
    let body = H2Body::new(stream, &parts.headers);
    Response::from_parts(parts, Received::H2(body))
}

/// A body that comes on a stream. The stream's window opens as it is read.
pub struct H2Body {
    stream: RecvStream,
    /// Bytes to come, where the head says how many. The crate sees to it that they do.
    left: Option<u64>,
    data_ended: bool,
}

impl H2Body {
    /// The body of a message with this head.
    pub fn new(stream: RecvStream, headers: &HeaderMap) -> Self {
        let left = if stream.is_end_stream() { Some(0) } else { message::content_length(headers) };
        Self { stream, left, data_ended: false }
    }
}

impl Body for H2Body {
    type Data = Bytes;
    type Error = ::h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ::h2::Error>>> {
        let this = &mut *self;
        while !this.data_ended {
            match ready!(this.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    this.stream.flow_control().release_capacity(data.len())?;
                    // An empty chunk would be the end of a body in HTTP/1.1.
                    if !data.is_empty() {
                        this.left = this.left.map(|left| left.saturating_sub(data.len() as u64));
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => this.data_ended = true,
            }
        }
        match ready!(this.stream.poll_trailers(cx)) {
            Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
