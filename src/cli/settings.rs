//! Settings as flags and variables, for every command that depends on them.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use crate::settings::{self, Leaf, Overrides, Settings, SettingsError};

/// Which settings a command has.
pub(super) trait Scope: Clone + fmt::Debug {
    /// Whether this one is among them.
    fn has(leaf: &Leaf) -> bool;
}

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct All;

impl Scope for All {
    fn has(_: &Leaf) -> bool {
        true
    }
}

/// Those that a decision depends on.
#[derive(Clone, Debug)]
pub(super) struct Deciding;

impl Scope for Deciding {
    fn has(leaf: &Leaf) -> bool {
        const FIELDS: [&str; 8] = [
            "className",
            "manifests",
            "listeners",
            "trustedProxies",
            "limits.maxUriBytes",
            "upgrades",
            "kubernetes.namespaces",
            "kubernetes.allowHostBackends",
        ];
        FIELDS.contains(&leaf.field().as_str())
    }
}

/// Those that the translation of objects depends on.
#[derive(Clone, Debug)]
pub(super) struct Translating;

impl Scope for Translating {
    fn has(leaf: &Leaf) -> bool {
        leaf.field() == "listeners"
    }
}

/// The flags: made of the settings' schema, so they cannot lack one.
#[derive(Clone, Debug)]
pub(super) struct Args<S> {
    config: Option<PathBuf>,
    variables: Overrides,
    flags: Overrides,
    scope: PhantomData<S>,
}

impl<S: Scope> clap::Args for Args<S> {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .env("LOCKGATE_CONFIG")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Read settings from this file; flags and variables win over it");
        let leaves = settings::leaves();
        leaves.iter().filter(|leaf| S::has(leaf)).map(argument).fold(command.arg(config), Command::arg)
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

impl<S: Scope> FromArgMatches for Args<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let config = matches.get_one("config").cloned();
        let mut args =
            Self { config, variables: Overrides::default(), flags: Overrides::default(), scope: PhantomData };
        for leaf in settings::leaves().iter().filter(|leaf| S::has(leaf)) {
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

impl<S: Scope> Args<S> {
    /// The settings; fails where a value, or the file, cannot be used.
    pub(super) fn settings(&self) -> Result<Settings, SettingsError> {
        settings::load(self.config.as_deref(), &self.variables, &self.flags)
    }

    /// Whether a setting was given as a flag.
    pub(super) fn has_flag(&self, field: &str) -> bool {
        self.flags.contains_key(field)
    }

    /// Whether a setting, or the file that may hold it, was given at all.
    pub(super) fn may_set(&self, field: &str) -> bool {
        self.config.is_some() || self.has_flag(field) || self.variables.contains_key(field)
    }
}
