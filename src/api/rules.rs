//! Rules that span fields, each once in CEL for the API server and once in Rust for files, side by side.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use serde_json::{Value, json};

use super::{
    AllowedNamespaces, Backend, BackendPort, Condition, ConsistentHash, Filter, FilterType, Header, HeaderMatch,
    LoadBalancing, LoadBalancingType, NamespacesFrom, PathMatch, PathMatchType, PathModifier, PathModifierType,
    QueryMatch, RequestRedirect, RouteRule, RouteSpec, SelectorSpec, SelectorTls, Timeouts, TlsMode, UrlRewrite,
    ValueMatchType,
};

mod conditions;
mod paths;

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
/// of which the Route's now takes about two thirds, nearly all for the paths of matches.
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
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "(self.mode == 'Terminate') == has(self.secretName)",
        "secretName is required with mode Terminate and not allowed with Passthrough",
        |tls| (tls.mode == TlsMode::Terminate) == tls.secret_name.is_some(),
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

macro_rules! member_rule {
    ($name:literal, $member:literal, $type:ident, $field:ident) => {
        Rule::new(
            concat!("(self.type == '", $name, "') == has(self.", $member, ")"),
            concat!($member, " is required with type ", $name, " and not allowed otherwise"),
            |filter| (filter.r#type == FilterType::$type) == filter.$field.is_some(),
        )
    };
}

impl Ruled for Filter {
    const RULES: &'static [Rule<Self>] = &[
        member_rule!("RequestHeaderModifier", "requestHeaderModifier", RequestHeaderModifier, request_header_modifier),
        member_rule!(
            "ResponseHeaderModifier",
            "responseHeaderModifier",
            ResponseHeaderModifier,
            response_header_modifier
        ),
        member_rule!("URLRewrite", "urlRewrite", UrlRewrite, url_rewrite),
        member_rule!("RequestRedirect", "requestRedirect", RequestRedirect, request_redirect),
        member_rule!("DirectResponse", "directResponse", DirectResponse, direct_response),
    ];
}

/// Fields that frame a message, name its target or belong to one connection: the gateway's own, not for users to set
/// (RFC 9110, section 7.6.1). In lower case.
pub const OWN_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const OWN_HEADER_MESSAGE: &str = "Connection, Content-Length, Host, Keep-Alive, Proxy-Connection, TE, Trailer, \
                                  Transfer-Encoding and Upgrade are the gateway's own and cannot be set";

impl Ruled for Header {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "!(self.name.lowerAscii() in ['connection', 'content-length', 'host', 'keep-alive', 'proxy-connection', 'te', \
         'trailer', 'transfer-encoding', 'upgrade'])",
        OWN_HEADER_MESSAGE,
        |header| !OWN_HEADERS.contains(&header.name.to_ascii_lowercase().as_str()),
    )];
}

impl Ruled for PathModifier {
    const RULES: &'static [Rule<Self>] = &[
        Rule::new(
            "(self.type == 'ReplaceFullPath') == has(self.replaceFullPath)",
            "replaceFullPath is required with type ReplaceFullPath and not allowed otherwise",
            |path| (path.r#type == PathModifierType::ReplaceFullPath) == path.replace_full_path.is_some(),
        ),
        Rule::new(
            "(self.type == 'ReplacePrefixMatch') == has(self.replacePrefixMatch)",
            "replacePrefixMatch is required with type ReplacePrefixMatch and not allowed otherwise",
            |path| (path.r#type == PathModifierType::ReplacePrefixMatch) == path.replace_prefix_match.is_some(),
        ),
    ];
}

impl Ruled for UrlRewrite {
    const RULES: &'static [Rule<Self>] =
        &[Rule::new("has(self.hostname) || has(self.path)", "urlRewrite needs hostname or path", |rewrite| {
            rewrite.hostname.is_some() || rewrite.path.is_some()
        })];
}

impl Ruled for RequestRedirect {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "has(self.scheme) || has(self.hostname) || has(self.path) || has(self.port)",
        "requestRedirect needs scheme, hostname, path or port: without, it redirects to itself",
        |redirect| {
            redirect.scheme.is_some()
                || redirect.hostname.is_some()
                || redirect.path.is_some()
                || redirect.port.is_some()
        },
    )];
}

impl Ruled for Backend {
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
