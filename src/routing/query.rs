//! Query strings as HTML forms write them (`application/x-www-form-urlencoded`).

use std::borrow::Cow;

/// The decoded values of every `name` in `query`, in order. A key without `=` has the empty value. Allocates only
/// for values with something to decode.
pub(super) fn values<'a>(query: Option<&'a str>, name: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.into_iter().flat_map(|query| query.split('&')).filter(move |pair| has_name(pair, name)).map(|pair| {
        let (_, value) = pair.split_once('=').unwrap_or((pair, ""));
        decode(value)
    })
}

/// Whether the key of a pair of a query, as it is written, stands for `name`.
pub fn has_name(pair: &str, name: &str) -> bool {
    let key = pair.split_once('=').map_or(pair, |(key, _)| key);
    !pair.is_empty() && Decoder(key.as_bytes()).eq(name.bytes())
}

fn decode(text: &str) -> Cow<'_, [u8]> {
    if text.bytes().any(|b| matches!(b, b'%' | b'+')) {
        Cow::Owned(Decoder(text.as_bytes()).collect())
    } else {
        Cow::Borrowed(text.as_bytes())
    }
}

/// Yields the bytes that a text stands for; a `%` without two digits stands for itself.
struct Decoder<'a>(&'a [u8]);

impl Iterator for Decoder<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        match byte {
            b'+' => Some(b' '),
            b'%' => Some(super::path::decode(rest).map_or(b'%', |decoded| {
                self.0 = &rest[2..];
                decoded
            })),
            _ => Some(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(query: &str, name: &str) -> Vec<String> {
        values(Some(query), name).map(|v| String::from_utf8_lossy(&v).into_owned()).collect()
    }

    #[test]
    fn keys_and_values_are_decoded() {
        assert_eq!(all("a=1&b=2&a=3", "a"), ["1", "3"]);
        assert_eq!(all("a", "a"), [""]);
        assert_eq!(all("a=&&=x", "a"), [""]);
        assert_eq!(all("&&", ""), [""; 0]);
        assert_eq!(all("A=1", "a"), [""; 0]);
        assert_eq!(all("a=b=c", "a"), ["b=c"]);
        assert_eq!(all("x%20y+z=1%2B1+2", "x y z"), ["1+1 2"]);
        assert_eq!(all("a=%&a=%4&a=%zz&a=100%25", "a"), ["%", "%4", "%zz", "100%"]);
        assert_eq!(all("a=%C3%BC;a=2", "a"), ["\u{fc};a=2"]);
        assert_eq!(values(None, "a").count(), 0);
    }

    #[test]
    fn plain_values_are_borrowed() {
        assert!(values(Some("a=plain"), "a").all(|v| matches!(v, Cow::Borrowed(_))));
    }
}
