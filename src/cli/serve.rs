//! `lockgate serve`: every setting as a flag and a variable.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::{fail, misuse};
use crate::app;
use crate::settings::{self, Leaf, Overrides, Settings, SettingsError};

/// The flags of `serve`: made of the settings' schema, so they cannot lack one.
#[derive(Clone, Debug, Default)]
pub(super) struct Args {
    config: Option<PathBuf>,
    variables: Overrides,
    flags: Overrides,
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .env("LOCKGATE_CONFIG")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Read settings from this file; flags and variables win over it");
        settings::leaves().iter().map(argument).fold(command.arg(config), Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(leaf: &Leaf) -> Arg {
    Arg::new(leaf.field())
        .long(leaf.flag())
        .value_name("VALUE")
        .env(leaf.variable())
        .hide_env_values(true)
        .allow_hyphen_values(true)
        .action(ArgAction::Set)
        .help(leaf.description.clone())
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self { config: matches.get_one("config").cloned(), ..Self::default() };
        for leaf in settings::leaves() {
            let field = leaf.field();
            let Some(value) = matches.get_one::<String>(&field) else { continue };
            if matches.value_source(&field) == Some(ValueSource::EnvVariable) {
                args.variables.insert(field, (value.clone(), leaf.variable()));
            } else {
                args.flags.insert(field, (value.clone(), format!("--{}", leaf.flag())));
            }
        }
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args {
    fn settings(&self) -> Result<Settings, SettingsError> {
        settings::load(self.config.as_deref(), &self.variables, &self.flags)
    }
}

/// Runs the gateway to its end.
pub(super) fn run(args: &Args) -> ExitCode {
    let settings = match args.settings() {
        Ok(settings) => settings,
        Err(error) => return misuse(&error),
    };
    match app::run(settings) {
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
