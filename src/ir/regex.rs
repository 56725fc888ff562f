//! Regular expressions, each compiled once however many objects hold it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use regex_automata::util::syntax;
use serde::Serialize;

/// Bytes that one compiled regular expression may take.
const REGEX_SIZE_LIMIT: usize = 256 << 10;

/// A compiled regular expression: linear time, anchored at both ends, bounded in size. Equal when its source is.
///
/// Compiling costs milliseconds, and one object may hold thousands. What is in use anywhere is not compiled again, so
/// that an edit costs what it changes.
#[derive(Clone)]
pub struct Regex(Program);

/// What anchors an expression at both ends.
const ANCHORS: (&str, &str) = ("^(?:", ")$");

/// A compiled regular expression as it is written, not anchored, bounded in size; shared by all that are written so.
#[derive(Clone)]
pub(super) struct Program(Arc<Compiled>);

struct Compiled {
    text: Arc<str>,
    program: regex::Regex,
}

/// What is in use, by text.
static IN_USE: LazyLock<Mutex<InUse>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct InUse {
    compiled: HashMap<Arc<str>, Weak<Compiled>>,
    /// At this size what is no longer in use is looked for.
    sweep_at: usize,
}

impl InUse {
    /// The one of this text: `new`, unless somebody was faster.
    fn keep(&mut self, new: Arc<Compiled>) -> Arc<Compiled> {
        const LEAST: usize = 64;
        if let Some(former) = self.compiled.get(&new.text).and_then(Weak::upgrade) {
            return former;
        }
        if self.compiled.len() >= self.sweep_at {
            self.compiled.retain(|_, compiled| compiled.strong_count() > 0);
            self.sweep_at = LEAST.max(2 * self.compiled.len());
        }
        self.compiled.insert(Arc::clone(&new.text), Arc::downgrade(&new));
        new
    }
}

impl Program {
    /// Compiles `text`; the error says why it cannot be.
    pub(super) fn new(text: &str) -> Result<Self, regex::Error> {
        let former = IN_USE.lock().compiled.get(text).and_then(Weak::upgrade);
        if let Some(former) = former {
            return Ok(Self(former));
        }
        let program =
            regex::RegexBuilder::new(text).size_limit(REGEX_SIZE_LIMIT).dfa_size_limit(REGEX_SIZE_LIMIT).build()?;
        let new = Arc::new(Compiled { text: text.into(), program });
        Ok(Self(IN_USE.lock().keep(new)))
    }

    /// The text it was made of.
    pub(super) fn text(&self) -> &str {
        &self.0.text
    }
}

impl std::ops::Deref for Program {
    type Target = regex::Regex;

    fn deref(&self) -> &regex::Regex {
        &self.0.program
    }
}

impl Regex {
    /// Compiles `source`; the error says why it cannot be.
    pub fn new(source: &str) -> Result<Self, regex::Error> {
        let program = Program::new(&format!("{}{source}{}", ANCHORS.0, ANCHORS.1))?;
        // `a)(b` is no expression of its own, yet becomes one inside the anchors.
        syntax::parse(source).map_err(|error| regex::Error::Syntax(error.to_string()))?;
        Ok(Self(program))
    }

    /// Whether the expression of this source, anchored or as it is, is compiled somewhere.
    #[cfg(test)]
    pub(crate) fn is_in_use(source: &str) -> bool {
        let anchored = format!("{}{source}{}", ANCHORS.0, ANCHORS.1);
        let in_use = IN_USE.lock();
        [source, &*anchored].iter().any(|text| in_use.compiled.get(*text).is_some_and(|known| known.strong_count() > 0))
    }

    /// The text it was made of.
    pub fn source(&self) -> &str {
        let text = self.0.text();
        text.get(ANCHORS.0.len()..text.len() - ANCHORS.1.len()).unwrap_or_default()
    }

    /// Whether the whole of `text` matches.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Regex({:?})", self.source())
    }
}

impl PartialEq for Regex {
    fn eq(&self, other: &Self) -> bool {
        self.source() == other.source()
    }
}

impl Eq for Regex {}

impl Serialize for Regex {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.source())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_is_shared_and_what_is_not_is_let_go() {
        let source = "/only/this/test/[a-z]+";
        let (one, other) = (Regex::new(source).unwrap(), Regex::new(source).unwrap());
        assert!(Arc::ptr_eq(&one.0.0, &other.0.0));
        drop((one, other));
        let text = format!("^(?:{source})$");
        let is_known = || IN_USE.lock().compiled.get(&*text).is_some_and(|known| known.strong_count() > 0);
        assert!(!is_known());
        // Enough others for a sweep, whatever other tests have left.
        let is_listed = || IN_USE.lock().compiled.contains_key(&*text);
        let others = (0..100_000).map(|i| Regex::new(&format!("/sweep/{i}")).unwrap());
        let others: Vec<Regex> = others.take_while(|_| is_listed()).collect();
        assert!(!is_listed());
        assert!(others.iter().all(|other| other.is_match(other.source())));
    }

    #[test]
    fn an_expression_is_one_by_itself() {
        for source in ["a)(b", "(", "*a", "(?<=a)b", "\\1"] {
            assert!(Regex::new(source).is_err(), "{source}");
        }
    }
}
