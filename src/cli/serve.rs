//! `lockgate serve`: every setting as a flag and a variable.

use std::process::ExitCode;

use super::settings::All;
use super::{fail, misuse, settings, variables};
use crate::app;

/// The flags of `serve`.
pub(super) type Args = settings::Args<All>;

/// Runs the gateway to its end.
pub(super) fn run(args: &Args) -> ExitCode {
    let settings = match args.settings() {
        Ok(settings) => settings,
        Err(error) => return misuse(&error),
    };
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    match app::run(settings, &variables::unknown(names)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(app::Error::Settings(error)) => misuse(&error),
        Err(app::Error::Failed(error)) => fail(&error),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::Cli;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
