//! Schemas of the strings that many fields share, and of the Kubernetes types that come without limits.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::{HeaderModifier, OWN_HEADERS, UpgradeProtocol, rules};

/// One label as in RFC 1123, lower case.
const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// A token as in RFC 9110, section 5.6.2.
const TOKEN: &str = "[A-Za-z0-9!#$%&'*+.^_`|~-]+";

fn text(max_length: u32, pattern: &str) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": max_length, "pattern": pattern})
}

fn set_of(items: &Schema, max_items: u32) -> Schema {
    json_schema!({"type": "array", "maxItems": max_items, "items": items, "x-kubernetes-list-type": "set"})
}

/// The name of a namespaced object: an RFC 1123 subdomain.
pub(super) fn object_name(_: &mut SchemaGenerator) -> Schema {
    text(253, &format!("^{LABEL}(\\.{LABEL})*$"))
}

/// A name that is one RFC 1123 label: a namespace, a Service, a rule, a listener, a class.
pub(super) fn label_name(_: &mut SchemaGenerator) -> Schema {
    text(63, &format!("^{LABEL}$"))
}

/// Hostnames, exact or with a first label of `*`.
pub(super) fn hostnames(_: &mut SchemaGenerator) -> Schema {
    set_of(&text(253, &format!("^(\\*\\.)?{LABEL}(\\.{LABEL})*$")), 64)
}

/// Names of listeners.
pub(super) fn listeners(generator: &mut SchemaGenerator) -> Schema {
    set_of(&label_name(generator), 16)
}

/// One exact hostname.
pub(super) fn hostname(_: &mut SchemaGenerator) -> Schema {
    text(253, &format!("^{LABEL}(\\.{LABEL})*$"))
}

/// A hostname or an IP address (IPv6 without brackets).
pub(super) fn host_or_address(_: &mut SchemaGenerator) -> Schema {
    text(253, &format!("^({LABEL}(\\.{LABEL})*|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]+)$"))
}

/// Request methods: any token in capital letters (RFC 9110, section 9.1; methods are case-sensitive).
pub(super) fn methods(_: &mut SchemaGenerator) -> Schema {
    set_of(&text(32, "^[A-Z0-9!#$%&'*+.^_`|~-]+$"), 16)
}

/// The name of a header or a cookie.
pub(super) fn token(_: &mut SchemaGenerator) -> Schema {
    text(256, &format!("^{TOKEN}$"))
}

/// Names of headers.
pub(super) fn header_names(_: &mut SchemaGenerator) -> Schema {
    set_of(&text(256, &format!("^{TOKEN}$")), 16)
}

/// The value of a header that is sent (RFC 9110, section 5.5: no control characters, no blanks at the ends).
pub(super) fn header_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 4096, "pattern": "^([!-~]([\\t -~]*[!-~])?)?$"})
}

/// What a header or a query parameter is compared with.
pub(super) fn match_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 4096})
}

/// What a condition compares with, each of them an alternative.
pub(super) fn condition_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 32,
        "items": {"type": "string", "maxLength": 1024},
        "x-kubernetes-list-type": "set",
    })
}

/// A path, a path pattern or a regular expression over paths: visible ASCII, as a normalised path is.
pub(super) fn path_value(_: &mut SchemaGenerator) -> Schema {
    text(1024, "^[!-~]+$")
}

/// The path of a rewrite or a redirect: visible ASCII without query and fragment.
pub(super) fn replacement_path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 1024, "pattern": "^(/[!-\"$->@-~]*)?$"})
}

/// Changes to the headers of one backend. Lists within lists leave no room for the rule on each header: a pattern, which
/// costs nothing, says the same with fewer words.
pub(super) fn backend_headers(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<HeaderModifier>();
    let own = format!("(?i)^({})$", OWN_HEADERS.join("|"));
    for list in ["set", "add"] {
        let Some(header) = schema.pointer_mut(&format!("/properties/{list}/items")) else { continue };
        if let Some(header) = header.as_object_mut() {
            header.remove("x-kubernetes-validations");
        }
        if let Some(name) = header.pointer_mut("/properties/name").and_then(Value::as_object_mut) {
            name.insert("not".to_owned(), json!({"pattern": own}));
        }
    }
    schema
}

/// What replaces the match of a regular expression in a path: visible ASCII without query, fragment and `\`.
pub(super) fn substitution(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 1024, "pattern": "^[!\"$->@-\\[\\]-~]*$"})
}

/// Names of query parameters.
pub(super) fn query_names(_: &mut SchemaGenerator) -> Schema {
    set_of(&json_schema!({"type": "string", "minLength": 1, "maxLength": 256}), 16)
}

