//! Texts to objects.

use std::cell::OnceCell;
use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use crate::api::{self, GROUP, ReferenceGrant, Refused, Route, Selector};
use crate::ir::{self, ObjectName};
use crate::source::index::{Content, Object};
use crate::source::secrets::Material;

use super::Problem;
use super::locate::{Located, documents};
use super::words::{json_error, yaml_error};

/// What is to be made of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// They are served: one that is wrong is of no use.
    Serve,
    /// They are checked: everything is told at once.
    Check,
}

impl Purpose {
    /// Most problems that are told of one object.
    const fn most(self) -> usize {
        match self {
            Self::Serve => 32,
            Self::Check => 1000,
        }
    }
}

/// What an object that is refused would say.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The object without what is wrong.
    pub object: Object,
    /// What has been told.
    pub told: Vec<api::Problem>,
}

/// The namespace of objects that name none.
const DEFAULT_NAMESPACE: &str = "default";

/// Why a file says nothing at present.
#[derive(Clone, Debug)]
pub(super) struct Broken {
    pub(super) line: Option<u64>,
    pub(super) reason: String,
}

impl Broken {
    pub(super) const fn new(reason: String) -> Self {
        Self { line: None, reason }
    }

    /// The problem of a file that declared so many objects when it could be read.
    pub(super) fn problem(&self, path: &Path, kept: usize) -> Problem {
        let kept = if kept == 0 { String::new() } else { format!(" ({kept} former objects of the file stay)") };
        Problem {
            file: path.to_owned(),
            line: self.line,
            object: None,
            field: String::new(),
            reason: format!("{}{kept}", self.reason),
        }
    }
}

/// One object of a file.
#[derive(Debug)]
pub(super) struct Item {
    /// Where it begins.
    pub(super) line: u64,
    /// Its kind and name, as far as it has them.
    pub(super) name: Option<(String, ObjectName)>,
    /// `None` where it is of no use, or has no name that a verdict could be about.
    pub(super) object: Option<Object>,
    /// Where it is refused, and is read for a check.
    pub(super) draft: Option<Draft>,
    pub(super) problems: Vec<Problem>,
    /// Which of the file's documents it stands in.
    pub(super) document: usize,
    /// `items[3].` inside a List.
    pub(super) prefix: String,
    /// For a kind that means nothing to a gateway, what it is: `apps/v1 Deployment`.
    pub(super) foreign: Option<String>,
}

/// How YAML is read: no limit on honest files of the size that is let in, aliases kept from multiplying it.
pub(super) fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        budget: serde_saphyr::budget! {
            max_documents: 200_000,
            max_events: 8_000_000,
            max_nodes: 4_000_000,
        },
    }
}

/// The objects of a file.
pub(super) fn items(path: &Path, text: &str, purpose: Purpose) -> Result<Vec<Item>, Broken> {
    // What comes on a pipe has no name; YAML that begins with a brace is JSON but for its finer points.
    let is_piped = path.as_os_str() == "-" && text.trim_start().starts_with('{');
    let is_json = is_piped || path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let documents = if is_json { json(text)? } else { yaml(text)? };
    let file = Text { path, content: text, purpose, located: OnceCell::new() };
    let mut items = Vec::with_capacity(documents.0.len());
    for (document, (line, value)) in documents.0.into_iter().enumerate() {
        let value = serde_json::from_str(&value)
            .map_err(|error| Broken { line: Some(line), reason: format!("cannot be read: {}", json_error(&error)) })?;
        let place = Place { file: &file, document, line, prefix: String::new() };
        match value {
            Value::Object(members) if is_list(&members) => list(members, &place, &mut items),
            value => items.push(item(value, &place)),
        }
    }
    Ok(items)
}

/// The documents of a file, each with its line and as JSON: as values those of ten thousand routes are 20 MB at once.
#[derive(Default)]
struct Documents(Vec<(u64, Box<str>)>);

impl Extend<Spanned<Value>> for Documents {
    fn extend<T: IntoIterator<Item = Spanned<Value>>>(&mut self, documents: T) {
        let one = |document: Spanned<Value>| (document.referenced.line(), document.value.to_string().into());
        self.0.extend(documents.into_iter().map(one));
    }
}

fn yaml(text: &str) -> Result<Documents, Broken> {
    serde_saphyr::from_str_multiple_with_options(text, options()).map_err(|error| Broken {
        line: error.location().map(|location| location.line()).filter(|line| *line > 0),
        reason: format!("is no YAML: {}", yaml_error(&error, text)),
    })
}

fn json(text: &str) -> Result<Documents, Broken> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let (mut result, mut line, mut start) = (Documents::default(), 1, 0);
    while let Some(value) = values.next() {
        let value = value.map_err(|error| Broken {
            line: u64::try_from(error.line()).ok().filter(|line| *line > 0),
            reason: format!("is no JSON: {}", json_error(&error)),
        })?;
        let end = values.byte_offset();
        let blank = text[start..end].len() - text[start..end].trim_start().len();
        result.0.push((line + newlines(&text[start..start + blank]), value.to_string().into()));
        line += newlines(&text[start..end]);
        start = end;
    }
    Ok(result)
}

