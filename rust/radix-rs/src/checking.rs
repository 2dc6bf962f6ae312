//! What loom and shuttle see of the inside. Only in their builds.

use crate::arena::{Arena, Item};
use crate::epoch::Domain;
use crate::evictable::{Candidate, Evictable, Rank};
use crate::key::{Atom, Value};
use crate::sync::atomic::{AtomicU32, Ordering::*};
use crate::tree::RadixTree;

pub use crate::sync::checked::break_rule;

/// The order of eviction on its own, with epochs of its own.
pub struct Index {
    index: Evictable,
    domain: Domain,
}

impl Default for Index {
    fn default() -> Self {
        Index { index: Evictable::new(), domain: Domain::new() }
    }
}

fn candidate(rank: u64, node: u32) -> Candidate {
    Candidate { rank: Rank { score: rank, last_use: 0 }, created: 0, node, generation: 1 }
}

impl Index {
    /// Puts an entry in that is not in.
    pub fn push(&self, rank: u64, node: u32) {
        self.index.push(candidate(rank, node), &self.domain.pin());
    }
    /// Takes an entry out; whether it was in.
    pub fn remove(&self, rank: u64, node: u32) -> bool {
        self.index.remove(candidate(rank, node), &self.domain.pin())
    }
    /// Takes the first entry out.
    pub fn pop(&self) -> Option<(u64, u32)> {
        self.index.pop_if(|_| true, &self.domain.pin()).map(|first| (first.rank.score, first.node))
    }
    /// All entries, in order.
    pub fn entries(&self) -> Vec<(u64, u32)> {
        self.index.snapshot(&self.domain.pin()).iter().map(|entry| (entry.rank.score, entry.node)).collect()
    }
    /// Entries, as they are counted.
    pub fn len(&self) -> usize {
        self.index.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Recycles what nobody can reach, one step of the epoch.
    pub fn collect(&self) {
        if let Some(list) = self.domain.pin().advance() {
            self.index.collect(list);
        }
    }
}

struct Cell {
    data: crate::sync::UnsafeCell<u32>,
    link: AtomicU32,
}

// SAFETY: owns nothing.
unsafe impl Item for Cell {
    fn vacant() -> Self {
        Cell { data: crate::sync::UnsafeCell::new(0), link: AtomicU32::new(0) }
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
    unsafe fn recycle(&self) -> usize {
        // SAFETY: by contract nobody looks.
        self.data.with_mut(|data| unsafe { data.write(u32::MAX) });
        0
    }
}

/// Epochs and an arena on their own: one published object, which is replaced and read.
pub struct Published {
    current: AtomicU32,
    cells: Arena<Cell>,
    domain: Domain,
}

impl Default for Published {
    fn default() -> Self {
        let published = Published { current: AtomicU32::new(0), cells: Arena::new(), domain: Domain::new() };
        published.current.store(published.fresh(0), SeqCst);
        published
    }
}

impl Published {
    fn fresh(&self, value: u32) -> u32 {
        let id = self.cells.alloc();
        // SAFETY: just allocated.
        self.cells.get(id).data.with_mut(|data| unsafe { data.write(value) });
        id
    }
    /// Reads the published object.
    pub fn read(&self) -> u32 {
        let _guard = self.domain.pin();
        let cell = self.cells.get(self.current.load(SeqCst));
        // SAFETY: published, and read under a guard.
        cell.data.with(|data| unsafe { *data })
    }
    /// Publishes another object and retires the one before.
    pub fn replace(&self, value: u32) {
        let guard = self.domain.pin();
        let old = self.current.swap(self.fresh(value), SeqCst);
        self.cells.retire(old, &guard);
    }
    /// Recycles what nobody can reach, one step of the epoch.
    pub fn collect(&self) {
        if let Some(list) = self.domain.pin().advance() {
            self.cells.collect(list);
        }
    }
}

/// Recycles what no guard of the tree can reach, as far as other threads let the epoch move.
pub fn collect<A: Atom, V: Value>(tree: &RadixTree<A, V>) {
    tree.core.collect_all();
}
