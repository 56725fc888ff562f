//! A client connection in HTTP/3 (RFC 9114).
//!
//! Built on the `h3` crate over QUIC, with a transport of its own: one task drives the connection, one more serves each
//! request, as with HTTP/2. QUIC bounds streams and windows; what resets and frames without use may cost is bounded here.

mod body;
mod frames;
mod stream;
mod transport;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::h3::error::{Code, ConnectionError};
use ::h3::quic::SendStream as _;
use ::h3::server::{Connection, RequestResolver};
use bytes::Bytes;
use tokio::time::{Sleep, sleep};

pub(in crate::proxy) use self::body::Body;
use self::transport::{Ends, Transport};
use super::Client;
use super::budget::Budget;
use crate::proxy::Worker;
use crate::proxy::headers::Peer;
use crate::proxy::watchdog::{Conn, Stage};
use crate::telemetry::metrics::Refusal;

/// How the ledger names it.
const PROTOCOL: &str = "h3";

/// How long a client that was asked to leave, and has no request open, may take to be heard of.
const LEAVE: Duration = Duration::from_secs(3);

/// The least time between asking a client to leave and naming the last request that is served.
const STEP: Duration = Duration::from_millis(100);

/// Between the numbers of two requests (RFC 9000, section 2.1).
const NEXT: u64 = 4;

/// Frames of fields may be as long as this many times what is served, so that clients get an answer that says so.
const OVER: u64 = 4;

/// What the streams of a connection share.
struct Shared {
    worker: Rc<Worker>,
    client: Rc<Client>,
    connection: quinn::Connection,
    /// Who is at the other end now, and where: a connection may move.
    peer: RefCell<(SocketAddr, Rc<Peer>)>,
    /// Resets before an answer, of which each cost more to serve than to ask for.
    resets: Budget,
    /// Streams being served. One that was reset counts until its work has ended.
    open: Cell<u32>,
}

impl Shared {
    fn new(worker: &Rc<Worker>, client: &Rc<Client>, connection: &quinn::Connection) -> Self {
        let resets = worker.shared.settings.limits.http2.max_resets;
        Self {
            worker: Rc::clone(worker),
            client: Rc::clone(client),
            connection: connection.clone(),
            peer: RefCell::new((connection.remote_address(), Rc::clone(&client.peer))),
            resets: Budget::new(resets, client.conn().now_ms()),
            open: Cell::new(0),
        }
    }

    /// Who sends what comes now.
    fn peer(&self) -> Rc<Peer> {
        let remote = self.connection.remote_address();
        let mut known = self.peer.borrow_mut();
        if known.0 != remote {
            let ends = known.1.ends().map(|(_, local)| (remote, local));
            let peer = Peer::new(remote.ip(), &self.worker.shared.settings.trusted_proxies, true);
            *known = (remote, Rc::new(peer.between(ends)));
        }
        Rc::clone(&known.1)
    }

    /// A stream was reset before its answer.
    fn note_reset(&self) {
        self.resets.spend(self.client.conn().now_ms());
    }

    /// A stream got its whole answer.
    fn note_answer(&self) {
        self.resets.earn(1);
    }
}

/// A stream that is being served.
struct Open(Rc<Shared>);

impl Open {
    fn new(shared: &Rc<Shared>) -> Self {
        shared.open.set(shared.open.get() + 1);
        Self(Rc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let left = self.0.open.get() - 1;
        self.0.open.set(left);
        if left == 0 || self.0.resets.is_spent() {
            self.0.client.conn().wake();
        }
    }
}

/// Serves a connection to its end.
pub(in crate::proxy) async fn serve(worker: &Rc<Worker>, connection: quinn::Connection, client: Rc<Client>) {
    let conn = client.conn();
    conn.speaks(PROTOCOL);
    let shared = Rc::new(Shared::new(worker, &client, &connection));
    let most = worker.shared.settings.limits.max_header_bytes.get();
    let (transport, accepted) = Transport::new(connection.clone(), most.saturating_mul(OVER));
    let mut server = ::h3::server::builder();
    server.max_field_section_size(most).send_grease(false);
    let ended = match conn.unless_expired(server.build(transport)).await {
        Some(Ok(connection)) => Driver::new(connection, accepted, &shared).run().await,
        Some(Err(error)) => Ended::Failed(error),
        None => Ended::Closed,
    };
    if let Some(refusal) = ended.refusal() {
        worker.metrics.refused(refusal);
    }
    if let Ended::Failed(error) = &ended
        && !error.is_h3_no_error()
    {
        tracing::debug!(%error, peer = %client.peer.ip, "client connection ended");
    }
}

/// How a connection ended.
enum Ended {
    /// By agreement, or because its time was over.
    Closed,
    /// By what came from the client.
    Cut,
    /// By the client's or its own fault, or by the network's.
    Failed(ConnectionError),
}

impl Ended {
    fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Cut => Some(Refusal::Flood),
            Self::Failed(error @ ConnectionError::Local { .. }) if !error.is_h3_no_error() => Some(Refusal::BadRequest),
            Self::Closed | Self::Failed(_) => None,
        }
    }
}

