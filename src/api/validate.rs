//! What the API server refuses, refused here too: for files, for checks without a cluster, and for objects that were
//! stored under an older schema.

use std::fmt;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use serde_path_to_error::Segment;

use super::rules::Ruled;
use super::schema::{Schema, SchemaError};
use super::{
    Backend, BackendTls, Condition, Filter, Header, HeaderModifier, LoadBalancing, Route, RouteMatch, RouteRule,
    RouteSpec, Selector, SelectorSpec, Timeouts,
};

/// What is wrong with one field of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// Where, such as `spec.rules[2].backends[0].port`; empty for the object as a whole.
    pub field: String,
    /// What.
    pub reason: String,
}

impl Problem {
    pub(super) fn new(field: &str, reason: String) -> Self {
        Self { field: field.to_owned(), reason }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() { f.write_str(&self.reason) } else { write!(f, "{}: {}", self.field, self.reason) }
    }
}

impl Problem {
    /// Whether earlier problems tell of this field, or of one inside of it.
    pub fn is_told(field: &str, earlier: &[Self]) -> bool {
        let is_inside = |inner: &str| {
            inner.strip_prefix(field).is_some_and(|rest| field.is_empty() || rest.starts_with(['.', '[']))
        };
        earlier.iter().any(|problem| problem.field == field || is_inside(&problem.field))
    }
}

/// An object that is refused.
#[derive(Clone, Debug)]
pub struct Refused<T> {
    /// Why: what is wrong with fields, and what breaks rules.
    pub problems: Vec<Problem>,
    /// What it would say without the values that are wrong, for further checks. `None` where nothing can be made of it.
    pub draft: Option<Box<T>>,
}

// === objects ===

static ROUTE: LazyLock<Schema> = LazyLock::new(|| schema(Route::crd()));
static SELECTOR: LazyLock<Schema> = LazyLock::new(|| schema(Selector::crd()));

/// Compiles a schema that depends on nothing but this crate's types, so that a test shows it does.
fn schema(crd: CustomResourceDefinition) -> Schema {
    let compile = |crd| Schema::of(&crd);
    super::crd::tidy(crd).map_err(SchemaError::Derived).and_then(compile).expect("derived schemas compile")
}

impl Route {
    /// What the API server would refuse of this Route, and the little it cannot afford to check.
    pub fn validate(&self) -> Vec<Problem> {
        validate(&ROUTE, &self.spec, route_spec)
    }

    /// Decodes a Route as strictly as the API server does with `--validate=strict`: unknown fields are refused.
    pub fn from_value(value: Value) -> Result<Self, Vec<Problem>> {
        decode(&ROUTE, value, |route: &Self, problems| route_spec(&route.spec, problems))
    }

    /// As [`Self::from_value`]; tells of broken rules where fields are wrong, too.
    pub fn examine(value: Value) -> Result<Self, Refused<Self>> {
        examine(&ROUTE, value, |route: &Self, problems| route_spec(&route.spec, problems))
    }
}

impl Selector {
    /// What the API server would refuse of this Selector.
    pub fn validate(&self) -> Vec<Problem> {
        validate(&SELECTOR, &self.spec, selector_spec)
    }

    /// Decodes a Selector as strictly as the API server does with `--validate=strict`: unknown fields are refused.
    pub fn from_value(value: Value) -> Result<Self, Vec<Problem>> {
        decode(&SELECTOR, value, |selector: &Self, problems| selector_spec(&selector.spec, problems))
    }

    /// As [`Self::from_value`]; tells of broken rules where fields are wrong, too.
    pub fn examine(value: Value) -> Result<Self, Refused<Self>> {
        examine(&SELECTOR, value, |selector: &Self, problems| selector_spec(&selector.spec, problems))
    }
}

fn validate<S: Serialize>(schema: &Schema, spec: &S, rules: fn(&S, &mut Problems)) -> Vec<Problem> {
    let mut problems = match serde_json::to_value(spec) {
        Ok(spec) => schema.check(&json!({"spec": spec})),
        Err(error) => vec![Problem::new("spec", error.to_string())],
    };
    rules(spec, &mut problems);
    problems
}

fn decode<T>(schema: &Schema, mut value: Value, rules: fn(&T, &mut Problems)) -> Result<T, Vec<Problem>>
where
    T: DeserializeOwned + Resource<DynamicType = ()>,
{
    let mut problems = Vec::new();
    header::<T>(&value, &mut problems);
    problems.extend(schema.check(&value));
    if !problems.is_empty() {
        return Err(problems);
    }
    // Status is what a gateway wrote elsewhere; whatever is in it says nothing about what the user asks for.
    value.as_object_mut().and_then(|members| members.remove("status"));
    drop_nulls(&mut value);
    // What the schema leaves to the types is told at its field, too.
    let object = serde_path_to_error::deserialize(value).map_err(|error| {
        let field = error.path().to_string();
        vec![Problem::new(if field == "." { "" } else { &field }, error.into_inner().to_string())]
    })?;
    rules(&object, &mut problems);
    if problems.is_empty() { Ok(object) } else { Err(problems) }
}

