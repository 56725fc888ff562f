//! `lockgate demo-backend`: a small HTTP server that tells what reached it.
//!
//! It stands behind the gateway in the quickstart and in tests. Every path answers 200 with a JSON object that names the
//! server and repeats the request; `/status/CODE`, `/delay/MS` (both may follow each other: `/delay/50/status/503`), `/bytes/N` and
//! `/healthz` answer in special ways. A WebSocket on `/ws` gets its messages back.

mod websocket;

use std::borrow::Cow;
use std::convert::Infallible;
use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

/// Settings of `lockgate demo-backend`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Address to accept connections on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9001")]
    pub listen: SocketAddr,
    /// Name to answer with
    #[arg(long, default_value = "demo")]
    pub name: String,
    /// Milliseconds to wait before every answer but that of /healthz
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub delay_ms: u64,
    /// Milliseconds to go on accepting connections after SIGTERM
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub drain_ms: u64,
    /// Exit at once on SIGTERM, whatever is in flight
    #[arg(long, conflicts_with = "drain_ms")]
    pub abrupt: bool,
    /// Directory of a file per server to which the id of each POST is appended when it comes
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
}

/// Serves until SIGTERM or SIGINT, then finishes what is in flight. Fails when the address cannot be bound.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("demo-backend: bind {}", args.listen))?;
    let mut terminate = signal(SignalKind::terminate()).context("demo-backend: handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("demo-backend: handle SIGINT")?;
    tracing::info!(address = %args.listen, name = %args.name, "demo backend listens");
    let drain = Duration::from_millis(args.drain_ms);
    let server = Arc::new(Server::new(&args)?);
    if args.abrupt {
        tokio::select! {
            () = serve(listener, server, async { _ = interrupt.recv().await }) => {}
            // Its connections end with it.
            _ = terminate.recv() => {}
        }
        return Ok(());
    }
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => sleep(drain).await,
            _ = interrupt.recv() => {}
        }
    };
    serve(listener, server, stop).await;
    Ok(())
}

#[derive(Debug)]
struct Server {
    name: String,
    pod: String,
    delay: Duration,
    record: Option<Mutex<File>>,
}

impl Server {
    fn new(args: &Args) -> anyhow::Result<Self> {
        // Kubernetes sets HOSTNAME to the pod's name.
        let pod = ["POD_NAME", "HOSTNAME"].iter().find_map(|key| std::env::var(key).ok()).unwrap_or_default();
        let record = args.record.as_ref().map(|dir| {
            let path = dir.join(if pod.is_empty() { &args.name } else { &pod });
            let file = File::options().create(true).append(true).open(&path);
            file.with_context(|| format!("demo-backend: {}", path.display()))
        });
        let record = record.transpose()?.map(Mutex::new);
        Ok(Self { name: args.name.clone(), pod, delay: Duration::from_millis(args.delay_ms), record })
    }

    /// Notes that a POST has come: before its body, for who dies in the middle of it has begun it.
    fn note(&self, head: &http::request::Parts) {
        let Some(record) = self.record.as_ref().filter(|_| head.method == Method::POST) else { return };
        let id = head.headers.get("x-request-id").map_or(&b"-"[..], HeaderValue::as_bytes);
        if let Err(error) = record.lock().write_all(&[id, b"\n"].concat()) {
            tracing::warn!(%error, "a request is not recorded");
        }
    }
}

/// Accepts until `stop` is ready, then waits for the answers in flight.
async fn serve(listener: TcpListener, server: Arc<Server>, stop: impl Future<Output = ()>) {
    let (closing, closed) = watch::channel(());
    // Every connection holds a sender: the channel ends with the last of them.
    let (open, mut all_done) = mpsc::channel::<Infallible>(1);
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(connection(stream, Arc::clone(&server), closed.clone(), open.clone()));
                }
                Err(error) => {
                    // Out of descriptors, most likely; accepting at once again would spin.
                    tracing::warn!(%error, "accept failed");
                    sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    drop(listener);
    closing.send_replace(());
    drop(open);
    all_done.recv().await;
}

