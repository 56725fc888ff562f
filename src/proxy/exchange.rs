//! One request and its answer: what has to happen however it ends.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};

use super::Worker;
use super::access::{Ended, Record};
use super::admission::Places;
use super::connection::Client;
use super::grpc;
use super::span::Context;
use super::tunnel::{Agreed, Tunnel};
use crate::lifecycle::{Phase, RequestGuard};
use crate::limiter::Place;
use crate::telemetry::metrics::{GrpcStatus, Refusal};

/// What metrics say of a request whose client left before an answer: nginx's number for it.
const CLIENT_GONE: u16 = 499;

/// A request being served. Dropped, it counts as one whose client went away.
pub(super) struct Exchange {
    worker: Rc<Worker>,
    client: Rc<Client>,
    started: Instant,
    method: Method,
    status: u16,
    /// Whether the answer asked the client to leave.
    closing: bool,
    /// Whether the backend is asked for another protocol.
    asks_switch: bool,
    /// It has gone on as a tunnel.
    switched: bool,
    failure: Option<Refusal>,
    /// Why the gateway made the answer.
    refusal: Option<Refusal>,
    /// Of a call of gRPC, how it has ended so far.
    grpc: Option<GrpcStatus>,
    /// When the client will have given up.
    deadline: Option<tokio::time::Instant>,
    guard: Option<RequestGuard>,
    places: Places,
    /// Its line of the access log, if it gets one.
    record: Option<Rc<Record>>,
    /// Its place in a trace, if there is a collector of traces.
    context: Option<Context>,
    /// Bytes of the answer's body.
    sent: u64,
}

impl Exchange {
    /// Begins with a request's head.
    pub(super) fn begin(worker: &Rc<Worker>, client: &Rc<Client>, method: &Method) -> Self {
        Self {
            worker: Rc::clone(worker),
            client: Rc::clone(client),
            started: Instant::now(),
            method: method.clone(),
            status: CLIENT_GONE,
            closing: false,
            asks_switch: false,
            switched: false,
            failure: Some(Refusal::ClientGone),
            refusal: None,
            grpc: None,
            deadline: None,
            guard: worker.shared.lifecycle.worker(worker.index).map(crate::lifecycle::Worker::begin),
            places: Places::default(),
            record: None,
            context: None,
            sent: 0,
        }
    }

    /// It is a call of gRPC.
    pub(super) fn is_call(&mut self, headers: &HeaderMap) {
        self.grpc = Some(GrpcStatus::None);
        // A time that no clock reaches is none.
        self.deadline = grpc::timeout(headers).and_then(|timeout| tokio::time::Instant::now().checked_add(timeout));
    }

    /// Begins its line of the access log, if there is one.
    pub(super) fn log<B>(&mut self, request: &Request<B>, id: &HeaderValue) {
        if let Some(desk) = &self.worker.access {
            let worker = &self.worker;
            self.record = desk.begin(&self.client, request, Some(id), self.started, || worker.random());
        }
    }

    /// Begins its span, if there is a collector of traces.
    pub(super) fn trace<B>(&mut self, request: &Request<B>) {
        if let Some(tracer) = &self.worker.tracer {
            self.context = Some(tracer.begin(&self.client, request, || self.worker.random()));
        }
    }

    /// Its place in a trace.
    pub(super) fn context(&self) -> Option<&Context> {
        self.context.as_ref()
    }

    /// Its line of the access log.
    pub(super) fn record(&self) -> Option<Rc<Record>> {
        self.record.clone()
    }

    /// The head of its answer, as the client gets it.
    pub(super) fn log_answer(&self, headers: &HeaderMap) {
        if let Some((desk, record)) = self.worker.access.as_ref().zip(self.record.as_ref()) {
            desk.answered(record, headers);
        }
    }

