//! One kind of traffic and its connections.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Plan;
use super::report::{Kind, Log, Phase, Trouble};
use super::traffic::{Shape, Traffic};
use super::wire::{self, Sender, Unanswered};

/// How often a request is sent that its connections were too late for.
const TRIES: usize = 5;
/// Requests of a kind that may be under way at a time on connections of their own, or as streams.
const MOST: usize = 4096;

/// A kind of traffic.
pub(super) struct Lane {
    plan: Arc<Plan>,
    traffic: Traffic,
    log: Arc<Log>,
    /// Requests that may still be under way.
    room: Semaphore,
    kept: Mutex<Kept>,
    /// Held while a connection is made that others will share.
    opening: tokio::sync::Mutex<()>,
}

/// Connections that are kept.
#[derive(Default)]
struct Kept {
    /// The longest unused one first.
    idle: VecDeque<Sender>,
    /// Requests under way on connections of their own.
    used: usize,
}

/// What the request was doing when its time was over.
struct Progress(AtomicU8);

const PHASES: [Phase; 4] = [Phase::Queue, Phase::Connect, Phase::Answer, Phase::Body];

impl Progress {
    fn at(&self, phase: Phase) {
        let at = PHASES.iter().position(|known| *known == phase).unwrap_or(0);
        self.0.store(u8::try_from(at).unwrap_or(0), Ordering::Relaxed);
    }

    fn phase(&self) -> Phase {
        PHASES.get(usize::from(self.0.load(Ordering::Relaxed))).copied().unwrap_or(Phase::Queue)
    }
}

impl Lane {
    pub(super) fn new(plan: &Arc<Plan>, traffic: &Traffic, log: &Arc<Log>) -> Arc<Self> {
        let is_lent = is_kept(traffic.shape) && !traffic.shape.is_h2();
        let most = if is_lent { plan.connections.max(1) } else { MOST };
        Arc::new(Self {
            plan: Arc::clone(plan),
            traffic: traffic.clone(),
            log: Arc::clone(log),
            room: Semaphore::new(most),
            kept: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        })
    }

    /// One request that is due at `due`.
    pub(super) async fn request(self: Arc<Self>, due: Instant) {
        sleep_until(due).await;
        let progress = Progress(AtomicU8::new(0));
        let late = |_| {
            let detail = format!("no end within {} s", self.plan.timeout.as_secs_f64());
            Err(Trouble { phase: progress.phase(), kind: Kind::Timeout, detail })
        };
        let result = timeout_at(due + self.plan.timeout, self.attempts(&progress)).await;
        self.log.ended(&self.traffic, due, result.unwrap_or_else(late));
    }

    async fn attempts(&self, progress: &Progress) -> Result<u16, Trouble> {
        let mut last = None;
        for tries in 0..TRIES {
            if tries > 0 {
                self.log.resent(&self.traffic);
            }
            match self.attempt(progress).await {
                Ok(status) => return Ok(status),
                Err(Unanswered::Failed(trouble)) => return Err(trouble),
                Err(Unanswered::NotBegun(trouble)) => last = Some(trouble),
            }
        }
        Err(last.unwrap_or_else(|| Trouble { phase: Phase::Queue, kind: Kind::Closed, detail: String::new() }))
    }

    async fn attempt(&self, progress: &Progress) -> Result<u16, Unanswered> {
        progress.at(Phase::Queue);
        // The semaphore is never closed.
        let _room = self.room.acquire().await.ok();
        let used = Used::new(&self.kept);
        let (mut sender, is_new) = self.sender(progress).await.map_err(Unanswered::Failed)?;
        let request = wire::request(&self.plan.target, &self.traffic).map_err(Unanswered::Failed)?;
        progress.at(Phase::Answer);
        let answer = match sender.send(request).await {
            // A new connection that takes nothing is no stale one.
            Err(Unanswered::NotBegun(trouble)) if is_new && !self.traffic.shape.is_h2() => {
                return Err(Unanswered::Failed(trouble));
            }
            other => other?,
        };
        progress.at(Phase::Body);
        let (head, trailers) = answer.read().await.map_err(Unanswered::Failed)?;
        drop(used);
        if is_kept(self.traffic.shape) && !self.traffic.shape.is_h2() {
            self.give_back(sender);
        }
        let status = head.status.as_u16();
        wire::judge(self.traffic.shape, status, self.plan.expect, &head.headers, &trailers).map_err(Unanswered::Failed)
    }

    /// A connection, and whether it was made for this request.
    async fn sender(&self, progress: &Progress) -> Result<(Sender, bool), Trouble> {
        // Requests share what one of them opens.
        let _opening = if self.traffic.shape.is_h2() { Some(self.opening.lock().await) } else { None };
        if let Some(sender) = self.take() {
            return Ok((sender, false));
        }
        progress.at(Phase::Connect);
        let sender = self.open().await?;
        if let Some(shared) = sender.share() {
            self.give_back(shared);
        }
        Ok((sender, true))
    }

    /// A connection that is open; `None` when another one is to be made.
    fn take(&self) -> Option<Sender> {
        if !is_kept(self.traffic.shape) {
            return None;
        }
        let mut kept = self.kept.lock();
        kept.idle.retain(|sender| !sender.is_closed());
        let is_shared = self.traffic.shape.is_h2();
        let used = if is_shared { 1 } else { kept.used };
        // All of them are to be held, not the few that would do.
        if kept.idle.len() + used <= self.plan.connections.max(1) {
            return None;
        }
        let sender = kept.idle.pop_front()?;
        if let Some(shared) = sender.share() {
            kept.idle.push_back(shared);
        }
        Some(sender)
    }

    fn give_back(&self, sender: Sender) {
        if !sender.is_closed() {
            self.kept.lock().idle.push_back(sender);
        }
    }

    async fn open(&self) -> Result<Sender, Trouble> {
        let h2 = self.traffic.shape.is_h2();
        let stream = self.plan.target.open(h2).await?;
        self.log.connected(&self.traffic);
        Sender::new(stream, h2).await
    }
}

/// Counts a request on a connection of its own while it lives.
struct Used<'a>(&'a Mutex<Kept>);

impl<'a> Used<'a> {
    fn new(kept: &'a Mutex<Kept>) -> Self {
        kept.lock().used += 1;
        Self(kept)
    }
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        self.0.lock().used -= 1;
    }
}

const fn is_kept(shape: Shape) -> bool {
    !matches!(shape, Shape::Connection)
}
