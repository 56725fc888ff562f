//! Manifests read once, with everything that is known of where things stand: for checks.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Problem;
use super::decode::{self, Broken, Draft, Purpose};
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
    /// What came on a pipe, and why it is no text.
    Unreadable(String),
}

/// An object and where it stands.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The object.
    pub object: Object,
    /// Where it is refused, what it would say otherwise.
    pub draft: Option<Draft>,
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
    /// What was to be read and has neither an object nor a problem.
    pub empty: Vec<PathBuf>,
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
        let before = manifests.size();
        let is_new = manifests.enter_input(input);
        if is_new && manifests.size() == before {
            manifests.empty.push(input.path());
        }
    }
    manifests.problems.sort();
    manifests.problems.dedup();
    manifests
}

impl Input {
    fn path(&self) -> PathBuf {
        match self {
            Self::Path(path) => path.clone(),
            Self::Text(_) | Self::Unreadable(_) => PathBuf::from("-"),
        }
    }
}

impl Manifests {
    /// How much there is of objects and problems.
    fn size(&self) -> usize {
        self.objects.len() + self.problems.len() + self.foreign.values().sum::<usize>()
    }

    /// Enters all that an input leads to; whether none of it was there before.
    fn enter_input(&mut self, input: &Input) -> bool {
        let path = match input {
            Input::Text(text) => return self.enter(input.path(), Ok(text.clone())),
            Input::Unreadable(why) => return self.enter(input.path(), Err(Broken::new(why.clone()))),
            Input::Path(path) => path,
        };
        let scan = scan(path);
        let unreadable = scan.unreadable.into_iter().map(|(path, why)| (path, format!("cannot be read: {why}")));
        let dangling = scan.dangling.into_iter().map(|path| (path, "is a link to a file that is not there".to_owned()));
        let broken = |(path, why): (PathBuf, String)| Broken::new(why).problem(&path, 0);
        self.problems.extend(unreadable.chain(dangling).map(broken));
        let mut is_new = true;
        for (path, stamp) in scan.files {
            let text = store::text(&path, stamp);
            is_new &= self.enter(path, text);
        }
        is_new
    }

    /// Enters a file, and tells whether it was not there before; one that was named twice counts once.
    fn enter(&mut self, file: PathBuf, text: Result<String, Broken>) -> bool {
        if self.texts.contains_key(&file) {
            return false;
        }
        let read = text.and_then(|text| Ok((decode::items(&file, &text, Purpose::Check)?, text)));
        let (items, content) = match read {
            Ok(read) => read,
            Err(broken) => {
                self.problems.push(broken.problem(&file, 0));
                self.texts.insert(file, Text::default());
                return true;
            }
        };
        for item in items {
            self.problems.extend(item.problems);
            if let Some(foreign) = item.foreign {
                *self.foreign.entry(foreign).or_default() += 1;
            }
            if let (Some(object), Some((kind, _))) = (item.object, item.name) {
                self.objects.push(Declared {
                    object,
                    draft: item.draft,
                    kind,
                    file: file.clone(),
                    line: item.line,
                    document: item.document,
                    prefix: item.prefix,
                });
            }
        }
        self.texts.insert(file, Text { content, located: OnceCell::new() });
        true
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
