//! Namespaces as wholes: how much is in each, and dropping one.
//!
//! # Why a drop is right
//! 1. It is one swap, of the flag in the namespace's record: from then on a lookup passes its node by, and whoever makes the
//!    namespace again puts a fresh node in its place. Taking the node out of the table is tidying, which anybody may do: the
//!    dropper, that maker, or whoever evicts the node.
//! 2. What is below is a leftover from then on, as after a reset: it goes first in the order of eviction, and handles to it are
//!    stale. A leaf that is pushed before the swap is moved by the walk of the dropper; whoever pushes later reads the
//!    flag after its push and moves it itself.
//! 3. Pins stay: a lease holds its path, and its nodes die as all nodes do, children first. The namespace's own node is the
//!    last; who kills it finds it in the table or not, and retires it in both cases, once. The record goes with it.

use crate::sync::atomic::Ordering::*;

use super::{Core, RadixTree};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::key::{Atom, Value};
use crate::namespace::Namespace;

/// How much is in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespaceStats {
    /// Which one.
    pub namespace: Namespace,
    /// Atoms in it.
    pub cached_tokens: usize,
    /// Of these, what leases cover.
    pub protected_tokens: usize,
    /// Its nodes.
    pub num_nodes: usize,
}

impl<A: Atom, V: Value> Core<A, V> {
    /// Counts atoms of the edge of a node: in the tree and in its namespace.
    pub(crate) fn count_in(&self, id: u32, cached: isize, protected: isize) {
        let change = ((cached as u64) << 32).wrapping_add(protected as u64);
        self.counts.fetch_add(change, AcqRel);
        let space = self.nodes.get(id).space.load(Relaxed);
        if space != 0 {
            self.records.get(space).counts.fetch_add(change, AcqRel);
        }
    }

    /// Whether the namespace of a node was dropped.
    pub(crate) fn is_dropped(&self, id: u32) -> bool {
        let space = self.nodes.get(id).space.load(Relaxed);
        space != 0 && self.records.get(space).dropped.load(SeqCst)
    }

    fn stats_of(&self, namespace: Namespace, record: u32) -> NamespaceStats {
        let record = self.records.get(record);
        let counts = record.counts.load(Acquire);
        NamespaceStats {
            namespace,
            cached_tokens: (counts >> 32) as usize,
            protected_tokens: counts as u32 as usize,
            num_nodes: record.num_nodes.load(Relaxed) as usize,
        }
    }

    fn namespace_stats(&self) -> Vec<NamespaceStats> {
        let guard = self.guard();
        // What is in no namespace is in the default one.
        let (mut cached, mut protected) = self.counts();
        let mut num_nodes = self.num_nodes.load(Relaxed).saturating_sub(1);
        for record in 1..self.records.bound() {
            let all = self.stats_of(Namespace::default(), record);
            cached = cached.saturating_sub(all.cached_tokens);
            protected = protected.saturating_sub(all.protected_tokens);
            num_nodes = num_nodes.saturating_sub(all.num_nodes);
        }
        let protected = protected.min(cached);
        let default = Namespace::default();
        let mut stats =
            vec![NamespaceStats { namespace: default, cached_tokens: cached, protected_tokens: protected, num_nodes }];
        let word = self.nodes.get(self.spaces()).load();
        if word.dead() {
            return stats; // a reset replaced it
        }
        for entry in self.body(word, &guard).children().into_iter().flat_map(|c| c.iter()) {
            let node = self.nodes.get(entry.node);
            let word = node.load();
            if !word.dead()
                && !self.is_dropped(entry.node)
                && let Some(name) = self.body(word, &guard).name()
            {
                stats.push(self.stats_of(Namespace::from_bytes(name), node.space.load(Relaxed)));
            }
        }
        stats
    }