async fn connection(
    stream: TcpStream,
    server: Arc<Server>,
    mut closed: watch::Receiver<()>,
    open: mpsc::Sender<Infallible>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let service = {
        let closed = closed.clone();
        service_fn(move |mut request| {
            let server = Arc::clone(&server);
            let socket = websocket::accept(&mut request, &closed, &open);
            async move {
                match socket {
                    Some(answered) => Ok::<_, Infallible>(answered),
                    None => Ok(answer(&server, request).await),
                }
            }
        })
    };
    let http = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    let mut http = pin!(http.with_upgrades());
    let result = tokio::select! {
        result = http.as_mut() => result,
        _ = closed.changed() => {
            http.as_mut().graceful_shutdown();
            http.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
}

type Answer = Response<Either<Full<Bytes>, Repeated>>;

async fn answer(server: &Server, request: Request<Incoming>) -> Answer {
    let path = request.uri().path();
    if path == "/healthz" {
        return text(StatusCode::OK, "ok\n");
    }
    let wanted = match Wanted::parse(path) {
        Ok(wanted) => wanted,
        Err(message) => return text(StatusCode::BAD_REQUEST, message),
    };
    let (head, body) = request.into_parts();
    server.note(&head);
    let Ok(body_length) = length(body).await else {
        return text(StatusCode::BAD_REQUEST, "the request's body is incomplete\n");
    };
    sleep(server.delay + wanted.delay).await;
    if let Some(bytes) = wanted.bytes {
        return respond(wanted.status, "application/octet-stream", Either::Right(Repeated { left: bytes }));
    }
    if matches!(wanted.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return respond(wanted.status, "application/json", Either::Left(Full::default()));
    }
    let told = json!({
        "name": server.name,
        "pod": server.pod,
        "method": head.method.as_str(),
        "path": head.uri.path(),
        "query": head.uri.query().unwrap_or_default(),
        "headers": headers(&head.headers),
        "bodyLength": body_length,
    });
    respond(wanted.status, "application/json", Either::Left(Full::from(format!("{told}\n"))))
}

/// What the path asks for, beyond being repeated.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    status: StatusCode,
    delay: Duration,
    bytes: Option<u64>,
}

impl Wanted {
    fn parse(path: &str) -> Result<Self, &'static str> {
        let mut wanted = Self { status: StatusCode::OK, delay: Duration::ZERO, bytes: None };
        let mut segments = path.split('/').skip(1);
        while let (Some(what), Some(value)) = (segments.next(), segments.next()) {
            match what {
                "status" => {
                    let code = value.parse().ok().filter(|code| (200..600).contains(code));
                    let status = code.and_then(|code| StatusCode::from_u16(code).ok());
                    wanted.status = status.ok_or("/status/CODE: a number from 200 to 599\n")?;
                }
                "delay" => {
                    let milliseconds = value.parse().map_err(|_| "/delay/MS: a number of milliseconds\n")?;
                    wanted.delay = Duration::from_millis(milliseconds);
                }
                "bytes" => wanted.bytes = Some(value.parse().map_err(|_| "/bytes/N: a number of bytes\n")?),
                _ => break,
            }
        }
        Ok(wanted)
    }
}

async fn length(mut body: Incoming) -> Result<u64, hyper::Error> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame?.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok(length)
}

/// Fields of one name are joined with a comma, as RFC 9110 section 5.3 allows.
fn headers(map: &HeaderMap) -> Map<String, Value> {
    let joined = |name| {
        let values: Vec<Cow<'_, str>> =
            map.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes())).collect();
        values.join(", ")
    };
    map.keys().map(|name| (name.to_string(), Value::String(joined(name)))).collect()
}

fn text(status: StatusCode, body: &'static str) -> Answer {
    respond(status, "text/plain", Either::Left(Full::from(body)))
}

fn respond(status: StatusCode, content_type: &'static str, body: Either<Full<Bytes>, Repeated>) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A body of `left` bytes that all are an `x`, made as it is sent.
#[derive(Debug)]
struct Repeated {
    left: u64,
}

impl Body for Repeated {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static CHUNK: [u8; 16 * 1024] = [b'x'; 16 * 1024];
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let size = usize::try_from(self.left).unwrap_or(CHUNK.len()).min(CHUNK.len());
        self.left -= size as u64;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&CHUNK[..size])))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests;
