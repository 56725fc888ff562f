//! What the real API server lets in and what it refuses.

use std::fs;
use std::path::{Path, PathBuf};

use lockgate_e2e::cluster::{Cluster, repository};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = repository().join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder that can be read").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

async fn apply(cluster: &Cluster, file: &Path) -> anyhow::Result<String> {
    cluster.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", &file.to_string_lossy()]).await
}

#[tokio::test]
async fn good_objects_and_the_examples_are_accepted() {
    let cluster = Cluster::from_env();
    let mut refused = Vec::new();
    let good = files("crds/testdata/good");
    assert!(good.len() >= 10, "{} good objects", good.len());
    for file in good.into_iter().chain(files("manifests/examples/quickstart")).chain(files("manifests/examples")) {
        if let Err(error) = apply(&cluster, &file).await {
            refused.push(format!("{}: {error:#}", file.display()));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Whether the text names the field, or one that holds it: some rules speak of several fields, or would cost too much further down.
fn names(text: &str, field: &str) -> bool {
    let ends = field.match_indices(['.', '[']).map(|(end, _)| end).chain([field.len()]);
    ends.map(|end| &field[..end]).any(|holder| (holder != "spec" || field == "spec") && text.contains(holder))
}

/// Each begins with `# error: ` and a part of what the API server says, then `# field: ` and the field it names.
#[tokio::test]
async fn bad_objects_are_refused_with_the_field_and_the_reason() {
    let cluster = Cluster::from_env();
    let mut wrong = Vec::new();
    let bad = files("crds/testdata/bad");
    assert!(bad.len() >= 10, "{} bad objects", bad.len());
    for file in bad {
        let text = fs::read_to_string(&file).unwrap();
        let [error, field] = ["# error: ", "# field: "].map(|key| {
            let found = text.lines().take(2).find_map(|line| line.strip_prefix(key));
            found.unwrap_or_else(|| panic!("{} does not begin with `{key}`", file.display()))
        });
        match apply(&cluster, &file).await {
            Ok(_) => wrong.push(format!("{}: accepted", file.display())),
            Err(refusal) => {
                let said = format!("{refusal:#}");
                if !said.contains(error) || !names(&said, field) {
                    wrong.push(format!("{}: not {error:?} of {field}: {said}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