    fn drop_namespace(&self, ns: &Namespace, out: &mut Vec<V>) -> bool {
        let guard = self.guard();
        let Some(space) = self.find_space(ns, &guard) else { return false };
        let record = self.records.get(self.nodes.get(space).space.load(Relaxed));
        let seq = self.next_event();
        if record.dropped.swap(true, SeqCst) {
            return false; // somebody else's drop comes first
        }
        if let Some(name) = ns.as_bytes() {
            self.emit(Event::Dropped { seq, namespace: name });
        }
        self.detach(space, 0, &guard);
        while self.leave_over(&[space], &guard) {}
        drop(guard);
        self.drain_leftovers(out);
        self.collect_all();
        true
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// How much is in each namespace, the default one first. From counters: O(namespaces), whatever is in them.
    ///
    /// What a reset or a drop left over and leases still hold counts for no named namespace any more; what a reset left of the
    /// default one counts for that.
    ///
    /// # Concurrency
    /// Of each namespace the two numbers of tokens are of one moment and never contradict each other; those of all are exact at
    /// rest.
    pub fn namespace_stats(&self) -> Vec<NamespaceStats> {
        self.core.namespace_stats()
    }

    /// Forgets a namespace at once: from one moment on nobody finds anything in it. Appends to `out` the values in it that no
    /// lease holds. What a lease holds stays protected until the lease goes, and is the first to be evicted afterwards.
    /// Handles into it are stale. It can be used anew right away. Returns whether there was anything to forget.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the default namespace, which [`reset`](Self::reset) forgets with all others.
    ///
    /// # Concurrency
    /// What another thread is inserting at this moment may land in what is dropped. `out` may get leftovers of other drops and
    /// resets too.
    ///
    /// # Examples
    /// ```
    /// # use radix_rs::{Namespace, RadixTree, TreeConfig};
    /// let (tree, old): (RadixTree, _) = (RadixTree::new(TreeConfig::default())?, Namespace::from("weights 1"));
    /// tree.insert(&[1, 2, 3][..], &[10, 11, 12], &old)?;
    /// let lease = tree.lock_prefix(&[1][..], &old)?;
    /// let mut freed = Vec::new();
    /// assert!(tree.drop_namespace(&old, &mut freed)?);
    /// assert_eq!(freed, [11, 12]);
    /// assert_eq!(tree.match_prefix(&[1][..], &old).length(), 0);
    /// lease.release();
    /// assert_eq!(tree.evict(1, &mut freed), 1);
    /// # Ok::<(), radix_rs::Error>(())
    /// ```
    pub fn drop_namespace(&self, ns: &Namespace, out: &mut Vec<V>) -> Result<bool> {
        if ns.is_default() {
            return Err(Error::InvalidInput("the default namespace is not dropped; reset forgets everything".into()));
        }
        Ok(self.core.drop_namespace(ns, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TreeConfig;

    /// The dropper stops right after its flag: everybody else goes on as if it had finished.
    #[test]
    fn a_dropper_that_stops_after_its_flag_holds_nobody_up() {
        let tree: RadixTree = RadixTree::new(TreeConfig::default()).unwrap();
        let (core, ns) = (&tree.core, Namespace::from("a"));
        for again in [false, true] {
            tree.insert(&[1, 2][..], &[0, 1], &ns).unwrap();
            let guard = core.guard();
            let old = core.find_space(&ns, &guard).unwrap();
            core.records.get(core.nodes.get(old).space.load(Relaxed)).dropped.store(true, SeqCst);
            assert_eq!(tree.match_prefix(&[1][..], &ns).length(), 0);
            assert_eq!(tree.lock_prefix(&[1][..], &ns).unwrap().length(), 0);
            let mut out = Vec::new();
            if again {
                // somebody makes it anew: the old one is out of the table while it lives
                tree.insert(&[1][..], &[5], &ns).unwrap();
                assert_eq!(tree.match_prefix(&[1][..], &ns).length(), 1);
            }
            core.detach(old, 0, &guard);
            while core.leave_over(&[old], &guard) {}
            drop(guard);
            core.drain_leftovers(&mut out);
            assert_eq!(out, [0, 1]);
            tree.check().unwrap();
        }
        tree.reset(&mut Vec::new());
        assert_eq!(tree.num_nodes(), 2);
        tree.check().unwrap();
    }
}
