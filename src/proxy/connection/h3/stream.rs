//! One request on a stream, and its answer.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use ::h3::error::{Code, StreamError};
use ::h3::server::{RequestResolver, RequestStream};
use bytes::Bytes;
use http::header;
use http::{Request, Response, StatusCode};
use http_body::Body as _;

use super::super::{Client, message};
use super::body::Body;
use super::frames::Fault;
use super::transport::{Both, Ends, Sender, Transport};
use super::{Open, PROTOCOL, Shared};
use crate::http1::keep_trailers;
use crate::proxy::body::ResponseBody;
use crate::proxy::incoming::{Expectation, Incoming};
use crate::proxy::service;
use crate::proxy::watchdog::Conn;
use crate::telemetry::metrics::Refusal;

/// Bytes that are given to the connection at a time: each piece that it takes shows that the client still reads.
const PIECE: usize = 16 << 10;

/// Half of a request's stream.
type Respond = RequestStream<Sender, Bytes>;

/// Serves a request to the end of its stream.
pub(super) async fn serve(open: Open, resolver: RequestResolver<Transport, Bytes>, mut ends: Ends) {
    let shared = &*open.0;
    let watched = shared.worker.watchdog.watch(shared.client.conn().limits());
    watched.conn().speaks(PROTOCOL);
    let Some((request, mut stream)) = resolved(shared, watched.conn(), resolver, &ends).await else {
        return shared.note_reset();
    };
    ends.begun.set(true);
    if let Some(why) = message::malformed(&request).or_else(|| message::is_of_connection(request.headers())) {
        tracing::debug!(why, peer = %shared.client.peer.ip, "malformed request");
        shared.worker.metrics.refused(Refusal::BadRequest);
        stream.stop_stream(Code::H3_MESSAGE_ERROR);
        stream.stop_sending(Code::H3_MESSAGE_ERROR);
        return shared.note_reset();
    }
    let mut client = Client::stream(&shared.client, watched);
    client.peer = shared.peer();
    client.conn().comes_from(client.peer.address());
    let client = Rc::new(client);
    let (mut respond, request) = split(client.conn(), request, stream).await;
    let Some(response) = answer(shared, &client, request, &mut respond, &mut ends).await else {
        respond.stop_stream(Code::H3_REQUEST_CANCELLED);
        return shared.note_reset();
    };
    if send(shared, client.conn(), response, &mut respond, &mut ends).await {
        shared.note_answer();
        // The client counts until it has got all of it: a connection that ends takes what is on its way along.
        let _ = client.conn().unless_expired(poll_fn(|cx| ends.poll_over(cx))).await;
    }
}

/// Waits for a request's head; `None` if it does not come in time, or is none.
async fn resolved(
    shared: &Shared,
    conn: &Conn,
    resolver: RequestResolver<Transport, Bytes>,
    ends: &Ends,
) -> Option<(Request<()>, RequestStream<Both, Bytes>)> {
    let error = match conn.unless_expired(resolver.resolve_request()).await {
        Some(Ok(whole)) => return Some(whole),
        Some(Err(error)) => error,
        None => {
            shared.worker.metrics.refused(Refusal::HeaderTimeout);
            return None;
        }
    };
    tracing::debug!(%error, peer = %shared.client.peer.ip, "malformed request");
    let reason = match (&error, ends.fault.get()) {
        (StreamError::HeaderTooBig { .. }, _) | (_, Some(Fault::TooLong)) => Refusal::HeadersTooLarge,
        // A client that has gone, or thought better of it.
        (StreamError::RemoteTerminate { .. } | StreamError::ConnectionError { .. }, None) => return None,
        _ => Refusal::BadRequest,
    };
    shared.worker.metrics.refused(reason);
    None
}

/// Takes a stream apart into what is answered on and the request with its body.
async fn split(conn: &Conn, request: Request<()>, stream: RequestStream<Both, Bytes>) -> (Respond, Request<Body>) {
    let (respond, receive) = stream.split();
    let (head, ()) = request.into_parts();
    let mut body = Body::new(receive, &head.headers);
    // Only the end of the stream says that there is no body, and it may come a moment later. To forward a request as one
    // with a body would cost it its retries, and backends their simplest case.
    let is_plain = head.method.is_safe() && !head.headers.contains_key(header::CONTENT_LENGTH);
    let _ = conn.unless_expired(body.begin(is_plain)).await;
    (respond, Request::from_parts(head, body))
}

