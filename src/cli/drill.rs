//! `lockgate drill`: traffic that tells of every request that fails.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::interval;

use super::explain::Form;
use super::misuse;
use crate::api;
use crate::drill::{self, Log, Plan, Report, Target, Traffic, Trust};

/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// Flags of `drill`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Kinds of traffic: keepalive, connection (one for each request), upload (a body in parts), stream (an \
                  answer read to its end), h2, grpc (a unary call), websocket (held, a message a second that has to \
                  come back).\nExit codes: 0 no request failed; 1 some did, or none was sent; 2 a command line that \
                  cannot be used."
)]
pub(super) struct Args {
    /// Where to: http:// or https://, host, path and query
    #[arg(value_name = "URL")]
    url: String,
    /// Kinds of traffic, each KIND[=PATH][*WEIGHT]; the weight of websocket is how many are held
    #[arg(
        long,
        value_name = "KIND[=PATH][*WEIGHT]",
        value_delimiter = ',',
        default_value = "keepalive*4,connection*2,upload,stream"
    )]
    traffic: Vec<Traffic>,
    /// Requests a second, of all kinds together
    #[arg(long, value_name = "NUMBER", default_value_t = 100.0)]
    rate: f64,
    /// How long, such as 90s or 5m; until interrupted if absent
    #[arg(long, value_name = "DURATION")]
    duration: Option<api::Duration>,
    /// For one request, from when it was due
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    timeout: api::Duration,
    /// Connections that each kind keeps open
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    connections: usize,
    /// The one status that is right [default: any below 500]
    #[arg(long, value_name = "STATUS")]
    expect: Option<u16>,
    /// A header field as 'name: value'; Host replaces the URL's host, may be given many times
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Connect to this host and port instead of the URL's
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,
    /// A PEM file of the authorities whose certificates are good [default: the system's]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Take any certificate
    #[arg(long)]
    insecure: bool,
    /// How the report looks
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
    /// No lines of progress
    #[arg(short, long)]
    quiet: bool,
}

/// Drills.
pub(super) fn run(args: &Args) -> ExitCode {
    let plan = match plan(args) {
        Ok(plan) => plan,
        Err(error) => return misuse(&format_args!("{error:#}")),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(drilled(plan, args.quiet)));
    match done.and_then(|report| print(args.output, &report).map(|()| report)) {
        Ok(report) if report.failed == 0 && report.requests > 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => super::fail(&error),
    }
}

fn plan(args: &Args) -> anyhow::Result<Plan> {
    let trust = match &args.ca {
        _ if args.insecure => Trust::Anybody,
        Some(file) => Trust::Roots(roots(file)?),
        None => Trust::System,
    };
    if !(args.rate.is_finite() && args.rate > 0.0) {
        bail!("--rate {} is no number of requests a second", args.rate);
    }
    if args.timeout.get().is_zero() {
        bail!("--timeout 0s leaves no time for an answer");
    }
    Ok(Plan {
        target: Target::new(&args.url, args.connect.as_deref(), headers(&args.headers)?, &trust)?,
        traffic: args.traffic.clone(),
        rate: args.rate,
        duration: args.duration.map(api::Duration::get),
        timeout: args.timeout.get(),
        connections: args.connections,
        expect: args.expect,
    })
}

fn headers(given: &[String]) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for field in given {
        let (name, value) =
            field.split_once(':').ok_or_else(|| anyhow!("{field:?} is not of the form 'name: value'"))?;
        let name: HeaderName = name.trim().parse().with_context(|| format!("the name of {field:?}"))?;
        let value: HeaderValue = value.trim().parse().with_context(|| format!("the value of {field:?}"))?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn roots(file: &PathBuf) -> anyhow::Result<RootCertStore> {
    let context = || format!("--ca {}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).with_context(context)? {
        roots.add(certificate.with_context(context)?).with_context(context)?;
    }
    if roots.is_empty() {
        bail!("{} holds no certificate", file.display());
    }
    Ok(roots)
}

async fn drilled(plan: Plan, is_quiet: bool) -> anyhow::Result<Report> {
    let (stop, stopped) = watch::channel(false);
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let log = Arc::new(Log::default());
    let mut drill = tokio::spawn(drill::run(plan, Arc::clone(&log), stopped));
    let mut progress = interval(PROGRESS);
    progress.tick().await;
    loop {
        tokio::select! {
            done = &mut drill => return Ok(done?),
            _ = interrupt.recv() => drop(stop.send_replace(true)),
            _ = terminate.recv() => drop(stop.send_replace(true)),
            _ = progress.tick(), if !is_quiet => tell(&log.progress()),
        }
    }
}

#[expect(clippy::print_stderr, reason = "a command's own words to its user")]
fn tell(line: &str) {
    eprintln!("{line}");
}

fn print(form: Form, report: &Report) -> anyhow::Result<()> {
    let text = match form {
        Form::Json => serde_json::to_string_pretty(report)? + "\n",
        Form::Text => format!("{report}\n"),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // A reader that has seen enough, such as `head`, is no failure.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
