//! Starting over.

use crate::sync::atomic::Ordering::*;

use super::{Core, RadixTree};
use crate::epoch::Guard;
use crate::event::Event;
use crate::key::{Atom, Value};
use crate::sync::broken;

impl<A: Atom, V: Value> Core<A, V> {
    pub(crate) fn reset(&self, out: &mut Vec<V>) {
        self.end_pins(|_| true);
        let guard = self.guard();
        let fresh = self.new_roots(0);
        let seq = self.next_event();
        let old = self.swap_roots(fresh, &[(fresh >> 32) as u32, fresh as u32], &guard);
        self.emit(Event::Cleared { seq });
        drop(guard);
        self.drain(old, out);
    }

    /// Puts fresh roots in, with `nodes` below them (and them), and returns those before.
    ///
    /// The era goes in with the roots: of two that come at once the later swap has the later era, and one that is stopped between
    /// two steps has changed nothing yet.
    pub(super) fn swap_roots(&self, fresh: u64, nodes: &[u32], _guard: &Guard<'_>) -> u64 {
        #[cfg(any(radix_loom, radix_shuttle))]
        if broken("the era changes with the roots") {
            let era = self.counted_resets.fetch_add(1, SeqCst) + 1;
            nodes.iter().for_each(|&node| self.nodes.get(node).era.store(era, Relaxed));
            return self.roots.swap(fresh, SeqCst);
        }
        loop {
            let old = self.roots.load(SeqCst);
            let era = self.nodes.get((old >> 32) as u32).era.load(Relaxed).wrapping_add(1);
            for &node in nodes {
                self.nodes.get(node).era.store(era, Relaxed);
            }
            if self.roots.compare_exchange(old, fresh, SeqCst, SeqCst).is_ok() {
                return old;
            }
        }
    }

    /// Drains what hangs below roots that are out through the index, like everything else, first in its order.
    pub(super) fn drain(&self, old: u64, out: &mut Vec<V>) {
        let guard = self.guard();
        while self.leave_over(&[(old >> 32) as u32, old as u32], &guard) {}
        drop(guard);
        self.drain_leftovers(out);
        self.collect_all();
    }

    /// Moves the entries of all leaves at and below these nodes to the front of the order. `true`: something was merged
    /// meanwhile, so that a part may have been missed.
    pub(super) fn leave_over(&self, tops: &[u32], guard: &Guard<'_>) -> bool {
        let mut missed = false;
        let mut todo: Vec<_> = tops.iter().map(|&top| (top, None)).collect();
        while let Some((id, parent)) = todo.pop() {
            self.queue_if_idle(id, guard);
            let word = self.load(id, guard);
            if word.moved() {
                self.resolve(id, guard);
            }
            if !word.live() {
                // Evicted, or merged away: then its content hangs from the parent now, whose body has changed for it.
                let gone: Option<(u32, u32)> = parent;
                missed |= gone.is_some_and(|(above, body)| self.nodes.get(above).load().body() != body);
                continue;
            }
            let body = self.body(word, guard);
            match body.children() {
                Some(table) => todo.extend(table.iter().map(|entry| (entry.node, Some((id, word.body()))))),
                None => self.enqueue(id, false, guard),
            }
        }
        missed && !broken("a reset looks again at what was merged")
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
