//! Checking every invariant of a tree at rest.

use crate::sync::atomic::Ordering::*;
use std::collections::{HashMap, HashSet};

use super::{Core, RadixTree};
use crate::error::{Error, Result};
use crate::key::{Atom, Value};
use crate::node::Word;

macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(Error::Integrity(format!($($text)+)));
        }
    };
}

impl<A: Atom, V: Value> Core<A, V> {
    /// All live nodes of the arena with their words, reachable or not.
    fn live_nodes(&self) -> Vec<(u32, Word)> {
        (1..self.nodes.bound())
            .filter_map(|id| {
                let node = self.nodes.get(id);
                let word = node.load();
                (node.generation.load(Acquire) % 2 == 1 && !word.dead() && !node.is_retired()).then_some((id, word))
            })
            .collect()
    }

    /// Calls `visit` with the values of every live node, those that a reset left over included.
    pub(crate) fn each_value(&self, mut visit: impl FnMut(&[V])) {
        let guard = self.guard();
        for (_, word) in self.live_nodes() {
            visit(self.body(word, &guard).values());
        }
    }

    /// Tries to merge the next `max_work` nodes of the arena with what hangs below, from where the last call stopped.
    pub(crate) fn compact(&self, max_work: usize) {
        let guard = self.guard();
        let bound = self.nodes.bound();
        let work = max_work.min(bound as usize);
        let start = self.compacted.fetch_add(work, Relaxed);
        for id in (0..work).map(|i| 1 + (start.wrapping_add(i) % (bound as usize - 1)) as u32) {
            let node = self.nodes.get(id);
            let word = self.load(id, &guard);
            if word.live() && node.generation.load(Acquire) % 2 == 1 && !node.is_retired() {
                self.try_merge(id, &guard);
            }
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let guard = self.guard();
        let live = self.live_nodes();
        ensure!(
            live.len() == self.num_nodes.load(Relaxed),
            "{} live nodes, but {} are counted",
            live.len(),
            self.num_nodes.load(Relaxed)
        );
        let mut entries: HashMap<u32, usize> = HashMap::new();
        for candidate in self.index.snapshot(&guard) {
            *entries.entry(candidate.node).or_default() += 1;
            let rank = self.ranked(candidate.node);
            ensure!(rank == candidate.rank, "node {} is queued at {:?}, not {rank:?}", candidate.node, candidate.rank);
        }
        let (mut cached, mut protected) = (0, 0);
        let mut parents: HashMap<u32, u32> = HashMap::new();
        let mut slots = HashSet::new();
        for &(id, word) in &live {
            let node = self.nodes.get(id);
            ensure!(!word.fixing() && !word.moved(), "node {id} is left in the middle of a change");
            let body = self.body(word, &guard);
            let root = node.anchor.load(Relaxed) == 0;
            ensure!(root == (body.len == 0 && body.name().is_none()), "node {id} has an empty edge");
            ensure!((body.len as usize).is_multiple_of(self.page()), "node {id} has a torn page");
            cached += body.len as usize;
            protected += if word.pins() > 0 { body.len as usize } else { 0 };
            for value in body.values() {
                if let Some(slot) = value.slot() {
                    ensure!(slots.insert(slot), "slot {slot} is held twice, by node {id} too");
                }
            }
            let count = entries.remove(&id).unwrap_or(0);
            ensure!(
                count == usize::from(word.queued()),
                "node {id} has {count} entries, its bit says {}",
                word.queued()
            );
            if body.is_leaf() && word.pins() == 0 && !self.is_root(id) {
                ensure!(word.queued(), "node {id} is an unpinned leaf that nobody would evict");
                let rank = self.rank(id, word, &guard);
                ensure!(self.ranked(id) == rank, "node {id} is queued at another rank than its use gives");
            }
            let mut tail_seen = body.tail == 0;
            let mut last_key = 0;
            for entry in body.children().into_iter().flat_map(|c| c.iter()) {
                let child = self.nodes.get(entry.node);
                let child_word = child.load();
                ensure!(child_word.live(), "node {id} has a child that is gone");
                let child_body = self.body(child_word, &guard);
                ensure!(entry.key >= last_key, "the children of node {id} are not sorted");
                last_key = entry.key;
                ensure!(child_body.begin() == body.end, "a child of node {id} starts elsewhere");
                ensure!(child.anchor.load(Relaxed) == body.out, "a child of node {id} hangs from another branch");
                ensure!(child.key.load(Relaxed) == entry.key, "a child of node {id} is registered under another key");
                if child_body.name().is_none() {
                    let key = self.page_key(&child_body.atoms()[..self.page()]);
                    ensure!(key == entry.key, "a child of node {id} is registered under a stale key");
                }
                ensure!(root || word.pins() > 0 || child_word.pins() == 0, "node {id} is unpinned above a pinned one");
                ensure!(parents.insert(entry.node, id).is_none(), "node {} has two parents", entry.node);
                tail_seen |= entry.node == body.tail;
            }
            ensure!(tail_seen, "the tail of node {id} is not its child");
            if !body.is_leaf() {
                let (owner, _) = self.branches.get(body.out).owner();
                ensure!(owner == id, "the branch below node {id} names node {owner}");
            }
            if let Some(only) = body.children().and_then(|c| c.only()) {
                let apart = !root && word.pins() == 0 && only == body.tail && self.nodes.get(only).load().pins() == 0;
                ensure!(!apart, "node {id} and its lower half were left apart");
            }
        }
        ensure!(entries.is_empty(), "the index names nodes that are gone: {:?}", entries.keys());
        for &(id, _) in &live {
            let root = self.nodes.get(id).anchor.load(Relaxed) == 0;
            // what was dropped stands alone and lives for its leases
            let root = root || self.is_dropped_space(id);
            ensure!(root || parents.contains_key(&id), "node {id} is live, but nothing links to it");
        }
        for record in 1..self.records.bound() {
            let own = live.iter().filter(|&&(id, _)| self.nodes.get(id).space.load(Relaxed) == record);
            let (mut num_nodes, mut cached, mut protected) = (0, 0, 0);
            for &(_, word) in own {
                let len = u64::from(self.body(word, &guard).len);
                (num_nodes, cached) = (num_nodes + 1, cached + len);
                protected += if word.pins() > 0 { len } else { 0 };
            }
            let space = self.records.get(record);
            let counted = (space.num_nodes.load(Relaxed), space.counts.load(Acquire));
            ensure!(
                counted == (num_nodes, cached << 32 | protected),
                "namespace {record} counts {counted:?}, its nodes {num_nodes} with {cached} and {protected}"
            );
        }
        let counts = self.counts();
        ensure!(counts == (cached, protected), "counters say {counts:?}, the nodes {:?}", (cached, protected));
        Ok(())
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// Checks every invariant by walking the whole tree. For tests and for operators who suspect something.
    ///
    /// # Errors
    /// [`Error::Integrity`] that names the first broken one.
    ///
    /// # Concurrency
    /// Only meaningful while no other thread changes the tree.
    pub fn check(&self) -> Result<()> {
        self.core.check()
    }

    /// Makes whole what was left split (a lease that was released in a race, say), looking at no more than `max_work` nodes
    /// where the last call stopped, and recycles the memory of what is gone. Returns how many nodes were saved. Inserts do
    /// as much by themselves, see [`TreeConfig::compact_every`](crate::TreeConfig::compact_every).
    pub fn compact(&self, max_work: usize) -> usize {
        let before = self.num_nodes();
        self.core.compact(max_work);
        self.core.collect_all();
        before.saturating_sub(self.num_nodes())
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// Size and state, from counters.
    pub fn stats(&self) -> crate::TreeStats {
        let core = &self.core;
        let (cached, protected) = core.counts();
        crate::TreeStats {
            cached_tokens: cached,
            evictable_tokens: cached - protected,
            protected_tokens: protected,
            num_nodes: self.num_nodes(),
            size_bytes: self.size_bytes(),
            copied_tokens: core.copied.load(Relaxed),
            num_candidates: core.index.len(),
            num_retired: core.nodes.waiting()
                + core.bodies.waiting()
                + core.branches.waiting()
                + core.index.waiting()
                + core.pins.waiting(),
        }
    }
}
