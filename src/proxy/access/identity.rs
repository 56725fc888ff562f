//! Who a client with a certificate is, for people.

use std::fmt::Write as _;
use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What a certificate that has verified says of its owner.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::proxy) struct Identity {
    /// Its subject, such as `CN=robot, O=Shop`.
    pub subject: String,
    /// Its other names, such as `URI:spiffe://shop/robot, DNS:robot.shop`.
    pub names: String,
}

impl Identity {
    /// Reads a certificate; `None` for one that cannot be read, which none is that has verified.
    pub(in crate::proxy) fn of(certificate: &CertificateDer<'_>) -> Option<Box<Self>> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let mut names = String::new();
        let alternatives = certificate.subject_alternative_name().ok().flatten();
        for name in alternatives.iter().flat_map(|extension| &extension.value.general_names) {
            let before = if names.is_empty() { "" } else { ", " };
            // Into memory: none of them can fail.
            let _ = match name {
                GeneralName::URI(uri) => write!(names, "{before}URI:{uri}"),
                GeneralName::DNSName(name) => write!(names, "{before}DNS:{name}"),
                GeneralName::RFC822Name(address) => write!(names, "{before}email:{address}"),
                GeneralName::IPAddress(bytes) => match address(bytes) {
                    Some(ip) => write!(names, "{before}IP:{ip}"),
                    None => Ok(()),
                },
                _ => Ok(()),
            };
        }
        Some(Box::new(Self { subject: certificate.subject().to_string(), names }))
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn subjects_and_names_are_told() {
        let mut params = CertificateParams::new(vec!["robot.shop".to_owned(), "10.0.0.1".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "robot");
        params.subject_alt_names.push(SanType::URI("spiffe://shop/robot".try_into().unwrap()));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let identity = Identity::of(certificate.der()).unwrap();
        assert_eq!(identity.subject, "CN=robot");
        assert_eq!(identity.names, "DNS:robot.shop, IP:10.0.0.1, URI:spiffe://shop/robot");
        assert_eq!(Identity::of(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