fn examine<T>(schema: &Schema, value: Value, rules: fn(&T, &mut Problems)) -> Result<T, Refused<T>>
where
    T: DeserializeOwned + Resource<DynamicType = ()>,
{
    let mut problems = match decode(schema, value.clone(), rules) {
        Ok(object) => return Ok(object),
        Err(problems) => problems,
    };
    let (draft, mut broken) = draft::<T>(schema, value);
    let draft = draft.map(Box::new);
    if let Some(draft) = &draft {
        rules(draft, &mut broken);
    }
    broken.retain(|problem| !Problem::is_told(&problem.field, &problems));
    problems.append(&mut broken);
    Err(Refused { problems, draft })
}

/// How many values that only the types refuse are looked for in one object.
const MOST_REFUSED: usize = 100;

/// What can be made of an object that is wrong, and what the schema leaves to the types and they refuse.
fn draft<T>(schema: &Schema, mut value: Value) -> (Option<T>, Problems)
where
    T: DeserializeOwned + Resource<DynamicType = ()>,
{
    drop_nulls(&mut value);
    let mut spec = json!({"spec": value["spec"].take()});
    schema.mend(&mut spec);
    let metadata =
        json!({"name": value["metadata"]["name"].as_str(), "namespace": value["metadata"]["namespace"].as_str()});
    let mut object = json!({
        "apiVersion": T::api_version(&()),
        "kind": T::kind(&()),
        "metadata": metadata,
        "spec": spec["spec"].take(),
    });
    let mut refused = Vec::new();
    while refused.len() < MOST_REFUSED {
        let error = match serde_path_to_error::deserialize(object.clone()) {
            Ok(draft) => return (Some(draft), refused),
            Err(error) => error,
        };
        let is_gone = take_out(&mut object, error.path());
        let field = error.path().to_string();
        refused.push(Problem::new(if field == "." { "" } else { &field }, error.into_inner().to_string()));
        if !is_gone {
            break;
        }
    }
    (None, refused)
}

/// Takes out the innermost member that a path leads to or through, so that no entry of a list moves. Whether there was one.
fn take_out(object: &mut Value, path: &serde_path_to_error::Path) -> bool {
    let segments: Vec<_> = path.iter().collect();
    let is_key = |segment: &&Segment| matches!(segment, Segment::Map { .. });
    let Some(last) = segments.iter().rposition(is_key) else { return false };
    let mut place = object;
    for segment in &segments[..last] {
        let inner = match segment {
            Segment::Map { key } => place.get_mut(key),
            Segment::Seq { index } => place.get_mut(*index),
            _ => None,
        };
        let Some(inner) = inner else { return false };
        place = inner;
    }
    let Segment::Map { key } = segments[last] else { return false };
    place.as_object_mut().is_some_and(|members| members.remove(key).is_some())
}

/// Takes out members that are null: for the API server they are absent.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Checks what every object has.
fn header<T: Resource<DynamicType = ()>>(value: &Value, problems: &mut Problems) {
    for (field, wanted) in [("apiVersion", T::api_version(&())), ("kind", T::kind(&()))] {
        if value[field].as_str() != Some(wanted.as_ref()) {
            problems.push(Problem::new(field, format!("must be {wanted}")));
        }
    }
    if !value["metadata"]["name"].as_str().is_some_and(is_subdomain) {
        let reason = "must be 1 to 253 lower case letters, digits, - and ., with a letter or digit at each end";
        problems.push(Problem::new("metadata.name", reason.to_owned()));
    }
    let namespace = &value["metadata"]["namespace"];
    if !(namespace.is_null() || namespace.as_str().is_some_and(|name| is_label(name) && name.len() <= 63)) {
        let reason = "must be 1 to 63 lower case letters, digits and -, with a letter or digit at each end";
        problems.push(Problem::new("metadata.namespace", reason.to_owned()));
    }
}

/// Whether this is a subdomain as in RFC 1123, lower case.
fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
}

// === the walk over what has rules ===

type Problems = Vec<Problem>;

fn apply<T: Ruled>(object: &T, path: &str, problems: &mut Problems) {
    let broken = T::RULES.iter().filter(|rule| !(rule.holds)(object));
    problems.extend(broken.map(|rule| Problem::new(path, rule.message.to_owned())));
}

fn each<T: Ruled>(objects: &[T], path: &str, problems: &mut Problems) {
    for (index, object) in objects.iter().enumerate() {
        apply(object, &format!("{path}[{index}]"), problems);
    }
}

