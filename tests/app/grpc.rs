//! gRPC through the gateway, with tonic as client and server: cases of gRPC's interop-test-descriptions.md with messages of plain
//! bytes, so that nothing has to be generated.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use futures::stream::{self, BoxStream, StreamExt};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use super::support::{Gateway, h2c_service, route, slice_at};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

const STATUS_MESSAGE: &str = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";

/// Messages are their bytes.
#[derive(Clone, Copy, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// A method of the server.
struct Method(String);

type Answers = BoxStream<'static, Result<Bytes, Status>>;

impl tower_service::Service<Request<Streaming<Bytes>>> for Method {
    type Response = Response<Answers>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answers>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let method = self.0.clone();
        Box::pin(async move {
            let initial = request.metadata().get("x-initial").cloned();
            let mut messages = request.into_inner();
            let answers: Answers = match &*method {
                "/t.T/Echo" => messages.boxed(),
                "/t.T/Sum" => {
                    let mut sum = 0;
                    while let Some(message) = messages.message().await? {
                        sum += message.len();
                    }
                    one(sum.to_string())
                }
                "/t.T/Many" => {
                    let sizes = messages.message().await?.unwrap_or_default();
                    let sizes: Vec<usize> =
                        std::str::from_utf8(&sizes).unwrap().split(' ').map(|size| size.parse().unwrap()).collect();
                    stream::iter(sizes).map(|size| Ok(Bytes::from(vec![7; size]))).boxed()
                }
                "/t.T/Fail" => {
                    let mut status = Status::new(Code::FailedPrecondition, STATUS_MESSAGE);
                    status.metadata_mut().insert("x-trailing", "told".parse().unwrap());
                    return Err(status);
                }
                "/t.T/FailLate" => {
                    stream::iter([Ok(Bytes::from_static(b"first")), Err(Status::data_loss("late"))]).boxed()
                }
                "/t.T/Sleep" => std::future::pending().await,
                _ => return Err(Status::unimplemented("no such method")),
            };
            let mut response = Response::new(answers);
            if let Some(initial) = initial {
                response.metadata_mut().insert("x-initial", initial);
            }
            Ok(response)
        })
    }
}

fn one(message: String) -> Answers {
    stream::iter([Ok(Bytes::from(message))]).boxed()
}

/// Serves for as long as its runtime; gives the port.
async fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| async {
                let method = Method(request.uri().path().to_owned());
                Ok::<_, Infallible>(tonic::server::Grpc::new(Plain).streaming(method, request).await)
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(socket), service));
        }
    });
    port
}

struct Client(Grpc<Channel>);

impl Client {
    async fn connect(gateway: &Gateway) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{}", gateway.address())).unwrap();
        let channel = endpoint.origin("http://r.test".parse().unwrap()).connect().await.unwrap();
        Self(Grpc::new(channel))
    }

    async fn unary(&mut self, method: &'static str, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        self.0.ready().await.unwrap();
        let call = self.0.unary(request, http::uri::PathAndQuery::from_static(method), Plain);
        tokio::time::timeout(PATIENCE, call).await.expect("it never ended")
    }

    async fn stream(
        &mut self,
        method: &'static str,
        messages: impl stream::Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        self.0.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static(method);
        tokio::time::timeout(PATIENCE, self.0.streaming(Request::new(messages), path, Plain)).await.unwrap()
    }
}

/// Runs a test with a client at a gateway before a server.
fn with_client<F: Future<Output = ()>>(test: impl FnOnce(Client) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let port = serve().await;
        let rules = "  - {matches: [{path: {value: /t.T}}], backends: [{service: t, port: 80}]}\n  \
                     - {matches: [{path: {value: /t.None}}], backends: [{service: none, port: 80}]}";
        let manifests = h2c_service("t") + &slice_at("t", "t", Some(port)) + &h2c_service("none");
        let gateway = Gateway::start(&(manifests + &route("r", "[r.test]", rules)));
        test(Client::connect(&gateway).await).await;
    });
}

#[test]
fn unary_calls_empty_and_large() {
    with_client(|mut client| async move {
        for size in [0, 1, 271_828, 1_000_000] {
            let message = Bytes::from(vec![3; size]);
            let answer = client.unary("/t.T/Echo", Request::new(message.clone())).await.unwrap();
            assert_eq!(answer.into_inner(), message, "{size}");
        }
    });
}

#[test]
fn streams_of_the_client_of_the_server_and_of_both() {
    with_client(|mut client| async move {
        let sent = stream::iter([27_182, 8, 1828, 45_904]).map(|size| Bytes::from(vec![1; size]));
        let mut sum = client.stream("/t.T/Sum", sent).await.unwrap().into_inner();
        assert_eq!(sum.message().await.unwrap().unwrap(), "74922");
        assert_eq!(sum.message().await.unwrap(), None);

        let sizes = stream::iter([Bytes::from_static(b"31415 9 2653 58979")]);
        let mut many = client.stream("/t.T/Many", sizes).await.unwrap().into_inner();
        for size in [31_415, 9, 2653, 58_979] {
            assert_eq!(many.message().await.unwrap().unwrap().len(), size);
        }
        assert_eq!(many.message().await.unwrap(), None);

        // Each message is answered before the next one is sent.
        let (outbox, messages) = futures::channel::mpsc::unbounded();
        let mut echo = client.stream("/t.T/Echo", messages).await.unwrap().into_inner();
        for text in ["ping", "", "pong"] {
            outbox.unbounded_send(Bytes::from(text)).unwrap();
            assert_eq!(tokio::time::timeout(PATIENCE, echo.message()).await.unwrap().unwrap().unwrap(), text);
        }
        drop(outbox);
        assert_eq!(echo.message().await.unwrap(), None);
    });
}

#[test]
fn metadata_and_statuses_are_the_servers() {
    with_client(|mut client| async move {
        let mut request = Request::new(Bytes::new());
        request.metadata_mut().insert("x-initial", "hello".parse().unwrap());
        let answer = client.unary("/t.T/Echo", request).await.unwrap();
        assert_eq!(answer.metadata().get("x-initial").unwrap(), "hello");

        let status = client.unary("/t.T/Fail", Request::new(Bytes::new())).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, STATUS_MESSAGE));
        assert_eq!(status.metadata().get("x-trailing").unwrap(), "told");

        let mut late = client.stream("/t.T/FailLate", stream::iter([Bytes::new()])).await.unwrap().into_inner();
        assert_eq!(late.message().await.unwrap().unwrap(), "first");
        let status = late.message().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::DataLoss, "late"));

        let status = client.unary("/t.T/Other", Request::new(Bytes::new())).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unimplemented, "no such method"));
    });
}

#[test]
fn failures_of_the_gateway_are_statuses() {
    with_client(|mut client| async move {
        for (method, code, message) in [
            ("/t.None/Method", Code::Unavailable, "no-endpoints"),
            ("/t.Elsewhere/Method", Code::Unimplemented, "no-route"),
        ] {
            let status = client.unary(method, Request::new(Bytes::new())).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (code, message), "{method}");
        }
        let mut request = Request::new(Bytes::new());
        request.set_timeout(Duration::from_millis(200));
        let status = client.unary("/t.T/Sleep", request).await.unwrap_err();
        // Its own clock or the gateway's, whichever is first.
        assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
        let answer = client.unary("/t.T/Echo", Request::new(Bytes::from_static(b"after"))).await.unwrap();
        assert_eq!(answer.into_inner(), "after", "the connection goes on");
    });
}
