//! One request on a stream, and its answer.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use ::h2::server::SendResponse;
use ::h2::{Reason, RecvStream, SendStream};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body as _;

use super::super::{Client, message};
use super::duplex::Duplex;
use super::{Open, PROTOCOL, Shared};
use crate::http1::keep_trailers;
use crate::proxy::body::ResponseBody;
use crate::proxy::incoming::{Expectation, Incoming};
use crate::proxy::service;
use crate::proxy::tunnel::Tunnel;
use crate::proxy::upgrade;
use crate::proxy::watchdog::Conn;
use crate::telemetry::metrics::Refusal;

/// Serves a request to the end of its stream.
pub(super) async fn serve(open: Open, mut request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let shared = &*open.0;
    if poll_fn(|cx| Poll::Ready(respond.poll_reset(cx).is_ready())).await {
        // Nothing has been done for it.
        return shared.note_reset();
    }
    let is_extended = upgrade::unfold(&mut request);
    if let Some(why) = message::malformed(&request) {
        tracing::debug!(why, peer = %shared.client.peer.ip, "malformed request");
        shared.worker.refused_unread(Refusal::BadRequest, &shared.client, &request);
        respond.send_reset(Reason::PROTOCOL_ERROR);
        return shared.note_reset();
    }
    let watched = shared.worker.watchdog.watch(shared.client.conn().limits());
    watched.conn().speaks(PROTOCOL);
    let client = Rc::new(Client::stream(&shared.client, watched));
    let (request, expectation, receive) = taken_apart(request, is_extended);
    let Some(response) = answer(shared, &client, (request, expectation), &mut respond).await else {
        return shared.note_reset();
    };
    if let Some((tunnel, receive)) = client.tunnel.take().zip(receive) {
        return join(shared, &client, (response, tunnel), receive, respond).await;
    }
    let (mut head, body) = response.into_parts();
    let ends = body.is_end_stream();
    message::complete(&mut head, body.size_hint().exact(), shared.worker.date.now());
    let sent = match respond.send_response(Response::from_parts(head, ()), ends) {
        Ok(_) if ends => true,
        Ok(mut stream) => send(shared, client.conn(), body, &mut stream).await,
        Err(error) => {
            tracing::debug!(%error, "an answer's head was not sent");
            respond.send_reset(Reason::INTERNAL_ERROR);
            false
        }
    };
    if sent {
        shared.note_answer();
    }
}

/// A request with its body, who waits until that is read, and what comes on its stream where that is no body.
fn taken_apart(
    request: Request<RecvStream>,
    is_extended: bool,
) -> (Request<Incoming>, Option<Rc<Expectation>>, Option<RecvStream>) {
    let (head, stream) = request.into_parts();
    if is_extended {
        return (Request::from_parts(head, Incoming::None), None, Some(stream));
    }
    let (body, expectation) = Incoming::stream(stream, &head.headers);
    (Request::from_parts(head, body), expectation, None)
}

/// Goes on as a tunnel after the answer's head.
async fn join(
    shared: &Shared,
    client: &Client,
    (response, tunnel): (Response<ResponseBody>, Tunnel),
    receive: RecvStream,
    mut respond: SendResponse<Bytes>,
) {
    let (mut head, _) = response.into_parts();
    message::complete(&mut head, None, shared.worker.date.now());
    match respond.send_response(Response::from_parts(head, ()), false) {
        Ok(stream) => {
            shared.note_answer();
            let stream = Duplex::new(receive, stream, client.conn(), &shared.frames);
            Box::pin(tunnel.run(stream, Bytes::new(), client.conn())).await;
        }
        Err(error) => tracing::debug!(%error, "a tunnel's head was not sent"),
    }
}

/// The answer; `None` once the stream was reset or its connection has gone, with which the request is cancelled.
async fn answer(
    shared: &Shared,
    client: &Rc<Client>,
    (request, mut expectation): (Request<Incoming>, Option<Rc<Expectation>>),
    respond: &mut SendResponse<Bytes>,
) -> Option<Response<ResponseBody>> {
    let mut handling = pin!(service::handle(Rc::clone(&shared.worker), Rc::clone(client), request));
    poll_fn(|cx| {
        if let Poll::Ready(response) = handling.as_mut().poll(cx) {
            return Poll::Ready(Some(response));
        }
        tell_to_continue(respond, &mut expectation, cx);
        respond.poll_reset(cx).map(|_| None)
    })
    .await
}

