//! Rules that span fields, each once in CEL for the API server and once in Rust for files, side by side.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use serde_json::{Value, json};

use super::{
    AllowedNamespaces, Backend, BackendPort, BackendReference, BackendTls, ClientCertificateMode, ClientCertificates,
    Condition, ConsistentHash, Filter, FilterType, HeaderMatch, LoadBalancing, LoadBalancingType, NamespacesFrom,
    PathMatch, PathMatchType, PathModifierType, QueryMatch, RouteRule, RouteSpec, SelectorSpec, SelectorTls, Timeouts,
    TlsMode, ValueMatchType,
};

mod conditions;
mod filters;
mod paths;

pub use filters::OWN_HEADERS;

pub(super) use conditions::selector_match;

/// A rule about one object of type `T`.
pub(super) struct Rule<T: 'static> {
    /// The rule for the API server.
    pub(super) cel: Cel,
    /// What the user is told.
    pub(super) message: &'static str,
    /// The rule in Rust.
    pub(super) holds: fn(&T) -> bool,
}

/// A rule as CEL over `self`. CEL's cost limit is for one expression at the most objects that the lists around it allow:
/// inside nested lists there is room for a short one only. The whole schema may cost ten times as much as one expression,
/// of which the Route's now takes about three quarters, most of it for the paths of matches.
pub(super) enum Cel {
    /// One expression.
    Whole(&'static str),
    /// Expressions that say it together.
    Parts(&'static [&'static str]),
    /// None: it would cost too much.
    TooDear,
}

impl<T> Rule<T> {
    const fn new(cel: &'static str, message: &'static str, holds: fn(&T) -> bool) -> Self {
        Self { cel: Cel::Whole(cel), message, holds }
    }

    fn expressions(&self) -> &[&'static str] {
        match &self.cel {
            Cel::Whole(cel) => std::slice::from_ref(cel),
            Cel::Parts(parts) => parts,
            Cel::TooDear => &[],
        }
    }
}

/// A type with rules.
pub(super) trait Ruled: Sized + 'static {
    /// The rules.
    const RULES: &'static [Rule<Self>];
}

/// The rules of a type as `x-kubernetes-validations`.
pub(super) fn cel<T: Ruled>() -> Value {
    let expressions = |rule: &'static Rule<T>| rule.expressions().iter().map(move |cel| (cel, rule.message));
    T::RULES.iter().flat_map(expressions).map(|(cel, message)| json!({"rule": cel, "message": message})).collect()
}

fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> bool {
    let items: Vec<T> = items.collect();
    items.iter().enumerate().all(|(index, item)| !items[..index].contains(item))
}

impl Ruled for SelectorSpec {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "!(has(self.tls) && self.tls.mode == 'Passthrough' && has(self.match))",
        "a Selector with tls.mode Passthrough cannot have match: nothing inside the connection is seen",
        |spec| spec.matching.is_none() || spec.tls.as_ref().is_none_or(|tls| tls.mode != TlsMode::Passthrough),
    )];
}

impl Ruled for SelectorTls {
    const RULES: &'static [Rule<Self>] = &[
        Rule::new(
            "(self.mode == 'Terminate') == has(self.secretName)",
            "secretName is required with mode Terminate and not allowed with Passthrough",
            |tls| (tls.mode == TlsMode::Terminate) == tls.secret_name.is_some(),
        ),
        Rule::new(
            "self.mode == 'Terminate' || !has(self.clientCertificates)",
            "clientCertificates is not allowed with mode Passthrough: the backend ends the connection",
            |tls| tls.mode == TlsMode::Terminate || tls.client_certificates.is_none(),
        ),
    ];
}

impl Ruled for ClientCertificates {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "self.mode == 'None' ? !has(self.caSecretName) && !has(self.caConfigMapName) : \
         has(self.caSecretName) != has(self.caConfigMapName)",
        "one of caSecretName and caConfigMapName is required with modes Optional and Required, and none allowed with None",
        |clients| {
            let named = [&clients.ca_secret_name, &clients.ca_config_map_name];
            let named = named.into_iter().filter(|name| name.is_some()).count();
            named == usize::from(clients.mode != ClientCertificateMode::None)
        },
    )];
}

impl Ruled for BackendTls {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "!has(self.caSecretName) || !has(self.caConfigMapName)",
        "caSecretName and caConfigMapName do not go together",
        |tls| tls.ca_secret_name.is_none() || tls.ca_config_map_name.is_none(),
    )];
}

impl Ruled for AllowedNamespaces {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "(self.from == 'Selector') == has(self.selector)",
        "selector is required with from: Selector and not allowed otherwise",
        |namespaces| (namespaces.from == NamespacesFrom::Selector) == namespaces.selector.is_some(),
    )];
}

impl Ruled for LabelSelectorRequirement {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
        "values are required with In and NotIn and not allowed with Exists and DoesNotExist",
        |requirement| {
            let given = requirement.values.as_ref().is_some_and(|values| !values.is_empty());
            matches!(requirement.operator.as_str(), "In" | "NotIn") == given
        },
    )];
}

