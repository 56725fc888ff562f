//! What is asked, and how it is read.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::SystemTime;

use http::header::{HOST, HeaderName, HeaderValue};
use http::request::Parts;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::{Gateway, Listener, time_or_now};

/// A request to explain, as it is asked on the command line and at `/explain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Question {
    /// The method; case counts.
    pub method: String,
    /// `http://host/path?query`, or the same without scheme, or without host too where a header names it.
    pub url: String,
    /// Header fields as `name: value`, in order.
    #[serde(default)]
    pub headers: Vec<String>,
    /// The address that connects; `127.0.0.1` if absent.
    #[serde(default)]
    pub client_ip: Option<String>,
    /// The listener it comes in on; if absent, found by the URL.
    #[serde(default)]
    pub listener: Option<String>,
    /// The time, in RFC 3339; now if absent.
    #[serde(default)]
    pub at: Option<String>,
    /// Whether lists are told to their end.
    #[serde(default)]
    pub all: bool,
}

/// What of a question cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct QuestionError {
    /// Which part.
    pub field: &'static str,
    /// Why.
    pub reason: String,
}

impl QuestionError {
    pub(super) fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self { field, reason: reason.into() }
    }
}

/// A question, read.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The head as the proxy would get it.
    pub parts: Parts,
    /// The position of the listener.
    pub listener: usize,
    /// Its name.
    pub listener_name: Arc<str>,
    /// What the client speaks, to the gateway or to the load balancer before it: `http` or `https`.
    pub scheme: &'static str,
    /// The address that connects, or that a load balancer tells.
    pub peer: IpAddr,
    /// The time.
    pub at: SystemTime,
    /// What was guessed.
    pub notes: Vec<String>,
}

/// The scheme, authority and target of a URL.
struct Url<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    target: String,
}

impl Question {
    /// Reads a question from a query: `method`, `url`, any number of `header`, `clientIp`, `listener`, `at`, `all`. The
    /// method is GET where none is named. Other parameters are left to the caller.
    pub fn from_query(query: &str) -> Result<Self, QuestionError> {
        let mut question = Self { method: "GET".to_owned(), ..Self::default() };
        for (name, value) in pairs(query) {
            match name.as_str() {
                "method" => question.method = value,
                "url" => question.url = value,
                "header" => question.headers.push(value),
                "clientIp" => question.client_ip = Some(value),
                "listener" => question.listener = Some(value),
                "at" => question.at = Some(value),
                "all" => question.all = !matches!(value.as_str(), "false" | "0"),
                "o" => {}
                other => {
                    let known = "method, url, header, clientIp, listener, at, all and o";
                    return Err(QuestionError::new("query", format!("{other:?} is not known; {known} are")));
                }
            }
        }
        if question.url.is_empty() {
            return Err(QuestionError::new("url", "is required, such as /explain?url=http://shop.example.com/cart"));
        }
        Ok(question)
    }

    /// Reads it for a gateway.
    pub fn parse(&self, gateway: &Gateway) -> Result<Asked, QuestionError> {
        let method = self.method.parse::<http::Method>();
        let method = method.map_err(|_| QuestionError::new("method", format!("{:?} is no method", self.method)))?;
        let url = Url::split(&self.url)?;
        let mut notes = Vec::new();
        if self.url.contains('#') {
            notes.push("a client never sends what stands behind the #".to_owned());
        }
        let uri = http::Uri::try_from(url.target.as_bytes()).map_err(|e| {
            QuestionError::new("url", format!("{:?} is no target that a request can have: {e}", url.target))
        })?;
        let mut request = http::Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let (mut parts, ()) = request.into_parts();
        for field in &self.headers {
            let (name, value) = header(field)?;
            parts.headers.append(name, value);
        }
        if let Some(authority) = url.authority
            && !parts.headers.contains_key(HOST)
        {
            let value = HeaderValue::from_str(authority);
            let value = value.map_err(|_| QuestionError::new("url", format!("{authority:?} is no host")))?;
            parts.headers.insert(HOST, value);
        }
        let (listener, listener_name) = self.listener(&url, gateway, &mut notes)?;
        let own = gateway.listeners.get(listener);
        // Else a load balancer that says that it has ended TLS is all that makes a request https.
        let told = own.is_some_and(|own| own.proxy_protocol) && url.scheme == Some("https");
        let scheme = if told || own.is_some_and(|own| own.tls) { "https" } else { "http" };
        let (peer, at) = (self.peer()?, time_or_now(self.at.as_deref())?);
        Ok(Asked { parts, listener, listener_name, scheme, peer, at, notes })
    }

