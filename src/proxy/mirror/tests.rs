use std::sync::atomic::{AtomicU32, Ordering};

use http::Request;
use http_body_util::{Empty, Full};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::*;
use crate::ir::{ClusterId, Target};
use crate::lifecycle::{DrainSettings, Lifecycle};
use crate::proxy::{Outputs, Shared};
use crate::publish::Published;
use crate::settings::Settings;
use crate::telemetry::metrics::{Buckets, Metrics};
use crate::upstream::Clusters;
use crate::upstream::balance::Random;

fn mirror_of(metrics: &Arc<Metrics>, port: u16) -> Mirror {
    let id = ClusterId::host("127.0.0.1", port);
    let target = Target::Address(([127, 0, 0, 1], port).into());
    let clusters = Clusters::new(Arc::clone(metrics));
    clusters.declare(&[Arc::new(crate::ir::Cluster { id: id.clone(), target })]);
    Mirror { cluster: clusters.get(&id).unwrap(), numerator: 1, denominator: 1 }
}

fn worker(metrics: &Arc<Metrics>) -> Rc<Worker> {
    let (lifecycle, _driver) = Lifecycle::new(1, DrainSettings::default());
    let published = Arc::new(Published::new(&["http".into()]));
    Worker::new(0, Shared::new(Settings::default(), 1, published, lifecycle, Arc::clone(metrics), Outputs::default()))
        .unwrap()
}

fn head(method: &str) -> http::request::Parts {
    Request::builder().method(method).uri("/").header("host", "a").body(()).unwrap().into_parts().0
}

fn counted(metrics: &Metrics, outcome: &str) -> u64 {
    let label = format!("outcome=\"{outcome}\"}} ");
    let text = metrics.render();
    let lines = text.lines().filter(|line| line.starts_with("lockgate_mirrored_requests_total"));
    lines.filter_map(|line| line.split_once(&label)).map(|(_, count)| count.parse::<u64>().unwrap()).sum()
}

/// Waits until a worker has no copies any more; paused time passes as fast as it can.
async fn ended(worker: &Worker) {
    while worker.copies.get() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_hangs_costs_a_bounded_number_of_copies_for_a_bounded_time() {
    LocalSet::new()
        .run_until(async {
            // Connections are made by the kernel; nobody ever reads from them.
            let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let metrics = Metrics::new(1, Buckets::default());
            let (worker, mirror) = (worker(&metrics), mirror_of(&metrics, silent.local_addr().unwrap().port()));
            let mirrors = [mirror];
            let started = Instant::now();
            for _ in 0..MAX_COPIES + 5 {
                let tees = copies(&worker, &mirrors, &head("GET"), &Empty::<Bytes>::new());
                assert!(tees.is_empty());
            }
            assert_eq!((worker.copies.get(), counted(&metrics, "overloaded")), (MAX_COPIES, 5));
            assert_eq!(started.elapsed(), Duration::ZERO, "nobody waits");
            ended(&worker).await;
            assert!(started.elapsed() >= TIMEOUT && started.elapsed() < TIMEOUT + Duration::from_millis(50));
            let most = u64::from(LIMITS.max_connections);
            assert_eq!(counted(&metrics, "timeout"), most);
            assert_eq!(counted(&metrics, "overloaded"), 5 + MAX_COPIES as u64 - most);
            let endpoint = Arc::clone(&mirrors[0].cluster.endpoints().all[0]);
            let open = |count: &AtomicU32| count.load(Ordering::Relaxed);
            assert_eq!((open(&endpoint.connections), endpoint.is_set_aside()), (0, false), "that is for requests");
            while open(&endpoint.mirror_connections) > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_body_is_copied_whole_or_not_at_all() {
    LocalSet::new()
        .run_until(async {
            let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let metrics = Metrics::new(1, Buckets::default());
            let (worker, mirror) = (worker(&metrics), mirror_of(&metrics, silent.local_addr().unwrap().port()));
            let mirrors = [mirror];
            let begin = || {
                let body = Full::new(Bytes::from_static(b"x"));
                copies(&worker, &mirrors, &head("POST"), &body).pop().unwrap()
            };
            drop(begin());
            assert_eq!((counted(&metrics, "incomplete"), worker.copies.get()), (1, 0));
            let mut long = begin();
            long.push(&vec![0; MAX_BODY]);
            long.push(b"1");
            assert_eq!((counted(&metrics, "body-too-large"), worker.copies.get()), (1, 0));
            long.push(b"2");
            assert_eq!(long.kept.capacity(), 0, "what was kept is let go");
            long.finish();
            let known = Full::new(Bytes::from(vec![0; MAX_BODY + 1]));
            assert!(copies(&worker, &mirrors, &head("POST"), &known).is_empty());
            assert_eq!((counted(&metrics, "body-too-large"), worker.copies.get()), (2, 0));
            let mut fits = begin();
            fits.push(&vec![0; MAX_BODY]);
            fits.finish();
            assert_eq!(worker.copies.get(), 1);
            ended(&worker).await;
            assert_eq!(counted(&metrics, "timeout"), 1, "the mirror did not read it all");
        })
        .await;
}

/// Begins one copy and gives how long it took to end, and the mirror, with which its series would go.
async fn one_copy(metrics: &Arc<Metrics>, port: u16) -> (Duration, [Mirror; 1]) {
    let (worker, mirrors) = (worker(metrics), [mirror_of(metrics, port)]);
    let started = Instant::now();
    copies(&worker, &mirrors, &head("GET"), &Empty::<Bytes>::new());
    ended(&worker).await;
    (started.elapsed(), mirrors)
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_never_connects_has_its_own_limit() {
    LocalSet::new()
        .run_until(async {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            socket.bind(&any.into()).unwrap();
            socket.listen(0).unwrap();
            let address = socket.local_addr().unwrap();
            // With its queue full, the kernel answers no more connects.
            let waiting = [(); 4].map(|()| {
                let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
                client.set_nonblocking(true).unwrap();
                let _ = client.connect(&address);
                client
            });
            let metrics = Metrics::new(1, Buckets::default());
            let (took, _mirror) = one_copy(&metrics, address.as_socket().unwrap().port()).await;
            drop(waiting);
            assert!(took >= CONNECT_TIMEOUT && took < TIMEOUT, "{took:?}");
            assert_eq!(counted(&metrics, "failed"), 1);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_end_is_cut() {
    LocalSet::new()
        .run_until(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let talking = tokio::task::spawn_local(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
                let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
                while stream.write_all(chunk.as_bytes()).await.is_ok() {}
            });
            let metrics = Metrics::new(1, Buckets::default());
            let (took, _mirror) = one_copy(&metrics, port).await;
            assert!(took < TIMEOUT, "{took:?}");
            assert_eq!(counted(&metrics, "answered"), 1);
            talking.await.unwrap();
        })
        .await;
}

#[test]
fn a_share_of_requests_is_copied() {
    let mut random = Random::new(7);
    let mut mirror = mirror_of(&Metrics::new(1, Buckets::default()), 1);
    let mut count = |numerator, denominator| {
        (mirror.numerator, mirror.denominator) = (numerator, denominator);
        (0..10_000).filter(|_| takes(&mirror, || random.next_u64())).count()
    };
    assert_eq!((count(0, 100), count(100, 100), count(1, 1)), (0, 10_000, 10_000));
    assert!((4_700..5_300).contains(&count(50, 100)));
    assert!((50..160).contains(&count(1, 100)));
    assert!((3_000..3_700).contains(&count(1, 3)));
}