    /// So much of the answer's body is on its way.
    pub(super) fn sends(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Whether it is a call of gRPC.
    pub(super) fn is_grpc(&self) -> bool {
        self.grpc.is_some()
    }

    /// When the client will have given up, if it has said so.
    pub(super) fn deadline(&self) -> Option<tokio::time::Instant> {
        self.deadline
    }

    /// A head or trailers of a call may tell how it ended.
    pub(super) fn note_status(&mut self, fields: &HeaderMap) {
        if self.grpc.is_some() {
            self.grpc = Some(grpc::status(fields));
        }
    }

    /// The client's connection.
    pub(super) fn client(&self) -> &Rc<Client> {
        &self.client
    }

    /// The worker's coarse clock.
    pub(super) fn now_ms(&self) -> u64 {
        self.worker.watchdog.now_ms()
    }

    /// A place in flight, kept to the end.
    pub(super) fn hold(&mut self, place: Option<Place>) {
        self.places.add(place);
    }

    /// The backend is asked for another protocol: what the client sends next may be that, and is no request whatever the
    /// answer is.
    pub(super) fn ask_switch(&mut self) {
        self.asks_switch = true;
    }

    /// Whether the backend is asked for another protocol.
    pub(super) fn asks_switch(&self) -> bool {
        self.asks_switch
    }

    /// The backend has agreed to another protocol. The request is counted now, for a tunnel may live for days; what it
    /// holds is held on.
    pub(super) fn switch(mut self, agreed: Agreed) -> Tunnel {
        let status = if agreed.is_extended { StatusCode::OK } else { StatusCode::SWITCHING_PROTOCOLS };
        self.status = status.as_u16();
        self.switched = true;
        let record = self.count();
        self.switched = true;
        self.client.conn().begin_answer();
        self.client.conn().switch(Arc::clone(&agreed.protocol), agreed.silence.whole);
        let kept = (self.guard.take(), std::mem::take(&mut self.places));
        Tunnel::new(&self.worker, agreed, kept).logged(record, Some(self.status))
    }

    /// Counts it, and logs it unless it goes on as a tunnel: then this gives its record.
    fn count(&mut self) -> Option<Rc<Record>> {
        let (worker, elapsed) = (self.worker.index, self.started.elapsed());
        let rule = self.client.conn().rule();
        let found = rule.as_ref().and_then(|(snapshot, key)| snapshot.table.rule(*key));
        let metrics = found.as_ref().map_or(&*self.worker.unmatched, |found| found.payload.metrics());
        metrics.record(worker, &self.method, self.status, elapsed);
        if let Some(status) = self.grpc {
            metrics.called(worker, status);
        }
        if self.context.is_none() && self.record.is_none() {
            return None;
        }
        let rule = found.map(|found| (&**found.selector, &**found.rule));
        let ended = Ended {
            status: Some(self.status),
            reason: self.refusal.or(self.failure),
            broke_off: self.failure.is_some(),
            grpc: self.grpc,
            rule,
            duration: Some(elapsed),
            bytes_out: self.sent,
            ..Ended::default()
        };
        if let Some((tracer, context)) = self.worker.tracer.as_ref().zip(self.context.take()) {
            if self.switched {
                // What comes is a tunnel, and may live for days.
                tracer.finish(context, &Ended { reason: None, broke_off: false, ..ended });
            } else {
                tracer.finish(context, &ended);
            }
        }
        let desk = self.worker.access.as_ref()?;
        let record = self.record.take()?;
        if self.switched {
            if let Some((selector, rule)) = rule {
                desk.matched(&record, selector, rule);
            }
            return Some(record);
        }
        desk.finish(record, &ended);
        None
    }

    /// The answer's head is known. `failure` is the reason when the gateway made it.
    pub(super) fn answered(&mut self, status: StatusCode, closing: bool, failure: Option<Refusal>) {
        self.status = status.as_u16();
        self.closing = closing;
        self.client.conn().begin_answer();
        if let Some(deadline) = self.deadline {
            self.client.conn().end_within(deadline.saturating_duration_since(tokio::time::Instant::now()));
        }
        self.refusal = failure;
        if let Some(reason) = failure {
            self.worker.metrics.refused(reason);
        }
        // Until its body is through, the client may still leave.
        self.failure = Some(Refusal::ClientGone);
    }

    /// The answer has been handed over whole.
    pub(super) fn complete(mut self) {
        self.failure = None;
    }

    /// The answer's body broke off.
    pub(super) fn fail(mut self, reason: Refusal) {
        self.failure = Some(reason);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.switched {
            return;
        }
        if self.failure == Some(Refusal::ClientGone) && self.worker.shared.lifecycle.phase() >= Phase::Aborting {
            self.failure = Some(Refusal::Aborted);
        }
        if let Some(reason) = self.failure {
            self.worker.metrics.refused(reason);
        }
        self.count();
        self.client.exchange_ended(self.guard.take(), self.closing);
    }
}
