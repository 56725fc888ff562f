//! A request's body, as whoever forwards it reads it.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::proxy::incoming::Broken;

/// A connection that a body comes on.
pub(super) trait Source {
    /// The next piece; as of [`http_body::Body`].
    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>>;

    /// Whether nothing more is to come.
    fn is_end_stream(&self) -> bool;

    /// How much is to come.
    fn size_hint(&self) -> SizeHint;

    /// Nobody reads on.
    fn leave(&self);
}

/// A body.
pub(in crate::proxy) struct Body(Rc<dyn Source>);

impl Body {
    /// The body that is next on a connection.
    pub(super) fn new(source: Rc<dyn Source>) -> Self {
        Self(source)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.0.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
