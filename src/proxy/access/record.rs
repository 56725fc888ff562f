//! What is noted between a request and its end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::proxy::body::{RequestBody, Upload};
use crate::upstream::pool::{EndpointPool, LocalCluster};

/// A line is kept for later ones up to this size.
const KEPT: usize = 16 << 10;

/// The line of a request, and what will be in the rest of it.
pub(in crate::proxy) struct Record {
    /// What is written of the line.
    pub(super) line: RefCell<Vec<u8>>,
    pub(super) started: Cell<Instant>,
    /// Decides whether the request is among those that are logged.
    pub(super) draw: Cell<f64>,
    pub(super) cluster: RefCell<Option<Rc<LocalCluster<RequestBody>>>>,
    pub(super) endpoint: RefCell<Option<Rc<EndpointPool<RequestBody>>>>,
    pub(super) attempts: Cell<u32>,
    pub(super) reused: Cell<Option<bool>>,
    /// When the last try was sent, and how long it took to the answer's head.
    pub(super) heard: Cell<Option<(Instant, Duration)>>,
    pub(super) upload: RefCell<Option<Rc<Upload>>>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            line: RefCell::default(),
            started: Cell::new(Instant::now()),
            draw: Cell::default(),
            cluster: RefCell::default(),
            endpoint: RefCell::default(),
            attempts: Cell::default(),
            reused: Cell::default(),
            heard: Cell::default(),
            upload: RefCell::default(),
        }
    }
}

impl Record {
    pub(super) fn begin(&self, started: Instant, draw: f64) {
        self.started.set(started);
        self.draw.set(draw);
    }

    /// When the request came.
    pub(in crate::proxy) fn started(&self) -> Instant {
        self.started.get()
    }

    /// A Cluster is to answer, which gets this body.
    pub(in crate::proxy) fn goes_to(&self, cluster: &Rc<LocalCluster<RequestBody>>, upload: Option<&Rc<Upload>>) {
        *self.cluster.borrow_mut() = Some(Rc::clone(cluster));
        *self.upload.borrow_mut() = upload.cloned();
    }

    /// An endpoint is tried.
    pub(in crate::proxy) fn tries(&self, endpoint: &Rc<EndpointPool<RequestBody>>) {
        *self.endpoint.borrow_mut() = Some(Rc::clone(endpoint));
        self.attempts.set(self.attempts.get() + 1);
        self.reused.set(None);
        self.heard.set(None);
    }

    /// There is a connection to it, which may have been there before.
    pub(in crate::proxy) fn connected(&self, is_reused: bool) {
        self.reused.set(Some(is_reused));
    }

    /// It was sent at `since`, and the answer's head came so long after.
    pub(in crate::proxy) fn heard(&self, since: Instant, after: Duration) {
        self.heard.set(Some((since, after)));
    }

    /// Makes it one for another request.
    pub(super) fn clear(&mut self) {
        let line = self.line.get_mut();
        line.clear();
        line.shrink_to(KEPT);
        self.cluster = RefCell::default();
        self.endpoint = RefCell::default();
        self.upload = RefCell::default();
        self.attempts = Cell::default();
        self.reused = Cell::default();
        self.heard = Cell::default();
    }
}
