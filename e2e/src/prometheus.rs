//! A real Prometheus that scrapes the gateway's pods.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::{Child, Command};

use crate::wait::eventually;

/// In the node's network, where no other is.
const ADDRESS: &str = "127.0.0.1:19090";

/// A Prometheus that runs until it is dropped.
#[derive(Debug)]
pub struct Prometheus {
    _child: Child,
    folder: PathBuf,
}

impl Prometheus {
    /// Starts one that scrapes these pods, by name and address, every second, and evaluates rules.
    pub async fn start(name: &str, namespace: &str, pods: &[(String, String)], rules: &str) -> Self {
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let target = |(pod, ip): &(String, String)| {
            format!("  - {{targets: ['{ip}:8081'], labels: {{namespace: {namespace}, pod: {pod}}}}}\n")
        };
        let targets: String = pods.iter().map(target).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yaml]\nscrape_configs:\n- job_name: \
             lockgate\n  static_configs:\n{targets}"
        );
        std::fs::write(folder.join("prometheus.yaml"), config).expect("its settings");
        std::fs::write(folder.join("rules.yaml"), rules).expect("its rules");
        let log = std::fs::File::create(folder.join("log")).expect("its log");
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", folder.join("prometheus.yaml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={ADDRESS}"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn();
        let prometheus = Self { _child: child.expect("prometheus starts"), folder };
        let wanted = pods.len().to_string();
        eventually("Prometheus scrapes every pod", async || {
            let up = prometheus.ask("sum(up)").await?;
            ensure!(up.first().is_some_and(|line| line.contains(&format!("=> {wanted} "))), "{up:?}");
            Ok(())
        })
        .await;
        prometheus
    }

    /// What a query gives now, a line for each series.
    pub async fn ask(&self, query: &str) -> Result<Vec<String>> {
        let server = format!("http://{ADDRESS}");
        let output =
            Command::new("promtool").args(["query", "instant", &server, query]).output().await.context("promtool")?;
        let (told, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{query}: {told}{error}");
        Ok(told.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// The one value that a query gives.
    pub async fn value(&self, query: &str) -> Result<f64> {
        let lines = self.ask(query).await?;
        ensure!(lines.len() == 1, "{query} gives {lines:?}");
        let value = lines[0].split("=> ").nth(1).and_then(|rest| rest.split(' ').next());
        value.with_context(|| lines[0].clone())?.parse().with_context(|| lines[0].clone())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", std::fs::read_to_string(self.folder.join("log")).unwrap_or_default());
        }
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// The queries of a dashboard of Grafana, its variables filled in with everything.
pub fn queries(dashboard: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(dashboard).expect("the dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("a dashboard in JSON");
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let of_panel = |panel: &serde_json::Value| {
        let title = panel["title"].as_str().unwrap_or_default().to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().filter_map(move |target| Some((title.clone(), target["expr"].as_str()?.to_owned())))
    };
    let all = panels.flat_map(of_panel);
    let filled =
        |query: String| query.replace("$namespace", ".*").replace("$route", ".*").replace("$__rate_interval", "30s");
    all.map(|(title, query)| (title, filled(query))).collect()
}