/// How many lines a text ends.
pub(super) fn newlines(text: &str) -> u64 {
    text.matches('\n').count() as u64
}

struct Text<'a> {
    path: &'a Path,
    content: &'a str,
    purpose: Purpose,
    located: OnceCell<Vec<Located>>,
}

/// Where an object stands.
struct Place<'a> {
    file: &'a Text<'a>,
    document: usize,
    line: u64,
    /// `items[3].` inside a List.
    prefix: String,
}

impl Place<'_> {
    fn line_of(&self, field: &str) -> u64 {
        let located = self.file.located.get_or_init(|| documents(self.file.content));
        let document = located.get(self.document);
        document.and_then(|document| document.line(&format!("{}{field}", self.prefix))).unwrap_or(self.line)
    }

    fn problem(&self, name: Option<&(String, ObjectName)>, field: &str, reason: impl Into<String>) -> Problem {
        let line = if field.is_empty() { self.line } else { self.line_of(field) };
        Problem {
            file: self.file.path.to_owned(),
            line: Some(line),
            object: name.cloned(),
            field: field.to_owned(),
            reason: reason.into(),
        }
    }

    fn item(&self, name: Option<(String, ObjectName)>, outcome: Outcome) -> Item {
        let mut problems: Vec<Problem> = Vec::new();
        let most = self.file.purpose.most();
        for problem in outcome.problems.iter().take(most) {
            problems.push(self.problem(name.as_ref(), &problem.field, problem.reason.as_str()));
        }
        if let Some(more) = outcome.problems.len().checked_sub(most).filter(|more| *more > 0) {
            problems.push(self.problem(name.as_ref(), "", format!("has {more} more problems")));
        }
        Item {
            line: self.line,
            name,
            object: outcome.object,
            draft: outcome.draft,
            problems,
            document: self.document,
            prefix: self.prefix.clone(),
            foreign: None,
        }
    }
}

fn is_list(members: &Map<String, Value>) -> bool {
    text(members, "kind") == Some("List") && text(members, "apiVersion") == Some("v1")
}

fn list(mut members: Map<String, Value>, place: &Place<'_>, items: &mut Vec<Item>) {
    let Some(Value::Array(values)) = members.remove("items") else {
        let problem = api::Problem { field: "items".to_owned(), reason: "must be a list of objects".to_owned() };
        items.push(place.item(None, Outcome { problems: vec![problem], ..Outcome::default() }));
        return;
    };
    for (index, value) in values.into_iter().enumerate() {
        let line = place.line_of(&format!("items[{index}]"));
        let prefix = format!("items[{index}].");
        items.push(item(value, &Place { file: place.file, document: place.document, line, prefix }));
    }
}

#[derive(Default)]
struct Outcome {
    object: Option<Object>,
    draft: Option<Draft>,
    problems: Vec<api::Problem>,
}

impl Outcome {
    fn wrong(field: &str, reason: impl Into<String>) -> Self {
        let problem = api::Problem { field: field.to_owned(), reason: reason.into() };
        Self { problems: vec![problem], ..Self::default() }
    }
}

fn text<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    members.get(name)?.as_str()
}

fn item(value: Value, place: &Place<'_>) -> Item {
    let Value::Object(mut members) = value else {
        return place.item(None, Outcome::wrong("", "is no object with apiVersion, kind and metadata"));
    };
    for field in ["apiVersion", "kind"] {
        if text(&members, field).is_none() {
            return place.item(None, Outcome::wrong(field, "is required and must be a string"));
        }
    }
    let kind = text(&members, "kind").unwrap_or_default().to_owned();
    let version = text(&members, "apiVersion").unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group).to_owned();
    let is_known = match group.as_str() {
        "" => matches!(kind.as_str(), "Service" | "Namespace" | "Secret" | "ConfigMap"),
        "discovery.k8s.io" => kind == "EndpointSlice",
        "gateway.networking.k8s.io" => kind == "ReferenceGrant",
        group => group == GROUP,
    };
    if !is_known {
        let foreign = Some(format!("{version} {kind}"));
        return Item { foreign, ..place.item(None, Outcome::default()) };
    }
    let name = name(&mut members, kind != "Namespace");
    if name.name.is_empty() {
        return place.item(None, Outcome::wrong("metadata.name", "is required and must be a string"));
    }
    let outcome = decode(&kind, &name, Value::Object(members), place.file.purpose);
    place.item(Some((kind, name)), outcome)
}

/// The object's name; gives it a namespace where it has none.
fn name(members: &mut Map<String, Value>, is_namespaced: bool) -> ObjectName {
    let Some(Value::Object(metadata)) = members.get_mut("metadata") else { return ObjectName::new("", "") };
    if is_namespaced && metadata.get("namespace").is_none_or(Value::is_null) {
        metadata.insert("namespace".to_owned(), DEFAULT_NAMESPACE.into());
    }
    let namespace = if is_namespaced { text(metadata, "namespace") } else { None };
    ObjectName::new(namespace.unwrap_or_default(), text(metadata, "name").unwrap_or_default())
}

