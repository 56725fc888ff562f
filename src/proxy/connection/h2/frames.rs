//! Frames that come from a client, looked at on their way to the crate.
//!
//! The crate answers PING and SETTINGS and reads over PRIORITY, window updates, resets of old streams and frames that it
//! does not know, however many there are: none takes memory, each takes time, and a client that sends nothing else is an
//! attacker. Here the nine bytes before each frame (RFC 9113, section 4.1) are counted and judged; of payloads only
//! settings are looked at.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use ::h2::Reason;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::budget::Budget;
use crate::proxy::io::Stream;
use crate::proxy::watchdog::Conn;

/// The bytes before a frame's payload.
const HEAD: usize = 9;
/// The bytes before the first frame.
const PREFACE: u32 = 24;
/// The largest frame that clients may send.
const FRAME: usize = 16 << 10;

/// Control frames that one request is worth: a client may have a priority, windows and a reset for it.
const PER_REQUEST: u32 = 4;
/// Control frames that a piece of an answer is worth: most clients open two windows for each, or for every second.
const PER_PIECE: u32 = 4;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The bytes of one setting: its name and its value (section 6.5.1).
const SETTING: usize = 6;
const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];

/// What is known of a client's frames.
pub(super) struct Frames {
    conn: Rc<Conn>,
    control: Budget,
    /// Why nothing more is read.
    ended: Cell<Option<Reason>>,
    /// The head of the present frame, or of the last one.
    head: Cell<[u8; HEAD]>,
    /// Bytes of `head` that have come.
    head_len: Cell<usize>,
    /// Bytes to come of the present frame's payload; the preface is one too.
    payload: Cell<u32>,
    setting: Cell<[u8; SETTING]>,
    /// A header block goes on in another frame.
    block_goes_on: Cell<bool>,
}

impl Frames {
    /// None has come. `most` is the budget of control frames.
    pub(super) fn new(conn: Rc<Conn>, most: u32) -> Self {
        let now_ms = conn.now_ms();
        Self {
            conn,
            control: Budget::new(most, now_ms),
            ended: Cell::new(None),
            head: Cell::new([DATA; HEAD]),
            head_len: Cell::new(0),
            payload: Cell::new(PREFACE),
            setting: Cell::default(),
            block_goes_on: Cell::new(false),
        }
    }

    /// Why the connection has to end: there were too many frames that carry nothing, or one is none that clients send.
    pub(super) fn ended(&self) -> Option<Reason> {
        self.ended.get()
    }

    /// Whether part of a request's head has come and not all of it.
    pub(super) fn is_in_head(&self) -> bool {
        let is_block = matches!(self.head.get()[3], HEADERS | CONTINUATION);
        self.head_len.get() > 0 || self.block_goes_on.get() || (is_block && self.payload.get() > 0)
    }

    /// A piece of an answer was sent, for which the client may open its windows again.
    pub(super) fn note_sent(&self, bytes: usize) {
        let pieces = u32::try_from(bytes / FRAME).unwrap_or(u32::MAX).saturating_add(1);
        self.control.earn(pieces.saturating_mul(PER_PIECE));
    }

    /// Looks at what came; gives how many of the bytes are for the crate.
    fn scan(&self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        loop {
            let payload = rest.len().min(self.payload.get() as usize);
            if payload > 0 {
                self.read_payload(&rest[..payload]);
                if self.ended.get().is_some() {
                    return bytes.len() - rest.len();
                }
                rest = &rest[payload..];
            }
            if rest.is_empty() {
                return bytes.len();
            }
            let before = bytes.len() - rest.len();
            let (mut head, have) = (self.head.get(), self.head_len.get());
            let more = rest.len().min(HEAD - have);
            head[have..have + more].copy_from_slice(&rest[..more]);
            rest = &rest[more..];
            self.head.set(head);
            if have + more < HEAD {
                self.head_len.set(have + more);
                return bytes.len();
            }
            self.head_len.set(0);
            self.begun(head);
            if self.ended.get().is_some() {
                return before;
            }
        }
    }

