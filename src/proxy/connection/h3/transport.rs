//! The crate's view of a QUIC connection.
//!
//! Written here and not taken from `h3-quinn`: that one panics when reading is given up while it waits, ends streams that are
//! dropped as if what was sent were whole, and shows neither that a client has cancelled nor that it has got everything.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use futures::stream::{self, Stream, StreamExt as _};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use quinn::{ReadError, VarInt, WriteError};

use super::frames::{Fault, Frames};

type Result<T> = std::result::Result<T, StreamErrorIncoming>;

/// Streams that come, one after the other.
type Incoming<T> = Pin<Box<dyn Stream<Item = std::result::Result<T, quinn::ConnectionError>>>>;

/// A connection.
pub(super) struct Transport {
    connection: quinn::Connection,
    bidirectional: Incoming<(quinn::SendStream, quinn::RecvStream)>,
    unidirectional: Incoming<quinn::RecvStream>,
    opener: Opener,
    /// What the crate does not show of the stream that it was given last.
    accepted: Rc<RefCell<Option<Ends>>>,
    /// Bytes that a frame of fields may have.
    most: u64,
}

/// What a request's stream tells beside its frames.
pub(super) struct Ends {
    /// Its number.
    pub id: u64,
    /// Its head has been read: from now on what is not finished is reset when it is dropped.
    pub begun: Rc<Cell<bool>>,
    /// What was wrong with its frames.
    pub fault: Rc<Cell<Option<Fault>>>,
    stopped: Option<Stopped>,
}

type Stopped = Pin<Box<dyn Future<Output = std::result::Result<Option<VarInt>, quinn::StoppedError>>>>;

impl Ends {
    /// Whether the client takes nothing more of the answer: it cancelled, has gone, or has got everything.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(stopped) = &mut self.stopped {
            let _ = ready!(stopped.as_mut().poll(cx));
            self.stopped = None;
        }
        Poll::Ready(())
    }
}

impl Transport {
    /// The crate's view of a connection on which a frame of fields may have `most` bytes, and where the streams that it
    /// accepts show the rest.
    pub(super) fn new(connection: quinn::Connection, most: u64) -> (Self, Rc<RefCell<Option<Ends>>>) {
        let accepted = Rc::<RefCell<Option<Ends>>>::default();
        let bidirectional = stream::unfold(connection.clone(), async |c| Some((c.accept_bi().await, c)));
        let unidirectional = stream::unfold(connection.clone(), async |c| Some((c.accept_uni().await, c)));
        let transport = Self {
            bidirectional: Box::pin(bidirectional),
            unidirectional: Box::pin(unidirectional),
            opener: Opener::new(&connection),
            accepted: Rc::clone(&accepted),
            connection,
            most,
        };
        (transport, accepted)
    }
}

impl quic::Connection<Bytes> for Transport {
    type RecvStream = Receiver;
    type OpenStreams = Opener;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<std::result::Result<Receiver, ConnectionErrorIncoming>> {
        let Some(accepted) = ready!(self.unidirectional.poll_next_unpin(cx)) else { return Poll::Ready(Err(ended())) };
        let stream = accepted.map_err(lost)?;
        let id = id(stream.id())?;
        Poll::Ready(Ok(Receiver { stream, id, frames: None, fault: Rc::default(), is_over: false }))
    }

    fn poll_accept_bidi(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<Both, ConnectionErrorIncoming>> {
        let Some(accepted) = ready!(self.bidirectional.poll_next_unpin(cx)) else { return Poll::Ready(Err(ended())) };
        let (send, receive) = accepted.map_err(lost)?;
        let id = id(receive.id())?;
        let (begun, fault) = (Rc::<Cell<bool>>::default(), Rc::<Cell<Option<Fault>>>::default());
        let ends = Ends {
            id: id.into_inner(),
            begun: Rc::clone(&begun),
            fault: Rc::clone(&fault),
            stopped: Some(Box::pin(send.stopped())),
        };
        *self.accepted.borrow_mut() = Some(ends);
        let frames = Some(Frames::new(self.most));
        let receive = Receiver { stream: receive, id, frames, fault, is_over: false };
        Poll::Ready(Ok(Both { send: Sender::new(send, id, begun), receive }))
    }

    fn opener(&self) -> Opener {
        Opener::new(&self.connection)
    }
}

impl quic::OpenStreams<Bytes> for Transport {
    type BidiStream = Both;
    type SendStream = Sender;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<Both>> {
        self.opener.poll_open_bidi(cx)
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sender>> {
        self.opener.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.opener.close(code, reason);
    }
}

/// Opens streams of a connection.
pub(super) struct Opener {
    connection: quinn::Connection,
    opening: Incoming<quinn::SendStream>,
}

impl Opener {
    fn new(connection: &quinn::Connection) -> Self {
        let opening = stream::unfold(connection.clone(), async |c| Some((c.open_uni().await, c)));
        Self { connection: connection.clone(), opening: Box::pin(opening) }
    }
}

impl quic::OpenStreams<Bytes> for Opener {
    type BidiStream = Both;
    type SendStream = Sender;

    fn poll_open_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<Both>> {
        // No extension of HTTP/3 that is spoken here has the server open them (RFC 9114, section 6.1).
        Poll::Ready(Err(StreamErrorIncoming::Unknown("a server opens no requests".into())))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sender>> {
        let of_connection = |connection_error| StreamErrorIncoming::ConnectionErrorIncoming { connection_error };
        let Some(opened) = ready!(self.opening.poll_next_unpin(cx)) else {
            return Poll::Ready(Err(of_connection(ended())));
        };
        let stream = opened.map_err(|error| of_connection(lost(error)))?;
        let id = id(stream.id()).map_err(of_connection)?;
        Poll::Ready(Ok(Sender::new(stream, id, Rc::default())))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.connection.close(number(code.value()), reason);
    }
}

/// A stream of a request.
pub(super) struct Both {
    send: Sender,
    receive: Receiver,
}

impl quic::BidiStream<Bytes> for Both {
    type SendStream = Sender;
    type RecvStream = Receiver;