fn selector_spec(spec: &SelectorSpec, problems: &mut Problems) {
    apply(spec, "spec", problems);
    if let Some(tls) = &spec.tls {
        apply(tls, "spec.tls", problems);
        tls.client_certificates.iter().for_each(|clients| apply(clients, "spec.tls.clientCertificates", problems));
    }
    if let Some(matching) = &spec.matching {
        each::<Condition>(&matching.conditions, "spec.match.conditions", problems);
    }
    let namespaces = &spec.allowed_routes.namespaces;
    apply(namespaces, "spec.allowedRoutes.namespaces", problems);
    let expressions = namespaces.selector.as_ref().and_then(|selector| selector.match_expressions.as_deref());
    each(expressions.unwrap_or_default(), "spec.allowedRoutes.namespaces.selector.matchExpressions", problems);
    if let Some(policy) = &spec.policy {
        policies(policy.timeouts.as_ref(), policy.load_balancing.as_ref(), "spec.policy", problems);
    }
}

fn route_spec(spec: &RouteSpec, problems: &mut Problems) {
    apply(spec, "spec", problems);
    for (index, rule) in spec.rules.iter().enumerate() {
        route_rule(rule, &format!("spec.rules[{index}]"), problems);
    }
}

fn route_rule(rule: &RouteRule, path: &str, problems: &mut Problems) {
    apply(rule, path, problems);
    for (index, matching) in rule.matches.iter().enumerate() {
        route_match(matching, &format!("{path}.matches[{index}]"), problems);
    }
    for (index, filter) in rule.filters.iter().enumerate() {
        route_filter(filter, &format!("{path}.filters[{index}]"), problems);
    }
    for (index, entry) in rule.backends.iter().enumerate() {
        backend(entry, &format!("{path}.backends[{index}]"), problems);
    }
    policies(rule.timeouts.as_deref(), rule.load_balancing.as_ref(), path, problems);
}

fn route_match(matching: &RouteMatch, path: &str, problems: &mut Problems) {
    apply(&matching.path, &format!("{path}.path"), problems);
    each(&matching.headers, &format!("{path}.headers"), problems);
    each(&matching.query, &format!("{path}.query"), problems);
    each(&matching.conditions, &format!("{path}.conditions"), problems);
}

fn route_filter(filter: &Filter, path: &str, problems: &mut Problems) {
    apply(filter, path, problems);
    header_modifier(filter.request_header_modifier.as_ref(), &format!("{path}.requestHeaderModifier"), problems);
    header_modifier(filter.response_header_modifier.as_ref(), &format!("{path}.responseHeaderModifier"), problems);
    if let Some(cors) = &filter.cors {
        apply(cors, &format!("{path}.cors"), problems);
    }
    if let Some(mirror) = &filter.request_mirror {
        let path = format!("{path}.requestMirror");
        apply(mirror, &path, problems);
        apply(&mirror.backend, &format!("{path}.backend"), problems);
        backend_tls(mirror.backend.tls.as_ref(), &format!("{path}.backend"), problems);
        mirror.fraction.iter().for_each(|fraction| apply(fraction, &format!("{path}.fraction"), problems));
    }
    if let Some(rewrite) = &filter.url_rewrite {
        apply(rewrite, &format!("{path}.urlRewrite"), problems);
        rewrite.path.iter().for_each(|modifier| apply(modifier, &format!("{path}.urlRewrite.path"), problems));
    }
    if let Some(redirect) = &filter.request_redirect {
        apply(redirect, &format!("{path}.requestRedirect"), problems);
        redirect.path.iter().for_each(|modifier| apply(modifier, &format!("{path}.requestRedirect.path"), problems));
    }
    if let Some(response) = &filter.direct_response {
        each::<Header>(&response.headers, &format!("{path}.directResponse.headers"), problems);
    }
}

fn header_modifier(modifier: Option<&HeaderModifier>, path: &str, problems: &mut Problems) {
    if let Some(modifier) = modifier {
        each::<Header>(&modifier.set, &format!("{path}.set"), problems);
        each::<Header>(&modifier.add, &format!("{path}.add"), problems);
    }
}

fn backend(backend: &Backend, path: &str, problems: &mut Problems) {
    apply(backend, path, problems);
    backend_tls(backend.tls.as_deref(), path, problems);
    for (index, filter) in backend.filters.iter().enumerate() {
        let path = format!("{path}.filters[{index}]");
        apply(filter, &path, problems);
        header_modifier(filter.request_header_modifier.as_ref(), &format!("{path}.requestHeaderModifier"), problems);
        header_modifier(filter.response_header_modifier.as_ref(), &format!("{path}.responseHeaderModifier"), problems);
    }
}

fn backend_tls(tls: Option<&BackendTls>, backend: &str, problems: &mut Problems) {
    if let Some(tls) = tls {
        apply(tls, &format!("{backend}.tls"), problems);
    }
}

fn policies(timeouts: Option<&Timeouts>, balancing: Option<&LoadBalancing>, path: &str, problems: &mut Problems) {
    if let Some(timeouts) = timeouts {
        apply(timeouts, &format!("{path}.timeouts"), problems);
    }
    if let Some(balancing) = balancing {
        let path = format!("{path}.loadBalancing");
        apply(balancing, &path, problems);
        balancing.consistent_hash.iter().for_each(|hash| apply(hash, &format!("{path}.consistentHash"), problems));
    }
}

#[cfg(test)]
mod tests;
