//! A Route at one of its Selectors.

use std::sync::Arc;

use crate::api::reason::{
    ACCEPTED, INVALID, NO_MATCHING_SELECTOR, NOT_ALLOWED_BY_SELECTOR, RESOLVED_REFS, SUSPENDED, UNSUPPORTED_VALUE,
};
use crate::api::{Policy, RouteRule};
use crate::ir::{Action, Cluster, Filter, Finding, Kind, Match, ObjectName, PathMatch, PathRewrite, Rule, Verdict};

use super::backends::Speech;
use super::report::{Field, Report};
use super::selector::{Standing, admits, passes_tls};
use super::{RouteSubject, SelectorSubject, World};
use super::{backends, filters, matches, mirrors, policy};

/// What a Route contributes to one of its Selectors.
#[derive(Clone, Debug, PartialEq)]
pub struct Attachment {
    /// Its rules in their order, without those that have no match left.
    pub rules: Vec<Arc<Rule>>,
    /// The Clusters that its rules refer to, sorted by id, each once.
    pub clusters: Vec<Arc<Cluster>>,
    /// Whether the Route takes part, be it with rules that answer 500.
    pub is_attached: bool,
    /// The verdict for this Selector.
    pub verdict: Verdict,
}

/// Attaches a Route to a Selector that it names; `None` for one that does not exist or does not decode.
pub fn attach(
    route: &RouteSubject,
    parent: &ObjectName,
    selector: Option<(&SelectorSubject, &Standing)>,
    world: &impl World,
) -> Attachment {
    let (mut accepted, mut resolved) = (Report::default(), Report::default());
    let (mut rules, mut clusters) = (Vec::new(), Vec::new());
    let standing = refused(route, parent, selector, world, &mut accepted);
    if let Some((selector, _)) = standing {
        let passes = passes_tls(&selector.spec);
        let context = Context { route, policy: selector.spec.policy.as_ref(), passes, world };
        for (index, rule) in route.spec.rules.iter().enumerate() {
            if passes && index > 0 {
                let what = format!("Selector {parent} passes TLS through, so that a second rule is never used");
                accepted.add(UNSUPPORTED_VALUE, &Field::SPEC.entry("rules", index), what);
                continue;
            }
            rules.extend(context.rule(index, rule, (&mut accepted, &mut resolved), &mut clusters).map(Arc::new));
        }
    }
    clusters.sort_by(|a: &Arc<Cluster>, b| a.id.cmp(&b.id));
    clusters.dedup_by(|a, b| a.id == b.id);
    let verdict = verdict(route, parent, !rules.is_empty(), (&accepted, &resolved));
    Attachment { rules, clusters, is_attached: standing.is_some(), verdict }
}

fn verdict(
    route: &RouteSubject,
    parent: &ObjectName,
    in_table: bool,
    (accepted, resolved): (&Report, &Report),
) -> Verdict {
    Verdict {
        kind: Kind::Route,
        object: route.origin.object.clone(),
        parent: Some(parent.clone()),
        generation: route.generation,
        attached_routes: 0,
        in_table,
        accepted: accepted.finding(ACCEPTED),
        resolved_refs: resolved.finding(RESOLVED_REFS),
    }
}

/// The Selector, unless the Route stays out of it altogether.
fn refused<'a>(
    route: &RouteSubject,
    parent: &ObjectName,
    selector: Option<(&'a SelectorSubject, &'a Standing)>,
    world: &impl World,
    accepted: &mut Report,
) -> Option<(&'a SelectorSubject, &'a Standing)> {
    let namespace = &route.origin.object.namespace;
    let Some((selector, standing)) = selector else {
        let what = format!("there is no valid Selector {parent}");
        accepted.add(NO_MATCHING_SELECTOR, &Field::SPEC.member("selectors"), what);
        return None;
    };
    if !admits(selector, namespace, || world.labels(namespace)) {
        let what = format!("Selector {parent} lets no Routes of namespace {namespace} in");
        accepted.add(NOT_ALLOWED_BY_SELECTOR, &Field::SPEC.member("selectors"), what);
        return None;
    }
    if route.spec.suspend {
        accepted.add(SUSPENDED, &Field::SPEC.member("suspend"), "the Route is taken out of the table");
        return None;
    }
    if standing.place.is_none() {
        let Finding { reason, message, .. } = standing.accepted();
        accepted.add_whole(reason, format!("Selector {parent} has no place in the table: {message}"));
        return None;
    }
    Some((selector, standing))
}

struct Context<'a, W> {
    route: &'a RouteSubject,
    policy: Option<&'a Policy>,
    /// Whether the Selector passes TLS through.
    passes: bool,
    world: &'a W,
}

