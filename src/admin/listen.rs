//! Sockets.

use std::io;
use std::net::SocketAddr;

use socket2::Socket;
use tokio::net::TcpListener;

use crate::socket;

/// Why a port cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The system refuses.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// It would be reachable from elsewhere.
    #[error("the operator port must be on a loopback address, {address} is not")]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
}

const BACKLOG: i32 = 128;

/// Listens; an unspecified IPv6 address takes both families, or IPv4 where there is no IPv6.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listen = |socket: Socket| {
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    socket::bind(address).and_then(listen).map_err(|source| BindError::Listen { address, source })
}
