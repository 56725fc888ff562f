//! Everything that is wrong with manifests, and what is served but may surprise: with file, line, object and field.
//!
//! What is checked is what a gateway does: decode, validate, translate, compile. Pure: reading is
//! [`crate::source::file::read`]'s.

mod hints;
mod never;
mod translated;
mod warnings;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::ir::ObjectName;
use crate::source::file::{Declared, Manifests, Problem};
use crate::source::translate::{HostBackends, Listener};

/// What a check depends on besides the manifests.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The gateway's listeners; `None` where they are not known: any name will do then.
    pub listeners: Option<Vec<Listener>>,
    /// Whether the manifests are all there is, as for `serve --manifests`: what they lack is an error then.
    pub complete: bool,
    /// Which backends may be named by host and port.
    pub host_backends: HostBackends,
    /// The time, in seconds since the epoch, for certificates; `None` where none is too old.
    pub now: Option<i64>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It is refused, left out, or answered with an error.
    Error,
    /// It is served, or will be once something else is there, and may surprise.
    Warning,
}

/// Something that a check found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The file; `-` for what came on a pipe.
    pub file: String,
    /// The line, from 1, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// How bad it is.
    pub severity: Severity,
    /// The object's kind, as far as it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The object's `namespace/name`, as far as it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The field; empty for the object or file as a whole.
    pub field: String,
    /// What is wrong.
    pub reason: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// In the order of files and lines.
    pub findings: Vec<Finding>,
    /// How many objects were checked.
    pub objects: usize,
    /// How many were left alone, by `apiVersion kind`.
    pub ignored: BTreeMap<String, usize>,
}

impl Report {
    /// How many findings there are of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

/// Checks manifests.
pub fn check(manifests: &Manifests, settings: &Settings) -> Report {
    let known = Known::new(manifests);
    let mut findings: BTreeSet<Finding> = manifests.problems.iter().map(of_file).collect();
    findings.extend(manifests.empty.iter().map(|path| empty(path)));
    findings.extend(known.twice.iter().map(|(again, first)| twice(again, first)));
    findings.extend(translated::findings(&known, settings));
    findings.extend(never::findings(&known));
    Report {
        findings: findings.into_iter().collect(),
        objects: manifests.objects.len(),
        ignored: manifests.foreign.clone(),
    }
}

/// The objects by name, each once.
struct Known<'a> {
    manifests: &'a Manifests,
    /// By kind and name.
    first: HashMap<(&'a str, &'a ObjectName), &'a Declared>,
    /// Those that are declared again, with the first declaration.
    twice: Vec<(&'a Declared, &'a Declared)>,
}

impl<'a> Known<'a> {
    fn new(manifests: &'a Manifests) -> Self {
        let mut known = Self { manifests, first: HashMap::new(), twice: Vec::new() };
        for declared in &manifests.objects {
            match known.first.entry((&*declared.kind, &declared.object.name)) {
                std::collections::hash_map::Entry::Vacant(entry) => drop(entry.insert(declared)),
                std::collections::hash_map::Entry::Occupied(first) => known.twice.push((declared, first.get())),
            }
        }
        known
    }

    fn get(&self, kind: &str, name: &ObjectName) -> Option<&'a Declared> {
        self.first.get(&(kind, name)).copied()
    }

    /// The names of a kind's objects.
    fn names(&self, kind: &str) -> impl Iterator<Item = &'a ObjectName> {
        self.first.keys().filter(move |(own, _)| *own == kind).map(|(_, name)| *name)
    }

    /// A finding on a field of an object.
    fn finding(
        &self,
        declared: &Declared,
        severity: Severity,
        field: &str,
        reason: String,
        hint: Option<String>,
    ) -> Finding {
        Finding {
            line: Some(self.manifests.line_of(declared, field)),
            ..found(declared, severity, field, reason, hint)
        }
    }
}

fn found(declared: &Declared, severity: Severity, field: &str, reason: String, hint: Option<String>) -> Finding {
    Finding {
        file: text(&declared.file),
        line: Some(declared.line),
        severity,
        kind: Some(declared.kind.clone()),
        object: Some(declared.object.name.to_string()),
        field: field.to_owned(),
        reason,
        hint,
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A problem that was found while reading.
fn of_file(problem: &Problem) -> Finding {
    let (reason, hint) = match problem.reason.split_once("; did you mean ") {
        Some((reason, meant)) => (reason, Some(format!("did you mean {meant}"))),
        None => (problem.reason.as_str(), hints::of_reading(problem)),
    };
    Finding {
        file: text(&problem.file),
        line: problem.line,
        severity: Severity::Error,
        kind: problem.object.as_ref().map(|(kind, _)| kind.clone()),
        object: problem.object.as_ref().map(|(_, name)| name.to_string()),
        field: problem.field.clone(),
        reason: reason.to_owned(),
        hint,
    }
}

/// A check that looks at nothing must not pass for one that finds nothing.
fn empty(path: &Path) -> Finding {
    Finding {
        file: text(path),
        line: None,
        severity: Severity::Warning,
        kind: None,
        object: None,
        field: String::new(),
        reason: "no object found".to_owned(),
        hint: Some("manifests are files named *.yaml, *.yml or *.json".to_owned()),
    }
}

/// An API server takes the last declaration, a gateway that reads files the first.
fn twice(again: &Declared, first: &Declared) -> Finding {
    let reason = format!("is already declared at {}:{}", text(&first.file), first.line);
    let hint = "files serve the first declaration, kubectl apply leaves the last; keep one";
    found(again, Severity::Warning, "", reason, Some(hint.to_owned()))
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        f.write_str(match self.severity {
            Severity::Error => " error:",
            Severity::Warning => " warning:",
        })?;
        if let (Some(kind), Some(object)) = (&self.kind, &self.object) {
            write!(f, " {kind} {object}:")?;
        }
        if !self.field.is_empty() {
            write!(f, " {}:", self.field)?;
        }
        write!(f, " {}", self.reason)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n    {hint}"))
    }
}

impl Report {
    /// As text for a terminal.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for finding in &self.findings {
            let _ = writeln!(out, "{}", finding.to_string().replace(|c: char| c.is_control() && c != '\n', "\u{fffd}"));
        }
        let count = |severity, what| match self.count(severity) {
            1 => format!("1 {what}"),
            count => format!("{count} {what}s"),
        };
        let (errors, warnings) = (count(Severity::Error, "error"), count(Severity::Warning, "warning"));
        let _ = writeln!(out, "{} objects: {errors}, {warnings}", self.objects);
        let ignored: Vec<String> = self.ignored.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        if !ignored.is_empty() {
            let _ = writeln!(out, "not looked at: {}", ignored.join(", "));
        }
        out
    }
}

#[cfg(test)]
mod tests;
