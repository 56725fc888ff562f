//! Sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

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
    let listener = match bind(address) {
        Err(error) if address.is_ipv6() && address.ip().is_unspecified() && no_ipv6(&error) => {
            bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
        }
        result => result,
    };
    listener.map_err(|source| BindError::Listen { address, source })
}

fn no_ipv6(error: &io::Error) -> bool {
    // EAFNOSUPPORT: no such family in the kernel; EADDRNOTAVAIL: switched off for every interface.
    error.raw_os_error() == Some(97) || error.kind() == io::ErrorKind::AddrNotAvailable
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Takes the port over from connections in TIME_WAIT, never from another listener.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}
