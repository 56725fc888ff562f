//! What is left out of URLs.

use percent_encoding::percent_decode;

/// Stands for what is not told.
pub(super) const INSTEAD: &[u8] = b"redacted";

/// Query parameters whose values are not told.
pub(in crate::proxy) struct Redacted {
    names: Box<[Box<[u8]>]>,
    all: bool,
}

impl Redacted {
    /// Those of these names, in any case; `*` is all.
    pub(in crate::proxy) fn new(names: &[String]) -> Self {
        Self {
            names: names.iter().map(|name| name.as_bytes().into()).collect(),
            all: names.iter().any(|name| name == "*"),
        }
    }

    /// A query as it may be told; written into `space` where it is another one.
    pub(in crate::proxy) fn query<'a>(&self, query: &'a [u8], space: &'a mut Vec<u8>) -> &'a [u8] {
        if !pairs(query).any(|pair| self.hides(pair)) {
            return query;
        }
        space.clear();
        self.write(query, space);
        space
    }

    /// A reference to a page, as it may be told.
    pub(super) fn reference<'a>(&self, reference: &'a [u8], space: &'a mut Vec<u8>) -> &'a [u8] {
        let Some(at) = memchr::memchr(b'?', reference) else { return reference };
        let (page, query) = reference.split_at(at + 1);
        if !pairs(query).any(|pair| self.hides(pair)) {
            return reference;
        }
        space.clear();
        space.extend_from_slice(page);
        self.write(query, space);
        space
    }

    fn write(&self, query: &[u8], out: &mut Vec<u8>) {
        let mut at = 0;
        for pair in pairs(query) {
            match memchr::memchr(b'=', pair) {
                Some(end) if self.hides(pair) => {
                    out.extend_from_slice(&pair[..=end]);
                    out.extend_from_slice(INSTEAD);
                }
                _ => out.extend_from_slice(pair),
            }
            at += pair.len();
            // What stands between.
            out.extend(query.get(at));
            at += 1;
        }
    }

    /// Whether the value of a pair is not told.
    fn hides(&self, pair: &[u8]) -> bool {
        let Some(end) = memchr::memchr(b'=', pair) else { return false };
        let name = &pair[..end];
        self.all || self.names.iter().any(|hidden| is_named(name, hidden))
    }
}

/// The parameters of a query, which some backends take `;` to part, too.
fn pairs(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    query.split(|byte| matches!(byte, b'&' | b';'))
}

fn is_named(name: &[u8], hidden: &[u8]) -> bool {
    if memchr::memchr(b'%', name).is_none() {
        return name.eq_ignore_ascii_case(hidden);
    }
    let decoded = percent_decode(name).map(|byte| byte.to_ascii_lowercase());
    decoded.eq(hidden.iter().map(u8::to_ascii_lowercase))
}
