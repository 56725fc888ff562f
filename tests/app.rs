//! The whole gateway in this process, on manifests, with clients and origins that see raw bytes.
//!
//! Faults that users of other gateways reported are told here as they would meet them in Lockgate; the names of the
//! tests' modules are the kinds of fault, the issues are named beside each test.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "app/access_log.rs"]
mod access_log;
#[path = "app/endpoints.rs"]
mod endpoints;
#[path = "app/grpc.rs"]
mod grpc;
#[path = "app/h2c.rs"]
mod h2c;
#[path = "app/headers.rs"]
mod headers;
#[path = "app/matching.rs"]
mod matching;
#[path = "app/rewrite.rs"]
mod rewrite;
#[path = "app/streaming.rs"]
mod streaming;
#[path = "app/support.rs"]
mod support;
#[path = "app/tls.rs"]
mod tls;
#[path = "app/websocket.rs"]
mod websocket;
