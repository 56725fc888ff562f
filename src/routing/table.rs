//! The table: listeners, hosts and compiled Selectors.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::hosts::Hosts;
use super::selector::{Compiled, Entry};
use super::shadow::Matcher;
use super::{Found, ListenerIndex, Miss, Request, RuleKey};
use crate::ir;

/// All rules of the gateway, ready for lookups, with a payload of type `P` per rule. Immutable.
pub struct RouteTable<P> {
    pub(super) listeners: Box<[Listener]>,
    /// In the order of precedence.
    pub(super) selectors: Box<[Arc<Compiled<P>>]>,
}

/// A rule of a table.
#[derive(Debug)]
pub struct CompiledRule<'a, P> {
    /// Its Selector.
    pub selector: &'a Arc<ir::Selector>,
    /// The rule.
    pub rule: &'a Arc<ir::Rule>,
    /// What was made of it when the table was compiled.
    pub payload: &'a P,
}

pub(super) struct Listener {
    pub(super) name: Arc<str>,
    pub(super) hosts: Arc<Hosts>,
}

impl<P> RouteTable<P> {
    /// Compiles `selectors`, in any order, for the `listeners`; the position of a listener is its [`ListenerIndex`].
    ///
    /// A Selector that `previous` holds under the same `Arc` is taken from there with its payloads, so that an edit
    /// costs what the edited Selector costs, and one pass over the hostnames. Without `previous` everything is
    /// compiled anew. `payload` is called once for every rule of a Selector that is compiled, in the order of
    /// [`ir::Selector::rules`], with the payload that `previous` holds for the same Selector and the same `Arc` of the
    /// rule, if it does.
    pub fn compile(
        listeners: &[Arc<str>],
        selectors: &[Arc<ir::Selector>],
        previous: Option<&Self>,
        mut payload: impl FnMut(&Arc<ir::Selector>, &Arc<ir::Rule>, Option<&P>) -> P,
    ) -> Self {
        let mut selectors = selectors.to_vec();
        selectors.sort_by(|a, b| a.precedence().cmp(&b.precedence()));

        let known: HashMap<*const ir::Selector, &Arc<Compiled<P>>, RandomState> =
            previous.iter().flat_map(|p| &p.selectors).map(|c| (Arc::as_ptr(c.selector()), c)).collect();
        let mut by_name = None;
        let compiled = selectors.iter().map(|selector| {
            if let Some(compiled) = known.get(&Arc::as_ptr(selector)) {
                return Arc::clone(compiled);
            }
            let former = by_name.get_or_insert_with(|| names(previous)).get(&selector.origin.object);
            Arc::new(Compiled::new(Arc::clone(selector), former.copied(), &mut payload))
        });
        let compiled = compiled.collect();
        Self { listeners: listen(listeners, &selectors), selectors: compiled }
    }

    /// The position of a listener.
    pub fn listener(&self, name: &str) -> Option<ListenerIndex> {
        self.listeners.iter().position(|listener| *listener.name == *name).map(ListenerIndex)
    }

    /// The names of the listeners, in the order of their indices.
    pub fn listeners(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.listeners.iter().map(|listener| &listener.name)
    }

    /// The Selectors in the order of precedence.
    pub fn selectors(&self) -> impl ExactSizeIterator<Item = &Arc<ir::Selector>> {
        self.selectors.iter().map(|compiled| compiled.selector())
    }

    /// Every rule with its payload, Selector by Selector.
    pub fn payloads(&self) -> impl Iterator<Item = (&Arc<ir::Selector>, &Arc<ir::Rule>, &P)> {
        self.selectors.iter().flat_map(|compiled| {
            let selector = compiled.selector();
            compiled.rules().iter().map(move |entry| (selector, &entry.rule, &entry.payload))
        })
    }

