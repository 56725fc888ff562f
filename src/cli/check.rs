//! `lockgate check`: everything that is wrong with manifests.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::explain::Form;
use super::settings::{self, Translating};
use super::{BAD_USAGE, misuse};
use crate::check::{self, Report, Settings, Severity};
use crate::source::file::{self, Input};
use crate::source::translate::{HostBackends, Listener};
use crate::source::unix_time;

/// Flags of `check`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 nothing to report; 1 warnings alone; 2 errors, or a command line that cannot be used."
)]
pub(super) struct Args {
    /// Files, directories with all below them, or - for standard input
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The manifests are all there is, as for serve --manifests: Services and Selectors that they lack are errors
    #[arg(long)]
    complete: bool,
    /// How the report looks
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
    #[command(flatten)]
    settings: settings::Args<Translating>,
}

/// Checks.
pub(super) fn run(args: &Args) -> ExitCode {
    match report(args).and_then(|report| print(args.output, &report)) {
        Ok(code) => code,
        Err(error) => misuse(&format_args!("{error:#}")),
    }
}

fn report(args: &Args) -> anyhow::Result<Report> {
    let given = args.settings.settings()?;
    let listener = |l: &crate::settings::Listener| Listener { name: l.name.as_str().into(), tls: l.tls };
    let settings = Settings {
        listeners: args.settings.may_set("listeners").then(|| given.listeners.iter().map(listener).collect()),
        complete: args.complete,
        host_backends: HostBackends::Anywhere,
        now: Some(unix_time()),
    };
    let inputs: Vec<Input> = args.paths.iter().map(|path| input(path)).collect();
    Ok(check::check(&file::read(&inputs), &settings))
}

fn input(path: &Path) -> Input {
    /// As of one file.
    const MOST: u64 = 16 << 20;
    if path.as_os_str() != "-" {
        return Input::Path(path.to_owned());
    }
    let mut bytes = Vec::new();
    if let Err(error) = std::io::stdin().take(MOST + 1).read_to_end(&mut bytes) {
        return Input::Unreadable(format!("cannot be read: {error}"));
    }
    if bytes.len() as u64 > MOST {
        return Input::Unreadable(format!("has more than {} MiB", MOST >> 20));
    }
    String::from_utf8(bytes).map_or_else(|_| Input::Unreadable("is not UTF-8".to_owned()), Input::Text)
}

fn print(form: Form, report: &Report) -> anyhow::Result<ExitCode> {
    let text = match form {
        Form::Json => serde_json::to_string_pretty(report)? + "\n",
        Form::Text => report.to_text(),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // A reader that has seen enough, such as `head`, is no failure.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(code(report))
}

fn code(report: &Report) -> ExitCode {
    match (report.count(Severity::Error), report.count(Severity::Warning)) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::FAILURE,
        _ => ExitCode::from(BAD_USAGE),
    }
}

#[cfg(test)]
mod tests;
