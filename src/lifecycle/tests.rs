use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};
use tracing_subscriber::fmt::MakeWriter;

use super::*;

/// A lifecycle under a driver, with its signals in the test's hand.
struct Run {
    lifecycle: Arc<Lifecycle>,
    signals: mpsc::Sender<Signal>,
    outcome: JoinHandle<Outcome>,
    begun: Instant,
}

impl Run {
    fn starting(settings: DrainSettings) -> Self {
        settings.check().expect("valid settings");
        let (lifecycle, driver) = Lifecycle::new(2, settings);
        let (signals, receiver) = mpsc::channel(4);
        let outcome = tokio::spawn(driver.run(receiver));
        Self { lifecycle, signals, outcome, begun: Instant::now() }
    }

    fn serving(settings: DrainSettings) -> Self {
        let run = Self::starting(settings);
        run.lifecycle.serving().expect("from Starting");
        run
    }

    fn worker(&self, worker: usize) -> &Worker {
        self.lifecycle.worker(worker).expect("a worker")
    }

    async fn signal(&self, signal: Signal) {
        self.signals.send(signal).await.expect("a driver");
        settle().await;
    }

    /// Waits for the end, and tells when each phase from now on began.
    async fn watch(self) -> (Vec<(Phase, u64)>, Outcome) {
        let mut phases = self.lifecycle.subscribe();
        let mut seen = Vec::new();
        while *phases.borrow() != Phase::Stopped {
            phases.changed().await.expect("the sender lives");
            let phase = *phases.borrow_and_update();
            seen.push((phase, self.begun.elapsed().as_millis().try_into().expect("short")));
        }
        (seen, self.outcome.await.expect("no panic"))
    }
}

