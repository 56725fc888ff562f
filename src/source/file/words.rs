//! What the libraries for YAML and JSON say, in the words of whoever wrote the file.

use serde_saphyr::Error;

/// What is wrong with a text that is no YAML.
pub(super) fn yaml_error(error: &Error, text: &str) -> String {
    let error = error.without_snippet();
    if is_indented_by_tab(error, text) {
        return "a line is indented with a tab, which YAML does not allow; use spaces".to_owned();
    }
    match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key {key:?} is there twice"),
        Error::DuplicateMappingKey { key: None, .. } => "a key is there twice".to_owned(),
        Error::UnknownAnchor { .. } => "an alias names an anchor that is not there".to_owned(),
        Error::Eof { .. } => "it ends in the middle of a value".to_owned(),
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => "its aliases multiply it beyond what is read".to_owned(),
        Error::Budget { .. } => "it has more documents or values than are read from one file".to_owned(),
        Error::NonFiniteFloat { value, .. } => format!("{value} is no number"),
        Error::MergeValueNotMapOrSeqOfMaps { .. } => "what << merges is no mapping".to_owned(),
        Error::RecursiveReferencesRequireWeakTypes { .. } => "an alias stands inside of what it repeats".to_owned(),
        other => without_position(&other.to_string()),
    }
}

/// What is wrong with a text that is no JSON.
pub(super) fn json_error(error: &serde_json::Error) -> String {
    if error.is_eof() { "it ends in the middle of a value".to_owned() } else { without_position(&error.to_string()) }
}

/// Whether the line at fault begins with a tab.
fn is_indented_by_tab(error: &Error, text: &str) -> bool {
    let Some(line) = error.location().and_then(|location| usize::try_from(location.line()).ok()) else { return false };
    let lines = text.lines().skip(line.saturating_sub(2)).take(2);
    lines.into_iter().any(|line| line.trim_start_matches(' ').starts_with('\t'))
}

/// A message without the line and column that stand in front of it already.
fn without_position(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    match first.split_once(" at line ") {
        Some((what, position)) => match position.split_once("column ") {
            Some((_, column)) => format!("{what} (column {})", column.trim_end_matches(|c: char| !c.is_ascii_digit())),
            None => what.to_owned(),
        },
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn told(text: &str) -> String {
        let error = serde_saphyr::from_multiple_with_options::<Value>(text, super::super::decode::options());
        yaml_error(&error.expect_err("no YAML"), text)
    }

    #[test]
    fn mistakes_are_told_in_plain_words() {
        for (text, expected) in [
            ("a: 1\na: 2\n", "the key \"a\" is there twice"),
            ("a: *b\n", "an alias names an anchor that is not there"),
            ("a:\n\tb: 1\n", "a line is indented with a tab, which YAML does not allow; use spaces"),
            ("a: &b\n  c: *b\n", "an alias stands inside of what it repeats"),
            ("a: [1}\n", "mismatched bracket '[' closed by '}' (column 4)"),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }
}
