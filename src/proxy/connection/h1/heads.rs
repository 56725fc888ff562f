//! Requests out of bytes, one after the other.

use bytes::Bytes;
use http::{Method, Request};

use crate::http1::Length;
use crate::proxy::raw::{Fault, Head, Limits, Scan};

/// Reads one head after the other.
pub(super) struct Heads {
    limits: Limits,
    scan: Scan,
}

/// A head that has been read, or refused.
pub(super) struct Begun {
    /// Its request.
    pub request: Request<()>,
    /// What else it says.
    pub head: Head,
    /// Why it is refused: then the request only stands in for it.
    pub fault: Option<Fault>,
}

impl Heads {
    /// None has been read.
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, scan: Scan::default() }
    }

    /// Whether nothing new has come among `bytes` since the last look.
    pub(super) fn has_seen(&self, bytes: &[u8]) -> bool {
        self.scan.has_seen(bytes)
    }

    /// Bytes that a head may have.
    pub(super) fn most_bytes(&self) -> usize {
        self.limits.bytes
    }

    /// Reads on. `bytes` are all that came since the last message; `None` while the head has not ended.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Option<Begun> {
        match self.begin(bytes) {
            Ok(begun) => begun,
            Err(fault) => {
                let (request, head) = stand_in(bytes);
                Some(Begun { request, head, fault: Some(fault) })
            }
        }
    }

    fn begin(&mut self, bytes: &[u8]) -> Result<Option<Begun>, Fault> {
        let Some(head) = self.scan.advance(bytes, &self.limits)? else { return Ok(None) };
        // A copy of its own: the fields share it, and no buffer has to live as long as they.
        let bytes = Bytes::copy_from_slice(&bytes[..head.len]);
        let request = self.scan.request(&bytes)?;
        self.scan.clear();
        Ok(Some(Begun { request, head, fault: None }))
    }
}

/// What stands in for a head that cannot be read. It has taken all that came.
fn stand_in(bytes: &[u8]) -> (Request<()>, Head) {
    let mut request = Request::new(());
    let is_head = bytes.starts_with(b"HEAD ");
    *request.method_mut() =
        if is_head { Method::HEAD } else { Method::from_bytes(b"UNREADABLE").unwrap_or(Method::GET) };
    let head = Head {
        len: bytes.len(),
        version: request.version(),
        body: Length::None,
        keep_alive: false,
        expects: false,
        takes_trailers: false,
    };
    (request, head)
}
