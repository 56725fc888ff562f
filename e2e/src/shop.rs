//! What tests share that take from under the others what they stand on, the gateway's own pods for one.

use tokio::sync::{Mutex, MutexGuard};

use crate::cluster::Cluster;
use crate::namespace::Namespace;
use crate::objects::{all, backend, route, selector};
use crate::system::{Gateway, connect};

/// One such test at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A namespace with the backends `one` and `two`, of which `one` is served at its hostname.
pub async fn shop(test: &str) -> (MutexGuard<'static, ()>, Cluster, Gateway, Namespace) {
    let alone = ALONE.lock().await;
    let (cluster, gateway) = connect().await;
    gateway.ready(2).await;
    let namespace = Namespace::new(&cluster, test).await;
    let host = namespace.host();
    let objects = [
        backend(&cluster, "one", 2),
        backend(&cluster, "two", 1),
        selector("shop", &host),
        route("shop", "shop", "one"),
    ];
    namespace.apply(&all(&objects)).await;
    namespace.rolled_out("one").await;
    namespace.rolled_out("two").await;
    gateway.answers(&host, "/", "one").await;
    (alone, cluster, gateway, namespace)
}
