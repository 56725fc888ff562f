//! The client of the API server.

use std::time::Duration;

use kube::Client;

/// How long a connection may take: short, because one begun just before the API server returns delays everything.
const CONNECT: Duration = Duration::from_secs(3);

/// A client for the sources, the Lease and status. Does not try again by itself: its back-off, which grows to minutes,
/// would hide the API server's return. Fails when the certificates or credentials of `config` are unusable.
pub fn client(mut config: kube::Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    Client::try_from(config)
}
