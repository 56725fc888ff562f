//! Listening sockets, for the proxy and the admin ports alike.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// Bytes of datagrams that wait for who reads them: a burst of many connections.
const DATAGRAMS: usize = 4 << 20;

/// EAFNOSUPPORT, for which the standard library has no kind: no such family in the kernel.
const NO_SUCH_FAMILY: i32 = 97;

/// Binds a non-blocking TCP socket that does not listen yet. `[::]` takes IPv4 too, and is `0.0.0.0` where there is no
/// IPv6. Fails if somebody else listens on the port.
pub fn bind(address: SocketAddr) -> io::Result<Socket> {
    bind_as(address, Protocol::TCP)
}

/// The same for UDP. What comes is kept from now on, as much as fits.
pub fn bind_datagrams(address: SocketAddr) -> io::Result<Socket> {
    let socket = bind_as(address, Protocol::UDP)?;
    // The kernel gives what it allows.
    socket.set_recv_buffer_size(DATAGRAMS)?;
    socket.set_send_buffer_size(DATAGRAMS)?;
    Ok(socket)
}

fn bind_as(address: SocketAddr, protocol: Protocol) -> io::Result<Socket> {
    let unspecified_v6 = address.is_ipv6() && address.ip().is_unspecified();
    match bind_exactly(address, protocol) {
        Err(error) if unspecified_v6 && is_without_ipv6(&error) => {
            bind_exactly((Ipv4Addr::UNSPECIFIED, address.port()).into(), protocol)
        }
        bound => bound,
    }
}

fn bind_exactly(address: SocketAddr, protocol: Protocol) -> io::Result<Socket> {
    let kind = if protocol == Protocol::UDP { Type::DGRAM } else { Type::STREAM };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    if protocol == Protocol::TCP {
        // Lets a restart bind while connections of the former process are in TIME_WAIT; two listeners still conflict.
        socket.set_reuse_address(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// EADDRNOTAVAIL: IPv6 is switched off for every interface.
fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || error.raw_os_error() == Some(NO_SUCH_FAMILY)
}