impl Ruled for RouteSpec {
    const RULES: &'static [Rule<Self>] = &[
        Rule::new(
            "self.selectors.all(a, self.selectors.exists_one(b, a.name == b.name && \
             has(a.__namespace__) == has(b.__namespace__) && \
             (!has(a.__namespace__) || a.__namespace__ == b.__namespace__)))",
            "a Selector is named twice in selectors",
            |spec| unique(spec.selectors.iter()),
        ),
        Rule::new(
            "self.rules.all(a, !has(a.name) || self.rules.exists_one(b, has(b.name) && a.name == b.name))",
            "two rules have the same name",
            |spec| unique(spec.rules.iter().filter_map(|rule| rule.name.as_ref())),
        ),
    ];
}

fn answers(filter: &Filter) -> bool {
    matches!(filter.r#type, FilterType::RequestRedirect | FilterType::DirectResponse)
}

fn is_for_backends_only(filter: &Filter) -> bool {
    matches!(filter.r#type, FilterType::RequestQueryModifier | FilterType::RequestMirror)
}

fn at_most_one(rule: &RouteRule, types: &[FilterType]) -> bool {
    rule.filters.iter().filter(|filter| types.contains(&filter.r#type)).count() <= 1
}

fn replaces_prefix(filter: &Filter) -> bool {
    let paths = [
        filter.url_rewrite.as_ref().and_then(|rewrite| rewrite.path.as_ref()),
        filter.request_redirect.as_ref().and_then(|redirect| redirect.path.as_ref()),
    ];
    paths.into_iter().flatten().any(|path| path.r#type == PathModifierType::ReplacePrefixMatch)
}

impl Ruled for RouteRule {
    const RULES: &'static [Rule<Self>] = &[
        Rule::new(
            "!(has(self.backends) && self.backends.size() > 0 && has(self.filters) && \
             self.filters.exists(f, f.type in ['RequestRedirect', 'DirectResponse']))",
            "a rule with RequestRedirect or DirectResponse answers by itself and cannot have backends",
            |rule| rule.backends.is_empty() || !rule.filters.iter().any(answers),
        ),
        Rule::new(
            "(has(self.backends) && self.backends.size() > 0) || (has(self.filters) && \
             self.filters.exists(f, f.type in ['RequestRedirect', 'DirectResponse']))",
            "a rule needs backends, or a filter RequestRedirect or DirectResponse that answers by itself",
            |rule| !rule.backends.is_empty() || rule.filters.iter().any(answers),
        ),
        Rule::new(
            "!has(self.filters) || self.filters.filter(f, \
             f.type in ['URLRewrite', 'RequestRedirect', 'DirectResponse']).size() <= 1",
            "a rule can have one filter of URLRewrite, RequestRedirect and DirectResponse",
            |rule| {
                at_most_one(rule, &[FilterType::UrlRewrite, FilterType::RequestRedirect, FilterType::DirectResponse])
            },
        ),
        Rule::new(
            "!has(self.filters) || self.filters.filter(f, f.type == 'RequestHeaderModifier').size() <= 1",
            "RequestHeaderModifier cannot be repeated in a rule",
            |rule| at_most_one(rule, &[FilterType::RequestHeaderModifier]),
        ),
        Rule::new(
            "!has(self.filters) || self.filters.filter(f, f.type == 'ResponseHeaderModifier').size() <= 1",
            "ResponseHeaderModifier cannot be repeated in a rule",
            |rule| at_most_one(rule, &[FilterType::ResponseHeaderModifier]),
        ),
        Rule::new(
            "!has(self.filters) || self.filters.filter(f, f.type == 'RequestQueryModifier').size() <= 1",
            "RequestQueryModifier cannot be repeated in a rule",
            |rule| at_most_one(rule, &[FilterType::RequestQueryModifier]),
        ),
        Rule::new(
            "!has(self.filters) || self.filters.filter(f, f.type == 'CORS').size() <= 1",
            "CORS cannot be repeated in a rule",
            |rule| at_most_one(rule, &[FilterType::Cors]),
        ),
        Rule::new(
            "!has(self.filters) || !self.filters.exists(f, f.type in ['RequestRedirect', 'DirectResponse']) || \
             !self.filters.exists(f, f.type in ['RequestQueryModifier', 'RequestMirror'])",
            "RequestQueryModifier and RequestMirror go with backends, not with RequestRedirect or DirectResponse",
            |rule| !rule.filters.iter().any(answers) || !rule.filters.iter().any(is_for_backends_only),
        ),
        Rule::new(
            "!has(self.matches) || self.matches.all(m, m.path.type == 'Prefix') || !has(self.filters) || \
             !self.filters.exists(f, \
             f.?urlRewrite.path.type.orValue('') == 'ReplacePrefixMatch' || \
             f.?requestRedirect.path.type.orValue('') == 'ReplacePrefixMatch')",
            "ReplacePrefixMatch needs a path of type Prefix in every match of the rule",
            |rule| {
                rule.matches.iter().all(|m| m.path.r#type == PathMatchType::Prefix)
                    || !rule.filters.iter().any(replaces_prefix)
            },
        ),
    ];
}

/// What names a Service port or a host and port, with these members and rules.
macro_rules! names_a_backend {
    ($type:ident) => {
        impl Ruled for $type {
            const RULES: &'static [Rule<Self>] = &[
                Rule::new("has(self.service) != has(self.host)", "a backend needs either service or host", |backend| {
                    backend.service.is_some() != backend.host.is_some()
                }),
                Rule::new(
                    "!has(self.host) || !has(self.__namespace__)",
                    "namespace goes with service, not with host",
                    |backend| backend.host.is_none() || backend.namespace.is_none(),
                ),
                Rule::new("!has(self.host) || type(self.port) == int", "the port of a host is a number", |backend| {
                    backend.host.is_none() || matches!(backend.port, BackendPort::Number(_))
                }),
                Rule::new(
                    "type(self.port) == int || self.port.matches('[a-z]')",
                    "the name of a port has a letter in it; a port number is written without quotes",
                    |backend| match &backend.port {
                        BackendPort::Number(_) => true,
                        BackendPort::Name(name) => name.contains(|c: char| c.is_ascii_lowercase()),
                    },
                ),
            ];
        }
    };
}

names_a_backend!(Backend);
names_a_backend!(BackendReference);

impl Ruled for PathMatch {
    const RULES: &'static [Rule<Self>] = &[
        Rule::new("self.type == 'Regex' || self.value.startsWith('/')", "a path starts with /", |path| {
            path.r#type == PathMatchType::Regex || path.value.starts_with('/')
        }),
        Rule {
            cel: Cel::Parts(&[
                r"self.type == 'Regex' || !self.value.matches(r'[?#]|/\.\.?(/|$)')",
                r"self.type == 'Regex' || !self.value.matches(r'%(00|2[Ff]|5[Cc])')",
            ]),
            message: "a path has no ?, #, %2F, %5C or %00 and no . or .. segment: no normalised path has",
            holds: |path| path.r#type == PathMatchType::Regex || paths::can_be_normalised(&path.value),
        },
        Rule {
            cel: Cel::Parts(&[
                r"self.type != 'Pattern' || !(self.value.contains('**/') || self.value.contains('***'))",
                r"self.type != 'Pattern' || !self.value.matches(r'[^/*]\*|\*[^/*]')",
                r"self.type != 'Pattern' || !self.value.matches(r'[^/]\{|\}[^/]')",
                r"self.type != 'Pattern' || !self.value.matches(r'\{([}\d-]|[^}]*$)')",
                r"self.type != 'Pattern' || !self.value.matches(r'\{[^}]*[^\w}-]')",
                r"self.type != 'Pattern' || !self.value.matches(r'/[^{/][^/]*\}|/\}')",
            ]),
            message: "each segment of a Pattern is a literal, {name} or *, and the last one may be **",
            holds: |path| path.r#type != PathMatchType::Pattern || paths::is_pattern(&path.value),
        },
    ];
}

impl Ruled for HeaderMatch {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "has(self.value) != (self.type in ['Present', 'Absent'])",
        "value is required, except with Present and Absent, where it is not allowed",
        |header| header.value.is_some() == needs_value(header.r#type),
    )];
}

impl Ruled for QueryMatch {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "has(self.value) != (self.type in ['Present', 'Absent'])",
        "value is required, except with Present and Absent, where it is not allowed",
        |query| query.value.is_some() == needs_value(query.r#type),
    )];
}

fn needs_value(kind: ValueMatchType) -> bool {
    !matches!(kind, ValueMatchType::Present | ValueMatchType::Absent)
}

impl Ruled for Timeouts {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "duration(self.request) == duration('0s') || duration(self.backendRequest) <= duration(self.request)",
        "backendRequest cannot be longer than request",
        |timeouts| timeouts.request.non_zero().is_none() || timeouts.backend_request <= timeouts.request,
    )];
}

impl Ruled for LoadBalancing {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "(self.type == 'ConsistentHash') == has(self.consistentHash)",
        "consistentHash is required with type ConsistentHash and not allowed otherwise",
        |balancing| (balancing.r#type == LoadBalancingType::ConsistentHash) == balancing.consistent_hash.is_some(),
    )];
}

impl Ruled for ConsistentHash {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "[has(self.header), has(self.cookie), self.clientIP].filter(given, given).size() == 1",
        "consistentHash needs exactly one of header, cookie and clientIP",
        |hash| {
            [hash.header.is_some(), hash.cookie.is_some(), hash.client_ip].iter().filter(|given| **given).count() == 1
        },
    )];
}

/// The rules of [`Condition`] are many, and have a place of their own.
impl Ruled for Condition {
    const RULES: &'static [Rule<Self>] = conditions::RULES;
}
