//! Bodies of answers.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{BodyError, h1, h2};

/// An answer's body as it comes from an endpoint.
pub enum Received {
    /// Over HTTP/1.1.
    H1(h1::Answer),
    /// Over HTTP/2.
    H2(h2::H2Body),
}

impl Body for Received {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::H1(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::H2(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::H1(body) => body.is_end_stream(),
            Self::H2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::H1(body) => body.size_hint(),
            Self::H2(body) => body.size_hint(),
        }
    }
}
