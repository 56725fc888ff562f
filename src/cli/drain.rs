//! `lockgate drain`: has a gateway that runs ask its clients to leave.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::explain::Form;
use super::{fail, operator};
use crate::api;

/// Between two looks at what is still in flight.
const LOOK: Duration = Duration::from_millis(250);

/// Flags of `drain`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The gateway turns unready and asks clients to leave, and serves on until the drain is cancelled or the \
                  process is signalled.\nExit codes: 0 done; 1 the gateway refuses or cannot be asked, or --wait was \
                  over before everything in flight was."
)]
pub(super) struct Args {
    /// The gateway's operator port
    #[arg(long, value_name = "ADDRESS", default_value = operator::PORT)]
    address: SocketAddr,
    /// End the drain: serve on as before
    #[arg(long, conflicts_with = "wait")]
    cancel: bool,
    /// Return once nothing is in flight, at the latest after this time
    #[arg(long, value_name = "DURATION")]
    wait: Option<api::Duration>,
    /// How the gateway's state looks
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Drains.
pub(super) fn run(args: &Args) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(drain(args))) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

async fn drain(args: &Args) -> anyhow::Result<ExitCode> {
    let path = if args.cancel { "/drain?cancel" } else { "/drain" };
    let mut state = read(&operator::post(args.address, path, Vec::new()).await?)?;
    let end = args.wait.map(|wait| Instant::now() + wait.get());
    while let Some(end) = end
        && in_flight(&state) > 0
        && Instant::now() < end
    {
        sleep(LOOK.min(end - Instant::now())).await;
        state = read(&operator::get(args.address, "/drain").await?)?;
    }
    print(args.output, &state)?;
    Ok(if args.wait.is_some() && in_flight(&state) > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn read(body: &[u8]) -> anyhow::Result<Value> {
    serde_json::from_slice(body).context("what the gateway answers is none that this version understands")
}

fn in_flight(state: &Value) -> u64 {
    state["inFlight"].as_u64().unwrap_or(0)
}

#[expect(clippy::print_stdout, reason = "the command's output")]
fn print(form: Form, state: &Value) -> anyhow::Result<()> {
    match form {
        Form::Json => println!("{}", serde_json::to_string_pretty(state)?),
        Form::Text => print!("{}", text(state)),
    }
    Ok(())
}

/// The phase, and a line for each of what is in flight.
fn text(state: &Value) -> String {
    let phase = state["phase"].as_str().unwrap_or("?");
    let line = |holder: &Value| {
        let of = |name: &str| holder[name].as_str().unwrap_or("-").to_owned();
        let age = holder["ageSeconds"].as_f64().unwrap_or(0.0);
        let bytes = |name: &str| holder[name].as_u64().unwrap_or(0);
        format!(
            "  {}  {}  {}  for {age:.1} s, {} bytes received, {} sent\n",
            of("route"),
            of("protocol"),
            of("peer"),
            bytes("received"),
            bytes("sent")
        )
    };
    let holders = state["holders"].as_array().into_iter().flatten().map(line);
    std::iter::once(format!("{phase}, {} in flight\n", in_flight(state))).chain(holders).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_reads_well() {
        let holder = serde_json::json!({
            "route": "a/b rule", "protocol": "websocket", "peer": "192.0.2.7:1234", "ageSeconds": 3.21, "received": 17, "sent": 4,
        });
        let state = serde_json::json!({"phase": "LameDuck", "inFlight": 1, "pending": [], "holders": [holder]});
        let line = "  a/b rule  websocket  192.0.2.7:1234  for 3.2 s, 17 bytes received, 4 sent\n";
        assert_eq!(text(&state), format!("LameDuck, 1 in flight\n{line}"));
    }
}
