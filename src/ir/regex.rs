//! Regular expressions, each compiled once however many objects hold it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use regex_automata::util::syntax;
use serde::Serialize;

/// Bytes that one compiled regular expression may take.
pub(super) const REGEX_SIZE_LIMIT: usize = 256 << 10;

/// A compiled regular expression: linear time, anchored at both ends, bounded in size. Equal when its source is.
///
/// Compiling costs milliseconds, and one object may hold thousands. What is in use anywhere is not compiled again, so
/// that an edit costs what it changes.
#[derive(Clone)]
pub struct Regex(Arc<Compiled>);

struct Compiled {
    source: Arc<str>,
    program: regex::Regex,
}

/// What is in use, by source.
static IN_USE: LazyLock<Mutex<InUse>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct InUse {
    compiled: HashMap<Arc<str>, Weak<Compiled>>,
    /// At this size what is no longer in use is looked for.
    sweep_at: usize,
}

impl InUse {
    /// The one of this source: `new`, unless somebody was faster.
    fn keep(&mut self, new: Arc<Compiled>) -> Arc<Compiled> {
        const LEAST: usize = 64;
        if let Some(former) = self.compiled.get(&new.source).and_then(Weak::upgrade) {
            return former;
        }
        if self.compiled.len() >= self.sweep_at {
            self.compiled.retain(|_, compiled| compiled.strong_count() > 0);
            self.sweep_at = LEAST.max(2 * self.compiled.len());
        }
        self.compiled.insert(Arc::clone(&new.source), Arc::downgrade(&new));
        new
    }
}

impl Regex {
    /// Compiles `source`; the error says why it cannot be.
    pub fn new(source: &str) -> Result<Self, regex::Error> {
        let former = IN_USE.lock().compiled.get(source).and_then(Weak::upgrade);
        if let Some(former) = former {
            return Ok(Self(former));
        }
        let program = regex::RegexBuilder::new(&format!("^(?:{source})$"))
            .size_limit(REGEX_SIZE_LIMIT)
            .dfa_size_limit(REGEX_SIZE_LIMIT)
            .build()?;
        // `a)(b` is no expression of its own, yet becomes one inside the anchors.
        syntax::parse(source).map_err(|error| regex::Error::Syntax(error.to_string()))?;
        let new = Arc::new(Compiled { source: source.into(), program });
        Ok(Self(IN_USE.lock().keep(new)))
    }

    /// The text it was made of.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Whether the whole of `text` matches.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.program.is_match(text)
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
        assert!(Arc::ptr_eq(&one.0, &other.0));
        drop((one, other));
        let is_known = || IN_USE.lock().compiled.get(source).is_some_and(|known| known.strong_count() > 0);
        assert!(!is_known());
        // Enough others for a sweep, whatever other tests have left.
        let is_listed = || IN_USE.lock().compiled.contains_key(source);
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
