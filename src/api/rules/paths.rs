//! Rules about the text of a path.

/// Whether a normalised path can look like this: without query, fragment, escaped separators and dot segments.
pub(super) fn can_be_normalised(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    !path.contains(['?', '#'])
        && !["%2f", "%5c", "%00"].iter().any(|escape| lower.contains(escape))
        && !path.split('/').skip(1).any(|segment| segment == "." || segment == "..")
}

/// Whether every segment is a literal, `{name}` or `*`, or the last one `**`.
pub(super) fn is_pattern(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let (before, last) = rest.rsplit_once('/').map_or((None, rest), |(before, last)| (Some(before), last));
    before.is_none_or(|before| before.split('/').all(is_segment)) && (last == "**" || is_segment(last))
}

fn is_segment(segment: &str) -> bool {
    match segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        Some(name) => is_name(name),
        None => segment == "*" || !segment.contains(['*', '{', '}']),
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PathMatch;
    use crate::api::rules::Ruled;

    /// What the CEL expressions of a rule look for: the regular expressions in `matches` and the texts in `contains`.
    struct Finder(Vec<regex::Regex>);

    impl Finder {
        fn new(rule: usize) -> Self {
            let quoted = |cel: &str, before: &str| -> Vec<String> {
                cel.split(before).skip(1).map(|part| part.split_once("')").unwrap().0.to_owned()).collect()
            };
            let expressions = PathMatch::RULES[rule].expressions().iter().flat_map(|cel| {
                let mut found = quoted(cel, "matches(r'");
                found.extend(quoted(cel, "contains('").iter().map(|text| regex::escape(text)));
                assert!(!found.is_empty(), "{cel}");
                found
            });
            Self(expressions.map(|expression| regex::Regex::new(&expression).unwrap()).collect())
        }

        fn finds_nothing(&self, path: &str) -> bool {
            !self.0.iter().any(|expression| expression.is_match(path))
        }
    }

    #[test]
    fn patterns_are_what_cel_takes_for_patterns() {
        let cel = Finder::new(2);
        for (path, good) in [
            ("/", true),
            ("/a", true),
            ("/a/", true),
            ("/{id}/b", true),
            ("/a/*/c", true),
            ("/**", true),
            ("/a/**", true),
            ("/{a/b}", false),
            ("/{a}{b}", false),
            ("/a/}", false),
            ("/{{a}}", false),
            ("/*/**/", false),
            ("/a**", false),
            ("//{a}", true),
            ("/a//b", true),
            ("/a*", false),
            ("/{}", false),
            ("/{1a}", false),
            ("/{a", false),
            ("/a}", false),
            ("/**/a", false),
            ("/x{id}", false),
            ("/***", false),
            ("/{a-b}", true),
            ("/{-a}", false),
            ("/{a.b}", false),
            ("/{a b", false),
            ("//", true),
        ] {
            assert_eq!(is_pattern(path), good, "{path}");
            assert_eq!(cel.finds_nothing(path), good, "CEL: {path}");
        }
    }

    #[test]
    fn normalised_paths_are_what_cel_takes_for_them() {
        let cel = Finder::new(1);
        for (path, good) in [
            ("/", true),
            ("/a.b", true),
            ("/a/..b", true),
            ("/.well-known", true),
            ("/a//b", true),
            ("/%20", true),
            ("/...", true),
            ("/a?b", false),
            ("/a#b", false),
            ("/a%2Fb", false),
            ("/a%5cb", false),
            ("/%00", false),
            ("/a/./b", false),
            ("/a/..", false),
            ("/../a", false),
            ("/.", false),
        ] {
            assert_eq!(can_be_normalised(path), good, "{path}");
            assert_eq!(cel.finds_nothing(path), good, "CEL: {path}");
        }
    }

    #[test]
    fn cel_and_rust_agree_on_any_path() {
        let (normalised, pattern) = (Finder::new(1), Finder::new(2));
        proptest::proptest!(|(path in "/[a-c/*{}_1.%2Ff?#-]{0,12}")| {
            proptest::prop_assert_eq!(can_be_normalised(&path), normalised.finds_nothing(&path));
            proptest::prop_assert_eq!(is_pattern(&path), pattern.finds_nothing(&path));
        });
    }
}