impl<W: World> Context<'_, W> {
    fn rule(
        &self,
        index: usize,
        rule: &RouteRule,
        (accepted, resolved): (&mut Report, &mut Report),
        clusters: &mut Vec<Arc<Cluster>>,
    ) -> Option<Rule> {
        let field = Field::SPEC.entry("rules", index);
        let unseen = self.passes && tell_unseen(rule, &field, accepted);
        let matches = matches::matches(if self.passes { &[] } else { &rule.matches }, &field, accepted);
        let mut filters = filters::filters(&rule.filters, &field, accepted);
        let policies = policy::policies(rule, self.policy, &field, accepted);
        let namespace = &self.route.origin.object.namespace;
        let mut own_clusters = Vec::new();
        let reports = (&mut *accepted, &mut *resolved);
        let speech = if self.passes { Speech::Clients } else { Speech::Http };
        let backends =
            backends::backends(&rule.backends, (namespace, speech), self.world, &field, reports, &mut own_clusters);
        let reports = (&mut *accepted, resolved);
        let mirrors = mirrors::mirrors(&rule.filters, namespace, self.world, &field, reports, &mut own_clusters);
        filters.changes.extend(mirrors);
        filters.changes.sort_by_key(Filter::stage);
        let action = match (filters.answer, backends.is_empty()) {
            (Some(answer), true) => answer,
            (None, false) => Action::Forward(backends),
            (Some(_), false) => {
                let what = "a rule that answers by itself cannot have backends";
                accepted.add(INVALID, &field.member("backends"), what);
                Action::Invalid { reason: INVALID }
            }
            // The answer is there, and what is wrong with it has been told.
            (None, true) if filters.is_broken => Action::Invalid { reason: INVALID },
            (None, true) => {
                let what = "a rule needs backends, or a filter RequestRedirect or DirectResponse";
                accepted.add(INVALID, &field, what);
                Action::Invalid { reason: INVALID }
            }
        };
        let needs_prefix = replaces_prefix(&filters.changes, &action) && matches.iter().any(is_regex);
        if needs_prefix {
            let what = "ReplacePrefixMatch does not go with a path of type Regex, which has no prefix";
            accepted.add(INVALID, &field.member("filters"), what);
        }
        let invalid = (filters.is_broken || needs_prefix)
            .then_some(INVALID)
            .or(unseen.then_some(UNSUPPORTED_VALUE))
            .or(policies.load_balancing.as_ref().err().copied());
        let action = match invalid {
            Some(reason) => Action::Invalid { reason },
            None => action,
        };
        if matches.is_empty() {
            return None;
        }
        if matches!(action, Action::Forward(_)) {
            clusters.append(&mut own_clusters);
        }
        Some(Rule {
            origin: self.route.origin.clone(),
            index: u16::try_from(index).unwrap_or(u16::MAX),
            name: rule.name.as_deref().map_or_else(|| index.to_string().into(), Into::into),
            matches,
            filters: filters.changes,
            action,
            timeouts: policies.timeouts,
            retry: policies.retry,
            load_balancing: policies.load_balancing.unwrap_or_default(),
            limits: policies.limits,
            upstream: policies.upstream,
            upgrades: policies.upgrades,
        })
    }
}

/// Tells what of a rule needs a look into connections that are passed through. Whether there is anything.
fn tell_unseen(rule: &RouteRule, field: &Field<'_>, accepted: &mut Report) -> bool {
    const WHY: &str = "is not allowed where TLS is passed through: nothing inside the connection is seen";
    let mut is_any = false;
    let mut tell = |is_used: bool, field: &Field<'_>| {
        if is_used {
            accepted.add(UNSUPPORTED_VALUE, field, WHY);
        }
        is_any |= is_used;
    };
    tell(!rule.matches.is_empty(), &field.member("matches"));
    tell(!rule.filters.is_empty(), &field.member("filters"));
    for (index, backend) in rule.backends.iter().enumerate() {
        tell(!backend.filters.is_empty(), &field.entry("backends", index).member("filters"));
    }
    is_any
}

fn replaces_prefix(filters: &[Filter], action: &Action) -> bool {
    let is_prefix = |path: &Option<PathRewrite>| matches!(path, Some(PathRewrite::Prefix(_)));
    let rewrites = |filter: &Filter| matches!(filter, Filter::Rewrite { path, .. } if is_prefix(path));
    filters.iter().any(rewrites) || matches!(action, Action::Redirect(redirect) if is_prefix(&redirect.path))
}

const fn is_regex(matching: &Match) -> bool {
    matches!(matching.path, PathMatch::Regex(_))
}