    fn read_payload(&self, bytes: &[u8]) {
        let left = self.payload.get();
        let [a, b, c, kind, flags, ..] = self.head.get();
        if kind == SETTINGS && flags & ACK == 0 {
            let length = u32::from_be_bytes([0, a, b, c]);
            self.read_settings((length - left) as usize, bytes);
        }
        self.payload.set(left - u32::try_from(bytes.len()).unwrap_or(left));
    }

    /// Judges the settings in `bytes`, which begin at this place of their payload.
    fn read_settings(&self, place: usize, bytes: &[u8]) {
        let mut setting = self.setting.get();
        for (place, byte) in (place..).zip(bytes) {
            setting[place % SETTING] = *byte;
            if place % SETTING == SETTING - 1 && setting[..2] == INITIAL_WINDOW_SIZE && setting[2] > 0x7f {
                // Section 6.5.2.
                self.ended.set(Some(Reason::FLOW_CONTROL_ERROR));
            }
        }
        self.setting.set(setting);
    }

    fn begun(&self, head: [u8; HEAD]) {
        let [a, b, c, kind, flags, ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        self.payload.set(length);
        if self.block_goes_on.get() && kind != CONTINUATION {
            // For the crate to judge.
            return;
        }
        match kind {
            HEADERS => {
                self.block_goes_on.set(flags & END_HEADERS == 0);
                self.control.earn(PER_REQUEST);
            }
            CONTINUATION => self.block_goes_on.set(flags & END_HEADERS == 0),
            // The crate bounds those that are empty.
            DATA => {}
            // Section 8.4: a client cannot push.
            PUSH_PROMISE => self.ended.set(Some(Reason::PROTOCOL_ERROR)),
            _ if !is_of_right_size(kind, flags, length) => self.ended.set(Some(Reason::FRAME_SIZE_ERROR)),
            _ => {
                self.control.spend(self.conn.now_ms());
                if self.control.is_spent() {
                    self.ended.set(Some(Reason::ENHANCE_YOUR_CALM));
                }
            }
        }
    }
}

/// Sections 6.3 to 6.9.
fn is_of_right_size(kind: u8, flags: u8, length: u32) -> bool {
    match kind {
        PRIORITY => length == 5,
        RST_STREAM | WINDOW_UPDATE => length == 4,
        SETTINGS if flags & ACK != 0 => length == 0,
        SETTINGS => length.is_multiple_of(6),
        PING => length == 8,
        _ => true,
    }
}

/// A client's stream whose frames are looked at. Once one ends the connection, nothing more is read.
pub(super) struct FrameIo<S> {
    stream: S,
    frames: Rc<Frames>,
}

impl<S> FrameIo<S> {
    pub(super) fn new(stream: S, frames: Rc<Frames>) -> Self {
        Self { stream, frames }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: Stream> AsyncRead for FrameIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.frames.ended().is_none() {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
            let passed = before + self.frames.scan(&buf.filled()[before..]);
            buf.set_filled(passed);
        }
        if self.frames.ended().is_some() && buf.filled().len() == before {
            // The driver looks after each turn, and ends the connection.
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> AsyncWrite for FrameIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::proxy::watchdog::{StageLimits, Watchdog};

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        frame.resize(HEAD + payload, 0xff);
        frame
    }

    /// What is known after these bytes, however they were cut; without the preface before them.
    fn scanned(most: u32, bytes: &[u8]) -> Frames {
        let limits = StageLimits { header: Duration::ZERO, keep_alive: Duration::ZERO };
        let watched = Watchdog::new().watch(limits);
        let in_pieces = |size| {
            let frames = Frames::new(Rc::clone(watched.conn()), most);
            let preface = [b'P'; PREFACE as usize];
            for bytes in preface.chunks(size).chain(bytes.chunks(size)) {
                frames.scan(bytes);
            }
            frames
        };
        let whole = in_pieces(usize::MAX);
        for size in [1, 2, 7] {
            let pieces = in_pieces(size);
            let known = |frames: &Frames| (frames.ended(), frames.ended().is_none() && frames.is_in_head());
            assert_eq!(known(&pieces), known(&whole), "in pieces of {size}");
        }
        whole
    }

    #[test]
    fn control_frames_are_counted_and_others_are_not() {
        for (kind, flags, length) in [
            (PRIORITY, 0, 5),
            (RST_STREAM, 0, 4),
            (SETTINGS, 0, 12),
            (SETTINGS, ACK, 0),
            (PING, 0, 8),
            (PING, ACK, 8),
            (7, 0, 20),
            (WINDOW_UPDATE, 0, 4),
            (0x10, 0, 3),
            (0xee, 0, 0),
        ] {
            let few = frame(kind, flags, length).repeat(10);
            assert_eq!(scanned(10, &few).ended(), None, "{kind}");
            assert_eq!(scanned(9, &few).ended(), Some(Reason::ENHANCE_YOUR_CALM), "{kind}");
        }
        for kind in [DATA, HEADERS, CONTINUATION] {
            assert_eq!(scanned(1, &frame(kind, END_HEADERS, 3).repeat(50)).ended(), None, "{kind}");
        }
    }

    #[test]
    fn requests_and_answers_are_worth_some() {
        let window = frame(WINDOW_UPDATE, 0, 4);
        let request = [&frame(HEADERS, END_HEADERS, 3)[..], &window, &window, &frame(RST_STREAM, 0, 4)].concat();
        let frames = scanned(3, &request.repeat(1000));
        assert_eq!(frames.ended(), None);
        frames.note_sent(10);
        frames.scan(&window.repeat(3));
        assert_eq!(frames.ended(), None);
        frames.scan(&window);
        assert_eq!(frames.ended(), Some(Reason::ENHANCE_YOUR_CALM));
    }

    #[test]
    fn frames_that_no_client_sends_end_the_connection() {
        let setting = |name: u8, value: u8| {
            let mut settings = frame(SETTINGS, 0, 12);
            settings[HEAD..].copy_from_slice(&[0, 3, 0, 0, 0, 1, 0, name, value, 0, 0, 0]);
            settings
        };
        for (bytes, reason) in [
            (frame(PRIORITY, 0, 4), Reason::FRAME_SIZE_ERROR),
            (frame(RST_STREAM, 0, 5), Reason::FRAME_SIZE_ERROR),
            (frame(SETTINGS, 0, 7), Reason::FRAME_SIZE_ERROR),
            (frame(SETTINGS, ACK, 6), Reason::FRAME_SIZE_ERROR),
            (frame(PING, 0, 7), Reason::FRAME_SIZE_ERROR),
            (frame(WINDOW_UPDATE, 0, 3), Reason::FRAME_SIZE_ERROR),
            (frame(PUSH_PROMISE, END_HEADERS, 10), Reason::PROTOCOL_ERROR),
            (setting(4, 0x80), Reason::FLOW_CONTROL_ERROR),
        ] {
            assert_eq!(scanned(100, &bytes).ended(), Some(reason), "{bytes:?}");
        }
        assert_eq!(scanned(100, &setting(4, 0x7f)).ended(), None);
        assert_eq!(scanned(100, &setting(3, 0x80)).ended(), None);
    }

    #[test]
    fn what_came_before_the_end_is_passed_on() {
        let good = frame(HEADERS, END_HEADERS, 4);
        let bytes = [&good[..], &frame(PING, 0, 7), &good].concat();
        assert_eq!(scanned(100, &[]).scan(&bytes), good.len());
        let settings = [&good[..], &[0, 0, 6, SETTINGS, 0, 0, 0, 0, 0], &[0, 4, 0x80, 0, 0, 0]].concat();
        assert_eq!(scanned(100, &[]).scan(&settings), good.len() + HEAD);
    }

    #[test]
    fn a_head_that_has_begun_is_known_until_it_ends() {
        let head = frame(HEADERS, 0, 10);
        let end = frame(CONTINUATION, END_HEADERS, 10);
        for (bytes, is_in_head) in [
            (&b""[..], false),
            (&head[..1], true),
            (&head[..8], true),
            (&head[..12], true),
            (&head[..], true),
            (&[&head[..], &end[..5]].concat(), true),
            (&[&head[..], &end[..15]].concat(), true),
            (&[&head[..], &end[..]].concat(), false),
            (&frame(HEADERS, END_HEADERS, 4), false),
            (&frame(DATA, 0, 4)[..11], false),
        ] {
            assert_eq!(scanned(100, bytes).is_in_head(), is_in_head, "{bytes:?}");
        }
    }
}
