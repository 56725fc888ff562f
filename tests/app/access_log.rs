//! The access log of the program itself: where it goes, and what it costs when nobody takes it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::support::{Origin, backend, route, until};

/// The program, on its own.
struct Program {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
    _manifests: TempDir,
}

/// An address that was free a moment ago.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Program {
    fn start(manifests: &str, log: bool, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("main.yaml"), manifests).unwrap();
        let (address, admin, operator) = (free(), free(), free());
        let child = Command::new(env!("CARGO_BIN_EXE_lockgate"))
            .args(["serve", "--workers", "1", "--drain-delay", "0s", "--manifests"])
            .arg(dir.path())
            .args([format!("--listeners=http={address}"), format!("--admin-address={admin}")])
            .args([format!("--admin-operator-address={operator}"), format!("--access-log-enabled={log}")])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let program = Self { child, address, admin, _manifests: dir };
        until("the program listens", || TcpStream::connect(address).is_ok());
        program
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(&self, path: &str) -> String {
        Self::ask(self.address, &format!("GET {path} HTTP/1.1\r\nhost: r.test\r\nconnection: close\r\n\r\n"))
    }

    fn metric(&self, name: &str) -> u64 {
        let text = Self::ask(self.admin, "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in {text}"))
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Has it drain, and gives its exit code.
    fn stop(&mut self) -> Option<i32> {
        self.signal("-TERM");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn manifests(origin: &Origin) -> String {
    backend(origin) + &route("r", "[r.test]", "  - {backends: [{service: s, port: 80}]}")
}

#[test]
fn lines_go_to_standard_output_and_the_last_ones_before_the_end() {
    let origin = Origin::start("s");
    let mut program = Program::start(&manifests(&origin), true, &[]);
    let mut lines = BufReader::new(program.child.stdout.take().unwrap()).lines();
    let paths = ["/one", "/two", "/three"];
    for path in paths {
        assert!(program.get(path).starts_with("HTTP/1.1 200 "));
    }
    // Before a tenth of a second is over, and the buffer of lines is far from full.
    assert_eq!(program.stop(), Some(0));
    for path in paths {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!((&line["path"], &line["status"], &line["route"]), (&path.into(), &200.into(), &"default/r".into()));
    }
    assert!(lines.next().is_none());
}

#[test]
fn an_output_that_nobody_reads_costs_lines_and_no_request() {
    const REQUESTS: usize = 3000;
    let origin = Origin::start("s");
    let mut program = Program::start(&manifests(&origin), true, &["--access-log-buffer", "64Ki"]);
    let stdout = program.child.stdout.take().unwrap();
    let mut client = TcpStream::connect(program.address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let request = format!("GET /{} HTTP/1.1\r\nhost: r.test\r\n\r\n", "x".repeat(1000));
    let mut answers = BufReader::new(client.try_clone().unwrap());
    for _ in 0..REQUESTS {
        client.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            assert_ne!(answers.read_line(&mut line).unwrap(), 0);
            length = line.strip_prefix("content-length: ").map_or(length, |length| length.trim().parse().unwrap());
        }
        answers.read_exact(&mut vec![0; length]).unwrap();
    }
    let dropped = program.metric("lockgate_access_log_dropped_total");
    assert!(dropped > REQUESTS as u64 / 2 && dropped < REQUESTS as u64, "{dropped}");
    // Nor does it cost the end more than its own limit.
    let begin = Instant::now();
    assert_eq!(program.stop(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(10));
    // What was written before is whole lines, but for what the pipe's end cut.
    let text = std::io::read_to_string(stdout).unwrap();
    let whole = text.rfind('\n').unwrap();
    assert!(text[..whole].lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

#[test]
fn sighup_opens_a_moved_file_anew_and_ends_nothing() {
    let origin = Origin::start("s");
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
    let output = path.to_str().unwrap();
    let mut program =
        Program::start(&manifests(&origin), true, &["--access-log-output", output, "--access-log-format=text"]);
    let holds = |path: &std::path::Path, text: &str| fs::read_to_string(path).is_ok_and(|all| all.contains(text));
    program.get("/one");
    until("the line is there", || holds(&path, "path=/one"));
    fs::rename(&path, &moved).unwrap();
    program.signal("-HUP");
    until("the file is there", || path.exists());
    program.get("/two");
    until("the line is there", || holds(&path, "path=/two"));
    assert!(!holds(&moved, "/two") && !holds(&path, "/one"));
    assert_eq!(program.metric("lockgate_access_log_lines_total"), 2);
    assert_eq!(program.stop(), Some(0));
}

#[test]
fn sighup_without_a_log_ends_nothing_either() {
    let origin = Origin::start("s");
    let mut program = Program::start(&manifests(&origin), false, &[]);
    program.signal("-HUP");
    assert!(program.get("/").starts_with("HTTP/1.1 200 "));
    assert_eq!(program.stop(), Some(0));
}