/// What the connection does next.
enum Next {
    /// It has something to do.
    Go,
    /// Nothing before something happens.
    Wait,
    /// It ends here.
    End(Ended),
}

/// How far a connection has come in leaving (section 5.2).
enum Leaving {
    /// Nobody has been asked to.
    No,
    /// The client has been asked to, and what it asks meanwhile is served; then it is told what the last request is.
    Asked(Pin<Box<Sleep>>),
    /// Requests from this number on are not served.
    Told(u64),
}

/// Drives a connection: hands its requests out, keeps its time, has it leave.
struct Driver<'a> {
    connection: Connection<Transport, Bytes>,
    /// What the crate does not show of the request that it accepted last.
    accepted: Rc<RefCell<Option<Ends>>>,
    shared: &'a Rc<Shared>,
    conn: &'a Conn,
    /// The number of the last request.
    last: Option<u64>,
    leaving: Leaving,
}

impl<'a> Driver<'a> {
    fn new(
        connection: Connection<Transport, Bytes>,
        accepted: Rc<RefCell<Option<Ends>>>,
        shared: &'a Rc<Shared>,
    ) -> Self {
        let conn: &Conn = shared.client.conn();
        conn.wait_for_leave();
        Self { connection, accepted, shared, conn, last: None, leaving: Leaving::No }
    }

    async fn run(mut self) -> Ended {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            // What is dropped with it, should it wait, is a goodbye that is queued all the same.
            let accepted = pin!(self.connection.accept()).poll(cx);
            match accepted {
                Poll::Ready(Ok(Some(resolver))) => {
                    self.begin(resolver);
                    continue;
                }
                Poll::Ready(Ok(None)) => return Poll::Ready(Ended::Closed),
                Poll::Ready(Err(error)) => return Poll::Ready(Ended::Failed(error)),
                Poll::Pending => {}
            }
            match self.next(cx) {
                Next::Go => {}
                Next::Wait => return Poll::Pending,
                Next::End(ended) => return Poll::Ready(ended),
            }
        }
    }

    /// Begins to serve a request, unless the client was told that it is too late, or the work of those that were reset is
    /// not over.
    fn begin(&mut self, mut resolver: RequestResolver<Transport, Bytes>) {
        let Some(ends) = self.accepted.take() else { return };
        let is_late = matches!(self.leaving, Leaving::Told(from) if ends.id >= from);
        let is_over = self.shared.open.get() >= self.shared.worker.shared.settings.limits.http2.max_concurrent_streams;
        if is_late || is_over {
            resolver.frame_stream.reset(Code::H3_REQUEST_REJECTED.value());
            if is_over {
                self.shared.note_reset();
            }
            return;
        }
        // Streams may come out of order.
        self.last = self.last.max(Some(ends.id));
        tokio::task::spawn_local(stream::serve(Open::new(self.shared), resolver, ends));
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Next {
        if self.shared.resets.is_spent() {
            let code = quinn::VarInt::from_u32(0x107);
            self.shared.connection.close(code, b"too many resets");
            return Next::End(Ended::Cut);
        }
        let is_open = self.shared.open.get() > 0;
        match &mut self.leaving {
            // Who has asked for nothing yet is about to, and could not be told to do it elsewhere without a failure.
            Leaving::No if self.last.is_some() && self.shared.worker.shared.lifecycle.phase().asks_to_leave() => {
                return self.ask(cx);
            }
            Leaving::Asked(step) => {
                if step.as_mut().poll(cx).is_ready() {
                    return self.tell(cx);
                }
            }
            Leaving::Told(_) if !is_open => return Next::End(Ended::Closed),
            Leaving::No | Leaving::Told(_) => {}
        }
        self.enter_stage(is_open);
        if !self.conn.poll_expired(cx) {
            return Next::Wait;
        }
        match self.conn.stage() {
            Stage::Idle if self.last.is_some() => self.ask(cx),
            _ => Next::End(Ended::Closed),
        }
    }

    /// Asks the client to leave, naming no request yet, so that those on their way are served.
    fn ask(&mut self, cx: &mut Context<'_>) -> Next {
        self.leaving = Leaving::Asked(Box::pin(sleep(STEP.max(self.shared.connection.rtt() * 2))));
        self.go_away(usize::MAX, cx)
    }

    /// Tells the client which requests are served.
    fn tell(&mut self, cx: &mut Context<'_>) -> Next {
        self.leaving = Leaving::Told(self.last.map_or(0, |last| last + NEXT));
        // The crate counts from the last one that it has accepted.
        self.go_away(1, cx)
    }

    fn go_away(&mut self, more: usize, cx: &mut Context<'_>) -> Next {
        match pin!(self.connection.shutdown(more)).poll(cx) {
            Poll::Ready(Err(error)) => Next::End(Ended::Failed(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Next::Go,
        }
    }

    fn enter_stage(&self, is_open: bool) {
        if is_open {
            // Each stream has limits of its own.
            self.conn.stay(Stage::Streams, Duration::ZERO);
        } else if matches!(self.leaving, Leaving::No) {
            self.conn.stay(Stage::Idle, self.conn.limits().keep_alive);
        } else {
            self.conn.stay(Stage::Leaving, LEAVE);
        }
    }
}
