use std::future::poll_fn;
use std::task::Poll;

use super::*;

const LIMITS: StageLimits = StageLimits { header: Duration::from_secs(10), keep_alive: Duration::from_secs(75) };

async fn expired_after(conn: &Conn) -> Duration {
    let start = Instant::now();
    poll_fn(|cx| if conn.poll_expired(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    start.elapsed()
}

fn near(measured: Duration, seconds: u64) -> bool {
    let expected = Duration::from_secs(seconds);
    measured + SWEEP >= expected && measured <= expected + 2 * SWEEP
}

/// Runs a test with a sweeping watchdog and paused time.
async fn with_watchdog<F: Future<Output = ()>>(test: impl FnOnce(Rc<Watchdog>) -> F) {
    let watchdog = Watchdog::new();
    let sweeper = Rc::clone(&watchdog);
    tokio::select! {
        () = sweeper.run(|| Phase::Serving) => unreachable!("a sweeper never ends"),
        () = test(watchdog) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_and_a_slow_head_expire_after_the_header_time() {
    with_watchdog(|watchdog| async move {
        let silent = watchdog.watch(LIMITS);
        assert!(near(expired_after(silent.conn()).await, 10));
        let slow = watchdog.watch(LIMITS);
        slow.conn().touch();
        tokio::time::sleep(Duration::from_secs(6)).await;
        slow.conn().touch();
        assert!(near(expired_after(slow.conn()).await, 4), "dripping bytes must not extend the time");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_exchange_lives_while_bytes_flow() {
    with_watchdog(|watchdog| async move {
        let watched = watchdog.watch(LIMITS);
        let conn = watched.conn();
        conn.touch();
        conn.begin_exchange(Duration::from_secs(3));
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(!conn.expired.get());
            conn.touch();
        }
        assert!(near(expired_after(conn).await, 3));
        conn.end_exchange();
        assert!(near(expired_after(conn).await, 75));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_exchange_with_a_deadline_ends_however_many_bytes_flow() {
    with_watchdog(|watchdog| async move {
        let watched = watchdog.watch(LIMITS);
        let conn = watched.conn();
        conn.begin_exchange(Duration::ZERO);
        conn.end_within(Duration::from_secs(5));
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            conn.touch();
            assert!(!conn.is_late());
        }
        let left = expired_after(conn).await;
        assert!(conn.is_late() && left >= Duration::from_secs(1), "never early: {left:?}");
        assert!(left <= Duration::from_secs(1) + 3 * SWEEP, "{left:?}");
        conn.end_exchange();
        assert!(!conn.is_late(), "the next exchange has a deadline of its own");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_limit_never_expires_and_dropped_ones_are_forgotten() {
    with_watchdog(|watchdog| async move {
        let watched = watchdog.watch(LIMITS);
        watched.conn().begin_exchange(Duration::ZERO);
        tokio::time::sleep(Duration::from_mins(20)).await;
        assert!(!watched.conn().expired.get());
        drop(watched);
        assert!(watchdog.conns.borrow().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_wears_out_by_requests_and_by_time() {
    with_watchdog(|watchdog| async move {
        let [counted, old, neither] = [(); 3].map(|()| watchdog.watch(LIMITS));
        counted.conn().wears_out(Some(2), None);
        old.conn().wears_out(None, Some(Duration::from_secs(5)));
        for served in 1..=2 {
            counted.conn().begin_exchange(Duration::ZERO);
            assert_eq!(counted.conn().is_worn(), served == 2);
        }
        old.conn().wait_for_leave();
        let woken = poll_fn(|cx| {
            let is_worn = old.conn().is_worn();
            // Nothing but the sweep wakes this.
            assert!(!old.conn().poll_expired(cx));
            if is_worn { Poll::Ready(()) } else { Poll::Pending }
        });
        let begin = Instant::now();
        woken.await;
        assert!(near(begin.elapsed(), 5), "{:?}", begin.elapsed());
        assert!(!neither.conn().is_worn());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn where_descriptors_are_short_silent_connections_end_and_no_others() {
    let watchdog = Watchdog::new();
    let [new, idle, head, busy] = [(); 4].map(|()| watchdog.watch(LIMITS));
    idle.conn().begin_exchange(Duration::ZERO);
    idle.conn().end_exchange();
    head.conn().touch();
    busy.conn().begin_exchange(Duration::ZERO);
    let expired = || [&new, &idle, &head, &busy].map(|watched| watched.conn().expired.get());
    watchdog.end_silent(Duration::from_secs(1));
    assert_eq!(expired(), [false; 4]);
    tokio::time::advance(Duration::from_secs(1)).await;
    watchdog.end_silent(Duration::from_secs(1));
    assert_eq!(expired(), [true, true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn closing_takes_idle_connections_only() {
    let watchdog = Watchdog::new();
    let [new, idle, busy] = [(); 3].map(|()| watchdog.watch(LIMITS));
    idle.conn().begin_exchange(Duration::ZERO);
    idle.conn().end_exchange();
    busy.conn().begin_exchange(Duration::ZERO);
    watchdog.sweep(Phase::Draining);
    assert_eq!([&new, &idle, &busy].map(|w| w.conn().expired.get()), [false, true, false]);
}
