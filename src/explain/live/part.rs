//! Which part of a list is asked for.

use super::super::question::pairs;

/// Rows where no limit is asked for.
const LIMIT: usize = 50;
/// Most rows.
const MAX_LIMIT: usize = 1000;

/// Which rows of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: usize,
    pub(super) limit: usize,
    /// In lower case; every word has to be found.
    words: Vec<String>,
    /// Further parameters, by name.
    more: Vec<(&'static str, String)>,
}

impl Part {
    /// Reads a query: `offset`, `limit`, `q`, and what `more` names, each with the values it may have.
    pub(super) fn read(query: &str, more: &[(&'static str, &[&str])]) -> Result<Self, String> {
        let mut part = Self { offset: 0, limit: LIMIT, words: Vec::new(), more: Vec::new() };
        for (name, value) in pairs(query) {
            let number = || value.parse::<usize>().map_err(|_| format!("{name}: {value:?} is no number"));
            match name.as_str() {
                "offset" => part.offset = number()?,
                "limit" => part.limit = number()?.clamp(1, MAX_LIMIT),
                "q" => part.words = value.to_lowercase().split_whitespace().map(str::to_owned).collect(),
                other => {
                    let Some((known, values)) = more.iter().find(|(known, _)| *known == other) else {
                        let known: Vec<&str> =
                            ["offset", "limit", "q"].into_iter().chain(more.iter().map(|m| m.0)).collect();
                        return Err(format!("query: {other:?} is not known; {} are", known.join(", ")));
                    };
                    if !values.contains(&value.as_str()) {
                        return Err(format!("{known}: {value:?} is none of {}", values.join(", ")));
                    }
                    part.more.push((known, value));
                }
            }
        }
        Ok(part)
    }

    /// The value of a further parameter, if it is there.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.more.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Whether every word that is looked for is in one of these texts.
    pub(super) fn found_in(&self, texts: &[impl AsRef<str>]) -> bool {
        self.words.iter().all(|word| texts.iter().any(|text| text.as_ref().to_lowercase().contains(word)))
    }

    /// Those of all rows that are found and belong to this part, how many are found, and where the next part begins.
    pub(super) fn of<T>(&self, found: impl Iterator<Item = T>) -> (Vec<T>, usize, Option<usize>) {
        let end = self.offset.saturating_add(self.limit);
        let mut rows = Vec::new();
        let mut count = 0;
        for row in found {
            if (self.offset..end).contains(&count) {
                rows.push(row);
            }
            count += 1;
        }
        (rows, count, (count > end).then_some(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_and_what_is_unknown_is_named() {
        let part = Part::read("q=Shop+CART&offset=2&limit=99999&kind=Route", &[("kind", &["Route"])]).unwrap();
        assert_eq!((part.offset, part.limit, part.get("kind"), part.get("state")), (2, 1000, Some("Route"), None));
        assert!(part.found_in(&["a/shop", "my-cart"]) && !part.found_in(&["a/shop"]));
        let error = |query| Part::read(query, &[("kind", &["Route"])]).unwrap_err();
        assert_eq!(error("page=1"), r#"query: "page" is not known; offset, limit, q, kind are"#);
        assert_eq!(error("kind=Pod"), r#"kind: "Pod" is none of Route"#);
        assert_eq!(error("offset=-1"), r#"offset: "-1" is no number"#);
    }

    #[test]
    fn parts_follow_each_other_without_gaps() {
        let mut query = "limit=4".to_owned();
        let mut seen = Vec::new();
        loop {
            let (rows, found, next) = Part::read(&query, &[]).unwrap().of(0..10);
            assert_eq!(found, 10);
            seen.extend(rows);
            let Some(next) = next else { break };
            query = format!("limit=4&offset={next}");
        }
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        assert_eq!(Part::read("offset=99", &[]).unwrap().of(0..10), (vec![], 10, None));
    }
}
