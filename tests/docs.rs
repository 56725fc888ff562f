//! Keeps the documentation whole: no page is left out, no link leads nowhere, and what the gateway says of trouble is explained.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// All files below a folder whose names end in this.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Text outside of code.
fn prose(text: &str) -> String {
    let mut code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code && !line.starts_with("    ") {
            // Between backticks, that is every second part.
            prose.extend(line.split('`').step_by(2));
            prose.push('\n');
        }
    }
    prose
}

/// Where links lead: `](target)`.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let targets = text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split_once(')'));
    targets.map(|(target, _)| target.to_owned()).filter(|target| !target.contains("://")).collect()
}

/// The anchors of a page, as GitHub makes them of headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        text.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn the_index_has_every_page() {
    let listed: BTreeSet<String> = links(&read("docs/README.md")).into_iter().collect();
    for page in files(&root().join("docs"), ".md") {
        let name = page.strip_prefix(root().join("docs")).unwrap().to_string_lossy().into_owned();
        let is_listed = listed.contains(&name) || name == "README.md" || name.starts_with("adr/");
        assert!(is_listed, "docs/README.md does not list {name}");
    }
}

#[test]
fn links_lead_somewhere() {
    let mut pages = files(&root().join("docs"), ".md");
    pages.extend([root().join("README.md"), root().join("CONTRIBUTING.md")]);
    let mut broken = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').map_or((&*link, None), |(path, anchor)| (path, Some(anchor)));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let leads = target.exists()
                && anchor
                    .is_none_or(|anchor| anchors(&fs::read_to_string(&target).unwrap_or_default()).contains(anchor));
            if !leads {
                broken.push(format!("{}: {link}", page.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// The reasons of one table or another, which begin a row: "| `no-route` |".
fn has_row(page: &str, word: &str) -> bool {
    page.lines().any(|line| line.starts_with('|') && line.contains(&format!("`{word}`")))
}

#[test]
fn troubleshooting_has_every_reason_of_a_refusal() {
    let (page, labels) = (read("docs/troubleshooting.md"), read("src/telemetry/metrics/labels.rs"));
    let (_, refusals) = labels.split_once("    Refusal {").unwrap();
    let (refusals, _) = refusals.split_once("\n    }\n").unwrap();
    let reasons: Vec<&str> = refusals.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(reasons.len() > 30 && reasons.contains(&"no-route"), "{reasons:?}");
    let missing: Vec<_> = reasons.into_iter().filter(|reason| !has_row(&page, reason)).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md does not explain {missing:?}");
}

#[test]
fn troubleshooting_has_every_reason_of_a_condition() {
    let (page, api) = (read("docs/troubleshooting.md"), read("src/api.rs"));
    let (_, reasons) = api.split_once("pub mod reason {").unwrap();
    let reasons = reasons.lines().filter_map(|line| line.trim().strip_prefix("pub const ")?.split('"').nth(1));
    let reasons: Vec<&str> = reasons.collect();
    assert!(reasons.len() > 15 && reasons.contains(&"BackendNotFound"), "{reasons:?}");
    let missing: Vec<_> = reasons.into_iter().filter(|reason| !has_row(&page, reason)).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md does not explain {missing:?}");
}

/// The text of a warning or an error: the first literal of a macro's arguments that is no field's value. `…` stands for what is
/// put in.
fn message(arguments: &str) -> Option<String> {
    let mut rest = arguments;
    loop {
        let (before, after) = rest.split_once('"')?;
        let end = (0..after.len()).find(|&at| after[at..].starts_with('"') && !after[..at].ends_with('\\'))?;
        if before.trim_end().ends_with('=') {
            rest = &after[end + 1..];
            continue;
        }
        let literal: String = after[..end].split("\\\n").map(str::trim_start).collect();
        let mut text = String::new();
        let mut parts = literal.split('{');
        text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            text.push('…');
            text.push_str(part.split_once('}').map_or(part, |(_, rest)| rest));
        }
        return Some(text);
    }
}

/// What is between the parenthesis that is open and the one that closes it.
fn arguments(text: &str) -> &str {
    let mut depth = 1;
    let mut quoted = false;
    let mut last = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '"' if last != '\\' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
        last = c;
    }
    text
}

#[test]
fn troubleshooting_has_every_warning_and_error_of_the_log() {
    let page = read("docs/troubleshooting.md");
    let mut messages = BTreeSet::new();
    for file in files(&root().join("src"), ".rs") {
        let path = file.to_string_lossy().into_owned();
        // The demo backend is no gateway.
        if path.contains("/tests") || path.contains("demo_backend") {
            continue;
        }
        let source = fs::read_to_string(&file).unwrap();
        for name in ["warn!(", "error!("] {
            let found = source.match_indices(name).map(|(at, _)| arguments(&source[at + name.len()..]));
            messages.extend(found.filter_map(message));
        }
    }
    assert!(messages.len() > 30 && messages.contains("an object does not decode and is ignored"), "{messages:?}");
    // What is all put in is told in the page's words: conditions of objects, and settings that do not fit the system.
    let fixed = messages.iter().filter(|text| text.chars().any(char::is_alphabetic));
    let missing: Vec<_> = fixed.filter(|text| !has_row(&page, text)).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md does not explain {missing:#?}");
}

#[test]
fn the_threat_model_has_every_module() {
    let page = read("docs/threat-model.md");
    let (_, table) = page.split_once("## Modules").unwrap();
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() || ["lib", "main"].contains(&&*name) {
            continue;
        }
        let row = table.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let tags = row.and_then(|row| row.split('|').nth(2)).unwrap_or_else(|| panic!("{name} has no row"));
        assert!(tags.split_whitespace().all(|tag| ["C", "B", "A", "O", "S", "N"].contains(&tag)), "{name}: {tags}");
        assert!(!tags.trim().is_empty(), "{name} has no tag");
    }
}
