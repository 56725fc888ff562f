//! Preflights of CORS: which rule answers them (<https://fetch.spec.whatwg.org/#cors-preflight-request>).

use http::{HeaderMap, Method, header};

use super::{Found, ListenerIndex, Miss, Request, RouteTable};
use crate::ir::{Cors, Filter, Rule};

/// The CORS filter of a rule: it comes before all others.
pub fn cors(rule: &Rule) -> Option<&Cors> {
    match rule.filters.first() {
        Some(Filter::Cors(cors)) => Some(cors),
        _ => None,
    }
}

/// The method that a preflight asks for; `None` for any other request.
pub fn asked(method: &Method, headers: &HeaderMap) -> Option<Method> {
    if *method != Method::OPTIONS || !headers.contains_key(header::ORIGIN) {
        return None;
    }
    let asked = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
    Method::from_bytes(asked.as_bytes()).ok()
}

impl<P> RouteTable<P> {
    /// What [`RouteTable::find`] gives, for a request that may be a preflight: `asked` is what [`asked`] says of it.
    ///
    /// The rule of a preflight is the one that would take the request it asks for, if that rule has the filter: a rule
    /// for GET need not name OPTIONS. Else the preflight is a request like any other.
    pub fn find_asked(
        &self,
        listener: ListenerIndex,
        request: &Request<'_>,
        asked: Option<&Method>,
    ) -> Result<Found<'_, P>, Miss> {
        if let Some(method) = asked
            && let Ok(found) = self.find(listener, &Request { method, ..*request })
            && cors(found.rule).is_some()
        {
            return Ok(found);
        }
        self.find(listener, request)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_preflight_is_options_with_an_origin_and_a_method() {
        let asks = |method: &Method, fields: &[(&'static str, &'static str)]| {
            let field = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
            asked(method, &fields.iter().copied().map(field).collect())
        };
        let origin = ("origin", "https://foo.example");
        let put = ("access-control-request-method", "PUT");
        assert_eq!(asks(&Method::OPTIONS, &[origin, put]), Some(Method::PUT));
        assert_eq!(asks(&Method::GET, &[origin, put]), None);
        assert_eq!(asks(&Method::OPTIONS, &[origin]), None);
        assert_eq!(asks(&Method::OPTIONS, &[put]), None);
        assert_eq!(asks(&Method::OPTIONS, &[origin, ("access-control-request-method", "a b")]), None);
    }
}
