//! The gateway as a process.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to serve.
const START: Duration = Duration::from_secs(20);

/// A running gateway. Dropped, it is killed.
pub(crate) struct Gateway {
    child: Child,
    manifests: PathBuf,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Gateway {
    /// Starts one that sends everything to `backend`; `policy` is that of its Selector, in YAML.
    pub(crate) fn start(backend: SocketAddr, policy: &str) -> Self {
        let [address, admin, operator] = [(); 3].map(|()| free_address());
        let manifests =
            std::env::temp_dir().join(format!("lockgate-overload-{}-{}", std::process::id(), address.port()));
        fs::create_dir_all(&manifests).expect("a folder");
        let head = |kind| format!("apiVersion: lockgate.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: all}}\n");
        let text = format!(
            "{}spec: {{policy: {policy}}}\n---\n{}spec: {{selectors: [{{name: all}}], rules: [{{backends: [{{host: {}, port: {}}}]}}]}}\n",
            head("Selector"),
            head("Route"),
            backend.ip(),
            backend.port()
        );
        fs::write(manifests.join("all.yaml"), text).expect("a file");
        let child = Command::new(binary())
            .arg("serve")
            .arg("--manifests")
            .arg(&manifests)
            .args(["--listeners", &format!("http={address}"), "--log-level", "error"])
            .args(["--admin-address", &admin.to_string(), "--admin-operator-address", &operator.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the gateway's process");
        let gateway = Self { child, manifests, address };
        let end = Instant::now() + START;
        while !is_ready(admin) {
            assert!(Instant::now() < end, "the gateway does not serve");
            #[expect(clippy::disallowed_methods, reason = "no runtime runs on this thread")]
            std::thread::sleep(Duration::from_millis(10));
        }
        gateway
    }

    /// The most memory that it had, in MB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB"));
        peak.and_then(|kib| kib.trim().parse::<u64>().ok()).map_or(0, |kib| kib * 1024 / 1_000_000)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.manifests);
    }
}

/// `LOCKGATE`, else the release binary of the same build.
fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("LOCKGATE") {
        return named.into();
    }
    let own = std::env::current_exe().expect("a path");
    let binary = own.ancestors().nth(2).map(|dir| dir.join("lockgate")).expect("a target folder");
    assert!(binary.exists(), "{} is not there: cargo build --release --bin lockgate", binary.display());
    binary
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

fn is_ready(admin: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(admin) else { return false };
    let mut answer = String::new();
    let asked = stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n");
    asked.and_then(|()| stream.read_to_string(&mut answer)).is_ok() && answer.starts_with("HTTP/1.1 200 ")
}
