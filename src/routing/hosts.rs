//! Which Selectors a host has on one listener.

use std::ops::Range;
use std::sync::Arc;

use super::names::Names;
use crate::ir::{Hostname, Selector};

/// The hosts of a listener.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    exact: Names,
    /// By suffix.
    wildcard: Names,
    any: Range<u32>,
    /// Most labels that a wildcard's suffix has.
    deepest: usize,
    /// Positions of Selectors, those of each host together and in their order of precedence.
    order: Box<[u32]>,
}

/// The end of a range that is none: its start is the position of the one Selector of the host.
const ALONE: u32 = u32::MAX;

impl Hosts {
    /// Indexes the Selectors at `members`, positions in `selectors`, which is in the order of precedence.
    pub(super) fn new(selectors: &[Arc<Selector>], members: &[u32]) -> Self {
        let mut hosts = Self::default();
        let hostnames =
            || members.iter().flat_map(|&m| selectors[m as usize].hostnames.iter().map(move |hostname| (m, hostname)));

        // A counting sort: count, place, fill.
        let mut total = 0;
        for (_, hostname) in hostnames() {
            hosts.range_mut(hostname).end += 1;
            total += 1;
        }
        let mut next = 0;
        let ranges = hosts.exact.ranges_mut().chain(hosts.wildcard.ranges_mut()).chain([&mut hosts.any]);
        for range in ranges {
            let len = range.end;
            *range = next..next;
            next += len;
        }
        let mut order = vec![0; total].into_boxed_slice();
        for (selector, hostname) in hostnames() {
            let range = hosts.range_mut(hostname);
            order[range.end as usize] = selector;
            range.end += 1;
        }
        // Most hosts have one Selector. Without a look at `order` their lookup is the faster by a cache miss.
        for range in hosts.exact.ranges_mut().chain(hosts.wildcard.ranges_mut()) {
            if range.len() == 1 {
                *range = order[range.start as usize]..ALONE;
            }
        }
        hosts.order = order;
        hosts.exact.shrink();
        hosts.wildcard.shrink();
        hosts
    }

    fn range_mut(&mut self, hostname: &Hostname) -> &mut Range<u32> {
        match hostname {
            Hostname::Any => &mut self.any,
            Hostname::Exact(name) => self.exact.entry(name),
            Hostname::Wildcard(suffix) => {
                self.deepest = self.deepest.max(labels(suffix));
                self.wildcard.entry(suffix)
            }
        }
    }

    /// The Selectors of the most specific hostname that takes `host`, in their order; empty when none does.
    pub(super) fn find(&self, host: &str) -> &[u32] {
        self.members(self.range(host))
    }

    /// Every hostname that takes `host`, the most specific first, with its Selectors in their order.
    pub(super) fn all(&self, host: &str) -> Vec<(Hostname, &[u32])> {
        let suffixes = host.match_indices('.').filter(|(at, _)| *at > 0).map(|(at, _)| &host[at + 1..]);
        let wildcards =
            suffixes.filter_map(|suffix| Some((Hostname::Wildcard(suffix.into()), self.wildcard.get(suffix)?)));
        let exact = self.exact.get(host).map(|range| (Hostname::Exact(host.into()), range));
        let hosts = exact.into_iter().chain(wildcards).chain([(Hostname::Any, &self.any)]);
        let hosts = hosts.map(|(hostname, range)| (hostname, self.members(range)));
        hosts.filter(|(_, members)| !members.is_empty()).collect()
    }

    fn members<'a>(&'a self, range: &'a Range<u32>) -> &'a [u32] {
        match range.end {
            ALONE => std::slice::from_ref(&range.start),
            end => self.order.get(range.start as usize..end as usize).unwrap_or_default(),
        }
    }

    /// Whether `hostname`, which is one of these, is the one that takes `host`.
    pub(super) fn takes(&self, hostname: &Hostname, host: &str) -> bool {
        let own = match hostname {
            Hostname::Exact(name) => self.exact.get(name),
            Hostname::Wildcard(suffix) => self.wildcard.get(suffix),
            Hostname::Any => Some(&self.any),
        };
        own.is_some_and(|own| std::ptr::eq(own, self.range(host)))
    }

    fn range(&self, host: &str) -> &Range<u32> {
        self.exact.get(host).or_else(|| self.find_wildcard(host)).unwrap_or(&self.any)
    }

    fn find_wildcard(&self, host: &str) -> Option<&Range<u32>> {
        if self.wildcard.is_empty() {
            return None;
        }
        // Suffixes longer than any wildcard need no lookup: a host of 127 labels costs no more than a usual one.
        let skip = labels(host).saturating_sub(self.deepest + 1);
        let dots = host.bytes().enumerate().filter(|(at, byte)| *byte == b'.' && *at > 0);
        dots.skip(skip).find_map(|(at, _)| self.wildcard.get(&host[at + 1..]))
    }
}

fn labels(name: &str) -> usize {
    1 + name.bytes().filter(|b| *b == b'.').count()
}
