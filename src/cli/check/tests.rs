use clap::Parser as _;

use super::*;
use crate::cli::{Cli, Command};

fn report_of(line: &[&str]) -> anyhow::Result<Report> {
    match Cli::try_parse_from([&["lockgate", "check"], line].concat())?.command {
        Command::Check(args) => report(&args),
        other => panic!("{other:?}"),
    }
}

fn code_of(line: &[&str]) -> String {
    format!("{:?}", code(&report_of(line).unwrap()))
}

#[test]
fn the_exit_code_tells_how_bad_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let selector =
        "apiVersion: lockgate.dev/v1alpha1\nkind: Selector\nmetadata: {name: s}\nspec: {listeners: [intern]}\n";
    let good = write("good.yaml", selector);
    let twice = write("twice.yaml", &format!("{selector}---\n{selector}"));
    let bad = write("bad.yaml", "a: [\n");
    let expected = |code: u8| format!("{:?}", ExitCode::from(code));
    assert_eq!(code_of(&[&good]), expected(0));
    assert_eq!(code_of(&[&twice]), expected(1));
    assert_eq!(code_of(&[&good, &bad]), expected(2));
    assert_eq!(code_of(&[&directory.path().display().to_string()]), expected(2));
    // Listeners that are named are all there are.
    assert_eq!(code_of(&[&good, "--listeners", "http=[::]:8080"]), expected(2));
    assert_eq!(code_of(&[&good, "--listeners", "intern=[::]:8080"]), expected(0));
}

#[test]
fn what_is_not_there_hides_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let bad = directory.path().join("bad.yaml");
    std::fs::write(&bad, "a: [\n").unwrap();
    let line = [bad.to_str().unwrap(), "nowhere.yaml"];
    let report = report_of(&line).unwrap();
    let told: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].starts_with("nowhere.yaml: error: cannot be read: "), "{told:?}");
    assert_eq!(code_of(&line), format!("{:?}", ExitCode::from(2)));
    assert!(report_of(&[]).is_err());
}
