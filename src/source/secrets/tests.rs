//! Certificates made for tests, and what is made of them.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};

use super::*;
use crate::ir::Validity;

/// Whoever issues certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) pem: String,
}

/// A certificate and its key.
pub(crate) struct Pair {
    pub(crate) chain: CertificateDer<'static>,
    pub(crate) pem: String,
    pub(crate) key: KeyPair,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        Self { certificate: own.der().clone(), pem: own.pem(), issuer: Issuer::new(params, key) }
    }

    /// A certificate for hosts.
    pub(crate) fn issue(&self, names: &[&str]) -> Pair {
        self.sign(names, ExtendedKeyUsagePurpose::ServerAuth, (2020, 2120))
    }

    /// One that was valid once.
    pub(crate) fn issue_expired(&self, names: &[&str]) -> Pair {
        self.sign(names, ExtendedKeyUsagePurpose::ServerAuth, (2020, 2021))
    }

    /// A certificate for a client.
    pub(crate) fn issue_to_client(&self, name: &str) -> Pair {
        self.sign(&[name], ExtendedKeyUsagePurpose::ClientAuth, (2020, 2120))
    }

    fn sign(&self, names: &[&str], usage: ExtendedKeyUsagePurpose, (from, to): (i32, i32)) -> Pair {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.insert_extended_key_usage(usage);
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair { chain: certificate.der().clone(), pem: certificate.pem(), key }
    }

    /// As clients' certificates are judged by.
    pub(crate) fn authorities(&self, name: &str) -> Arc<Authorities> {
        let source = ObjectName::new("test", name);
        Arc::new(Authorities { source, certificates: vec![self.certificate.clone()] })
    }
}

impl Pair {
    /// As a Secret of this name would hold it.
    pub(crate) fn certificate(&self, name: &str) -> Arc<Certificate> {
        let source = CertificateSource::Secret(ObjectName::new("test", name));
        let key = self.key.serialize_pem();
        Arc::new(certificate_of(source, ("crt", self.pem.as_bytes()), ("key", key.as_bytes())).unwrap())
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }

    /// The Secret as a manifest.
    pub(crate) fn secret(&self, name: &str) -> Value {
        secret(name, &self.pem, &self.key.serialize_pem())
    }
}

fn secret(name: &str, certificate: &str, key: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "test"},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": certificate, "tls.key": key},
    })
}

fn read(secret: Value) -> Result<Arc<Certificate>, String> {
    let secret: Secret = serde_json::from_value(secret).unwrap();
    match Material::from(&secret) {
        Material::Held { certificate, .. } => certificate,
        Material::Denied => panic!("nobody is denied"),
    }
}

#[test]
fn a_certificate_tells_its_hosts_and_its_time() {
    let authority = Authority::new("ca");
    let pair = authority.issue(&["A.test", "*.b.test", "192.0.2.7", "2001:db8::7"]);
    let certificate = read(pair.secret("a")).unwrap();
    assert_eq!(certificate.names, ["a.test", "*.b.test", "192.0.2.7", "[2001:db8::7]"]);
    assert_eq!(certificate.chain, [pair.chain]);
    assert_eq!(certificate.not_before, 1_577_836_800);
    let edges = [-1, 0, 1].map(|beyond| certificate.validity(certificate.not_after + beyond));
    assert_eq!(edges, [Validity::Valid, Validity::Valid, Validity::Expired]);
    let edges = [-1, 0].map(|beyond| certificate.validity(certificate.not_before + beyond));
    assert_eq!(edges, [Validity::Early, Validity::Valid]);
}

#[test]
fn base64_is_what_a_cluster_gives_and_a_string_wins() {
    let pair = Authority::new("ca").issue(&["a.test"]);
    let given = serde_json::to_value(Secret {
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(
            [("tls.crt", pair.pem.clone()), ("tls.key", pair.key.serialize_pem())]
                .map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes())))
                .into(),
        ),
        ..Secret::default()
    });
    assert!(read(given.unwrap()).is_ok());
    let mut both = pair.secret("a");
    both["data"] = json!({"tls.crt": "bm9uZQ=="});
    assert!(read(both).is_ok());
}

#[test]
fn what_is_wrong_is_named_and_shows_nothing() {
    let authority = Authority::new("ca");
    let (pair, other) = (authority.issue(&["a.test"]), authority.issue(&["b.test"]));
    let (pem, key) = (pair.pem.as_str(), pair.key.serialize_pem());
    let cut = |text: &str| text.replacen("-----END", "-----ENT", 1);
    let garbled = pem.replacen("MII", "AAA", 1);
    for (given, expected) in [
        (secret("a", pem, &other.key.serialize_pem()), "the private key in tls.key is not that of the certificate"),
        (secret("a", "", &key), "tls.crt holds no certificate in PEM"),
        (secret("a", "hello", &key), "tls.crt holds no certificate in PEM"),
        (secret("a", &cut(pem), &key), "tls.crt is no readable PEM"),
        (secret("a", &garbled, &key), "tls.crt: the first certificate is no readable X.509"),
        (secret("a", pem, ""), "tls.key holds no private key in PEM"),
        (secret("a", pem, &cut(&key)), "tls.key is no readable PEM"),
        (secret("a", pem, pem), "tls.key holds no private key in PEM"),
        (json!({"type": "kubernetes.io/tls", "stringData": {"tls.key": key}}), "has no key tls.crt"),
        (json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": pem}}), "has no key tls.key"),
        (json!({"stringData": {"tls.crt": pem, "tls.key": key}}), "is of type Opaque, not kubernetes.io/tls"),
    ] {
        assert_eq!(read(given).unwrap_err(), expected);
    }
}

#[test]
fn a_key_is_never_printed() {
    let certificate = Authority::new("ca").issue(&["a.test"]).certificate("a");
    let printed = format!("{certificate:?} {}", serde_json::to_string(&certificate).unwrap());
    assert!(printed.contains("a.test") && printed.ends_with("\"test/a\""), "{printed}");
    assert!(printed.len() < 200, "{printed}");
}

#[test]
fn authorities_come_from_either_kind_of_object() {
    let authority = Authority::new("ca");
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "m", "namespace": "test"}, "data": {"ca.crt": authority.pem},
    }))
    .unwrap();
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "m", "namespace": "test"}, "stringData": {"ca.crt": authority.pem},
    }))
    .unwrap();
    for material in [Material::from(&map), Material::from(&secret)] {
        let Material::Held { authorities, certificate } = material else { panic!("nobody is denied") };
        assert_eq!(authorities.unwrap(), authority.authorities("m"));
        assert!(certificate.is_err());
    }
    let wrong = |data: Value| {
        let map: ConfigMap = serde_json::from_value(json!({"data": data})).unwrap();
        let Material::Held { authorities, .. } = Material::from(&map) else { panic!("nobody is denied") };
        authorities.unwrap_err()
    };
    assert_eq!(wrong(json!({})), "has no key ca.crt");
    assert_eq!(wrong(json!({"ca.crt": "x"})), "ca.crt holds no certificate in PEM");
}
