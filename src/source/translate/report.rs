//! What is wrong with an object, gathered field by field.

use std::fmt;

use crate::ir::{FieldProblem, Finding};

/// Most problems that one message spells out; a broken template makes hundreds of the same kind.
const SPELT_OUT: usize = 8;

/// A field of an object, by its path. Costs nothing until it is printed.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    parent: Option<&'a Field<'a>>,
    name: &'static str,
    index: Option<usize>,
}

impl<'a> Field<'a> {
    /// `spec`.
    pub(super) const SPEC: Field<'static> = Field::named("spec");

    /// What stands at the front of a path.
    pub(super) const fn named(name: &'static str) -> Self {
        Self { parent: None, name, index: None }
    }

    /// A member of it.
    pub(super) const fn member(&'a self, name: &'static str) -> Self {
        Self { parent: Some(self), name, index: None }
    }

    /// An entry of a list that is a member of it.
    pub(super) const fn entry(&'a self, name: &'static str, index: usize) -> Self {
        Self { parent: Some(self), name, index: Some(index) }
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.name)?;
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}

/// The problems of one object in one respect, in the order of its fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    problems: Vec<FieldProblem>,
    /// What is told though the finding is true.
    notes: Vec<FieldProblem>,
}

impl Report {
    /// Adds a problem of one field.
    pub(super) fn add(&mut self, reason: &'static str, field: &Field<'_>, what: impl fmt::Display) {
        self.problems.push(FieldProblem { reason, field: field.to_string(), what: what.to_string() });
    }

    /// Adds a problem of the object as a whole.
    pub(super) fn add_whole(&mut self, reason: &'static str, what: impl Into<String>) {
        self.problems.push(FieldProblem { reason, field: String::new(), what: what.into() });
    }

    /// Adds a problem that comes before all others: its reason is that of the finding.
    pub(super) fn put_first(&mut self, reason: &'static str, field: &Field<'_>, what: impl Into<String>) {
        self.problems.insert(0, FieldProblem { reason, field: field.to_string(), what: what.into() });
    }

    /// Adds what is to be known of a field that is all right nevertheless.
    pub(super) fn note(&mut self, reason: &'static str, field: &Field<'_>, what: impl Into<String>) {
        self.notes.push(FieldProblem { reason, field: field.to_string(), what: what.into() });
    }

    /// The finding: true with the reason `good` where there is no problem, else false with the first one's reason.
    pub(super) fn finding(&self, good: &'static str) -> Finding {
        let first = self.problems.first();
        let problems: Vec<FieldProblem> = self.problems.iter().chain(&self.notes).cloned().collect();
        Finding {
            ok: first.is_none(),
            reason: first.map_or(good, |problem| problem.reason),
            message: spell_out(&problems),
            problems,
        }
    }
}

fn spell_out(problems: &[FieldProblem]) -> String {
    let mut message = String::new();
    for (index, FieldProblem { field, what, .. }) in problems.iter().take(SPELT_OUT).enumerate() {
        message.push_str(if index == 0 { "" } else { "; " });
        if !field.is_empty() {
            message.push_str(field);
            message.push_str(": ");
        }
        message.push_str(what);
    }
    if let Some(more) = problems.len().checked_sub(SPELT_OUT).filter(|more| *more > 0) {
        message.push_str("; and ");
        message.push_str(&more.to_string());
        message.push_str(" more");
    }
    message
}

/// The essence of a regular expression's error, which spans several lines.
pub(super) fn regex_error(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => format!("the regular expression takes more than {limit} bytes"),
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            format!("not a regular expression: {}", last.strip_prefix("error: ").unwrap_or(last))
        }
    }
}
