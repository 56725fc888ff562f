//! Clients that send at a fixed rate, whatever becomes of what they have sent.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep_until, timeout_at};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: overload.test\r\nuser-agent: bench\r\n\r\n";

/// What came of a load.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Answers of the backend in time, a second.
    pub(crate) good: f64,
    refused: f64,
    /// Without any answer in time, or with a broken one.
    bad: f64,
    served_p50: Duration,
    /// What 99 in 100 of the good ones took at most, from when they were due.
    pub(crate) served_p99: Duration,
    refused_p99: Duration,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
        write!(
            f,
            "{:.0} | {:.0} | {:.1} | {:.1} | ",
            self.refused,
            self.bad,
            ms(self.served_p50),
            ms(self.served_p99)
        )?;
        if self.refused > 0.0 { write!(f, "{:.1}", ms(self.refused_p99)) } else { write!(f, "-") }
    }
}

/// What requests came to that were due in the time that is measured.
#[derive(Default)]
struct Counts {
    good: Vec<Duration>,
    refused: Vec<Duration>,
    bad: usize,
}

/// Offers `rate` requests a second for as long as both phases last, the second of which counts.
pub(crate) fn offer(gateway: SocketAddr, rate: f64, phases: (Duration, Duration), deadline: Duration) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let counts = LocalSet::new().block_on(&runtime, load(gateway, rate, phases, deadline));
    let seconds = phases.1.as_secs_f64();
    let Counts { mut good, mut refused, bad } = counts;
    good.sort_unstable();
    refused.sort_unstable();
    Outcome {
        good: good.len() as f64 / seconds,
        refused: refused.len() as f64 / seconds,
        bad: bad as f64 / seconds,
        served_p50: quantile(&good, 50),
        served_p99: quantile(&good, 99),
        refused_p99: quantile(&refused, 99),
    }
}

fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

async fn load(gateway: SocketAddr, rate: f64, (warm_up, measured): (Duration, Duration), deadline: Duration) -> Counts {
    let counts = Rc::<RefCell<Counts>>::default();
    let idle = Rc::<RefCell<Vec<TcpStream>>>::default();
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0_u32.. {
        let after = Duration::from_secs_f64(f64::from(number) / rate);
        if after >= warm_up + measured {
            break;
        }
        let due = begin + after;
        if due > Instant::now() {
            sleep_until(due).await;
        }
        let (counts, idle) = (Rc::clone(&counts), Rc::clone(&idle));
        let counts = (after >= warm_up).then_some(counts);
        tasks.spawn_local(async move {
            let answered = timeout_at(due + deadline, request(gateway, &idle)).await;
            let Some(counts) = counts else { return };
            let mut counts = counts.borrow_mut();
            match answered {
                Ok(Ok(200)) => counts.good.push(due.elapsed()),
                Ok(Ok(503)) => counts.refused.push(due.elapsed()),
                _ => counts.bad += 1,
            }
        });
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
    counts.take()
}

/// The status of an answer, on a connection that nobody uses, or on a new one.
async fn request(gateway: SocketAddr, idle: &RefCell<Vec<TcpStream>>) -> io::Result<u16> {
    let kept = idle.borrow_mut().pop();
    let mut stream = if let Some(stream) = kept {
        stream
    } else {
        let stream = TcpStream::connect(gateway).await?;
        stream.set_nodelay(true)?;
        stream
    };
    stream.write_all(REQUEST).await?;
    let mut bytes = Vec::with_capacity(4096);
    let (status, end) = loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(head) = head(&bytes) {
            break head;
        }
    };
    while bytes.len() < end {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    idle.borrow_mut().push(stream);
    Ok(status)
}

/// The status of an answer whose head is whole, and where it ends.
fn head(bytes: &[u8]) -> Option<(u16, usize)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
    Some((status, end + length))
}
