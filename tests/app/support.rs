//! A gateway on a folder of manifests, origins that record, and a client that shows what it got.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lockgate::api;
use lockgate::app::App;
use lockgate::lifecycle::Signal;
use lockgate::settings::{Listener, Settings};
use lockgate::telemetry::logs::{self, Format, LogSettings, Logs};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, StreamOwned};
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::h2c;
use super::tls::Authority;

/// Longer than anything here takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The subscriber belongs to the process.
static LOGS: LazyLock<Arc<Logs>> = LazyLock::new(|| {
    let settings = LogSettings { level: "off".into(), format: Format::Text, queue: 64 };
    Arc::new(logs::init(&settings).unwrap())
});

/// A running gateway. Dropped, it drains and ends.
pub(crate) struct Gateway {
    manifests: TempDir,
    address: SocketAddr,
    signals: mpsc::Sender<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Serves `manifests`.
    pub(crate) fn start(manifests: &str) -> Self {
        Self::with(manifests, |_| {})
    }

    /// The same with other settings.
    pub(crate) fn with(manifests: &str, change: impl FnOnce(&mut Settings)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("main.yaml"), manifests).unwrap();
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut settings = Settings {
            manifests: Some(dir.path().to_owned()),
            workers: 2,
            listeners: vec![Listener::plain("http", loopback)],
            ..Settings::default()
        };
        settings.admin.address = loopback;
        settings.admin.operator_address = loopback;
        settings.drain.delay = api::Duration::default();
        settings.drain.max_delay = api::Duration::default();
        change(&mut settings);

        let (signals, received) = mpsc::channel(1);
        let (bound, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(async {
                let app = App::bind(settings).unwrap();
                let (_, address) = app.listeners().next().unwrap();
                bound.send(address).unwrap();
                app.run(received, Arc::clone(&LOGS)).await.unwrap();
            });
        });
        let address = address.recv().unwrap();
        let gateway = Self { manifests: dir, address, signals, thread: Some(thread) };
        until("the gateway listens", || TcpStream::connect(address).is_ok());
        gateway
    }

    /// Writes a further file, or another text into one; `main.yaml` is the first.
    pub(crate) fn apply(&self, file: &str, manifests: &str) {
        // Written beside and renamed, so that no half of it is ever read.
        let (path, draft) = (self.manifests.path().join(file), self.manifests.path().join(".draft"));
        std::fs::write(&draft, manifests).unwrap();
        std::fs::rename(draft, path).unwrap();
    }

    /// Deletes a file.
    pub(crate) fn delete(&self, file: &str) {
        std::fs::remove_file(self.manifests.path().join(file)).unwrap();
    }

    /// Sends these bytes on a connection of their own and reads one answer.
    pub(crate) fn send(&self, bytes: impl AsRef<[u8]>) -> Answer {
        Connection::open(self.address).send(bytes)
    }

    /// A `GET` with further header lines.
    pub(crate) fn get(&self, url: &str, headers: &[&str]) -> Answer {
        let (host, path) = url.split_at(url.find('/').unwrap());
        let lines: String = headers.iter().flat_map(|line| [*line, "\r\n"]).collect();
        self.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{lines}\r\n"))
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection to the gateway.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// The same, on which this is said before TLS begins, with the host that is asked for.
    pub(crate) fn connect_tls(&self, before: &[u8], host: &str, authority: &Authority) -> std::io::Result<Connection> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(before)?;
        Connection::secure(stream, host, authority)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.signals.try_send(Signal::Terminate);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the gateway failed");
        }
    }
}

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// A client's connection.
pub(crate) struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    /// The certificate that the gateway showed.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

