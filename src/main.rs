//! The `lockgate` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    lockgate::cli::run()
}
