//! The program as a process of its own: what it does with few descriptors, with ports that others have, and with signals.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longer than anything here takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running gateway with one backend. Dropped, it is killed.
struct Gateway {
    child: Option<Child>,
    listener: SocketAddr,
    admin: SocketAddr,
    _manifests: TempDir,
}

impl Gateway {
    /// Starts one in a shell that has done `before`, which says how many files may be open.
    fn start(before: &str, backend: SocketAddr) -> Self {
        Self::with(before, backend, &[])
    }

    /// The same with these flags.
    fn with(before: &str, backend: SocketAddr, flags: &[&str]) -> Self {
        let [listener, admin, operator] = [(); 3].map(|()| free_address());
        let manifests = manifests(backend);
        let child = serve(before, &manifests, [listener, admin, operator]).args(flags).spawn().unwrap();
        let gateway = Self { child: Some(child), listener, admin, _manifests: manifests };
        until("it serves", || gateway.probe("/readyz").starts_with("HTTP/1.1 200 "));
        gateway
    }

    /// An answer of the port for probes.
    fn probe(&self, path: &str) -> String {
        let Ok(mut stream) = TcpStream::connect(self.admin) else { return String::new() };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = String::new();
        let _ = write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    /// The value of a metric, given with its labels.
    fn metric(&self, name: &str) -> u64 {
        let metrics = self.probe("/metrics");
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("{name} not in {metrics}"))
    }

    /// A client's connection, on which this is said.
    fn connect(&self, said: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.listener).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        stream
    }

    /// The answer to a request on a connection of its own.
    fn get(&self, path: &str) -> String {
        let mut answer = String::new();
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        self.connect(&request).read_to_string(&mut answer).unwrap();
        answer
    }

    /// Asks it to end.
    fn terminate(&self) {
        let number = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-TERM", &number]).status().unwrap().success());
    }

    /// Ends it, and gives what it wrote.
    fn end(mut self) -> Output {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait_with_output().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn manifests(backend: SocketAddr) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let head = |kind| format!("apiVersion: lockgate.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: all}}\n");
    let backend = format!("{{host: {}, port: {}}}", backend.ip(), backend.port());
    let route = format!("spec: {{selectors: [{{name: all}}], rules: [{{backends: [{backend}]}}]}}\n");
    let text = [head("Selector"), "spec: {}\n---\n".to_owned(), head("Route"), route].concat();
    std::fs::write(dir.path().join("all.yaml"), text).unwrap();
    dir
}

fn serve(before: &str, manifests: &TempDir, [listener, admin, operator]: [SocketAddr; 3]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_lockgate"), "serve"]);
    command.arg("--manifests").arg(manifests.path());
    command.args(["--workers", "1", "--listeners", &format!("http={listener}")]);
    command.args(["--admin-address", &admin.to_string(), "--admin-operator-address", &operator.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// An address that nobody listens on.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A backend that answers all paths but `/hold`.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut bytes = [0; 4096];
                loop {
                    match stream.read(&mut bytes) {
                        Ok(0) | Err(_) => return,
                        Ok(read) => head.extend_from_slice(&bytes[..read]),
                    }
                    if head.ends_with(b"\r\n\r\n") && !head.starts_with(b"GET /hold") {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
                        head.clear();
                    }
                }
            });
        }
    });
    address
}

