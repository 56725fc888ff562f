//! How requests are handled: timeouts, retries, balancing and limits. A Selector's are for all its Routes; a rule's
//! block replaces the Selector's block of the same key as a whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ByteSize, Duration, UpgradeProtocol, fields, rules};

/// The policies of a Selector, the same keys as a rule's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// How long things may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// When a request is sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Which endpoint of a backend gets a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancing: Option<LoadBalancing>,
    /// How much a rule takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// What a backend gets: connections and requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// Protocols that connections may change to; the gateway's own list when absent, none when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::upgrades")]
    pub upgrades: Option<Vec<UpgradeProtocol>>,
}

/// How long things may take; `0s` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<Timeouts>()))]
pub struct Timeouts {
    /// From the request's head to the head of the answer, retries included.
    pub request: Duration,
    /// One attempt at a backend, from its start to the head of the answer.
    pub backend_request: Duration,
    /// Making one connection to an endpoint, TLS included.
    pub connect: Duration,
    /// Silence of a request under way: no byte in either direction.
    pub idle: Duration,
    /// No byte in either direction after the connection has changed to another protocol, such as `WebSocket`.
    pub tunnel: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            request: Duration::ZERO,
            backend_request: Duration::ZERO,
            connect: Duration::from_secs(2),
            idle: Duration::from_secs(60),
            tunnel: Duration::from_secs(3600),
        }
    }
}

/// When a request is sent again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    /// Retries after the first try.
    #[schemars(schema_with = "fields::attempts")]
    pub attempts: u32,
    /// What makes a retry: `connect-failure`, `reset`, `timeout`, or a status.
    // Not `on`: kubectl reads YAML 1.1, where a key `on` is the boolean true.
    #[schemars(schema_with = "fields::retry_when")]
    pub when: Vec<String>,
    /// The wait before the first retry; doubled for each further one, with jitter.
    pub backoff: Duration,
    /// Retries as a share of the rule's requests, in percent.
    #[schemars(schema_with = "fields::percent")]
    pub budget_percent: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 2,
            when: ["connect-failure", "502", "503"].map(str::to_owned).to_vec(),
            backoff: Duration::from_millis(25),
            budget_percent: 20,
        }
    }
}

/// How an endpoint is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum LoadBalancingType {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The less busy of two picked at random.
    LeastRequest,
    /// Any.
    Random,
    /// The same endpoint for the same key, as long as it is there.
    ConsistentHash,
}

/// Which endpoint of a backend gets a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<LoadBalancing>()))]
pub struct LoadBalancing {
    /// How an endpoint is chosen.
    #[serde(default)]
    pub r#type: LoadBalancingType,
    /// The key of `ConsistentHash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistent_hash: Option<ConsistentHash>,
}

/// The key by which requests stay with an endpoint; exactly one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = rules::cel::<ConsistentHash>()))]
pub struct ConsistentHash {
    /// The value of this header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::token")]
    pub header: Option<String>,
    /// The value of this cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::token")]
    pub cookie: Option<String>,
    /// The address of the client.
    #[serde(rename = "clientIP", default)]
    pub client_ip: bool,
}

/// How much a rule takes, over the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Bytes of a request's body; the gateway's own limit when absent, none when `0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<ByteSize>,
    /// Requests at once, beside the gateway's own limit; no limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::count")]
    pub max_in_flight: Option<u32>,
    /// Requests that wait when `maxInFlight` is reached; further ones are refused at once.
    #[serde(default = "Limits::queued")]
    #[schemars(schema_with = "fields::count_or_none")]
    pub max_queued: u32,
    /// How long a request waits before it is refused; `0s` is no limit.
    #[serde(default = "Limits::wait")]
    pub queue_timeout: Duration,
    /// Which request is refused when `maxQueued` wait: the new one, or the one that has waited longest.
    #[serde(default)]
    pub reject: Reject,
}

/// Which request is refused when a queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Reject {
    /// The new one: who came first is served first.
    #[default]
    Newest,
    /// The one that has waited longest, whose client is the first to give up.
    Oldest,
}

impl Limits {
    const fn queued() -> u32 {
        100
    }

    const fn wait() -> Duration {
        Duration::from_secs(1)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: None,
            max_in_flight: None,
            max_queued: Self::queued(),
            queue_timeout: Self::wait(),
            reject: Reject::default(),
        }
    }
}

/// What a backend gets: its connections, per endpoint, and its requests; over the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Upstream {
    /// Requests at once to one backend, whichever rules they are of and whichever of its endpoints they go to. Where rules
    /// name the same backend, the smallest of their numbers holds for all of them. No limit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::count")]
    pub max_requests: Option<u32>,
    /// Connections to one endpoint at a time, of the whole gateway process.
    #[schemars(schema_with = "fields::count")]
    pub max_connections: u32,
    /// Requests that wait: for a place among `maxRequests`, and for a connection to one endpoint. Further ones are refused.
    #[schemars(schema_with = "fields::count_or_none")]
    pub max_pending: u32,
    /// How long a request waits for each of these.
    pub acquire_timeout: Duration,
    /// How long a connection is kept without a request.
    pub idle_timeout: Duration,
    /// How old a connection may become.
    pub max_lifetime: Duration,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            max_requests: None,
            max_connections: 512,
            max_pending: 1024,
            acquire_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(50),
            max_lifetime: Duration::from_secs(3600),
        }
    }
}