/// The answer; `None` once the client takes none, with which the request is cancelled.
async fn answer(
    shared: &Shared,
    client: &Rc<Client>,
    request: Request<Body>,
    respond: &mut Respond,
    ends: &mut Ends,
) -> Option<Response<ResponseBody>> {
    let (head, body) = request.into_parts();
    let (body, mut expectation) = Incoming::quic(body, &head.headers);
    let request = Request::from_parts(head, body);
    let mut handling = pin!(service::handle(Rc::clone(&shared.worker), Rc::clone(client), request));
    poll_fn(|cx| {
        if let Poll::Ready(response) = handling.as_mut().poll(cx) {
            return Poll::Ready(Some(response));
        }
        tell_to_continue(respond, &mut expectation, cx);
        ends.poll_over(cx).map(|()| None)
    })
    .await
}

/// Sends 100 when somebody begins to read the body that the client keeps back (RFC 9110, section 10.1.1).
fn tell_to_continue(respond: &mut Respond, expectation: &mut Option<Rc<Expectation>>, cx: &mut Context<'_>) {
    if expectation.as_ref().is_some_and(|expectation| expectation.poll_wanted(cx)) {
        *expectation = None;
        let mut interim = Response::new(());
        *interim.status_mut() = StatusCode::CONTINUE;
        // Should it wait, the answer takes it along.
        if let Poll::Ready(Err(error)) = pin!(respond.send_response(interim)).poll(cx) {
            tracing::debug!(%error, "100 was not sent");
        }
    }
}

/// Sends an answer as fast as the client takes it; false if its end was not reached.
async fn send(
    shared: &Shared,
    conn: &Conn,
    response: Response<ResponseBody>,
    respond: &mut Respond,
    ends: &mut Ends,
) -> bool {
    let (mut head, body) = response.into_parts();
    message::complete(&mut head, body.size_hint().exact(), shared.worker.date.now());
    let head = Response::from_parts(head, ());
    let sent = match taken(conn, ends, respond.send_response(head)).await {
        Some(()) => send_body(conn, body, respond, ends).await,
        None => None,
    };
    let sent = match sent {
        Some(()) => taken(conn, ends, respond.finish()).await,
        None => None,
    };
    if sent.is_none() {
        respond.stop_stream(Code::H3_INTERNAL_ERROR);
    }
    sent.is_some()
}

async fn send_body(conn: &Conn, mut body: ResponseBody, respond: &mut Respond, ends: &mut Ends) -> Option<()> {
    while !body.is_end_stream() {
        let frame = poll_fn(|cx| match Pin::new(&mut body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Some(frame)),
            // The client wants no more of it. Dropped, the body cancels what the backend still sends.
            Poll::Pending => ends.poll_over(cx).map(|()| None),
        });
        match frame.await? {
            None => break,
            Some(Err(error)) => {
                tracing::debug!(%error, "an answer broke off");
                return None;
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(mut data) => {
                    while !data.is_empty() {
                        let piece = data.split_to(data.len().min(PIECE));
                        let bytes = piece.len();
                        taken(conn, ends, respond.send_data(piece)).await?;
                        conn.wrote(bytes);
                    }
                }
                Err(frame) => {
                    if let Ok(mut trailers) = frame.into_trailers() {
                        keep_trailers(&mut trailers);
                        if !trailers.is_empty() {
                            taken(conn, ends, respond.send_trailers(trailers)).await?;
                        }
                        break;
                    }
                }
            },
        }
    }
    Some(())
}

/// Waits until the connection has taken something; `None` when it did not in time, or the client wants no more.
async fn taken(conn: &Conn, ends: &mut Ends, sending: impl Future<Output = Result<(), StreamError>>) -> Option<()> {
    let mut sending = pin!(sending);
    let outcome = poll_fn(|cx| match sending.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending if conn.poll_expired(cx) || ends.poll_over(cx).is_ready() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    match outcome.await? {
        Ok(()) => Some(()),
        Err(error) => {
            tracing::debug!(%error, "an answer was not sent whole");
            None
        }
    }
}