/// Waits for something to become true.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        #[expect(clippy::disallowed_methods, reason = "no runtime runs on this thread")]
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn short_of_descriptors_it_stops_accepting_serves_what_it_has_and_recovers() {
    let gateway = Gateway::start("ulimit -n 96", backend());
    assert_eq!(gateway.metric("process_max_fds"), 96);
    // Clients whose requests are never whole are no silent ones.
    let mut clients: Vec<TcpStream> = (0..100).map(|_| gateway.connect("GET /hold HTTP/1.1\r\n")).collect();
    until("it pauses", || gateway.metric("lockgate_accept_pauses_total{listener=\"http\"}") > 0);
    let accepted = usize::try_from(gateway.metric("lockgate_connections{listener=\"http\"}")).unwrap();
    assert!((8..64).contains(&accepted), "{accepted}");
    for probe in ["/livez", "/readyz"] {
        assert!(gateway.probe(probe).starts_with("HTTP/1.1 200 "), "{probe}");
    }
    // Those that are accepted get connections to the backend as long as there are any.
    for client in clients.iter_mut().take(accepted) {
        client.write_all(b"host: a\r\n\r\n").unwrap();
    }
    let exhausted = "lockgate_requests_refused_total{reason=\"exhausted\"}";
    until("the others are refused", || gateway.metric(exhausted) > 0);
    until("all that there are do something", || {
        gateway.metric("lockgate_http_requests_in_flight") + gateway.metric(exhausted) >= accepted as u64
    });
    assert!(gateway.metric("lockgate_http_requests_in_flight") >= 8);
    let open = gateway.metric("process_open_fds");
    assert!(open <= 96 - 8, "{open} are open, and probes need some");
    assert!(gateway.probe("/livez").starts_with("HTTP/1.1 200 "));
    let refused = clients.iter_mut().take(accepted).any(|client| {
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut answer = [0; 512];
        let read = client.read(&mut answer).unwrap_or(0);
        let answer = String::from_utf8_lossy(&answer[..read]);
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1") && answer.contains("exhausted")
    });
    assert!(refused);
    drop(clients);
    let answer = gateway.get("/");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"), "the backend was at no fault: {answer}");
    until("all have left", || gateway.metric("lockgate_connections{listener=\"http\"}") == 0);
    let told = String::from_utf8(gateway.end().stderr).unwrap();
    for text in ["limits.maxConnections: 16384 clients", "accepting pauses"] {
        assert!(told.contains(text), "{text:?} not in {told}");
    }
}

#[test]
fn who_says_nothing_keeps_nobody_out() {
    let gateway = Gateway::start("ulimit -n 96", backend());
    let silent: Vec<TcpStream> = (0..100).map(|_| gateway.connect("")).collect();
    let answer = gateway.get("/");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(gateway.metric("lockgate_accept_pauses_total{listener=\"http\"}") > 0);
    drop(silent);
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let gateway = Gateway::start("ulimit -Sn 64 && ulimit -Hn 256", backend());
    assert_eq!(gateway.metric("process_max_fds"), 256);
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let gateway = Gateway::start("true", backend());
    let manifests = manifests(free_address());
    let [free, other, operator] = [(); 3].map(|()| free_address());
    for (ports, named) in [
        ([gateway.listener, other, operator], format!("listener http on {}", gateway.listener)),
        ([free, gateway.admin, operator], format!("cannot listen on {}", gateway.admin)),
    ] {
        let output = serve("true", &manifests, ports).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(&named) && told.contains("in use"), "{told}");
    }
    assert!(gateway.get("/").starts_with("HTTP/1.1 200 "), "the first one serves on");
}

#[test]
fn a_drain_turns_readiness_off_and_never_liveness() {
    // traefik/traefik#6688
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let flags = ["--drain-delay", "500ms", "--drain-max-delay", "500ms"];
    let mut gateway = Gateway::with("true", listener.local_addr().unwrap(), &flags);
    let mut client = gateway.connect("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    let (mut asked, _) = listener.accept().unwrap();
    assert!(asked.read(&mut [0; 4096]).unwrap() > 0);
    let probes = || ["/livez", "/readyz"].map(|path| gateway.probe(path).split(' ').nth(1).unwrap_or("-").to_owned());
    assert_eq!(probes(), ["200", "200"]);
    gateway.terminate();
    until("it is not ready", || probes()[1] == "503");
    for phase in ["LameDuck", "Draining"] {
        until(phase, || {
            assert_eq!(probes(), ["200", "503"]);
            gateway.metric(&format!("lockgate_drain_phase{{phase=\"{phase}\"}}")) == 1
        });
    }
    asked.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"), "{answer}");
    drop(client);
    assert_eq!(gateway.child.take().unwrap().wait().unwrap().code(), Some(0));
}