impl Connection {
    fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(Box::new(stream)), certificate: None }
    }

    fn secure(mut socket: TcpStream, host: &str, authority: &Authority) -> std::io::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let mut session = ClientConnection::new(Arc::clone(&authority.trusting), name).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        let certificate = session.peer_certificates().map(|chain| chain[0].clone());
        Ok(Self { stream: BufReader::new(Box::new(StreamOwned::new(session, socket))), certificate })
    }

    /// Sends these bytes and reads one answer.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> Answer {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
        let head = read_head(&mut self.stream).expect("an answer");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: String::new() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        answer.body = String::from_utf8(body).unwrap();
        answer
    }
}

/// An answer with a known length.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and header lines as they came.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of the first line of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Why the gateway made this answer itself.
    pub(crate) fn reason(&self) -> &str {
        self.header("x-lockgate-reason").unwrap_or("-")
    }
}

/// The value of the first line of this name in a head.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Everything up to the empty line; `None` at the end of the stream.
fn read_head(stream: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).unwrap_or(0) == 0 {
            return None;
        }
    }
    Some(head)
}

/// A backend that answers 200 with its name, in the protocol that it is spoken to in, and keeps the head of every
/// request.
pub(crate) struct Origin {
    pub(crate) name: &'static str,
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    pub(crate) fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let record = Arc::clone(&record);
                std::thread::spawn(move || serve(stream, name, &record));
            }
        });
        Self { name, address, heads }
    }

    /// The heads of all requests so far, as they came.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.heads.lock().clone()
    }

    /// The head of the only request so far; forgets it.
    pub(crate) fn take(&self) -> String {
        let mut heads = self.heads.lock();
        assert_eq!(heads.len(), 1, "{heads:?}");
        heads.remove(0)
    }
}

fn serve(stream: TcpStream, name: &'static str, record: &Mutex<Vec<String>>) {
    if h2c::is_spoken(&stream) {
        return h2c::serve(stream, name, record);
    }
    let mut stream = BufReader::new(stream);
    while let Some(head) = read_head(&mut stream) {
        record.lock().push(head);
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
        if stream.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Waits for something to become true.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        #[expect(clippy::disallowed_methods, reason = "no runtime runs on this thread")]
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A Service `name` on port 80 with a named target port.
pub(crate) fn service(name: &str) -> String {
    service_port(name, "name: web, port: 80, targetPort: http")
}

/// The same, whose port speaks HTTP/2.
pub(crate) fn h2c_service(name: &str) -> String {
    service_port(name, "name: web, port: 80, targetPort: http, appProtocol: kubernetes.io/h2c")
}

fn service_port(name: &str, port: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{{port}}}]}}\n---\n")
}

/// An EndpointSlice of a Service with this origin, or with none.
pub(crate) fn slice(name: &str, service: &str, origin: Option<&Origin>) -> String {
    slice_at(name, service, origin.map(|origin| origin.address.port()))
}

/// An EndpointSlice of a Service with this port of this machine, or with none.
pub(crate) fn slice_at(name: &str, service: &str, port: Option<u16>) -> String {
    let mut text = format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata:\n  name: {name}\n  labels: {{kubernetes.io/service-name: {service}}}\nports: [{{name: web, port: {}}}]\nendpoints:",
        port.unwrap_or(1)
    );
    match port {
        None => text += " []\n---\n",
        Some(_) => _ = writeln!(text, "\n- {{addresses: [127.0.0.1], conditions: {{ready: true}}}}\n---"),
    }
    text
}

/// A Service with one origin.
pub(crate) fn backend(origin: &Origin) -> String {
    service(origin.name) + &slice(origin.name, origin.name, Some(origin))
}

/// A Selector for these hostnames (in YAML's flow form) and a Route of the same name with these rules.
pub(crate) fn route(name: &str, hostnames: &str, rules: &str) -> String {
    format!(
        "apiVersion: lockgate.dev/v1alpha1\nkind: Selector\nmetadata: {{name: {name}}}\nspec: {{hostnames: {hostnames}}}\n---\n\
         apiVersion: lockgate.dev/v1alpha1\nkind: Route\nmetadata: {{name: {name}}}\nspec:\n  selectors: [{{name: {name}}}]\n  rules:\n{rules}\n---\n"
    )
}
