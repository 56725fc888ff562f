//! What becomes of the process when a worker fails.

use std::sync::Arc;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::lifecycle::{Cause, DrainSettings, Lifecycle, Outcome, Phase};
use crate::proxy::{PanicGuard, go_down_with};

#[tokio::test(start_paused = true)]
async fn a_part_of_a_worker_that_panics_takes_the_worker_with_it_and_the_process_drains() {
    let (lifecycle, driver) = Lifecycle::new(2, DrainSettings::default());
    lifecycle.serving().unwrap();
    let (_signals, received) = mpsc::channel(1);
    let outcome = tokio::spawn(driver.run(received));
    let guarded = Arc::clone(&lifecycle);
    let worker = std::thread::spawn(move || {
        let _guard = PanicGuard { index: 1, lifecycle: guarded };
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let mut parts = JoinSet::new();
            parts.spawn_local(std::future::pending());
            parts.spawn_local(async { panic!("on purpose") });
            loop {
                go_down_with(parts.join_next().await.unwrap());
            }
        });
    });
    assert!(worker.join().is_err());
    assert_eq!(outcome.await.unwrap(), Outcome { cause: Cause::WorkerPanicked, forced: 0 });
    assert_eq!(lifecycle.phase(), Phase::Stopped);
}
