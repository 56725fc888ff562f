use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::LocalSet;

use super::*;
use crate::lifecycle::{DrainSettings, Lifecycle};
use crate::proxy::{Outputs, Shared};
use crate::publish::Published;
use crate::settings::Settings;
use crate::telemetry::metrics::{Buckets, Metrics};

#[tokio::test]
async fn what_is_handed_to_a_worker_that_is_gone_comes_back() {
    let test = async {
        let metrics = Metrics::new(2, Buckets::default());
        let (lifecycle, _driver) = Lifecycle::new(2, DrainSettings::default());
        lifecycle.serving().unwrap();
        let published = Arc::new(Published::new(&["http".into()]));
        let shared =
            Shared::new(Settings::default(), 2, published, lifecycle, Arc::clone(&metrics), Outputs::default());
        let worker = Worker::new(0, shared).unwrap();
        let (handover, mut receivers) = handover(2);
        // The other one has none, as who has panicked, and would be the one to take all.
        worker.load().store(100, Ordering::Relaxed);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let local = Local { index: ListenerIndex(0), tls: false, https_redirect: None };
        let entry = Entry { proxy_protocol: false, port: 80, local, metrics: metrics.listener("http") };
        for is_gone in [false, true] {
            if is_gone {
                receivers.clear();
            }
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, peer) = listener.accept().await.unwrap();
            place(&worker, stream, peer, &entry, &handover);
            if is_gone {
                client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
                let mut answer = String::new();
                client.read_to_string(&mut answer).await.unwrap();
                assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
            } else {
                assert!(receivers[1].try_recv().is_ok(), "the other one gets it");
            }
        }
    };
    LocalSet::new().run_until(test).await;
}
