//! What connections of one worker to one endpoint take of the whole process.

use std::io;
use std::os::fd::AsRawFd as _;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::AcquireError;
use super::transport::Transport;
use crate::descriptors;
use crate::telemetry::metrics::{ClusterMetrics, ConnectionState};
use crate::upstream::Endpoint;
use crate::upstream::tls::{ClientTls, TlsFailed};

/// Silence after which the kernel asks whether a peer is still there, and between its further questions.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
/// Time after which a connection is given up whose peer acknowledges nothing of what was sent.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// What connections are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Requests of clients.
    Requests,
    /// Copies of requests, which must not be felt: connections are counted by themselves, and failures say nothing.
    Mirrors,
}

impl Purpose {
    fn open(self, endpoint: &Endpoint) -> &AtomicU32 {
        match self {
            Self::Requests => &endpoint.connections,
            Self::Mirrors => &endpoint.mirror_connections,
        }
    }
}

/// Where one worker's connections to one endpoint are counted.
pub(super) struct Account {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    metrics: Arc<ClusterMetrics>,
    purpose: Purpose,
    worker: usize,
    tls: Option<Arc<ClientTls>>,
}

impl Account {
    /// An account without connections.
    pub(super) fn new(endpoint: Arc<Endpoint>, metrics: Arc<ClusterMetrics>, purpose: Purpose, worker: usize) -> Self {
        Self { endpoint, metrics, purpose, worker, tls: None }
    }

    /// The same with connections over TLS, if there is any.
    pub(super) fn over(self, tls: Option<Arc<ClientTls>>) -> Self {
        Self { tls, ..self }
    }

    /// Whether connections are over TLS.
    pub(super) const fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// More, or fewer, unused connections: what is not idle is active.
    pub(super) fn idle_changed(&self, n: i64) {
        self.metrics.add_connections(self.worker, ConnectionState::Idle, n);
        self.metrics.add_connections(self.worker, ConnectionState::Active, -n);
    }

    /// Whether requests wait for a connection, of this worker or another. Copies give way to nobody.
    pub(super) fn somebody_waits(&self) -> bool {
        self.purpose == Purpose::Requests && self.endpoint.waiters.load(Ordering::Acquire) > 0
    }

    /// Whether there can be no connection more, of `max` at most.
    pub(super) fn is_full(&self, max: u32) -> bool {
        self.purpose.open(&self.endpoint).load(Ordering::Acquire) >= max
    }

    /// Notes for the whole process whether the endpoint could be connected to.
    fn judge(&self, connected: bool) {
        match (self.purpose, connected) {
            (Purpose::Mirrors, _) => {}
            (Purpose::Requests, true) => self.endpoint.connected(),
            (Purpose::Requests, false) => {
                self.endpoint.connect_failed();
                self.metrics.connect_failed(self.worker);
            }
        }
    }

    /// Runs what makes a connection, at most for `timeout` (zero is no limit), and notes how it went.
    pub(super) async fn connecting<T>(
        &self,
        timeout: Duration,
        connect: impl Future<Output = io::Result<T>>,
    ) -> Result<T, AcquireError> {
        let failed = |error| match error {
            error if TlsFailed::is(&error) => AcquireError::Tls(error),
            error if descriptors::is_exhausted(&error) => AcquireError::Exhausted(error),
            error => AcquireError::Connect(error),
        };
        let connected = async {
            match timeout {
                Duration::ZERO => connect.await.map_err(failed),
                timeout => match tokio::time::timeout(timeout, connect).await {
                    Ok(connected) => connected.map_err(failed),
                    Err(_) => Err(AcquireError::ConnectTimeout),
                },
            }
        };
        let connected = tokio::select! {
            biased;
            connected = connected => connected,
            // Addresses of pods that are gone answer nothing, and nobody is to wait for that.
            () = self.endpoint.left() => Err(AcquireError::Left),
        };
        // The endpoint may be as well as ever then.
        if !matches!(connected, Err(AcquireError::Exhausted(_) | AcquireError::Left)) {
            self.judge(connected.is_ok());
        }
        connected
    }

    /// A connection to the endpoint, with TLS where the Cluster has it, that begins with `told` in the clear.
    pub(super) async fn transport(&self, told: Option<&[u8]>) -> io::Result<Transport> {
        let stream = self.tcp(told).await?;
        match &self.tls {
            None => Ok(Transport::Plain(stream)),
            // In a box, for a handshake is large and most connections have none.
            Some(tls) => Ok(Transport::Tls(Box::new(Box::pin(tls.connect(stream)).await?))),
        }
    }

    /// A socket to the endpoint, whose first bytes are `told`.
    pub(super) async fn tcp(&self, told: Option<&[u8]>) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.endpoint.addr).await?;
        if descriptors::of_process().is_last(stream.as_raw_fd()) {
            return Err(descriptors::exhausted());
        }
        stream.set_nodelay(true)?;
        if let Some(told) = told {
            stream.write_all(told).await?;
        }
        Ok(stream)
    }
}

/// Has the kernel find out that a peer is gone, whether there is something to send or not.
///
/// HTTP/2's own PING would find out the same, but gRPC servers take more of them than one in five minutes for abuse.
pub(super) fn watch_peer(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(())
}

/// Counts one connection of the process while it lives.
pub(super) struct Permit(Rc<Account>);

impl Permit {
    /// A place for one more connection, if there are fewer than `max`.
    pub(super) fn take(account: &Rc<Account>, max: u32) -> Option<Self> {
        let more = |open: u32| (open < max).then_some(open + 1);
        let open = account.purpose.open(&account.endpoint);
        open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).ok()?;
        account.metrics.add_connections(account.worker, ConnectionState::Active, 1);
        Some(Self(Rc::clone(account)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let account = &self.0;
        account.purpose.open(&account.endpoint).fetch_sub(1, Ordering::AcqRel);
        account.metrics.add_connections(account.worker, ConnectionState::Active, -1);
        if account.somebody_waits() {
            account.endpoint.released.notify_one();
        }
    }
}

/// Counts a request that waits for a connection while it lives.
pub(super) struct Waiting<'a>(&'a Endpoint);

impl<'a> Waiting<'a> {
    /// A place to wait, if fewer than `max` requests do.
    pub(super) fn take(endpoint: &'a Endpoint, max: u32) -> Option<Self> {
        let more = |waiting: u32| (waiting < max).then_some(waiting + 1);
        endpoint.waiters.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).ok()?;
        Some(Self(endpoint))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::AcqRel);
    }
}