/// Sends 100 when somebody begins to read the body that the client keeps back (RFC 9110, section 10.1.1).
fn tell_to_continue(respond: &mut SendResponse<Bytes>, expectation: &mut Option<Rc<Expectation>>, cx: &Context<'_>) {
    if expectation.as_ref().is_some_and(|expectation| expectation.poll_wanted(cx)) {
        *expectation = None;
        let mut interim = Response::new(());
        *interim.status_mut() = StatusCode::CONTINUE;
        if let Err(error) = respond.send_informational(interim) {
            tracing::debug!(%error, "100 was not sent");
        }
    }
}

/// Sends an answer's body as fast as the client takes it; false if its end was not reached.
async fn send(shared: &Shared, conn: &Conn, mut body: ResponseBody, stream: &mut SendStream<Bytes>) -> bool {
    loop {
        let frame = poll_fn(|cx| match Pin::new(&mut body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Some(frame)),
            Poll::Pending => stream.poll_reset(cx).map(|_| None),
        });
        let sent = match frame.await {
            // The client wants no more of it. Dropped, the body cancels what the backend still sends.
            None => return false,
            Some(None) => stream.send_data(Bytes::new(), true),
            Some(Some(Err(error))) => {
                tracing::debug!(%error, "an answer broke off");
                stream.send_reset(Reason::INTERNAL_ERROR);
                return false;
            }
            Some(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    let ends = body.is_end_stream();
                    if data.is_empty() && !ends {
                        continue;
                    }
                    match send_data(shared, conn, stream, data, ends).await {
                        Some(Ok(())) if !ends => continue,
                        Some(sent) => sent,
                        None => return false,
                    }
                }
                Err(frame) => match frame.into_trailers() {
                    Ok(mut trailers) => {
                        keep_trailers(&mut trailers);
                        if trailers.is_empty() {
                            stream.send_data(Bytes::new(), true)
                        } else {
                            stream.send_trailers(trailers)
                        }
                    }
                    Err(_) => continue,
                },
            },
        };
        if let Err(error) = &sent {
            tracing::debug!(%error, "an answer was not sent whole");
        }
        return sent.is_ok();
    }
}

/// Sends a piece of a body, no more of it at a time than the client's windows let through; `None` when it never took it.
async fn send_data(
    shared: &Shared,
    conn: &Conn,
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
    ends: bool,
) -> Option<Result<(), ::h2::Error>> {
    loop {
        stream.reserve_capacity(data.len());
        if stream.capacity() == 0 && !data.is_empty() && !has_capacity(conn, stream).await {
            return None;
        }
        let piece = data.split_to(stream.capacity().min(data.len()));
        conn.wrote(piece.len());
        shared.frames.note_sent(piece.len());
        if let Err(error) = stream.send_data(piece, ends && data.is_empty()) {
            return Some(Err(error));
        }
        if data.is_empty() {
            return Some(Ok(()));
        }
    }
}

/// Waits until the client's windows are open; false when they were not in time, or the stream has ended.
async fn has_capacity(conn: &Conn, stream: &mut SendStream<Bytes>) -> bool {
    let opened = poll_fn(|cx| {
        if stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Some(false));
        }
        match stream.poll_capacity(cx) {
            Poll::Ready(Some(Ok(_))) if stream.capacity() > 0 => Poll::Ready(Some(true)),
            Poll::Ready(Some(Ok(_))) | Poll::Pending if conn.poll_expired(cx) => Poll::Ready(None),
            Poll::Ready(Some(Ok(_))) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Err(_)) | None) => Poll::Ready(Some(false)),
        }
    });
    opened.await.unwrap_or_else(|| {
        stream.send_reset(Reason::CANCEL);
        false
    })
}
