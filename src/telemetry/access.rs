//! The access log: lines that workers write in bulk, and a thread that has all the trouble with the sink.
//!
//! A worker's [`Pen`] collects lines in a buffer of its own and hands the buffer to the writer's thread when it is full,
//! or a tenth of a second old. Nothing on that way waits: where the sink does not keep up, whole lines are dropped and
//! counted. Buffers come back, so that a line allocates nothing.

mod clock;
mod line;
mod queue;
mod sink;
#[cfg(test)]
mod tests;

pub use self::clock::Clock;
pub use self::line::{Format, Key, Line, decimal};
pub use self::queue::{AccessLog, CAPACITY, Pen};
pub use self::sink::Output;
