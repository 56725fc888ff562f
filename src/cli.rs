//! The command line.

mod check;
pub mod demo_backend;
mod drain;
mod drill;
mod explain;
mod operator;
mod serve;
mod settings;
mod variables;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A Kubernetes ingress gateway in one binary.
#[derive(Debug, Parser)]
#[command(name = "lockgate", version, about, propagate_version = true, subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway, configured from the cluster or, with --manifests, from files
    Serve(serve::Args),
    /// Say what becomes of a request, and why
    Explain(Box<explain::Args>),
    /// Find everything that is wrong with manifests
    Check(check::Args),
    /// Have a running gateway ask its clients to leave
    Drain(drain::Args),
    /// Send traffic at a fixed rate and tell of every request that fails
    Drill(drill::Args),
    /// Print the custom resource definitions
    Crds,
    /// Run a small HTTP server that tells what reached it
    DemoBackend(demo_backend::Args),
}

/// Exit code for a command line or configuration that cannot be used.
const BAD_USAGE: u8 = 2;

/// Runs the command that the process was started with.
pub fn run() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Drill(args) => drill::run(&args),
        Command::Crds => crds(),
        Command::DemoBackend(args) => demo(args),
    }
}

fn crds() -> ExitCode {
    use std::io::Write as _;
    match crate::api::crds_yaml() {
        // A reader that has seen enough, such as `head`, is no failure.
        Ok(yaml) => match std::io::stdout().write_all(yaml.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => fail(&error.into()),
            _ => ExitCode::SUCCESS,
        },
        Err(error) => fail(&error),
    }
}

fn demo(args: demo_backend::Args) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(demo_backend::run(args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stderr, reason = "a command's own words to its user")]
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("lockgate: {error:#}");
    ExitCode::FAILURE
}

#[expect(clippy::print_stderr, reason = "a command's own words to its user")]
fn misuse(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("lockgate: {error}");
    ExitCode::from(BAD_USAGE)
}
