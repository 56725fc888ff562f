//! A limit of what is in flight at a time, with a bounded queue before it.
//!
//! For the whole process and therefore counted where all workers write: nobody should hold one who has no limit to keep. A
//! place that comes free goes to who has waited longest, and nobody gets past those who wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Counts what is in flight. A clone counts the same.
#[derive(Clone, Debug, Default)]
pub struct Limiter(Arc<Counts>);

/// Something in flight. Dropped, it makes room for something else; on any thread.
#[must_use = "what is dropped at once has no place"]
#[derive(Debug)]
pub struct Place(Arc<Counts>);

/// How to wait for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// How many may wait.
    pub length: u32,
    /// For how long; zero is no limit.
    pub wait: Duration,
    /// Whether one more has who has waited longest give way, and else is refused itself.
    pub displaces: bool,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As many wait as may.
    #[error("the queue is full")]
    Full,
    /// None came free in time.
    #[error("waited too long in the queue")]
    Late,
    /// The queue was full, and somebody else came.
    #[error("gave way to a newer one in the full queue")]
    Displaced,
}

/// On cache lines of its own, for these are written by whoever comes and goes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counts {
    taken: AtomicU32,
    /// As many as are in `waiting`, or are about to be: whoever leaves looks here without the lock.
    queued: AtomicU32,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Who has waited longest first.
    list: VecDeque<Waiter>,
    next: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    /// The limit that it came with.
    max: u32,
    place: oneshot::Sender<Place>,
}

/// Somebody in the queue, also one who goes away.
struct Ticket {
    counts: Arc<Counts>,
    number: u64,
}

impl Limiter {
    /// A place, if fewer than `max` are taken and nobody waits.
    pub fn try_enter(&self, max: u32) -> Option<Place> {
        if self.0.queued.load(SeqCst) > 0 { None } else { self.0.take(max) }
    }

    /// A turn to have a place among `max`: at once, or in the queue.
    pub fn join(&self, max: u32, queue: Queue) -> Result<Turn, Refused> {
        let counts = &self.0;
        let mut waiting = counts.waiting.lock();
        // Said before the places are looked at: who leaves after that look sees that somebody waits.
        counts.queued.fetch_add(1, SeqCst);
        if waiting.list.is_empty()
            && let Some(place) = counts.take(max)
        {
            counts.queued.fetch_sub(1, SeqCst);
            return Ok(Turn(Stage::Has(place)));
        }
        if waiting.list.len() >= queue.length as usize {
            counts.queued.fetch_sub(1, SeqCst);
            if !queue.displaces || waiting.list.pop_front().is_none() {
                return Err(Refused::Full);
            }
        }
        let number = waiting.next;
        waiting.next += 1;
        let (sender, receiver) = oneshot::channel();
        waiting.list.push_back(Waiter { number, max, place: sender });
        let ticket = Ticket { counts: Arc::clone(counts), number };
        Ok(Turn(Stage::Waits { ticket, place: receiver, patience: queue.wait }))
    }

    /// What is in flight.
    pub fn taken(&self) -> u32 {
        self.0.taken.load(SeqCst)
    }
}

/// Somebody's turn. Dropped, it is given up.
#[must_use = "what is dropped at once has no place"]
pub struct Turn(Stage);

enum Stage {
    Has(Place),
    Waits { ticket: Ticket, place: oneshot::Receiver<Place>, patience: Duration },
}

impl Turn {
    /// The place, as soon as there is one.
    pub async fn place(self) -> Result<Place, Refused> {
        let (_ticket, place, patience) = match self.0 {
            Stage::Has(place) => return Ok(place),
            Stage::Waits { ticket, place, patience } => (ticket, place, patience),
        };
        let place = match patience {
            Duration::ZERO => place.await,
            patience => tokio::time::timeout(patience, place).await.map_err(|_| Refused::Late)?,
        };
        // Who gives way is told by the end of the channel.
        place.map_err(|_| Refused::Displaced)
    }
}

impl Counts {
    fn take(self: &Arc<Self>, max: u32) -> Option<Place> {
        let more = |taken: u32| (taken < max).then_some(taken + 1);
        self.taken.fetch_update(SeqCst, SeqCst, more).ok()?;
        Some(Place(Arc::clone(self)))
    }

    /// Who is next, and the place for it, if there is one.
    fn next(self: &Arc<Self>) -> Option<(Waiter, Place)> {
        let mut waiting = self.waiting.lock();
        let place = self.take(waiting.list.front()?.max)?;
        let waiter = waiting.list.pop_front();
        self.queued.fetch_sub(1, SeqCst);
        // There is one, for the list is locked.
        waiter.map(|waiter| (waiter, place))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, SeqCst);
        if self.0.queued.load(SeqCst) == 0 {
            return;
        }
        while let Some((waiter, place)) = self.0.next() {
            // Who is gone at this very moment gives it back.
            let _ = waiter.place.send(place);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut waiting = self.counts.waiting.lock();
        // Those whose time is over are in front.
        if let Some(at) = waiting.list.iter().position(|waiter| waiter.number == self.number) {
            waiting.list.remove(at);
            self.counts.queued.fetch_sub(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests;
