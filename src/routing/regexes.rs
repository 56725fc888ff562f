//! The regex paths of a Selector.

use crate::ir::Regex;

/// Regexes in the order of their ranks, which follow each other.
#[derive(Debug, Default)]
pub(super) struct Regexes {
    first: u32,
    /// What every path that fits begins with; saves running most of those that do not fit.
    prefixes: Vec<Box<str>>,
}

impl Regexes {
    /// Adds the regex of the next rank.
    pub(super) fn push(&mut self, rank: u32, regex: &Regex) {
        if self.prefixes.is_empty() {
            self.first = rank;
        }
        self.prefixes.push(literal_prefix(regex.source()).into());
    }

    pub(super) fn shrink(&mut self) {
        self.prefixes.shrink_to_fit();
    }

    /// The ranks of those that may match `path`, the best first.
    pub(super) fn candidates(&self, path: &str) -> impl Iterator<Item = u32> {
        (self.first..).zip(&self.prefixes).filter(|(_, prefix)| path.starts_with(&***prefix)).map(|(rank, _)| rank)
    }
}

/// A text that everything which `source` matches begins with; shorter than it could be where that is not plain to see.
pub(super) fn literal_prefix(source: &str) -> &str {
    if source.contains('|') {
        return "";
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'_' | b'~' | b'%' | b':' | b'@' | b'=');
    let len = source.bytes().position(|b| !plain(b)).unwrap_or(source.len());
    match source.as_bytes().get(len) {
        // The last character may be absent.
        Some(b'?' | b'*' | b'{') => &source[..len.saturating_sub(1)],
        _ => &source[..len],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_hold_for_every_match() {
        for (source, prefix) in [
            ("/a/b", "/a/b"),
            ("/a/(.*)+", "/a/"),
            ("/ab?c", "/a"),
            ("/ab*", "/a"),
            ("/ab+", "/ab"),
            ("/ab{0,2}", "/a"),
            ("/a|/b", ""),
            ("/x/(a|b)", ""),
            ("(?i)/a", ""),
            (".*", ""),
            ("?", ""),
            ("/a\\.b", "/a"),
            ("^/a", ""),
            ("", ""),
        ] {
            assert_eq!(literal_prefix(source), prefix, "{source}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_match_is_lost(source in "[/ab?*+.(){}|0,]{1,8}", path in "/[/ab]{0,5}") {
            if let Ok(regex) = Regex::new(&source) {
                proptest::prop_assert!(!regex.is_match(&path) || path.starts_with(literal_prefix(&source)));
            }
        }
    }
}
