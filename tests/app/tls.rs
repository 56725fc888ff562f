//! Certificates from manifests.

use std::sync::Arc;

use lockgate::settings::DefaultCertificate;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use super::support::{Gateway, Origin, backend, route, until};

/// Whoever issues certificates, and what clients are like that trust it.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) trusting: Arc<ClientConfig>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(params.self_signed(&key).unwrap().der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        Self { issuer: Issuer::new(params, key), trusting: Arc::new(builder.with_no_client_auth()) }
    }

    /// A certificate for these hosts, in PEM, with its key.
    fn issue(&self, hosts: &[&str]) -> (String, String, CertificateDer<'static>) {
        let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem(), certificate.der().clone())
    }

    /// A Secret with a certificate for these hosts, as a manifest and as clients see it.
    pub(crate) fn secret(&self, name: &str, hosts: &[&str]) -> (String, CertificateDer<'static>) {
        let (certificate, key, shown) = self.issue(hosts);
        let indented = |text: &str| text.lines().flat_map(|line| ["    ", line, "\n"]).collect::<String>();
        let manifest = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n{}  \
             tls.key: |\n{}---\n",
            indented(&certificate),
            indented(&key)
        );
        (manifest, shown)
    }
}

const RULES: &str = "  - {backends: [{service: s, port: 80}]}";

#[test]
fn a_secret_comes_changes_and_goes_while_the_rest_lives() {
    let (origin, authority) = (Origin::start("s"), Authority::new());
    let with_secret = |name: &str| {
        let hostnames = format!("hostnames: [{name}.test]");
        route(name, &format!("[{name}.test]"), RULES)
            .replace(&hostnames, &format!("{hostnames}, tls: {{secretName: {name}}}"))
    };
    let (b, b_shown) = authority.secret("b", &["b.test"]);
    let manifests = backend(&origin) + &with_secret("a") + &with_secret("b") + &b;
    let gateway = Gateway::with(&manifests, |settings| settings.listeners[0].tls = true);
    let shown = |host: &str| gateway.connect_tls(&[], host, &authority).ok().and_then(|c| c.certificate);
    assert!(gateway.connect_tls(&[], "a.test", &authority).err().unwrap().to_string().contains("UnrecognisedName"));

    let (first, first_shown) = authority.secret("a", &["a.test"]);
    gateway.apply("a.yaml", &first);
    until("the certificate is there", || shown("a.test").as_ref() == Some(&first_shown));
    let mut live = gateway.connect_tls(&[], "a.test", &authority).unwrap();
    let (second, second_shown) = authority.secret("a", &["a.test"]);
    gateway.apply("a.yaml", &second);
    until("the certificate is the new one", || shown("a.test").as_ref() == Some(&second_shown));
    gateway.delete("a.yaml");
    until("the certificate is gone", || shown("a.test").is_none());
    // What was made before goes on, and others never notice.
    assert_eq!(live.send("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").body, "s");
    assert_eq!(live.send("GET / HTTP/1.1\r\nhost: b.test\r\n\r\n").status, 421);
    assert_eq!(shown("b.test"), Some(b_shown));
}

#[test]
fn the_default_certificate_may_come_from_files() {
    let (origin, authority) = (Origin::start("s"), Authority::new());
    let (certificate, key, shown) = authority.issue(&["a.test"]);
    let dir = tempfile::tempdir().unwrap();
    let [certificate_file, key_file] = [("c.pem", certificate), ("k.pem", key)].map(|(name, text)| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    });
    let gateway = Gateway::with(&(backend(&origin) + &route("r", "[a.test]", RULES)), |settings| {
        settings.listeners[0].tls = true;
        settings.tls.default_certificate = DefaultCertificate { secret: None, certificate_file, key_file };
    });
    let mut client = gateway.connect_tls(&[], "a.test", &authority).unwrap();
    assert_eq!(client.certificate, Some(shown));
    assert_eq!(client.send("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").body, "s");
}
