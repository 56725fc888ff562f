//! Rules about filters.

use super::{Rule, Ruled};
use crate::api::{
    BackendFilter, BackendFilterType, Cors, Filter, FilterType, Fraction, Header, PathModifier, PathModifierType,
    RequestMirror, RequestRedirect, UrlRewrite,
};

macro_rules! member_rule {
    ($name:literal, $member:literal, $type:ident, $field:ident) => {
        member_rule!(FilterType, $name, $member, $type, $field)
    };
    ($types:ident, $name:literal, $member:literal, $type:ident, $field:ident) => {
        Rule::new(
            concat!("(self.type == '", $name, "') == has(self.", $member, ")"),
            concat!($member, " is required with type ", $name, " and not allowed otherwise"),
            |object| (object.r#type == $types::$type) == object.$field.is_some(),
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
        member_rule!("RequestQueryModifier", "requestQueryModifier", RequestQueryModifier, request_query_modifier),
        member_rule!("CORS", "cors", Cors, cors),
        member_rule!("RequestMirror", "requestMirror", RequestMirror, request_mirror),
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

impl Ruled for BackendFilter {
    const RULES: &'static [Rule<Self>] = &[
        member_rule!(
            BackendFilterType,
            "RequestHeaderModifier",
            "requestHeaderModifier",
            RequestHeaderModifier,
            request_header_modifier
        ),
        member_rule!(
            BackendFilterType,
            "ResponseHeaderModifier",
            "responseHeaderModifier",
            ResponseHeaderModifier,
            response_header_modifier
        ),
    ];
}

impl Ruled for PathModifier {
    const RULES: &'static [Rule<Self>] = &[
        member_rule!(PathModifierType, "ReplaceFullPath", "replaceFullPath", ReplaceFullPath, replace_full_path),
        member_rule!(
            PathModifierType,
            "ReplacePrefixMatch",
            "replacePrefixMatch",
            ReplacePrefixMatch,
            replace_prefix_match
        ),
        member_rule!(
            PathModifierType,
            "ReplaceRegexMatch",
            "replaceRegexMatch",
            ReplaceRegexMatch,
            replace_regex_match
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

/// A list with `*` says it all.
macro_rules! alone {
    ($member:literal, $field:ident) => {
        Rule::new(
            concat!("!has(self.", $member, ") || self.", $member, ".size() <= 1 || !('*' in self.", $member, ")"),
            concat!($member, " cannot contain * beside others"),
            |cors| cors.$field.len() <= 1 || !cors.$field.iter().any(|entry| entry == "*"),
        )
    };
}

impl Ruled for Cors {
    const RULES: &'static [Rule<Self>] = &[
        alone!("allowOrigins", allow_origins),
        alone!("allowMethods", allow_methods),
        alone!("allowHeaders", allow_headers),
    ];
}

impl Ruled for RequestMirror {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "!(has(self.percent) && has(self.fraction))",
        "requestMirror takes percent or fraction, not both",
        |mirror| mirror.percent.is_none() || mirror.fraction.is_none(),
    )];
}

impl Ruled for Fraction {
    const RULES: &'static [Rule<Self>] = &[Rule::new(
        "self.numerator <= self.denominator",
        "numerator cannot be greater than denominator",
        |fraction| fraction.numerator <= fraction.denominator,
    )];
}
