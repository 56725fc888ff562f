//! Manifests read once, with everything that is known of where things stand: for checks.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Problem;
use super::decode::{self, Broken};
use super::locate::{Located, documents};
use super::scan::scan;
use super::store;
use crate::source::index::Object;

/// What is to be read.
#[derive(Clone, Debug)]
pub enum Input {
    /// A file, or a directory with all below it.
    Path(PathBuf),
    /// A text that came on a pipe.
    Text(String),
}

/// An object and where it stands.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The object.
    pub object: Object,
    /// Its kind.
    pub kind: String,
    /// Its file; `-` for a text that came on a pipe.
    pub file: PathBuf,
    /// Where it begins.
    pub line: u64,
    document: usize,
    prefix: String,
}

/// Manifests.
#[derive(Default)]
pub struct Manifests {
    /// The objects in the order of files and documents, a name of a kind perhaps more than once.
    pub objects: Vec<Declared>,
    /// What is wrong with files, documents and objects.
    pub problems: Vec<Problem>,
    /// How many objects there are of kinds that mean nothing to a gateway, by `apiVersion kind`.
    pub foreign: BTreeMap<String, usize>,
    texts: BTreeMap<PathBuf, Text>,
}

#[derive(Default)]
struct Text {
    content: String,
    located: OnceCell<Vec<Located>>,
}

/// Reads manifests. What cannot be read is a problem like any other.
pub fn read(inputs: &[Input]) -> Manifests {
    let mut manifests = Manifests::default();
    for input in inputs {
        match input {
            Input::Text(text) => manifests.enter(PathBuf::from("-"), Ok(text.clone())),
            Input::Path(path) => {
                let scan = scan(path);
                let unreadable = scan.unreadable.into_iter();
                let broken =
                    |(path, why): (PathBuf, String)| Broken::new(format!("cannot be read: {why}")).problem(&path, 0);
                manifests.problems.extend(unreadable.map(broken));
                for (path, stamp) in scan.files {
                    let text = store::text(&path, stamp);
                    manifests.enter(path, text);
                }
            }
        }
    }
    manifests.problems.sort();
    manifests.problems.dedup();
    manifests
}

impl Manifests {
    /// Enters a file; one that was named twice counts once.
    fn enter(&mut self, file: PathBuf, text: Result<String, Broken>) {
        if self.texts.contains_key(&file) {
            return;
        }
        let read = text.and_then(|text| Ok((decode::items(&file, &text)?, text)));
        let (items, content) = match read {
            Ok(read) => read,
            Err(broken) => {
                self.problems.push(broken.problem(&file, 0));
                self.texts.insert(file, Text::default());
                return;
            }
        };
        for item in items {
            self.problems.extend(item.problems);
            if let Some(foreign) = item.foreign {
                *self.foreign.entry(foreign).or_default() += 1;
            }
            if let (Some(object), Some((kind, _))) = (item.object, item.name) {
                let (file, line) = (file.clone(), item.line);
                self.objects.push(Declared { object, kind, file, line, document: item.document, prefix: item.prefix });
            }
        }
        self.texts.insert(file, Text { content, located: OnceCell::new() });
    }

    /// The line of a field, or of the last part of it that is there.
    pub fn line_of(&self, declared: &Declared, field: &str) -> u64 {
        if field.is_empty() {
            return declared.line;
        }
        let document = self
            .texts
            .get(&declared.file)
            .and_then(|text| text.located.get_or_init(|| documents(&text.content)).get(declared.document));
        document.and_then(|document| document.line(&format!("{}{field}", declared.prefix))).unwrap_or(declared.line)
    }
}
