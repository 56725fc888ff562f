//! Connections that carry what a client and an endpoint have agreed on, each for one client alone.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use super::account::{Account, Permit, Waiting, watch_peer};
use super::switched::Switched;
use super::transport::Transport;
use super::{AcquireError, Connections, EndpointPool};
use crate::ir::UpstreamLimits;

impl<B> EndpointPool<B> {
    /// A connection of its own, which counts among the endpoint's until it is dropped; waits for one to close while the
    /// endpoint has its most. It begins with `told`. Only endpoints of [`crate::ir::Protocol::Opaque`] are spoken to so.
    pub async fn dial(
        &self,
        limits: &UpstreamLimits,
        connect_timeout: Duration,
        told: Option<&Bytes>,
    ) -> Result<Switched, AcquireError> {
        let Connections::Opaque(account) = &self.connections else {
            return Err(AcquireError::Connect(std::io::ErrorKind::Unsupported.into()));
        };
        let permit = match Permit::take(account, limits.max_connections) {
            Some(permit) => permit,
            None => wait(account, limits).await?,
        };
        let connect = async {
            let stream = account.tcp(told.map(|told| &told[..])).await?;
            // It may be silent for long: the kernel finds out when the endpoint is gone.
            watch_peer(&stream)?;
            Ok(stream)
        };
        let stream = account.connecting(connect_timeout, connect).await?;
        Ok(Switched::new(Transport::Plain(stream), Bytes::new(), permit))
    }
}

async fn wait(account: &Rc<Account>, limits: &UpstreamLimits) -> Result<Permit, AcquireError> {
    let Some(_waiting) = Waiting::take(&account.endpoint, limits.max_pending) else {
        return Err(AcquireError::Overloaded);
    };
    let free = async {
        loop {
            // Also at first: one may have closed before it was known that somebody waits.
            if let Some(permit) = Permit::take(account, limits.max_connections) {
                return permit;
            }
            account.endpoint.released.notified().await;
        }
    };
    match limits.acquire_timeout {
        Duration::ZERO => Ok(free.await),
        timeout => tokio::time::timeout(timeout, free).await.map_err(|_| AcquireError::AcquireTimeout),
    }
}
