//! What becomes of a request for its scheme and its certificates, before or beside what the table says.

use std::sync::Arc;

use super::{Answer, Asked, Kind, Outcome, World, action, limits};
use crate::ir::{ClientCertificates, Finding, Selector, Tls, Verdict};
use crate::proxy::preview::{self, Head, Refused};
use crate::routing::ListenerIndex;
use crate::telemetry::metrics::{Handshake, Refusal};

impl<P> World<'_, P> {
    /// The result where the table is not asked: a redirect to https, or a TLS connection that cannot be made.
    pub(super) fn before(&self, asked: &Asked, head: &Head) -> Option<Outcome> {
        let listener = self.gateway.listeners.get(asked.listener)?;
        if listener.tls {
            return self.handshake(asked, head);
        }
        let (peer, max_path) = ((asked.peer, &*self.gateway.trusted_proxies), self.gateway.limits.max_uri_bytes);
        let came_over_tls = asked.scheme == "https";
        let to = preview::to_https(listener.https_redirect, came_over_tls, peer, &asked.parts, head, max_path)?;
        Some(match to {
            Ok(location) => {
                let status = preview::TO_HTTPS.as_u16();
                let summary = format!("answered with {status}: listener {} redirects to {location}", listener.name);
                Outcome::new(Kind::Redirect, Some(status), summary)
            }
            Err(refused) => super::refusal(&refused),
        })
    }

    /// The Selector that decides on TLS connections to a host.
    fn decides(&self, asked: &Asked, head: &Head) -> Option<(&Selector, &Tls)> {
        let mut of_host = self.table.of_host(ListenerIndex(asked.listener), &head.host);
        of_host.find_map(|position| {
            let selector = self.table.selectors().nth(position)?;
            Some((&**selector, selector.tls.as_ref()?))
        })
    }

    /// Tells of a connection that is passed through; whether it is.
    pub(super) fn pass(&self, asked: &Asked, head: &Head, answer: &mut Answer) -> bool {
        let ends_tls = self.gateway.listeners.get(asked.listener).is_some_and(|listener| listener.tls);
        let Some((selector, Tls::Passthrough)) = self.decides(asked, head).filter(|_| ends_tls) else { return false };
        let name = &selector.origin.object;
        let Some(rule) = selector.rules.first() else {
            answer.result = action::closed(Refusal::NoRoute, &format!("no Route is attached to Selector {name}"));
            return true;
        };
        let (mut action, result) = action::pass(rule, self.endpoints);
        action.limits = limits::at_once(rule, &self.gateway.rules, self.fragment);
        (answer.action, answer.result) = (Some(action), result);
        answer.findings = self.findings(name, rule);
        answer.notes.push(format!(
            "Selector {name} passes TLS through, by Route {}: nothing but the host is looked at",
            rule.origin.object
        ));
        true
    }

    fn handshake(&self, asked: &Asked, head: &Head) -> Option<Outcome> {
        let failing = |reason: Handshake, why: &str| {
            let summary = format!("no TLS connection to the host can be made: {why}");
            Outcome { reason: Some(reason.as_str().to_owned()), ..Outcome::new(Kind::Refused, None, summary) }
        };
        match self.decides(asked, head) {
            None if self.gateway.has_default_certificate => None,
            None => Some(failing(
                Handshake::NoCertificate,
                "no Selector of it has a certificate, and there is no default one",
            )),
            Some((selector, _)) => {
                let finding = self.resolved(selector)?;
                (!finding.ok).then(|| failing(Handshake::BrokenCertificate, &finding.message))
            }
        }
    }

    /// What is said of the objects that a Selector names.
    fn resolved(&self, selector: &Selector) -> Option<&Finding> {
        let own = |verdict: &&Arc<Verdict>| {
            verdict.kind == crate::ir::Kind::Selector && verdict.object == selector.origin.object
        };
        self.fragment?.verdicts.iter().find(own).map(|verdict| &verdict.resolved_refs)
    }

    /// What clients have to show; refused where they cannot.
    pub(super) fn clients(
        &self,
        asked: &Asked,
        head: &Head,
        selector: &Selector,
        notes: &mut Vec<String>,
    ) -> Option<Refused> {
        let listener = self.gateway.listeners.get(asked.listener)?;
        if selector.tls == Some(Tls::Passthrough) {
            return Some(Refused::because(Refusal::Misdirected, "the Selector passes TLS through"));
        }
        let own = selector.tls.as_ref().and_then(Tls::termination).and_then(|tls| tls.clients.as_ref());
        if !listener.tls {
            let required = own.is_some_and(|own| own.required);
            return required.then(|| {
                Refused::because(Refusal::Misdirected, "clients have to show a certificate, which needs TLS")
            });
        }
        let host = self.decides(asked, head).and_then(|(_, tls)| tls.termination());
        let host = host.and_then(|termination| termination.clients.as_ref());
        if own.is_some() && own != host {
            let why = "another Selector of the hostname comes first and asks other certificates of clients";
            return Some(Refused::because(Refusal::Misdirected, why));
        }
        match host {
            Some(ClientCertificates { required: true, .. }) => {
                notes.push("the client has to show a certificate".to_owned());
            }
            Some(_) => notes.push("the client may show a certificate".to_owned()),
            None => {}
        }
        None
    }
}
