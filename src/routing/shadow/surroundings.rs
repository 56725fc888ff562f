//! Which Selectors are asked before a Selector, hostname by hostname.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::{Matcher, texts};
use crate::ir::{Hostname, Selector, Source};
use crate::routing::hosts::Hosts;
use crate::routing::{ListenerIndex, host};

/// Of the Selectors that are asked before one on a hostname, so many are looked at.
const EARLIER: usize = 8;
/// Hosts of a wildcard that are tried until one belongs to no more specific hostname.
const LABELS: [&str; 6] = ["www", "host", "a", "some-host", "other-host", "lockgate"];

/// A way into a Selector: a hostname on a listener.
#[derive(Debug)]
pub(super) struct Way<'t> {
    pub(super) listener: ListenerIndex,
    pub(super) listener_name: &'t Arc<str>,
    pub(super) hostname: &'t Hostname,
    /// Hosts that the hostname takes.
    pub(super) hosts: Vec<Box<str>>,
    /// Positions of Selectors that are asked first, in their order; the first few.
    pub(super) earlier: Vec<u32>,
}

/// Walks over the Selectors in their order of precedence.
pub(super) struct Surroundings<'t> {
    /// Of listeners with the same hosts the first, for all of them.
    groups: Vec<(ListenerIndex, &'t Arc<str>, &'t Arc<Hosts>)>,
    buckets: HashMap<(usize, &'t Hostname), Bucket, RandomState>,
    hasher: &'t RandomState,
}

/// The Selectors of a hostname so far.
#[derive(Debug, Default)]
struct Bucket {
    /// Of all of them, in their order.
    hash: u64,
    first: [u32; EARLIER],
    len: usize,
}

impl<'t> Surroundings<'t> {
    pub(super) fn new(table: &'t dyn Matcher, hasher: &'t RandomState) -> Self {
        let mut groups: Vec<(ListenerIndex, &Arc<str>, &Arc<Hosts>)> = Vec::new();
        for (index, (name, hosts)) in table.listeners().into_iter().enumerate() {
            if !groups.iter().any(|(_, _, known)| Arc::ptr_eq(known, hosts)) {
                groups.push((ListenerIndex(index), name, hosts));
            }
        }
        Self { groups, buckets: HashMap::default(), hasher }
    }

    /// A value that changes with everything which decides what reaches the Selector at position `at`.
    pub(super) fn visit(&self, selector: &'t Selector) -> u64 {
        let mut all = 0;
        for (group, hostname) in self.keys(selector) {
            let before = self.buckets.get(&(group, hostname)).map_or(0, |bucket| bucket.hash);
            all = self.mix((all, group, before));
            if !matches!(hostname, Hostname::Exact(_)) {
                for host in self.hosts(group, hostname, selector) {
                    all = self.mix((all, host));
                }
            }
        }
        all
    }

    /// The ways into a Selector.
    pub(super) fn ways(&self, selector: &'t Selector) -> Vec<Way<'t>> {
        let way = |(group, hostname): (usize, &'t Hostname)| {
            let (listener, listener_name, _) = self.groups[group];
            let bucket = self.buckets.get(&(group, hostname));
            Way {
                listener,
                listener_name,
                hostname,
                hosts: self.hosts(group, hostname, selector),
                earlier: bucket.map_or_else(Vec::new, |bucket| bucket.first[..bucket.len.min(EARLIER)].to_vec()),
            }
        };
        self.keys(selector).map(way).collect()
    }

    /// Puts a Selector before those that are still to come.
    pub(super) fn leave(&mut self, at: u32, selector: &'t Arc<Selector>) {
        let keys: Vec<_> = self.keys(selector).collect();
        for key in keys {
            let bucket = match self.buckets.entry(key) {
                Slot::Occupied(slot) => slot.into_mut(),
                Slot::Vacant(slot) => slot.insert(Bucket::default()),
            };
            let last = bucket.len.checked_sub(1).and_then(|last| bucket.first.get(last));
            if last == Some(&at) {
                // A hostname that the Selector lists twice.
                continue;
            }
            if let Some(slot) = bucket.first.get_mut(bucket.len) {
                *slot = at;
            }
            bucket.len += 1;
            bucket.hash = self.hasher.hash_one((bucket.hash, Arc::as_ptr(selector).addr()));
        }
    }

    fn keys(&self, selector: &'t Selector) -> impl Iterator<Item = (usize, &'t Hostname)> + use<'t> {
        let serves = |name: &Arc<str>| selector.listeners.is_empty() || selector.listeners.contains(name);
        let groups: Vec<usize> =
            self.groups.iter().enumerate().filter(|(_, (_, name, _))| serves(name)).map(|(group, _)| group).collect();
        groups.into_iter().flat_map(|group| selector.hostnames.iter().map(move |hostname| (group, hostname)))
    }

    /// Hosts that a hostname takes on a listener, where a condition asks for the host also some that may fulfil it.
    fn hosts(&self, group: usize, hostname: &Hostname, selector: &Selector) -> Vec<Box<str>> {
        let suffix = match hostname {
            Hostname::Exact(name) => return vec![(&**name).into()],
            Hostname::Wildcard(suffix) => format!(".{suffix}"),
            Hostname::Any => ".example".to_owned(),
        };
        let (_, _, hosts) = self.groups[group];
        let usable = |candidate: &String| {
            hostname.matches(candidate)
                && hosts.takes(hostname, candidate)
                && host::parse(candidate).is_ok_and(|parsed| *parsed.host == **candidate)
        };
        let usual = LABELS.iter().map(|label| format!("{label}{suffix}")).find(usable);
        let asked = selector.conditions.conditions.iter().filter(|condition| condition.source == Source::Host);
        let asked = asked.flat_map(texts::of_condition).flat_map(|text| {
            [
                text.to_owned(),
                format!("a{text}"),
                format!("a.{text}"),
                format!("{text}{suffix}"),
                format!("{text}a{suffix}"),
            ]
        });
        usual.into_iter().chain(asked.filter(usable)).map(String::into_boxed_str).collect()
    }

    fn mix(&self, value: impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }
}
