use std::sync::atomic::AtomicU32;

use super::*;

const QUEUE: Queue = Queue { length: 2, wait: Duration::from_secs(1), displaces: false };

async fn enter(limiter: &Limiter, max: u32, queue: Queue) -> Result<Place, Refused> {
    limiter.join(max, queue)?.place().await
}

/// Lets tasks that can go on do so.
async fn settle() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

fn queued(limiter: &Limiter) -> (u32, usize) {
    (limiter.0.queued.load(SeqCst), limiter.0.waiting.lock().list.len())
}

#[tokio::test(start_paused = true)]
async fn as_many_as_may_are_let_in_and_one_more_when_one_leaves() {
    let limiter = Limiter::default();
    let places: Vec<Place> = (0..3).map_while(|_| limiter.try_enter(2)).collect();
    assert_eq!((places.len(), limiter.taken()), (2, 2));
    drop(places);
    assert_eq!(limiter.taken(), 0);
    assert!(enter(&limiter, 1, QUEUE).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_longest_is_next_and_nobody_gets_past() {
    let limiter = Limiter::default();
    let first = limiter.try_enter(1).unwrap();
    let wait = |limiter: Limiter| tokio::spawn(async move { enter(&limiter, 1, QUEUE).await });
    let second = wait(limiter.clone());
    settle().await;
    let third = wait(limiter.clone());
    settle().await;
    assert_eq!(enter(&limiter, 1, QUEUE).await.unwrap_err(), Refused::Full);
    drop(first);
    // It has a place, though it has not gone on yet.
    assert!(limiter.try_enter(1).is_none());
    assert_eq!(limiter.taken(), 1);
    let second = second.await.unwrap().unwrap();
    assert!(limiter.try_enter(2).is_none(), "past one who waits");
    drop(second);
    drop(third.await.unwrap().unwrap());
    assert_eq!((limiter.taken(), queued(&limiter)), (0, (0, 0)));
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_when_its_time_is_over() {
    let limiter = Limiter::default();
    let held = limiter.try_enter(1).unwrap();
    let begin = tokio::time::Instant::now();
    assert_eq!(enter(&limiter, 1, QUEUE).await.unwrap_err(), Refused::Late);
    assert_eq!(begin.elapsed().as_secs(), 1);
    assert_eq!(queued(&limiter), (0, 0));
    let patient = limiter.clone();
    let patient = tokio::spawn(async move { enter(&patient, 1, Queue { wait: Duration::ZERO, ..QUEUE }).await });
    tokio::time::sleep(Duration::from_hours(1)).await;
    drop(held);
    assert!(patient.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_oldest_gives_way_where_that_is_wanted() {
    let displaces = Queue { displaces: true, ..QUEUE };
    let limiter = Limiter::default();
    let held = limiter.try_enter(1).unwrap();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let limiter = limiter.clone();
        waiting.push(tokio::spawn(async move { enter(&limiter, 1, displaces).await }));
        settle().await;
    }
    assert_eq!(waiting.remove(0).await.unwrap().unwrap_err(), Refused::Displaced);
    assert_eq!(queued(&limiter), (2, 2));
    drop(held);
    for waiting in waiting {
        assert!(waiting.await.unwrap().is_ok());
    }
    let held = limiter.try_enter(1).unwrap();
    let none = Queue { length: 0, ..displaces };
    assert_eq!(enter(&limiter, 1, none).await.unwrap_err(), Refused::Full, "there is nobody to give way");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_queue_is_forgotten_and_passes_on_what_it_was_given() {
    let limiter = Limiter::default();
    let held = limiter.try_enter(1).unwrap();
    let wait = |limiter: Limiter| tokio::spawn(async move { enter(&limiter, 1, QUEUE).await });
    let [gone, next] = [wait(limiter.clone()), wait(limiter.clone())];
    settle().await;
    gone.abort();
    settle().await;
    assert_eq!(queued(&limiter), (1, 1));
    // Given, and gone before it was taken.
    drop(held);
    next.abort();
    settle().await;
    assert_eq!((limiter.taken(), queued(&limiter)), (0, (0, 0)));
    assert!(limiter.try_enter(1).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_higher_limit_lets_more_in_at_once() {
    let limiter = Limiter::default();
    let held = limiter.try_enter(1).unwrap();
    let wait = |limiter: Limiter| tokio::spawn(async move { enter(&limiter, 3, Queue { length: 9, ..QUEUE }).await });
    let others: Vec<_> = (0..4).map(|_| wait(limiter.clone())).collect();
    settle().await;
    // Two found room at once, two wait.
    assert_eq!((limiter.taken(), queued(&limiter)), (3, (2, 2)));
    drop(held);
    settle().await;
    assert_eq!((limiter.taken(), queued(&limiter)), (3, (1, 1)));
    others.iter().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn many_threads_never_have_more_than_may_and_all_get_their_turn() {
    const MAX: u32 = 3;
    let limiter = Limiter::default();
    let (inside, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    let queue = Queue { length: 1_000, wait: Duration::ZERO, displaces: false };
    runtime.block_on(async {
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let (limiter, inside, most) = (limiter.clone(), Arc::clone(&inside), Arc::clone(&most));
                tokio::spawn(async move {
                    for _ in 0..50 {
                        let place = match limiter.try_enter(MAX) {
                            Some(place) => place,
                            None => enter(&limiter, MAX, queue).await.unwrap(),
                        };
                        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, SeqCst);
                        drop(place);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(most.load(SeqCst) <= MAX, "{most:?}");
    assert_eq!((limiter.taken(), queued(&limiter)), (0, (0, 0)));
}
