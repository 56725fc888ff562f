use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::oneshot;

use super::*;
use crate::proxy::io::ClientIo;
use crate::proxy::watchdog::{StageLimits, Watchdog};

const SILENCE: Silence = Silence { whole: Duration::from_hours(1), half: Duration::from_mins(1) };

/// A tunnel between two streams of `buffer` bytes each, of which the far ends are given; and how it ends.
fn tunnel(early: &'static [u8], buffer: usize) -> (DuplexStream, DuplexStream, oneshot::Receiver<End>) {
    let watchdog = Watchdog::new();
    let sweeper = Rc::clone(&watchdog);
    tokio::task::spawn_local(async move { sweeper.run(|| Phase::Serving).await });
    let (client, near_client) = duplex(buffer);
    let (backend, near_backend) = duplex(buffer);
    let (told, end) = oneshot::channel();
    tokio::task::spawn_local(async move {
        let watched = watchdog.watch(StageLimits { header: Duration::ZERO, keep_alive: Duration::ZERO });
        let conn = watched.conn();
        conn.switch("x".into(), SILENCE.whole);
        let scratch = RefCell::new(vec![0; BUFFER].into_boxed_slice());
        let mut io = ClientIo::new(near_client, Rc::clone(conn));
        let carried = Carried::default();
        let end = join(&mut io, near_backend, Bytes::from_static(early), conn, SILENCE, (&scratch, &carried)).await;
        let _ = told.send(end);
    });
    (client, backend, end)
}

/// Runs a test with paused time on one thread, as a worker does.
fn on_worker<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

async fn read_exactly(stream: &mut DuplexStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[test]
fn bytes_go_both_ways_and_early_ones_first() {
    on_worker(async {
        let (mut client, mut backend, end) = tunnel(b"early", 1 << 10);
        client.write_all(b" late").await.unwrap();
        assert_eq!(read_exactly(&mut backend, 10).await, b"early late");
        backend.write_all(b"answer").await.unwrap();
        assert_eq!(read_exactly(&mut client, 6).await, b"answer");
        drop((client, backend));
        assert!(matches!(end.await.unwrap(), End::Done | End::ClientBroke));
    });
}

#[test]
fn each_side_may_end_before_the_other() {
    for is_client_first in [true, false] {
        on_worker(async {
            let (client, backend, end) = tunnel(b"", 1 << 10);
            let (mut first, mut second) = if is_client_first { (client, backend) } else { (backend, client) };
            first.write_all(b"last words").await.unwrap();
            first.shutdown().await.unwrap();
            let mut heard = Vec::new();
            second.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, b"last words");
            // The other way goes on.
            second.write_all(b"still here").await.unwrap();
            assert_eq!(read_exactly(&mut first, 10).await, b"still here");
            second.shutdown().await.unwrap();
            assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
            assert_eq!(end.await.unwrap(), End::Done);
        });
    }
}

#[test]
fn a_side_that_takes_nothing_holds_the_other_back() {
    on_worker(async {
        let (mut client, mut backend, _end) = tunnel(b"", 1 << 10);
        let mut sent = 0;
        let chunk = [7; 1 << 10];
        // Until nothing more is taken: what the streams hold, and one buffer.
        while let Ok(written) = tokio::time::timeout(Duration::from_secs(1), backend.write(&chunk)).await {
            sent += written.unwrap();
        }
        assert!(sent <= BUFFER + (4 << 10), "{sent} bytes were taken for a client that reads nothing");
        client.write_all(b"the other way is free").await.unwrap();
        read_exactly(&mut backend, 21).await;
        assert_eq!(read_exactly(&mut client, sent).await, vec![7; sent]);
        backend.write_all(b"and again").await.unwrap();
        assert_eq!(read_exactly(&mut client, 9).await, b"and again");
    });
}

#[test]
fn a_silent_tunnel_ends_and_one_that_speaks_does_not() {
    on_worker(async {
        let (mut client, mut backend, mut end) = tunnel(b"", 1 << 10);
        for turn in 0..6 {
            tokio::time::sleep(Duration::from_mins(50)).await;
            assert!(end.try_recv().is_err());
            let (from, to) = if turn % 2 == 0 { (&mut client, &mut backend) } else { (&mut backend, &mut client) };
            from.write_all(b"x").await.unwrap();
            read_exactly(to, 1).await;
        }
        let since = tokio::time::Instant::now();
        assert_eq!(end.await.unwrap(), End::Idle);
        let silent = since.elapsed();
        let second = Duration::from_secs(1);
        assert!(silent + second >= SILENCE.whole && silent <= SILENCE.whole + second, "{silent:?}");
    });
}

#[test]
fn a_half_tunnel_is_waited_for_less_long() {
    on_worker(async {
        let (client, mut backend, end) = tunnel(b"", 1 << 10);
        drop(client);
        assert_eq!(backend.read(&mut [0]).await.unwrap(), 0);
        let since = tokio::time::Instant::now();
        assert_eq!(end.await.unwrap(), End::Idle);
        assert!(since.elapsed() <= SILENCE.half + Duration::from_secs(1));
    });
}

#[test]
fn what_a_backend_said_before_it_left_reaches_the_client() {
    on_worker(async {
        let (mut client, mut backend, end) = tunnel(b"", 1 << 10);
        backend.write_all(b"bye").await.unwrap();
        drop(backend);
        client.write_all(b"nobody hears this").await.unwrap();
        client.write_all(b"nor this").await.unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"bye");
        assert_eq!(end.await.unwrap(), End::BackendLeft);
    });
}

#[test]
fn of_two_limits_the_shorter_holds_for_a_half() {
    let secs = Duration::from_secs;
    let half = |whole, half| Silence { whole: secs(whole), half: secs(half) }.of_half();
    assert_eq!([half(9, 5), half(3, 5), half(0, 5), half(9, 0), half(0, 0)], [5, 3, 5, 9, 0].map(secs));
}