    fn split(self) -> (Sender, Receiver) {
        (self.send, self.receive)
    }
}

impl quic::RecvStream for Both {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        self.receive.poll_data(cx)
    }

    fn stop_sending(&mut self, code: u64) {
        self.receive.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.receive.id
    }
}

impl quic::SendStream<Bytes> for Both {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<()> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, code: u64) {
        self.send.reset(code);
    }

    fn send_id(&self) -> StreamId {
        self.send.id
    }
}

/// The half of a stream that comes.
pub(super) struct Receiver {
    stream: quinn::RecvStream,
    id: StreamId,
    /// Of a request.
    frames: Option<Frames>,
    fault: Rc<Cell<Option<Fault>>>,
    is_over: bool,
}

impl Receiver {
    fn refuse(&mut self, fault: Fault) -> StreamErrorIncoming {
        self.fault.set(Some(fault));
        quic::RecvStream::stop_sending(self, fault.code().value());
        StreamErrorIncoming::Unknown(Box::new(fault))
    }
}

impl quic::RecvStream for Receiver {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        if let Some(fault) = self.fault.get() {
            return Poll::Ready(Err(StreamErrorIncoming::Unknown(Box::new(fault))));
        }
        let chunk = ready!(pin!(self.stream.read_chunk(usize::MAX, true)).poll(cx));
        let judged = match (&chunk, &mut self.frames) {
            (Ok(Some(chunk)), Some(frames)) => frames.read(&chunk.bytes),
            (Ok(None), Some(frames)) => frames.end(),
            _ => Ok(()),
        };
        self.is_over = !matches!(chunk, Ok(Some(_)));
        if let Err(fault) = judged {
            return Poll::Ready(Err(self.refuse(fault)));
        }
        Poll::Ready(match chunk {
            Ok(chunk) => Ok(chunk.map(|chunk| chunk.bytes)),
            Err(ReadError::Reset(code)) => Err(StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() }),
            Err(ReadError::ConnectionLost(error)) => {
                Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error: lost(error) })
            }
            Err(error) => Err(StreamErrorIncoming::Unknown(Box::new(error))),
        })
    }

    fn stop_sending(&mut self, code: u64) {
        self.is_over = true;
        // It fails where all has come already.
        let _ = self.stream.stop(number(code));
    }

    fn recv_id(&self) -> StreamId {
        self.id
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if !self.is_over {
            // What still comes is not needed, which is nobody's fault (RFC 9114, section 4.1).
            let _ = self.stream.stop(number(Code::H3_NO_ERROR.value()));
        }
    }
}

/// The half of a stream that goes.
pub(super) struct Sender {
    stream: quinn::SendStream,
    id: StreamId,
    /// Not taken by the connection yet.
    queue: VecDeque<WriteBuf<Bytes>>,
    /// See [`Ends::begun`].
    begun: Rc<Cell<bool>>,
    is_over: bool,
}

impl Sender {
    fn new(stream: quinn::SendStream, id: StreamId, begun: Rc<Cell<bool>>) -> Self {
        Self { stream, id, queue: VecDeque::new(), begun, is_over: false }
    }
}

impl quic::SendStream<Bytes> for Sender {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while let Some(first) = self.queue.front_mut() {
            while first.has_remaining() {
                let written = ready!(Pin::new(&mut self.stream).poll_write(cx, first.chunk()));
                first.advance(written.map_err(unwritten)?);
            }
            self.queue.pop_front();
        }
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<()> {
        self.queue.push_back(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_ready(cx))?;
        self.is_over = true;
        Poll::Ready(self.stream.finish().map_err(|error| StreamErrorIncoming::Unknown(Box::new(error))))
    }

    fn reset(&mut self, code: u64) {
        self.is_over = true;
        // It fails where it was reset or finished before.
        let _ = self.stream.reset(number(code));
    }

    fn send_id(&self) -> StreamId {
        self.id
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // Of a request whose head was not read there is an answer of the crate's own, or none.
        if self.begun.get() && !self.is_over {
            quic::SendStream::reset(self, Code::H3_INTERNAL_ERROR.value());
        }
    }
}

fn id(id: quinn::StreamId) -> std::result::Result<StreamId, ConnectionErrorIncoming> {
    let wrong = |_| ConnectionErrorIncoming::InternalError("a stream's number is none".to_owned());
    VarInt::from(id).into_inner().try_into().map_err(wrong)
}

fn number(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

fn ended() -> ConnectionErrorIncoming {
    ConnectionErrorIncoming::InternalError("no more streams come".to_owned())
}

fn lost(error: quinn::ConnectionError) -> ConnectionErrorIncoming {
    match error {
        quinn::ConnectionError::ApplicationClosed(close) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: close.error_code.into_inner() }
        }
        quinn::ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        other => ConnectionErrorIncoming::Undefined(Arc::new(other)),
    }
}

fn unwritten(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() },
        WriteError::ConnectionLost(error) => {
            StreamErrorIncoming::ConnectionErrorIncoming { connection_error: lost(error) }
        }
        other => StreamErrorIncoming::Unknown(Box::new(other)),
    }
}
