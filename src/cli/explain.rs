//! `lockgate explain`: what becomes of a request, and why.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::settings::{self, Deciding};
use super::{misuse, operator};
use crate::app::Offline;
use crate::explain::{Answer, Question};
use crate::settings::Settings;
use crate::source::kube::client;

/// Flags of `explain`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 a rule takes the request and can be expected to answer it; 1 it is refused, or \
                        answered with an error that is known in advance; 2 the question cannot be answered.")]
pub(super) struct Args {
    /// The method; case counts
    method: String,
    /// Scheme, host, path and query; without a scheme the first listener is taken
    #[arg(value_name = "URL", help = "Such as http://shop.example.com/cart?v=2; scheme and host may be left out")]
    url: String,
    /// A header field as 'name: value'; may be given many times
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The address that connects [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    client_ip: Option<String>,
    /// The listener that the request comes in on [default: by the URL's port, then by its scheme]
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// The time of the request, in RFC 3339 [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Tell lists to their end
    #[arg(long)]
    all: bool,
    /// How the answer looks
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
    /// Ask a running gateway at its operator port [default address: 127.0.0.1:8082]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = operator::PORT)]
    live: Option<SocketAddr>,
    /// The kubeconfig of the cluster to ask
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    #[command(flatten)]
    settings: settings::Args<Deciding>,
}

/// How an answer looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Explains.
pub(super) fn run(args: &Args) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answered = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(answer(args)));
    match answered.and_then(|(answer, notes)| print(args.output, &answer, &notes)) {
        Ok(code) => code,
        Err(error) => misuse(&format_args!("{error:#}")),
    }
}

/// The answer, and what else is to be said.
async fn answer(args: &Args) -> anyhow::Result<(Answer, Vec<String>)> {
    let question = args.question();
    if let Some(address) = args.live {
        if args.settings.has_flag("manifests") {
            bail!("--live asks a gateway that runs, --manifests files: name one of them");
        }
        return Ok((ask(address, &question).await?, Vec::new()));
    }
    let settings = args.settings.settings()?;
    if let [first, ..] = &settings.problems()[..] {
        bail!("setting {first}");
    }
    let offline = match &settings.manifests {
        Some(dir) if args.kubeconfig.is_some() || args.context.is_some() => {
            bail!("manifests at {} and a cluster: name one of them", dir.display());
        }
        Some(dir) => {
            dir.metadata().with_context(|| format!("cannot read the manifests at {}", dir.display()))?;
            Offline::of_files(dir, &settings)
        }
        None => args.cluster(&settings).await?,
    };
    let notes = offline.problems.iter().map(ToString::to_string).collect();
    Ok((offline.answer(&question)?, notes))
}

fn print(form: Form, answer: &Answer, notes: &[String]) -> anyhow::Result<ExitCode> {
    let text = match form {
        Form::Json => serde_json::to_string_pretty(answer)? + "\n",
        Form::Text => answer.to_text(),
    };
    note(notes);
    match std::io::stdout().write_all(text.as_bytes()) {
        // A reader that has seen enough, such as `head`, is no failure.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(if answer.is_served() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[expect(clippy::print_stderr, reason = "a command's own words to its user")]
fn note(notes: &[String]) {
    /// The others are told by `lockgate check`.
    const MOST: usize = 10;
    for note in notes.iter().take(MOST) {
        eprintln!("lockgate: {note}");
    }
    if let Some(more) = notes.len().checked_sub(MOST).filter(|more| *more > 0) {
        eprintln!("lockgate: and {more} more; lockgate check tells them");
    }
}

impl Args {
    fn question(&self) -> Question {
        Question {
            method: self.method.clone(),
            url: self.url.clone(),
            headers: self.headers.clone(),
            client_ip: self.client_ip.clone(),
            listener: self.listener.clone(),
            at: self.at.clone(),
            all: self.all,
        }
    }

    async fn cluster(&self, settings: &Settings) -> anyhow::Result<Offline> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match (&self.kubeconfig, &self.context) {
            (Some(file), _) => kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &options).await?,
            (None, Some(_)) => kube::Config::from_kubeconfig(&options).await?,
            (None, None) => kube::Config::infer().await.context(
                "no cluster to ask: neither a pod's own nor a kubeconfig (--manifests asks files, --live a gateway)",
            )?,
        };
        let source = format!("the cluster at {}", config.cluster_url);
        let client = client(config).context("the API server's client")?;
        Ok(Offline::of_cluster(client, settings, source).await?)
    }
}

/// Asks a gateway that runs.
async fn ask(address: SocketAddr, question: &Question) -> anyhow::Result<Answer> {
    let body = operator::post(address, "/explain?o=json", serde_json::to_vec(question)?).await?;
    let mut answer: Answer = serde_json::from_slice(&body)
        .with_context(|| format!("what {address} answers is none that this version understands"))?;
    answer.source = format!("{} by {address}", answer.source);
    Ok(answer)
}

#[cfg(test)]
mod tests;