/// Lets every task run that can, without moving the clock.
async fn settle() {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn terminated(forced: u64) -> Outcome {
    Outcome { cause: Cause::Signal(Signal::Terminate), forced }
}

#[tokio::test(start_paused = true)]
async fn an_idle_gateway_leaves_after_the_delay() {
    let run = Run::serving(DrainSettings::default());
    run.signal(Signal::Terminate).await;
    assert_eq!(run.lifecycle.phase(), Phase::LameDuck);
    let lifecycle = Arc::clone(&run.lifecycle);
    let (seen, outcome) = run.watch().await;
    assert_eq!(seen.last(), Some(&(Phase::Stopped, 5000)));
    assert_eq!(outcome, terminated(0));
    assert_eq!(lifecycle.phase(), Phase::Stopped);
}

#[tokio::test(start_paused = true)]
async fn new_connections_keep_the_lame_duck_up_to_its_maximum() {
    let run = Run::serving(DrainSettings::default());
    let guard = run.worker(0).begin();
    run.signal(Signal::Terminate).await;
    let worker = run.worker(1).clone();
    let clients = tokio::spawn(async move {
        loop {
            worker.note_connection();
            sleep(Duration::from_millis(900)).await;
        }
    });
    let held = tokio::spawn(async move {
        sleep(secs(22)).await;
        drop(guard);
    });
    let (seen, outcome) = run.watch().await;
    clients.abort();
    held.await.expect("no panic");
    assert_eq!(seen[0], (Phase::Draining, 20_000));
    assert_eq!(outcome, terminated(0));
}

#[tokio::test(start_paused = true)]
async fn the_lame_duck_waits_for_a_quiet_second_after_the_delay() {
    let run = Run::serving(DrainSettings::default());
    let _guard = run.worker(0).begin();
    run.signal(Signal::Terminate).await;
    advance(Duration::from_millis(4700)).await;
    run.worker(0).note_connection();
    let (seen, _) = run.watch().await;
    assert_eq!(seen[0], (Phase::Draining, 5700));
}

#[tokio::test(start_paused = true)]
async fn draining_ends_with_the_last_request() {
    let run = Run::serving(DrainSettings::default());
    let (first, second) = (run.worker(0).begin(), run.worker(1).begin());
    assert_eq!(run.lifecycle.in_flight(), 2);
    run.signal(Signal::Terminate).await;
    tokio::spawn(async move {
        sleep(secs(7)).await;
        drop(first);
        sleep(secs(2)).await;
        // Guards may end on any thread.
        std::thread::spawn(move || drop(second)).join().expect("no panic");
    });
    let (seen, outcome) = run.watch().await;
    assert_eq!(seen[0], (Phase::Draining, 5000));
    let (last, at) = seen[seen.len() - 1];
    assert!(last == Phase::Stopped && (9000..9050).contains(&at), "{seen:?}");
    assert_eq!(outcome, terminated(0));
}

/// A log that can be read back.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// A ledger of one tunnel.
struct OneTunnel;

impl Ledger for OneTunnel {
    fn holders(&self) -> Vec<Holder> {
        let (route, protocol, peer) = ("shop/chat/0".to_owned(), "websocket".into(), "192.0.2.7:1234".to_owned());
        vec![Holder { route, protocol, peer, age: secs(90), received: 12, sent: 34 }]
    }
}

#[tokio::test(start_paused = true)]
async fn what_outlasts_the_timeout_is_named_counted_and_cut() {
    let run = Run::serving(DrainSettings::default());
    run.lifecycle.set_ledger(Arc::new(OneTunnel));
    let guard = run.worker(0).begin();
    let mut phases = run.lifecycle.subscribe();
    tokio::spawn(async move {
        phases.wait_for(|phase| *phase == Phase::Aborting).await.expect("the sender lives");
        drop(guard);
    });
    run.signal(Signal::Terminate).await;
    let lifecycle = Arc::clone(&run.lifecycle);
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let (seen, outcome) = run.watch().await;
    assert_eq!(seen[..2], [(Phase::Draining, 5000), (Phase::Aborting, 35_000)]);
    assert!(seen[2].1 < 35_050, "the cut is not waited for longer than it takes");
    assert_eq!(outcome, terminated(1));
    assert_eq!(lifecycle.forced(), 1);
    let log = String::from_utf8(log.0.lock().clone()).expect("UTF-8");
    let cut = log.lines().find(|line| line.contains("cut route")).expect(&log);
    let told = r#"route="shop/chat/0" protocol=websocket peer="192.0.2.7:1234" age_seconds=90.0 received=12 sent=34"#;
    assert!(cut.contains(told), "{cut}");
}

/// A ledger of many tunnels, each a second older than the one before.
struct Tunnels(u64);

impl Ledger for Tunnels {
    fn holders(&self) -> Vec<Holder> {
        (1..=self.0)
            .flat_map(|seconds| OneTunnel.holders().into_iter().map(move |h| Holder { age: secs(seconds), ..h }))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn of_very_many_that_are_cut_the_oldest_are_told() {
    let run = Run::serving(DrainSettings::default());
    run.lifecycle.set_ledger(Arc::new(Tunnels(1002)));
    let _guard = run.worker(0).begin();
    run.signal(Signal::Terminate).await;
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    run.watch().await;
    let log = String::from_utf8(log.0.lock().clone()).expect("UTF-8");
    let told: Vec<&str> =
        log.lines().filter(|line| line.contains(" cut")).filter(|line| line.contains("route=")).collect();
    assert_eq!(told.len(), 1000);
    assert!(told[0].contains("age_seconds=1002.0") && told[999].contains("age_seconds=3.0"), "{}", told[0]);
    assert!(log.contains("cut, younger than those others=2"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_drain_begins_with_the_first_word_to_leave_and_ends_with_a_cancel() {
    let run = Run::serving(DrainSettings::default());
    let _guard = run.worker(0).begin();
    assert_eq!(run.lifecycle.leaving_for(), Duration::ZERO);
    run.lifecycle.drain().expect("from Serving");
    advance(secs(3)).await;
    assert_eq!(run.lifecycle.leaving_for(), secs(3));
    run.lifecycle.cancel_drain().expect("from LameDuck");
    advance(secs(3)).await;
    assert_eq!(run.lifecycle.leaving_for(), Duration::ZERO);
    run.signal(Signal::Terminate).await;
    advance(secs(7)).await;
    settle().await;
    assert_eq!((run.lifecycle.phase(), run.lifecycle.leaving_for()), (Phase::Draining, secs(7)));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_cut_is_left_behind() {
    let run = Run::serving(DrainSettings::default());
    let _stuck = run.worker(0).begin();
    run.signal(Signal::Terminate).await;
    let (seen, outcome) = run.watch().await;
    assert_eq!(seen, [(Phase::Draining, 5000), (Phase::Aborting, 35_000), (Phase::Stopped, 36_000)]);
    assert_eq!(outcome, terminated(1));
}

#[tokio::test(start_paused = true)]
async fn the_strict_form_has_no_lame_duck() {
    let run = Run::serving(DrainSettings { delay: Duration::ZERO, ..DrainSettings::default() });
    let _guard = run.worker(0).begin();
    run.signal(Signal::Terminate).await;
    assert_eq!(run.lifecycle.phase(), Phase::Draining);
    let (seen, _) = run.watch().await;
    assert_eq!(seen[0], (Phase::Aborting, 30_000));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_sigterm_changes_nothing() {
    let run = Run::serving(DrainSettings::default());
    let _guard = run.worker(0).begin();
    for _ in 0..3 {
        run.signal(Signal::Terminate).await;
    }
    run.signal(Signal::Interrupt).await;
    assert_eq!(run.lifecycle.phase(), Phase::LameDuck);
    advance(secs(5)).await;
    settle().await;
    run.signal(Signal::Terminate).await;
    let (seen, _) = run.watch().await;
    assert_eq!(seen, [(Phase::Aborting, 35_000), (Phase::Stopped, 36_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_second_sigint_aborts_in_any_phase() {
    for before in [0, 6] {
        let run = Run::serving(DrainSettings::default());
        let _guard = run.worker(0).begin();
        run.signal(Signal::Interrupt).await;
        assert_eq!(run.lifecycle.phase(), Phase::LameDuck);
        advance(secs(before)).await;
        settle().await;
        run.signal(Signal::Interrupt).await;
        assert_eq!(run.lifecycle.phase(), Phase::Aborting);
        let (seen, outcome) = run.watch().await;
        assert_eq!(seen, [(Phase::Stopped, before * 1000 + 1000)]);
        assert_eq!(outcome, Outcome { cause: Cause::Signal(Signal::Interrupt), forced: 1 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_while_starting_ends_at_once() {
    let run = Run::starting(DrainSettings::default());
    run.signal(Signal::Terminate).await;
    assert_eq!(run.lifecycle.phase(), Phase::Stopped);
    assert!(run.lifecycle.serving().is_err(), "it does not come back");
    let (seen, outcome) = run.watch().await;
    assert_eq!((seen, outcome), (vec![], terminated(0)));
}

#[tokio::test(start_paused = true)]
async fn an_operators_drain_stays_until_it_is_cancelled() {
    let run = Run::serving(DrainSettings::default());
    run.lifecycle.drain().expect("from Serving");
    run.lifecycle.drain().expect("asked again");
    advance(secs(3600)).await;
    settle().await;
    assert_eq!(run.lifecycle.phase(), Phase::LameDuck);
    assert!(!run.lifecycle.ready().ok);
    run.lifecycle.cancel_drain().expect("from LameDuck");
    assert_eq!(run.lifecycle.phase(), Phase::Serving);
    assert!(run.lifecycle.ready().ok);
    let error = run.lifecycle.cancel_drain().expect_err("nothing to cancel");
    assert_eq!(error.to_string(), "a gateway that is Serving cannot become Serving by request");
    run.signal(Signal::Terminate).await;
    let (seen, _) = run.watch().await;
    assert_eq!(seen.last(), Some(&(Phase::Stopped, 3_605_000)));
}

#[tokio::test(start_paused = true)]
async fn a_signal_makes_an_operators_drain_final_and_its_time_counts() {
    let run = Run::serving(DrainSettings::default());
    run.lifecycle.drain().expect("from Serving");
    advance(secs(3)).await;
    run.signal(Signal::Terminate).await;
    assert!(run.lifecycle.cancel_drain().is_err());
    assert!(run.lifecycle.drain().is_err());
    let (seen, _) = run.watch().await;
    assert_eq!(seen.last(), Some(&(Phase::Stopped, 5000)));
}

#[tokio::test(start_paused = true)]
async fn a_drain_cannot_begin_before_serving() {
    let run = Run::starting(DrainSettings::default());
    assert!(run.lifecycle.drain().is_err());
    assert!(run.lifecycle.cancel_drain().is_err());
    run.lifecycle.serving().expect("from Starting");
    assert!(run.lifecycle.serving().is_err(), "only once");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_worker_drains_the_process() {
    let run = Run::serving(DrainSettings::default());
    run.lifecycle.worker_panicked(1);
    settle().await;
    assert_eq!(run.lifecycle.phase(), Phase::LameDuck);
    let (_, outcome) = run.watch().await;
    assert_eq!(outcome, Outcome { cause: Cause::WorkerPanicked, forced: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_signals_waits_for_other_causes() {
    let Run { lifecycle, signals, outcome, .. } = Run::serving(DrainSettings::default());
    drop(signals);
    settle().await;
    assert_eq!(lifecycle.phase(), Phase::Serving);
    lifecycle.worker_panicked(0);
    assert_eq!(outcome.await.expect("no panic").cause, Cause::WorkerPanicked);
}

#[tokio::test(start_paused = true)]
async fn readiness_names_what_is_pending() {
    let run = Run::starting(DrainSettings::default());
    let readiness = run.lifecycle.readiness();
    let routes = readiness.register("kube/routes");
    let slices = readiness.register("kube/endpointslices");
    let again = readiness.register("kube/routes");
    let health = run.lifecycle.ready();
    assert_eq!(health.text, "phase Starting\npending: kube/endpointslices\npending: kube/routes");
    assert!(!health.ok);
    drop(slices);
    routes.done();
    run.lifecycle.serving().expect("from Starting");
    assert_eq!(run.lifecycle.ready().text, "pending: kube/routes");
    let cleared = tokio::spawn({
        let readiness = readiness.clone();
        async move { readiness.cleared().await }
    });
    settle().await;
    assert!(!cleared.is_finished());
    again.done();
    cleared.await.expect("no panic");
    assert_eq!(run.lifecycle.ready(), Health { ok: true, text: "ok".to_owned() });
}

#[tokio::test(start_paused = true)]
async fn readiness_may_outlast_the_signal_for_a_while() {
    let run = Run::serving(DrainSettings { readiness_delay: secs(2), ..DrainSettings::default() });
    let _guard = run.worker(0).begin();
    run.signal(Signal::Terminate).await;
    advance(Duration::from_millis(1999)).await;
    assert!(run.lifecycle.ready().ok);
    advance(Duration::from_millis(1)).await;
    assert_eq!(run.lifecycle.ready(), Health { ok: false, text: "phase LameDuck".to_owned() });
}

#[tokio::test(start_paused = true)]
async fn liveness_fails_only_for_a_worker_that_stands_still() {
    let run = Run::starting(DrainSettings::default());
    advance(secs(600)).await;
    assert!(run.lifecycle.live().ok, "nobody beats while it starts");
    run.lifecycle.serving().expect("from Starting");
    advance(HEARTBEAT_LIMIT).await;
    assert!(run.lifecycle.live().ok);
    run.worker(0).heartbeat();
    advance(Duration::from_millis(1)).await;
    assert_eq!(run.lifecycle.live().text, "worker 1 has not moved for 10 s");
    run.worker(1).heartbeat();
    assert!(run.lifecycle.live().ok);
    run.signal(Signal::Terminate).await;
    assert!(run.lifecycle.live().ok, "a drain is alive");
    advance(HEARTBEAT_LIMIT + secs(1)).await;
    settle().await;
    assert_eq!(run.lifecycle.phase(), Phase::Stopped);
    assert!(run.lifecycle.live().ok, "at its end nobody beats any more");
}

#[test]
fn a_drain_must_fit_its_grace_period() {
    let settings = DrainSettings { grace_period: Some(secs(55)), ..DrainSettings::default() };
    assert_eq!(settings.check(), Ok(()));
    let error = DrainSettings { grace_period: Some(secs(30)), ..DrainSettings::default() }.check();
    assert_eq!(
        error.expect_err("too short").to_string(),
        "drain.maxDelay (20s) + drain.timeout (30s) + 5s to exit is 55s and does not fit the pod's grace period of \
         30s: raise terminationGracePeriodSeconds to at least 55, or lower drain.maxDelay or drain.timeout"
    );
    let strict = DrainSettings { delay: Duration::ZERO, grace_period: Some(secs(35)), ..DrainSettings::default() };
    assert_eq!(strict.check(), Ok(()), "there is no LameDuck to fit");
    let endless = DrainSettings { timeout: Duration::MAX, ..settings };
    assert!(endless.check().is_err());
}

#[test]
fn delays_must_fit_each_other() {
    let settings = DrainSettings { delay: secs(30), ..DrainSettings::default() };
    assert_eq!(settings.check(), Err(InvalidDrain::MaxDelay { delay: secs(30), max: secs(20) }));
    let settings = DrainSettings { readiness_delay: secs(6), ..DrainSettings::default() };
    assert_eq!(settings.check(), Err(InvalidDrain::ReadinessDelay { readiness: secs(6), delay: secs(5) }));
}

#[tokio::test(start_paused = true)]
async fn an_endless_timeout_does_not_overflow_the_clock() {
    let run = Run::serving(DrainSettings { timeout: Duration::MAX, ..DrainSettings::default() });
    let guard = run.worker(0).begin();
    run.signal(Signal::Terminate).await;
    advance(secs(3600)).await;
    settle().await;
    assert_eq!(run.lifecycle.phase(), Phase::Draining);
    drop(guard);
    assert_eq!(run.watch().await.1, terminated(0));
}

#[test]
fn a_clone_of_a_worker_is_nothing_in_flight() {
    let (lifecycle, _driver) = Lifecycle::new(1, DrainSettings::default());
    let worker = lifecycle.worker(0).expect("a worker").clone();
    assert_eq!(lifecycle.in_flight(), 0);
    let guard = worker.begin();
    assert_eq!((worker.in_flight(), lifecycle.in_flight()), (1, 1));
    drop(worker);
    assert_eq!(lifecycle.in_flight(), 1);
    drop(guard);
    assert_eq!(lifecycle.in_flight(), 0);
}

#[test]
fn phases_keep_their_order_and_names() {
    for (index, phase) in Phase::ALL.into_iter().enumerate() {
        assert_eq!(phase as usize, index);
        assert_eq!(Phase::from_u8(phase as u8), phase);
        assert_eq!(phase.to_string(), Phase::NAMES[index]);
    }
    assert!(Phase::ALL.is_sorted());
    assert!(Phase::Starting.serves() && Phase::LameDuck.serves() && !Phase::Draining.serves());
    assert!(Phase::LameDuck.asks_to_leave() && !Phase::Serving.asks_to_leave());
}
