//! Where a rule sends its requests.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::{BackendFilter, fields, rules};

/// A Service port, or a host and port outside the cluster, with its share of the rule's requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<Backend>()))]
pub struct Backend {
    /// The name of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::label_name")]
    pub service: Option<String>,
    /// The Service's namespace; the Route's own when absent. Another one must let the Route in by a `ReferenceGrant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::label_name")]
    pub namespace: Option<String>,
    /// A hostname or IP address outside the cluster, where the gateway's settings allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::host_or_address")]
    pub host: Option<String>,
    /// The port: a number, or the name of the Service's port.
    pub port: BackendPort,
    /// The share of the rule's requests, relative to its other backends.
    #[serde(default = "Backend::one")]
    #[schemars(schema_with = "fields::weight")]
    pub weight: u32,
    /// What is done to the requests of this backend and to its answers, after the rule's own filters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub filters: Vec<BackendFilter>,
    /// Speaks to the backend over TLS; in plain text when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Box<BackendTls>>,
    /// Tells the backend of each client in front of the connection's first byte, in this version of the PROXY protocol. Every
    /// connection is for one client then, and none can be in HTTP/2.
    #[serde(default, rename = "proxyProtocol", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BackendProxyProtocol")]
    pub proxy_protocol: Option<BackendProxyProtocol>,
}

impl Backend {
    const fn one() -> u32 {
        1
    }

    /// What it names, without its share and filters.
    pub fn reference(&self) -> BackendReference {
        BackendReference {
            service: self.service.clone(),
            namespace: self.namespace.clone(),
            host: self.host.clone(),
            port: self.port.clone(),
            tls: self.tls.as_deref().cloned(),
        }
    }
}

/// A Service port, or a host and port outside the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<BackendReference>()))]
pub struct BackendReference {
    /// The name of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::label_name")]
    pub service: Option<String>,
    /// The Service's namespace; the Route's own when absent. Another one must let the Route in by a `ReferenceGrant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::label_name")]
    pub namespace: Option<String>,
    /// A hostname or IP address outside the cluster, where the gateway's settings allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::host_or_address")]
    pub host: Option<String>,
    /// The port: a number, or the name of the Service's port.
    pub port: BackendPort,
    /// Speaks to the backend over TLS; in plain text when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<BackendTls>,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum BackendProxyProtocol {
    /// A line of text with the addresses.
    V1,
    /// The addresses in binary, and whether the client came over TLS.
    V2,
}

/// The version of HTTP that is spoken over TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum BackendProtocol {
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "HTTP1")]
    Http1,
    /// HTTP/2, which the backend has to agree to.
    #[serde(rename = "HTTP2")]
    Http2,
}

/// TLS to a backend. The backend's certificate is always verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<BackendTls>()))]
pub struct BackendTls {
    /// The host that is asked for (SNI) and that the backend's certificate must be for; `SERVICE.NAMESPACE.svc`, or the
    /// backend's host, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::host_or_address")]
    pub hostname: Option<String>,
    /// A Secret in the Route's namespace whose key `ca.crt` holds, in PEM, who may have issued the backend's certificate;
    /// who the gateway's system trusts when neither it nor `caConfigMapName` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::object_name")]
    pub ca_secret_name: Option<String>,
    /// The same in a `ConfigMap` in place of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::object_name")]
    pub ca_config_map_name: Option<String>,
    /// A Secret of type `kubernetes.io/tls` in the Route's namespace: the certificate that the gateway shows when the
    /// backend asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::object_name")]
    pub secret_name: Option<String>,
    /// The version of HTTP that is spoken over it.
    #[serde(default)]
    pub protocol: BackendProtocol,
}

/// A port by number or by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendPort {
    /// A port number, never 0.
    Number(u16),
    /// The name of a Service's port.
    Name(String),
}

impl fmt::Display for BackendPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl Serialize for BackendPort {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_u16(*number),
            Self::Name(name) => serializer.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for BackendPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Port;

        impl Visitor<'_> for Port {
            type Value = BackendPort;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port number from 1 to 65535 or the name of a port")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<BackendPort, E> {
                match u16::try_from(number) {
                    Ok(port) if port > 0 => Ok(BackendPort::Number(port)),
                    _ => Err(E::invalid_value(de::Unexpected::Unsigned(number), &self)),
                }
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<BackendPort, E> {
                match u64::try_from(number) {
                    Ok(number) => self.visit_u64(number),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
                }
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<BackendPort, E> {
                Ok(BackendPort::Name(name.to_owned()))
            }
        }

        deserializer.deserialize_any(Port)
    }
}

impl JsonSchema for BackendPort {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BackendPort".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // The form of a Service port's name: one RFC 1123 label.
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "minimum": 1,
            "maximum": 65535,
            "minLength": 1,
            "maxLength": 63,
            "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_or_names() {
        let port = |json: &str| serde_json::from_str::<BackendPort>(json).map_err(|error| error.to_string());
        assert_eq!(port("8080"), Ok(BackendPort::Number(8080)));
        assert_eq!(port("\"http\""), Ok(BackendPort::Name("http".to_owned())));
        for json in ["0", "65536", "-1", "true", "1.5", "null"] {
            let error = port(json).unwrap_err();
            assert!(error.contains("a port number from 1 to 65535 or the name of a port"), "{json}: {error}");
        }
    }
}