fn decode(kind: &str, name: &ObjectName, value: Value, purpose: Purpose) -> Outcome {
    match kind {
        "Route" => own(ir::Kind::Route, name, value, purpose, (Route::from_value, Route::examine)),
        "Selector" => own(ir::Kind::Selector, name, value, purpose, (Selector::from_value, Selector::examine)),
        "Service" => foreign::<Service>(&value, |service| Object::from(&service)),
        "Namespace" => foreign::<Namespace>(&value, |namespace| Object::from(&namespace)),
        "Secret" => secret(name, &value),
        "ConfigMap" => foreign::<ConfigMap>(&value, |map| Object::from(&map)),
        "EndpointSlice" => foreign::<EndpointSlice>(&value, |slice| Object::from(&slice)),
        "ReferenceGrant" => foreign::<ReferenceGrant>(&value, Object::from),
        kind => Outcome::wrong("kind", format!("{GROUP} has no kind {kind}; it has Route and Selector")),
    }
}

/// How a kind of ours is read to be served and to be checked.
type Readers<T> = (fn(Value) -> Result<T, Vec<api::Problem>>, fn(Value) -> Result<T, Refused<T>>);

/// An object of a kind that is ours.
fn own<T>(kind: ir::Kind, name: &ObjectName, value: Value, purpose: Purpose, (serve, check): Readers<T>) -> Outcome
where
    Object: From<T>,
{
    let generation = value["metadata"]["generation"].as_i64().unwrap_or_default();
    let read = match purpose {
        Purpose::Serve => serve(value).map_err(|problems| Refused { problems, draft: None }),
        Purpose::Check => check(value),
    };
    let Refused { problems, draft } = match read {
        Ok(object) => return Object::from(object).into(),
        Err(refused) => refused,
    };
    let told: Vec<String> = problems.iter().take(purpose.most()).map(ToString::to_string).collect();
    Outcome {
        object: Some(Object::invalid(kind, name.clone(), generation, told.join("; "))),
        draft: draft.map(|draft| Draft { object: Object::from(*draft), told: problems.clone() }),
        problems,
    }
}

impl From<Object> for Outcome {
    fn from(object: Object) -> Self {
        match &object.content {
            Content::EndpointSlice(Err(unusable)) => Self::wrong("", unusable.to_string()),
            _ => Self { object: Some(object), ..Self::default() },
        }
    }
}

/// An object of a kind that is not ours, for which there is no schema: a field is unknown when nothing of it is left
/// once it is decoded.
fn foreign<T: DeserializeOwned + Serialize>(value: &Value, object: impl FnOnce(T) -> Object) -> Outcome {
    let decoded: T = match serde_path_to_error::deserialize(value) {
        Ok(decoded) => decoded,
        Err(error) => {
            let path = error.path().to_string();
            return Outcome::wrong(if path == "." { "" } else { &path }, error.into_inner().to_string());
        }
    };
    let mut problems = Vec::new();
    match serde_json::to_value(&decoded) {
        Ok(known) => unknown(value, &known, "", &mut problems),
        Err(error) => return Outcome::wrong("", error.to_string()),
    }
    if problems.is_empty() { object(decoded).into() } else { Outcome { problems, ..Outcome::default() } }
}

/// A Secret, of which nothing that is told may show a value. One that is wrong is there all the same, with nothing to be used.
fn secret(name: &ObjectName, value: &Value) -> Outcome {
    match serde_path_to_error::deserialize::<_, Secret>(value) {
        Ok(_) => foreign::<Secret>(value, |secret| Object::from(&secret)),
        Err(error) => {
            let path = error.path().to_string();
            let reason =
                if path.starts_with("data.") { "must be a string in base64" } else { "is not of the right form" };
            let why = if path == "." { reason.to_owned() } else { format!("{path} {reason}") };
            let material = Material::Held { certificate: Err(why.clone()), authorities: Err(why) };
            let object = Object { name: name.clone(), content: Content::Secret(material) };
            Outcome { object: Some(object), ..Outcome::wrong(if path == "." { "" } else { &path }, reason) }
        }
    }
}

fn unknown(given: &Value, known: &Value, path: &str, problems: &mut Vec<api::Problem>) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (name, given) in given.iter().filter(|(_, given)| !is_empty(given)) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match known.get(name) {
                    Some(known) => unknown(given, known, &path, problems),
                    None if is_header(&path) => {}
                    None => problems.push(api::Problem { field: path, reason: "is not a known field".to_owned() }),
                }
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            for (index, (given, known)) in given.iter().zip(known).enumerate() {
                unknown(given, known, &format!("{path}[{index}]"), problems);
            }
        }
        _ => {}
    }
}

/// Nothing, which decoding may drop.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// What has been looked at before, and what a cluster writes.
fn is_header(path: &str) -> bool {
    matches!(path, "apiVersion" | "kind" | "status")
}