    /// The rule that takes a request which came in on `listener`, or why none does.
    pub fn find(&self, listener: ListenerIndex, request: &Request<'_>) -> Result<Found<'_, P>, Miss> {
        let (position, compiled) = self.choose(listener, request)?;
        compiled.find(position, request).ok_or(Miss::NoMatch)
    }

    /// The Selector that takes a request, with its position.
    fn choose(&self, listener: ListenerIndex, request: &Request<'_>) -> Result<(u32, &Compiled<P>), Miss> {
        let listener = self.listeners.get(listener.0).ok_or(Miss::NoHost)?;
        let candidates = listener.hosts.find(request.host);
        if candidates.is_empty() {
            return Err(Miss::NoHost);
        }
        self.first(candidates, request).ok_or(Miss::NoSelector)
    }

    /// The Selector that takes a request, whether one of its rules does or not.
    pub fn selector(&self, listener: ListenerIndex, request: &Request<'_>) -> Option<&Arc<ir::Selector>> {
        self.choose(listener, request).ok().map(|(_, compiled)| compiled.selector())
    }

    /// The Selectors of the most specific hostname that takes `host`, in their order, by their positions among
    /// [`Self::selectors`].
    pub fn of_host(&self, listener: ListenerIndex, host: &str) -> impl Iterator<Item = usize> {
        let hosts = self.listeners.get(listener.0).map(|listener| &listener.hosts);
        hosts.map_or(&[][..], |hosts| hosts.find(host)).iter().map(|position| *position as usize)
    }

    /// The first rule of the Selector at a position, for what is not a request: connections that are passed through.
    pub fn first_rule(&self, position: usize) -> Option<RuleKey> {
        let has_rules = self.selectors.get(position).is_some_and(|compiled| !compiled.rules().is_empty());
        has_rules.then_some(RuleKey { selector: u32::try_from(position).ok()?, rule: 0 })
    }

    /// The first Selector whose conditions hold.
    pub(super) fn first(&self, candidates: &[u32], request: &Request<'_>) -> Option<(u32, &Compiled<P>)> {
        let mut candidates = candidates.iter().filter_map(|&at| Some((at, &**self.selectors.get(at as usize)?)));
        candidates.find(|(_, compiled)| compiled.takes(request))
    }

    /// A rule of this table by its key; `None` for the key of another table.
    pub fn rule(&self, key: RuleKey) -> Option<CompiledRule<'_, P>> {
        let compiled = self.selectors.get(key.selector as usize)?;
        let Entry { rule, payload } = compiled.rules().get(key.rule as usize)?;
        Some(CompiledRule { selector: compiled.selector(), rule, payload })
    }
}

impl<P> Matcher for RouteTable<P> {
    fn listeners(&self) -> Vec<(&Arc<str>, &Arc<Hosts>)> {
        self.listeners.iter().map(|listener| (&listener.name, &listener.hosts)).collect()
    }

    fn selectors(&self) -> Vec<&Arc<ir::Selector>> {
        self.selectors().collect()
    }

    fn ranked(&self, selector: u32) -> Vec<(&Arc<ir::Rule>, &ir::Match)> {
        self.selectors.get(selector as usize).map(|compiled| compiled.ranked().collect()).unwrap_or_default()
    }

    fn choose(&self, listener: ListenerIndex, request: &Request<'_>) -> Option<u32> {
        self.choose(listener, request).ok().map(|(position, _)| position)
    }

    fn best(&self, selector: u32, request: &Request<'_>) -> Option<(u32, &Arc<ir::Rule>, &ir::Match)> {
        let compiled = self.selectors.get(selector as usize)?;
        let rank = compiled.best(request)?;
        let (rule, matched) = compiled.by_rank(rank)?;
        Some((rank, rule, matched))
    }
}

/// The Selectors of a table by their names.
fn names<P>(table: Option<&RouteTable<P>>) -> HashMap<&ir::ObjectName, &Compiled<P>, RandomState> {
    let selectors = table.into_iter().flat_map(|table| &table.selectors);
    selectors.map(|compiled| (&compiled.selector().origin.object, &**compiled)).collect()
}

/// Indexes the hosts of every listener; listeners with the same Selectors share one index.
fn listen(names: &[Arc<str>], selectors: &[Arc<ir::Selector>]) -> Box<[Listener]> {
    let mut done: Vec<(Vec<u32>, Arc<Hosts>)> = Vec::new();
    let listeners = names.iter().map(|name| {
        let members: Vec<u32> = (0_u32..)
            .zip(selectors)
            .filter(|(_, selector)| selector.listeners.is_empty() || selector.listeners.contains(name))
            .map(|(position, _)| position)
            .collect();
        let same = done.iter().find(|(seen, _)| *seen == members).map(|(_, hosts)| Arc::clone(hosts));
        let hosts = same.unwrap_or_else(|| {
            let hosts = Arc::new(Hosts::new(selectors, &members));
            done.push((members, Arc::clone(&hosts)));
            hosts
        });
        Listener { name: Arc::clone(name), hosts }
    });
    listeners.collect()
}

impl<P> fmt::Debug for RouteTable<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.listeners.iter().map(|listener| &*listener.name).collect();
        f.debug_struct("RouteTable")
            .field("listeners", &names)
            .field("selectors", &self.selectors.len())
            .finish_non_exhaustive()
    }
}