/// Origins of CORS: a scheme, a host that may begin with `*`, and perhaps a port; or `*` (Gateway API, `CORSOrigin`).
pub(super) fn cors_origins(_: &mut SchemaGenerator) -> Schema {
    set_of(&text(253, "^(\\*|https?://((\\*\\.)?([a-zA-Z0-9-]+\\.)*[a-zA-Z0-9-]+|\\*)(:[0-9]{1,5})?)$"), 64)
}

/// Names of headers, or `*`, which is a token too.
pub(super) fn cors_headers(_: &mut SchemaGenerator) -> Schema {
    set_of(&text(256, &format!("^{TOKEN}$")), 64)
}

/// Seconds that the answer to a preflight may be kept.
pub(super) fn max_age(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int32", "minimum": 1, "maximum": i32::MAX})
}

/// The upper part of a fraction.
pub(super) fn numerator(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int32", "minimum": 0, "maximum": i32::MAX})
}

/// The lower part of a fraction.
pub(super) fn denominator(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int32", "minimum": 1, "maximum": i32::MAX})
}

/// Protocols that connections may change to.
pub(super) fn upgrades(generator: &mut SchemaGenerator) -> Schema {
    set_of(&generator.subschema_for::<UpgradeProtocol>(), 16)
}

/// What makes a request retry.
pub(super) fn retry_when(_: &mut SchemaGenerator) -> Schema {
    set_of(&text(32, "^(connect-failure|reset|timeout|5[0-9][0-9]|429)$"), 16)
}

/// A Kubernetes label selector (meta/v1), with limits.
pub(super) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    let key = json_schema!({"type": "string", "maxLength": 317});
    let value = json_schema!({"type": "string", "maxLength": 63});
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "description": "Labels the object must have, all of them.",
                "type": "object",
                "maxProperties": 16,
                "additionalProperties": value,
            },
            "matchExpressions": {
                "description": "Requirements on labels, all of which must hold.",
                "type": "array",
                "maxItems": 16,
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"description": "The label.", "type": "string", "minLength": 1, "maxLength": key.get("maxLength")},
                        "operator": {
                            "description": "How the label relates to the values.",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "The values; none for Exists and DoesNotExist.",
                            "type": "array",
                            "maxItems": 32,
                            "items": value,
                        },
                    },
                    "x-kubernetes-validations": rules::cel::<LabelSelectorRequirement>(),
                },
            },
        },
        "x-kubernetes-map-type": "atomic",
    })
}

/// Conditions of a status (meta/v1), one of a type.
pub(super) fn status_conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"description": "What the condition is about.", "type": "string", "maxLength": 316},
                "status": {"description": "Whether it holds.", "type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"description": "Why, as one word.", "type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"description": "Why, for people.", "type": "string", "maxLength": 32768},
                "lastTransitionTime": {"description": "When status last changed.", "type": "string", "format": "date-time"},
                "observedGeneration": {
                    "description": "The generation of the object that this is about.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// The name of a header, a query parameter or a cookie.
pub(super) fn match_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 256})
}

/// A port number.
pub(super) fn port_number(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535})
}

/// A status of a redirect.
pub(super) fn redirect_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int32", "enum": [301, 302, 303, 307, 308]})
}

/// A status of a final answer.
pub(super) fn response_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int32", "minimum": 200, "maximum": 599})
}

/// A media type.
pub(super) fn content_type(_: &mut SchemaGenerator) -> Schema {
    text(256, &format!("^{TOKEN}/{TOKEN}[ -~]*$"))
}

/// A whole number in these bounds.
fn integer(minimum: u32, maximum: u32) -> Schema {
    json_schema!({"type": "integer", "format": "int64", "minimum": minimum, "maximum": maximum})
}

/// How many retries.
pub(super) fn attempts(_: &mut SchemaGenerator) -> Schema {
    integer(0, 10)
}

/// A percentage.
pub(super) fn percent(_: &mut SchemaGenerator) -> Schema {
    integer(0, 100)
}

/// A limit of a number of things, at least one.
pub(super) fn count(_: &mut SchemaGenerator) -> Schema {
    integer(1, 1_000_000)
}

/// A limit of a number of things, perhaps none.
pub(super) fn count_or_none(_: &mut SchemaGenerator) -> Schema {
    integer(0, 1_000_000)
}

/// A share of a rule's requests.
pub(super) fn weight(_: &mut SchemaGenerator) -> Schema {
    integer(0, 1_000_000)
}

/// The priority of a Selector.
pub(super) fn priority(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int32", "minimum": i32::MIN, "maximum": i32::MAX})
}

/// A generation of an object.
pub(super) fn generation(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int64", "minimum": 0})
}

/// A number of Routes.
pub(super) fn attached_routes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int32", "minimum": 0})
}