    fn peer(&self) -> Result<IpAddr, QuestionError> {
        let Some(text) = &self.client_ip else { return Ok(Ipv4Addr::LOCALHOST.into()) };
        text.parse().map_err(|_| QuestionError::new("clientIp", format!("{text:?} is no IP address")))
    }

    /// The listener that is named; else the one of the URL's port, else the one that is named like its scheme, else the
    /// first one that speaks it, else the first.
    fn listener(
        &self,
        url: &Url<'_>,
        gateway: &Gateway,
        notes: &mut Vec<String>,
    ) -> Result<(usize, Arc<str>), QuestionError> {
        let all = || gateway.listeners.iter().map(|l| &*l.name).collect::<Vec<_>>().join(", ");
        let find = |holds: &dyn Fn(&Listener) -> bool| {
            let at = gateway.listeners.iter().position(holds)?;
            Some((at, Arc::clone(&gateway.listeners.get(at)?.name)))
        };
        if let Some(name) = &self.listener {
            let missing = || format!("the gateway has no listener {name:?}; it has {}", all());
            return find(&|own| *own.name == **name).ok_or_else(|| QuestionError::new("listener", missing()));
        }
        let port = url.authority.and_then(|authority| authority.rsplit_once(':')?.1.parse::<u16>().ok());
        let by_port = find(&|own| Some(own.port) == port);
        let by_name = || find(&|own| Some(&*own.name) == url.scheme);
        let speaks = |scheme: &str| find(&|own| own.tls == (scheme == "https") && !own.proxy_protocol);
        let several = gateway.listeners.iter().any(|own| own.tls) && gateway.listeners.iter().any(|own| !own.tls);
        let by_scheme = || speaks(url.scheme.filter(|_| several)?);
        if let Some(found) = by_port.or_else(by_name).or_else(by_scheme) {
            return Ok(found);
        }
        let first = gateway.listeners.first().ok_or_else(|| QuestionError::new("listener", "the gateway has none"))?;
        if gateway.listeners.len() > 1 || url.scheme.is_some_and(|scheme| scheme == "https") {
            let all = all();
            notes.push(format!(
                "taken to come in on listener {}: neither scheme nor port of the URL is that of a listener ({all}); --listener \
                 names another",
                first.name
            ));
        }
        Ok((0, Arc::clone(&first.name)))
    }
}

impl<'a> Url<'a> {
    fn split(text: &'a str) -> Result<Self, QuestionError> {
        let text = text.split('#').next().unwrap_or_default();
        if text == "*" {
            // RFC 9112, section 3.2.4: `OPTIONS *`.
            return Ok(Self { scheme: None, authority: None, target: text.to_owned() });
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme @ ("http" | "https"), rest)) => (Some(scheme), rest),
            // A URL inside the query is none of ours.
            Some((other, _)) if !other.contains(['/', '?']) => {
                return Err(QuestionError::new("url", format!("the scheme {other:?} is neither http nor https")));
            }
            _ => (None, text),
        };
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(at);
        if authority.is_empty() && scheme.is_some() {
            return Err(QuestionError::new("url", "has no host"));
        }
        let slash = if target.starts_with('/') { "" } else { "/" };
        let target = format!("{slash}{target}");
        Ok(Self { scheme, authority: (!authority.is_empty()).then_some(authority), target })
    }
}

fn header(field: &str) -> Result<(HeaderName, HeaderValue), QuestionError> {
    let wrong = || QuestionError::new("header", format!("{field:?} is not \"name: value\""));
    let (name, value) = field.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    let value = HeaderValue::from_bytes(value.trim().as_bytes()).map_err(|_| wrong())?;
    Ok((name, value))
}

/// The decoded pairs of a query.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    query.split('&').filter(|pair| !pair.is_empty()).map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    })
}
