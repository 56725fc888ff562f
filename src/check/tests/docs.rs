//! What the documentation shows is what a gateway takes: objects are checked, settings are read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::*;
use crate::settings;

/// In front of a block that is wrong on purpose.
const WRONG: &str = "<!-- wrong on purpose -->";

/// A block of YAML of a page.
struct Block {
    place: String,
    text: String,
    is_wrong: bool,
}

fn blocks() -> Vec<Block> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = pages.filter(|path| path.extension().is_some_and(|ext| ext == "md")).collect();
    pages.push(root.join("README.md"));
    pages.sort();
    let mut blocks = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let mut before = "";
        let mut lines = text.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            if line == "```yaml" {
                let body = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
                let text = body.collect::<Vec<_>>().join("\n") + "\n";
                let place = format!("{}:{}", page.file_name().unwrap().display(), at + 1);
                blocks.push(Block { place, text, is_wrong: before == WRONG });
            }
            if !line.is_empty() {
                before = line;
            }
        }
    }
    blocks
}

/// The objects of ours in a block, completed where a page leaves out what is the same everywhere; nothing where there are none.
fn objects(text: &str) -> String {
    let mut objects = String::new();
    for document in text.split("\n---\n") {
        let has = |start: &str| document.lines().any(|line| line.starts_with(start));
        let document = if document.starts_with("rules:") {
            let rules = document.lines().collect::<Vec<_>>().join("\n  ");
            format!("kind: Route\nspec:\n  selectors: [{{name: example}}]\n  {rules}\n")
        } else if has("kind: Route") || has("kind: Selector") {
            // A Route without parents is a page's way to speak of rules.
            let parents = "spec:\n  selectors: [{name: example}]\n  rules:";
            document.replace("spec:\n  rules:", parents)
        } else {
            continue;
        };
        let has = |start: &str| document.lines().any(|line| line.starts_with(start));
        let version = if has("apiVersion:") { "" } else { "apiVersion: lockgate.dev/v1alpha1\n" };
        let name = if has("metadata:") { "" } else { "metadata: {name: example}\n" };
        let _ = writeln!(objects, "---\n{version}{name}{document}");
    }
    objects
}

/// The settings in a block: a part of `lockgate.yaml`, or of the chart's `config`.
fn settings_of(text: &str) -> Option<String> {
    let first = text.lines().find(|line| !line.starts_with('#'))?;
    if first == "config:" {
        let config = text.lines().skip_while(|line| *line != "config:").skip(1);
        let lines: Vec<_> = config.map_while(|line| line.strip_prefix("  ")).collect();
        return Some(lines.join("\n"));
    }
    let known: Vec<String> = settings::leaves().iter().filter_map(|leaf| leaf.path.first().cloned()).collect();
    known.iter().any(|key| first.starts_with(&format!("{key}:"))).then(|| text.to_owned())
}

#[test]
fn objects_in_the_documentation_are_right() {
    let mut checked = 0;
    for Block { place, text, is_wrong } in blocks() {
        let objects = objects(&text);
        if objects.is_empty() {
            continue;
        }
        checked += 1;
        let report = of_text(&objects, &settings());
        assert!(report.objects > 0 || is_wrong, "{place}");
        assert_eq!(report.count(Severity::Error) > 0, is_wrong, "{place}\n{}", report.to_text());
    }
    assert!(checked > 15, "{checked} blocks with objects");
}

#[test]
fn settings_in_the_documentation_are_right() {
    let mut checked = 0;
    for Block { place, text, .. } in blocks() {
        let Some(text) = settings_of(&text) else { continue };
        checked += 1;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lockgate.yaml");
        fs::write(&file, text).unwrap();
        let read = settings::load(Some(&file), &BTreeMap::default(), &BTreeMap::default());
        let problems = read.unwrap_or_else(|error| panic!("{place}: {error}")).problems();
        assert_eq!(problems, Vec::<String>::new(), "{place}");
    }
    assert!(checked > 6, "{checked} blocks with settings");
}
