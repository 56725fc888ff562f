//! Finds the paths that a source names: those of `use`, and those in between.

/// The module of a file below `src`; `None` for the roots and for test code.
pub(crate) fn module_of(file: &str) -> Option<String> {
    let module = file.strip_suffix(".rs")?;
    let parts: Vec<_> = module.split('/').collect();
    if matches!(parts[..], ["main" | "lib"]) || parts.contains(&"tests") {
        return None;
    }
    Some(parts.join("::"))
}

/// Every path that the text of a module names, of the crate's own from `crate::`, of other crates as it stands.
pub(crate) fn paths_in(module: &str, text: &str) -> Vec<String> {
    let tokens = without_tests(&tokens(text));
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let begins = is_name(&tokens[at]) || tokens[at] == "::";
        if begins || (tokens[at] == "{" && at > 0 && tokens[at - 1] == "use") {
            at = path(&tokens, at, &mut Vec::new(), &mut found);
        } else {
            at += 1;
        }
    }
    found.iter().filter_map(|path| resolve(module, path)).collect()
}

/// A path from the crate's root, or from another crate.
fn resolve(module: &str, path: &[String]) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    let mut inside = false;
    for (index, part) in path.iter().enumerate() {
        match part.as_str() {
            "crate" if index == 0 => inside = true,
            "self" if index == 0 => {
                inside = true;
                parts = module.split("::").collect();
            }
            "super" => {
                if !inside {
                    inside = true;
                    parts = module.split("::").collect();
                }
                parts.pop();
            }
            // The module itself, in a group.
            "self" | "*" => {}
            part => parts.push(part),
        }
    }
    if inside { Some(format!("crate::{}", parts.join("::"))) } else { (parts.len() > 1).then(|| parts.join("::")) }
}

/// Reads one path and its groups; gives the place behind it.
fn path(tokens: &[String], mut at: usize, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> usize {
    let depth = prefix.len();
    if tokens.get(at).is_some_and(|token| token == "::") {
        at += 1;
    }
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at = group(tokens, at + 1, prefix, found);
                break;
            }
            Some(name) if is_name(name) || name == "*" => {
                prefix.push(name.to_owned());
                at += 1;
                if tokens.get(at).is_some_and(|token| token == "::") && tokens.get(at + 1).is_some_and(|t| joins(t)) {
                    at += 1;
                    continue;
                }
                found.push(prefix.clone());
                break;
            }
            _ => {
                at += 1;
                break;
            }
        }
    }
    prefix.truncate(depth);
    at
}

/// Reads what is between braces; gives the place behind them.
fn group(tokens: &[String], mut at: usize, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> usize {
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "}" => return at + 1,
            "," => at += 1,
            // A new name for what was read.
            "as" => at += 2,
            _ => at = path(tokens, at, prefix, found),
        }
    }
    at
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Whether a path goes on after `::` with this, which it does not with the `<` of a turbofish.
fn joins(token: &str) -> bool {
    is_name(token) || token == "{" || token == "*"
}

/// Leaves out items under `#[cfg(test)]`.
fn without_tests(tokens: &[String]) -> Vec<String> {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].iter().map(String::as_str).take(TEST.len()).eq(TEST) {
            at = end_of_item(tokens, at + TEST.len());
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// The place behind an item: behind its `;`, or behind the braces that it ends with.
fn end_of_item(tokens: &[String], mut at: usize) -> usize {
    let mut depth = 0_usize;
    let mut is_use = false;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token.as_str() {
            "use" if depth == 0 => is_use = true,
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && token == "}" && !is_use {
                    return at;
                }
            }
            ";" if depth == 0 => return at,
            _ => {}
        }
    }
    at
}

/// Names, `::`, and single characters; comments, texts and lifetimes are left out.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = if rest.starts_with("//") {
            rest.split_once('\n').map_or("", |(_, after)| after)
        } else if rest.starts_with("/*") {
            behind_comment(rest)
        } else if let Some(after) = behind_text(rest) {
            after
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(rest[..end].to_owned());
            &rest[end..]
        } else if let Some(after) = rest.strip_prefix("::") {
            tokens.push("::".to_owned());
            after
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            &rest[first.len_utf8()..]
        };
    }
    tokens
}

/// What follows a comment, which may hold others.
fn behind_comment(text: &str) -> &str {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    &text[at..]
}

/// What follows a text, character or lifetime that begins here.
fn behind_text(text: &str) -> Option<&str> {
    let unprefixed = text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'));
    if let Some(raw) = unprefixed {
        let quoted = raw.trim_start_matches('#');
        if let Some(inner) = quoted.strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(raw.len() - quoted.len()));
            return Some(inner.split_once(&end).map_or("", |(_, after)| after));
        }
    }
    let unprefixed = text.strip_prefix('b').or_else(|| text.strip_prefix('c')).unwrap_or(text);
    if let Some(inner) = unprefixed.strip_prefix('"') {
        return Some(behind_quote(inner, '"'));
    }
    let inner = unprefixed.strip_prefix('\'')?;
    let mut characters = inner.chars();
    let (first, second) = (characters.next()?, characters.next());
    // 'a' is a character, 'a is a lifetime.
    if first == '\\' || second == Some('\'') { Some(behind_quote(inner, '\'')) } else { Some(inner) }
}

fn behind_quote(text: &str, quote: char) -> &str {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return &text[at + 1..];
        }
    }
    ""
}
