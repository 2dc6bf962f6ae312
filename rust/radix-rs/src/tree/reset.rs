//! Starting over.

use crate::sync::atomic::Ordering::*;

use super::{Core, RadixTree};
use crate::epoch::Guard;
use crate::event::Event;
use crate::key::{Atom, Value};

impl<A: Atom, V: Value> Core<A, V> {
    pub(crate) fn reset(&self, out: &mut Vec<V>) {
        let era = self.resets.fetch_add(1, SeqCst) + 1;
        let seq = self.next_event();
        let fresh = self.new_roots(era);
        let guard = self.guard();
        let old = self.swap_roots(fresh, &guard);
        self.emit(Event::Cleared { seq });
        drop(guard);
        self.drain(old, out);
    }

    /// Puts fresh roots of a new era in and returns what to drain: the roots before them. If roots of a later era are in
    /// already, it is the fresh ones, as if they had come first: roots of an era that is over would make everything that is
    /// inserted below them a leftover.
    pub(super) fn swap_roots(&self, fresh: u64, _guard: &Guard<'_>) -> u64 {
        let era = |roots: u64| self.nodes.get(roots as u32).era.load(Relaxed);
        let own = era(fresh);
        let mut old = self.roots.load(SeqCst);
        while (era(old).wrapping_sub(own) as i32) < 0 {
            match self.roots.compare_exchange(old, fresh, SeqCst, SeqCst) {
                Ok(_) => return old,
                Err(now) => old = now,
            }
        }
        fresh
    }

    /// Drains what hangs below roots that are out.
    pub(super) fn drain(&self, old: u64, out: &mut Vec<V>) {
        let guard = self.guard();
        let mut todo = vec![(old >> 32) as u32, old as u32];
        while let Some(id) = todo.pop() {
            self.queue_if_idle(id, &guard);
            let word = self.load(id, &guard);
            if !word.live() {
                continue;
            }
            let body = self.body(word, &guard);
            match body.children() {
                Some(table) => todo.extend(table.iter().map(|entry| entry.node)),
                None => self.enqueue(id, false, &guard),
            }
        }
        drop(guard);
        self.drain_leftovers(out);
        self.collect_all();
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// Forgets everything. Appends to `out` the values that no lease holds. What a lease holds stays protected until the lease
    /// goes, is found by nobody, and is the first to be evicted afterwards. Handles from before are stale.
    ///
    /// # Concurrency
    /// Readers see the old tree or the new one. What another thread is inserting at this moment may land in the old one.
    pub fn reset(&self, out: &mut Vec<V>) {
        self.core.reset(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Namespace, TreeConfig};

    #[test]
    fn what_is_inserted_after_two_resets_at_once_is_no_leftover() {
        let tree: RadixTree = RadixTree::new(TreeConfig::default()).unwrap();
        let (core, ns) = (&tree.core, Namespace::default());
        tree.insert(&[1][..], &[0], &ns).unwrap();
        // two resets, the second of which overtakes the first before its swap
        let [first, second] = [(); 2].map(|()| core.new_roots(core.resets.fetch_add(1, SeqCst) + 1));
        let mut out = Vec::new();
        core.drain(core.swap_roots(second, &core.guard()), &mut out);
        core.drain(core.swap_roots(first, &core.guard()), &mut out);
        assert_eq!(out, [0]);
        tree.check().unwrap();
        let handle = tree.insert(&[1][..], &[0], &ns).unwrap().handle;
        assert_eq!(tree.values(&handle).unwrap().length(), 1, "the handle is stale at once");
    }
}
