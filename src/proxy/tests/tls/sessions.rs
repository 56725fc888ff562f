//! Sessions that clients resume, and those that they must not.

use super::*;

fn asking(origin: &Origin, pair: &Pair, issuer: &Authority, required: bool) -> ir::Selector {
    let clients = ClientCertificates { required, authorities: Ok(issuer.authorities("clients")) };
    host("a", &["a.test"], origin).with(pair).asking(clients)
}

#[tokio::test]
async fn a_client_resumes_its_session() {
    let (origin, authority) = (Origin::start(Reply::always(OK)).await, Authority::new("ca"));
    let pair = authority.issue(&["a.test"]);
    for version in [&version::TLS13, &version::TLS12] {
        let gateway = start(vec![host("a", &["a.test"], &origin).with(&pair)]).await;
        let client = TlsClient::speaking(&authority, &[version]);
        for _ in 0..3 {
            assert_eq!(status(&client.get(&gateway, "a.test", "a.test").await.unwrap()), "200");
        }
        let name = if version.version == rustls::ProtocolVersion::TLSv1_2 { "TLSv1.2" } else { "TLSv1.3" };
        assert_eq!((handshakes(&gateway, "full", name), handshakes(&gateway, "resumed", name)), (1, 2));

        let without = Gateway::with(vec![host("a", &["a.test"], &origin).with(&pair)], |settings| {
            listeners(settings);
            settings.tls.session_tickets = false;
        })
        .await;
        let client = TlsClient::speaking(&authority, &[version]);
        for _ in 0..2 {
            client.get(&without, "a.test", "a.test").await.unwrap();
        }
        assert_eq!((handshakes(&without, "full", name), handshakes(&without, "resumed", name)), (2, 0));
    }
}

// The kind of fault is that of nginx's CVE-2025-23419: a session agreed on where nothing was asked of the client is
// resumed where a certificate is.
#[tokio::test]
async fn no_session_gets_round_a_client_certificate() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (authority, issuer) = (Authority::new("ca"), Authority::new("clients"));
    let pair = authority.issue(&["a.test", "b.test"]);
    for version in [&version::TLS13, &version::TLS12] {
        let open = || host("a", &["a.test"], &origin).with(&pair);
        let asks_too = host("b", &["b.test"], &origin)
            .with(&pair)
            .asking(ClientCertificates { required: true, authorities: Ok(issuer.authorities("clients")) });
        let mut gateway = start(vec![open(), asks_too]).await;
        let client = TlsClient::speaking(&authority, &[version]);
        for _ in 0..2 {
            client.get(&gateway, "a.test", "a.test").await.unwrap();
        }
        let resumed =
            |gateway: &Gateway| handshakes(gateway, "resumed", "TLSv1.2") + handshakes(gateway, "resumed", "TLSv1.3");
        assert_eq!(resumed(&gateway), 1, "it has a session to resume");
        // The session of another host, offered under the name of one that asks: the client is made to mix them up.
        let mut mixed = client.config.clone();
        mixed.enable_sni = true;
        let store = Arc::new(Mixed(rustls::client::ClientSessionMemoryCache::new(8)));
        mixed.resumption = Resumption::store(store);
        let mixed = TlsClient { config: mixed };
        mixed.get(&gateway, "a.test", "a.test").await.unwrap();
        assert!(mixed.get(&gateway, "b.test", "b.test").await.is_err());
        // And the same host once it asks.
        gateway.serve(vec![asking(&origin, &pair, &issuer, true)]).await;
        assert!(client.get(&gateway, "a.test", "a.test").await.is_err());
        assert_eq!(resumed(&gateway), 1);
        assert_eq!(handshakes(&gateway, "client-certificate", "-"), 2);
    }
}

#[tokio::test]
async fn every_connection_shows_its_certificate_anew() {
    let origin = Origin::start(Reply::always(OK)).await;
    let (authority, issuer, new) = (Authority::new("ca"), Authority::new("clients"), Authority::new("new"));
    let (pair, own) = (authority.issue(&["a.test"]), issuer.issue_to_client("me"));
    for required in [true, false] {
        let mut gateway = start(vec![asking(&origin, &pair, &issuer, required)]).await;
        let client = TlsClient::showing(&authority, &own);
        for _ in 0..3 {
            client.get(&gateway, "a.test", "a.test").await.unwrap();
        }
        assert_eq!((handshakes(&gateway, "full", "TLSv1.3"), handshakes(&gateway, "resumed", "TLSv1.3")), (3, 0));
        // So other authorities hold from the next connection on.
        gateway.serve(vec![asking(&origin, &pair, &new, required)]).await;
        assert!(client.get(&gateway, "a.test", "a.test").await.is_err());
    }
}

/// A store that keeps the sessions of all hosts as those of one.
#[derive(Debug)]
struct Mixed(rustls::client::ClientSessionMemoryCache);

fn one() -> ServerName<'static> {
    ServerName::try_from("one.test").unwrap()
}

impl rustls::client::ClientSessionStore for Mixed {
    fn set_kx_hint(&self, _: ServerName<'static>, group: rustls::NamedGroup) {
        self.0.set_kx_hint(one(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<rustls::NamedGroup> {
        self.0.kx_hint(&one())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: rustls::client::Tls12ClientSessionValue) {
        self.0.set_tls12_session(one(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<rustls::client::Tls12ClientSessionValue> {
        self.0.tls12_session(&one())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&one());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: rustls::client::Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(one(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<rustls::client::Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&one())
    }
}
