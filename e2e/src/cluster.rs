//! The cluster under test and its `kubectl`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A cluster, by the way to reach it.
#[derive(Debug, Clone)]
pub struct Cluster {
    kubectl: Vec<OsString>,
    /// The image of the gateway and of the demo backends.
    pub image: String,
    /// Whether the cluster is that of `e2e/cluster`, whose components a test may stop.
    own: bool,
}

impl Cluster {
    /// The cluster of `LOCKGATE_E2E_KUBECONFIG`, else that in whose network this process runs (`e2e/cluster/cluster run`).
    pub fn from_env() -> Self {
        let image = std::env::var("LOCKGATE_E2E_IMAGE").unwrap_or_else(|_| "lockgate:e2e".into());
        if let Some(kubeconfig) = std::env::var_os("LOCKGATE_E2E_KUBECONFIG") {
            let program = std::env::var_os("LOCKGATE_E2E_KUBECTL").unwrap_or_else(|| "kubectl".into());
            return Self { kubectl: vec![program, "--kubeconfig".into(), kubeconfig], image, own: false };
        }
        let program = std::env::var_os("CLUSTER_BIN").filter(|_| std::env::var_os("KUBECONFIG").is_some());
        let program = program.expect("no cluster: run these tests with `make e2e`, or set LOCKGATE_E2E_KUBECONFIG");
        Self { kubectl: vec![program, "kubectl".into()], image, own: true }
    }

    /// A `kubectl` to run with these arguments.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl[0]);
        command.args(&self.kubectl[1..]).args(args).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// The same, to run where nothing can be awaited.
    pub fn blocking_command(&self, args: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(&self.kubectl[0]);
        command.args(&self.kubectl[1..]).args(args).stdin(Stdio::null());
        command
    }

    /// A `helm` to run with these arguments, in the cluster of `e2e/cluster` alone.
    pub fn helm_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl[0]);
        command.arg("helm").args(args).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs `kubectl` and returns what it printed; fails with its error text.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).output().await.context("start kubectl")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {}", args.join(" "), error.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `kubectl` with `input` as its standard input.
    pub async fn kubectl_with(&self, args: &[&str], input: &str) -> Result<String> {
        let mut command = self.command(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("kubectl has no standard input")?;
        stdin.write_all(input.as_bytes()).await?;
        drop(stdin);
        let output = child.wait_with_output().await?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {}", args.join(" "), error.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// `kubectl get … -o json`.
    pub async fn get(&self, args: &[&str]) -> Result<Value> {
        let args = [&["get", "-o", "json", "--show-managed-fields"], args].concat();
        Ok(serde_json::from_str(&self.kubectl(&args).await?)?)
    }

    /// Whether this is the cluster of `e2e/cluster`: its components can be stopped and its pods reached by address. Says so when not, for
    /// a test that then does nothing.
    pub fn is_own(&self) -> bool {
        if !self.own {
            println!("skipped: works only in the cluster of e2e/cluster");
        }
        self.own
    }

    /// Stops or starts a component of the cluster: `["stop", "kube-apiserver", "KILL"]`.
    pub async fn component(&self, args: &[&str]) -> Result<()> {
        let output = Command::new(repository().join("e2e/cluster/cluster")).args(args).output().await?;
        if !output.status.success() {
            bail!("cluster {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

/// The repository's root.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
