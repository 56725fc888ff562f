//! A request's body on a stream of HTTP/3.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h3::error::StreamError;
use h3::server::RequestStream;
use http::header::{self, HeaderMap};
use http_body::{Frame, SizeHint};

use super::transport::Receiver;
use crate::proxy::incoming::Broken;
use crate::telemetry::metrics::Refusal;

type Read = Option<Result<Frame<Bytes>, Broken>>;

/// A body that comes on a stream, one frame read ahead: the crate does not tell the last one.
pub(in crate::proxy) struct Body {
    stream: RequestStream<Receiver, Bytes>,
    place: Place,
    /// What was read ahead.
    ahead: Read,
    /// Bytes to be read, where the head says how many.
    left: Option<u64>,
    /// Bytes to be handed out, likewise.
    hint: Option<u64>,
}

/// What is to be read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Data,
    Trailers,
    End,
}

impl Body {
    /// The body of a request with this head.
    pub(super) fn new(stream: RequestStream<Receiver, Bytes>, headers: &HeaderMap) -> Self {
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        Self { stream, place: Place::Data, ahead: None, left: length, hint: length }
    }

    /// Looks whether there is a body at all: now, or waiting for what comes next.
    pub(super) async fn begin(&mut self, waits: bool) {
        poll_fn(|cx| match self.read(cx) {
            Poll::Ready(read) => {
                self.ahead = read;
                Poll::Ready(())
            }
            Poll::Pending if waits => Poll::Pending,
            Poll::Pending => Poll::Ready(()),
        })
        .await;
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Read> {
        loop {
            match self.place {
                Place::Data => match ready!(self.stream.poll_recv_data(cx)) {
                    Ok(Some(mut data)) => {
                        let data = data.copy_to_bytes(data.remaining());
                        if let Err(broken) = self.count(data.len() as u64) {
                            return self.broke(broken);
                        }
                        if !data.is_empty() {
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                    }
                    Ok(None) if self.left.is_some_and(|left| left > 0) => {
                        return self.broke(malformed("the body is shorter than announced"));
                    }
                    Ok(None) => self.place = Place::Trailers,
                    Err(error) => return self.broke(error.into()),
                },
                Place::Trailers => {
                    let trailers = ready!(self.stream.poll_recv_trailers(cx));
                    self.place = Place::End;
                    match trailers {
                        Ok(Some(trailers)) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                        Ok(None) => {}
                        Err(error) => return self.broke(error.into()),
                    }
                }
                Place::End => return Poll::Ready(None),
            }
        }
    }

    /// Counts bytes against what the head says (RFC 9114, section 4.1.2).
    fn count(&mut self, bytes: u64) -> Result<(), Broken> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(bytes).ok_or_else(|| malformed("the body is longer than announced"))?;
        }
        Ok(())
    }

    fn broke(&mut self, broken: Broken) -> Poll<Read> {
        self.place = Place::End;
        Poll::Ready(Some(Err(broken)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        let frame = match mem::take(&mut this.ahead) {
            Some(frame) => Some(frame),
            None => ready!(this.read(cx)),
        };
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.hint = this.hint.map(|hint| hint.saturating_sub(data.len() as u64));
            if let Poll::Ready(next) = this.read(cx) {
                this.ahead = next;
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.place == Place::End && self.ahead.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.hint {
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            None => SizeHint::default(),
            Some(bytes) => SizeHint::with_exact(bytes),
        }
    }
}

fn malformed(why: &'static str) -> Broken {
    Broken { reason: Refusal::BadRequest, error: why.into() }
}

impl From<StreamError> for Broken {
    fn from(error: StreamError) -> Self {
        let reason = match error {
            StreamError::RemoteTerminate { .. } | StreamError::ConnectionError { .. } => Refusal::ClientGone,
            _ => Refusal::BadRequest,
        };
        Self { reason, error: error.into() }
    }
}
